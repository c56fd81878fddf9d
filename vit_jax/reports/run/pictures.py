# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes the parts of a report that need images and weights besides the workdir's texts.

Parts that are missing or unusable are left out and listed; they never fail the report. Only this
process reads and computes; in a run of several processes it is process 0. Start from `draw`.
"""

import dataclasses
import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import console
from vit_jax.build import run as build
from vit_jax.build import splits
from vit_jax.config import images as images_lib
from vit_jax.config import sections
from vit_jax.data.inspect import show
from vit_jax.data.sources.source import Source
from vit_jax.data.splits.split import Split
from vit_jax.errors import BadInput, RunFailed
from vit_jax.hardware import device_memory
from vit_jax.reports import figures
from vit_jax.reports.figures import Figure
from vit_jax.step.state import normalise
from vit_jax.weights import loading

ROWS, COLUMNS = 4, 5  # size of the contact sheet
_PARTS = 5  # number of parts that are tried
log = logging.getLogger("vit_jax")


@dataclasses.dataclass(frozen=True)
class Pictures:
    """The pictures of a run.

    Attributes:
      sheet: PNG of training images with their classes; None if it cannot be made.
      figures: figures of its model.
      missing: a sentence for each part that is left out, with the reason.
    """

    sheet: bytes | None
    figures: tuple[Figure, ...]
    missing: tuple[str, ...]


def draw(workdir: Path, config: sections.Config, source: Source | None = None) -> Pictures:
    """Opens the data and the newest weights of a run, and draws the pictures.

    Args:
      workdir: workdir of the run.
      config: the resolved configuration.
      source: opened source of `config.data`; None opens it.
    """
    with console.bar("parts of the report") as progress:
        return _drawn(workdir, config, source, progress)


def _drawn(
    workdir: Path,
    config: sections.Config,
    source: Source | None,
    progress: Callable[[int, int], None],
) -> Pictures:
    drawn, missing, done = list[Figure](), list[str](), itertools.count()

    def tried(part: str, make: Callable[[], Any]) -> Any:
        """Returns the result of `make`; None, with a sentence in `missing`, if it fails."""
        progress(next(done), _PARTS)
        try:
            return make()
        except (BadInput, OSError, RunFailed) as e:
            reason = str(e)
        except jax.errors.JaxRuntimeError as e:
            if not device_memory.is_out_of_memory(e):
                raise
            reason = "the device has no memory left for it"
        log.warning("report: no %s: %s", part, reason)
        missing.append(f"No {part}: {reason}")
        return None

    opened = source or tried("training images", lambda: splits.open_source(config.data))
    sheet = opened and tried("training images", lambda: _sheet(config, opened))
    read = tried("figures of the model", lambda: _weights(workdir, config.data))
    if read is not None:
        cfg, params = read
        size = images_lib.of(config.data).size
        weights = tried("figures of the model", lambda: figures.draw_weights(cfg, params, size))
        drawn += weights or []
        if opened:
            attended = tried("attention", lambda: _attention(config, cfg, params, opened))
            drawn += attended or []
        missing += cfg.lacking_figures()
    return Pictures(sheet, tuple(drawn), tuple(missing))


def _sheet(config: sections.Config, source: Source) -> bytes:
    """Draws the first training examples, as the step receives them."""
    pipe, chain = build.drawn_pipeline(config, source)
    return show.sheet(
        pipe, source.classes, source=source.spec, chain=chain, rows=ROWS, columns=COLUMNS
    )


def _weights(workdir: Path, data: sections.Data) -> tuple[Any, Any]:
    """Returns the model's configuration and parameters, at the newest step."""
    return loading.ordinary(loading.read_weights(str(workdir)), images_lib.of(data).size)


def _attention(config: sections.Config, cfg: Any, params: Any, source: Source) -> list[Figure]:
    """Draws the attention on images of an evaluation or of training, as evaluations see them."""
    split = _evaluated(config, source)  # often sorted by class: the first would have one or two
    few = figures.chosen(len(split), figures.IMAGES)
    split = Split(split.table, split.rows).take_indices(few)  # for a mixture, regardless of sources
    pipe = build.plain_pipeline(config.data, split, len(split))
    batch = next(pipe.evaluation())
    shown = images_lib.of(config.data)
    images = np.asarray(normalise(jnp.asarray(batch["image"]), shown.mean, shown.std))
    return figures.draw_attention(cfg, params, images, show.visible(batch["image"]))


def _evaluated(config: sections.Config, source: Source) -> Split:
    own = [section.split for section in config.evals.values() if not section.source]
    return source.split(own[0] if own else config.data.split)
