# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compares the position embeddings of several models, as in Figure 10 of arXiv:2010.11929.

Start from `draw`; `differing` finds the settings that tell the panels apart.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from vit_jax.checkpoints import step_folders
from vit_jax.config import load as config_lib
from vit_jax.reports import drawing
from vit_jax.reports.figures import Figure
from vit_jax.reports.run import comparison, single
from vit_jax.weights import loading

SHOWN = 4  # settings above a panel
# Settings to show first; Figure 10 compares the first three.
_FIRST = ("length", "schedule.lr", "optimizer.weight_decay", "objective", "batch_size", "model.")
NAME = "posemb"


def differing(texts: Sequence[str]) -> list[dict[str, str]]:
    """Returns for each FILE_OR_RUN the settings, as text, in which the runs among them differ.

    Only keys that change results count. A file has none.

    Raises:
      BadInput: a run or its configuration cannot be read.
    """
    runs = [loading.find_run(text) for text in texts]
    flat = [
        dict(config_lib.flatten(config_lib.read(str(run.workdir / step_folders.CONFIG_FILE))))
        if run
        else {}
        for run in runs
    ]
    keys = [
        key
        for key in comparison.differing_keys([values for values in flat if values])
        if config_lib.changes_results(key)
    ]
    first = [key for start in _FIRST for key in keys if key.startswith(start)]
    keys = list(dict.fromkeys([*first, *keys]))
    return [
        {key: single.text(values.get(key)) for key in keys} if values else {} for values in flat
    ]


def draw(
    tables: Mapping[str, np.ndarray], settings: Sequence[Mapping[str, str]]
) -> tuple[Figure, list[str]]:
    """Draws a panel for each model, one below the other, under its name and settings.

    Args:
      tables: name of a model -> similarities from `similarity.of_model`; with embeddings in every
        layer, those of the first are drawn.
      settings: for each model, what tells it apart, from `differing`.

    Returns:
      The figure, and a sentence about each model with every setting.
    """
    panels, sentences = {}, []
    for (name, layers), own in zip(tables.items(), settings, strict=True):
        lines = [f"{key} = {value}" for key, value in own.items()]
        hidden = len(lines) - SHOWN
        shown = lines[:SHOWN] + ([f"and {hidden} more"] if hidden > 0 else [])
        panels["\n".join([name, *shown])] = layers[0]
        rows, columns = layers.shape[1:3]
        first = ", the first layer" if len(layers) > 1 else ""
        more = f"; {'; '.join(lines)}" if lines else ""
        sentences.append(f"{name}: a grid of {rows} x {columns}{first}{more}.")
    caption = (
        "Each tile shows the cosine similarity of one patch's position embedding to those of all "
        "patches. The edges give the row and column of that patch. Above each panel stand the "
        "model and the settings in which the runs differ."
    )
    png = drawing.similarity(panels)
    return Figure(NAME, "Similarity of position embeddings", caption, png), sentences
