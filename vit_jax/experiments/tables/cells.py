# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a table is made of. Start from `Table`; `Want` says which run fills a cell."""

import dataclasses
from typing import Any, Literal

# public: anybody can make it; private: needs JFT-300M; external: the paper quotes it from others;
# absent: the paper leaves it empty.
Kind = Literal["public", "private", "external", "absent"]
UPSTREAM = {"JFT-300M": "jft", "ImageNet-21k": "imagenet21k", "ImageNet": "imagenet"}


@dataclasses.dataclass(frozen=True)
class Want:
    """The runs that fill a cell, one a seed.

    Attributes:
      variant: model.
      dataset: of configs/transfer.py; empty: the pre-training run itself.
      upstream: what the model is pre-trained on: jft, imagenet21k, imagenet.
      recipe: of configs/pretrain.py.
      epochs: of pre-training, any of these; () is any.
      size: pixels a side where it is not the recipe's; 0: the recipe's.
      ema: factor of the average of parameters.
      preprocess: of configs/transfer.py; empty: any, but one for the whole table.
      rates: the grid of learning rates, where it is not that of the paper's Table 4.
      metric: in results.json.
      settings: further keys of the pre-training run, with their values.
      known: False where the papers do not say what the run was; none can fill the cell.
    """

    variant: str
    dataset: str = ""
    upstream: str = ""
    recipe: str = "paper"
    epochs: tuple[int, ...] = ()
    size: int = 0
    ema: float = 0.0
    preprocess: str = ""
    rates: tuple[float, ...] = ()
    metric: str = "test/top1"
    settings: tuple[tuple[str, Any], ...] = ()
    known: bool = True


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of a paper.

    Attributes:
      labels: one for each column of the table.
      kind: who can make it.
      paper: what is printed; text in a table of settings; None: empty.
      paper_std: standard deviation that the tolerance takes for the paper's value.
      paper_runs: how many runs the paper's value is the mean of.
      wants: the run that fills it; several: the mean of these.
      ours: a value that needs no run: computed from models or read from recipes.
      bound: the relative difference that such a value may have.
      x: place on the horizontal axis of a chart.
      counts: whether it is one of the cells to reproduce; a mean that no paper prints is not.
    """

    labels: tuple[str, ...]
    kind: Kind
    paper: float | str | None
    paper_std: float = 0.0
    paper_runs: int = 1
    wants: tuple[Want, ...] = ()
    ours: float | str | None = None
    bound: float = 0.0
    x: float | None = None
    counts: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """A table or a figure.

    Attributes:
      name: as the command takes it.
      title: of the paper, with the unit.
      columns: what the labels of a cell are.
      cells: in the order of the paper.
      digits: behind the point.
      notes: sentences that belong below it.
      axes: titles of a chart's axes, where it is a figure of the paper.
      series: how many of the first labels name a line; with two, the first names a chart.
      log: which axes are logarithmic: "", "x" or "xy".
      x_names: what is written at which x instead of numbers.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    digits: int = 2
    notes: tuple[str, ...] = ()
    axes: tuple[str, str] | None = None
    series: int = 0
    log: str = ""
    x_names: tuple[tuple[float, str], ...] = ()

    @property
    def need_runs(self) -> bool:
        """Whether some of its cells are filled by runs."""
        return any(cell.wants for cell in self.cells)
