# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The parts of a table, and every table by name.

Start from `find` and `Table`; `Want` describes the runs that fill a cell.
"""

import dataclasses
from typing import Any, Literal

from vit_jax.config.plugins import Registry
from vit_jax.errors import unknown

# public: anybody can reproduce it; private: needs JFT-300M; external: the paper quotes it from
# others; unfillable: no run of ours measures it; absent: the paper leaves it empty.
Kind = Literal["public", "private", "external", "unfillable", "absent"]
UPSTREAM = {"JFT-300M": "jft", "ImageNet-21k": "imagenet21k", "ImageNet": "imagenet"}


@dataclasses.dataclass(frozen=True)
class Want:
    """The runs that fill a cell, one for each seed.

    Attributes:
      variant: the model.
      dataset: dataset of configs/transfer.py; empty: the pre-training run itself.
      upstream: the pre-training data: jft, imagenet21k, imagenet.
      recipe: recipe of configs/pretrain.py.
      epochs: allowed numbers of pre-training epochs; (): any.
      size: pixels a side, if different from the recipe's; 0: the recipe's.
      ema: factor of the moving average of parameters.
      preprocess: preprocess of configs/transfer.py; empty: any, but the same for the whole table.
      dropout: dropout of the fine-tuning; None: the recipe's.
      rates: the grid of learning rates, if different from the paper's Table 4.
      fixed: True if the rate was given and nothing selected: a run without a stage, trained on all
        but the held-out part of train.
      metric: key in results.json.
      settings: further keys of the pre-training run, with their values.
      known: False if the papers do not describe the run; then no run can fill the cell.
    """

    variant: str
    dataset: str = ""
    upstream: str = ""
    recipe: str = "paper"
    epochs: tuple[int, ...] = ()
    size: int = 0
    ema: float = 0.0
    preprocess: str = ""
    dropout: float | None = None
    rates: tuple[float, ...] = ()
    fixed: bool = False
    metric: str = "test/top1"
    settings: tuple[tuple[str, Any], ...] = ()
    known: bool = True


@dataclasses.dataclass(frozen=True)
class Cell:
    """One number of a paper.

    Attributes:
      labels: one for each column of the table.
      kind: who can reproduce it.
      paper: the printed value; text in a table of settings; None: empty.
      paper_std: standard deviation that the tolerance assumes for the paper's value.
      paper_runs: number of runs that the paper's value is the mean of.
      wants: the run that fills the cell; several: their mean fills it.
      ours: a value that needs no run: computed from models or read from recipes.
      accepts: (lowest, highest) printed value that agrees with such a number.
      why: the reason for a number that does not agree, as far as known.
      x: position on the horizontal axis of a chart.
      rounding: half a unit of the last printed digit, if the tolerance is not far above it.
      counts: True if it is one of the cells to reproduce; False for a mean that no paper prints.
    """

    labels: tuple[str, ...]
    kind: Kind
    paper: float | str | None
    paper_std: float = 0.0
    paper_runs: int = 1
    wants: tuple[Want, ...] = ()
    ours: float | str | None = None
    accepts: tuple[float, float] = (0.0, 0.0)
    why: str = ""
    x: float | None = None
    rounding: float = 0.0
    counts: bool = True


@dataclasses.dataclass(frozen=True)
class Table:
    """A table or a figure.

    Attributes:
      name: its name for the command.
      title: the paper's title, with the unit.
      columns: the meaning of each label of a cell.
      cells: in the order of the paper.
      digits: number of digits after the point.
      models: the columns that name a cell's model; cells that agree in the others are a row.
      notes: sentences to print below it.
      axes: titles of a chart's axes, for a figure of the paper.
      series: number of leading labels that name a line; with two, the first names a chart.
      log: the logarithmic axes: "", "x" or "xy".
      x_names: (x, name) pairs; names replace numbers on the axis.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    cells: tuple[Cell, ...]
    digits: int = 2
    models: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    axes: tuple[str, str] | None = None
    series: int = 0
    log: str = ""
    x_names: tuple[tuple[float, str], ...] = ()

    @property
    def need_runs(self) -> bool:
        """Returns True if runs fill some of its cells."""
        return any(cell.wants for cell in self.cells)


# name -> the function that returns the table
TABLES = Registry({
    name: f"vit_jax.experiments.tables.{place}"
    for name, place in {
        "1": "settings:table_1",
        "2": "transfers:table_2",
        "3": "settings:table_3",
        "4": "settings:table_4",
        "5": "transfers:table_5",
        "6": "transfers:table_6",
        "7": "transfers:table_7",
        "8": "ablations:table_8",
        "9": "transfers:table_9",
        "figure2": "transfers:figure_2",
        "figure3": "transfers:figure_3",
        "figure4": "ablations:figure_4",
        "figure5": "transfers:figure_5",
        "figure8": "ablations:figure_8",
        "figure9": "ablations:figure_9",
        "figure12": "ablations:figure_12",
        "figure13": "axial:figure_13",
        "augreg3": "augreg:table_3",
        "augreg5": "augreg:table_5",
        "augreg6": "augreg:table_6",
        "augreg_figure4": "augreg:figure_4",
        "replication": "replications:readme",
        "big_vision": "replications:big_vision",
        "mixer": "replications:mixer",
        "masked": "replications:masked",
        "objectnet": "replications:objectnet",
    }.items()
})  # fmt: skip


def find(name: str) -> Table:
    """Returns the table of a name such as `5` or `figure4`, without runs.

    Raises:
      BadInput: no table has this name; the message lists all names.
    """
    if name not in TABLES:
        raise unknown("table", name, [*TABLES, "miniature", "robustness"])
    return TABLES[name]()
