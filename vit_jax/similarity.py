# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Similarity of position embeddings (Figure 7, centre, of arXiv:2010.11929) as one number.

Start from `of_run`; `distance_correlation` is the arithmetic.
"""

from pathlib import Path

import numpy as np

from vit_jax import loading
from vit_jax.errors import BadInput
from vit_jax.models import variants


def of_run(folder: Path) -> float:
    """`distance_correlation` of a run with learned 1-D embeddings.

    Raises:
      BadInput: it has none, or cannot be read.
    """
    weights = loading.read_weights(str(folder))
    if "posemb" not in weights.flat or weights.image_size is None:
        raise BadInput(f"{folder} has no learned 1-D position embeddings (model.posemb=learned1d).")
    rows, columns = variants.grid(weights.config, *weights.image_size)
    return distance_correlation(weights.flat["posemb"][0, -rows * columns :], rows, columns)


def distance_correlation(posemb_LD: np.ndarray, rows: int, columns: int) -> float:
    """Spearman's rank correlation, over pairs of patches, of distance and cosine similarity.

    Args:
      posemb_LD: float [rows * columns, D], of the patches row by row.
      rows: of the grid.
      columns: likewise.

    Returns:
      From -1, the nearer the more alike, to 1.
    """
    unit_LD = posemb_LD / np.linalg.norm(posemb_LD, axis=1, keepdims=True)
    places_L2 = np.indices((rows, columns)).reshape(2, -1).T
    squared_LL = np.square(places_L2[:, None] - places_L2).sum(axis=-1)
    pairs = np.triu_indices(len(posemb_LD), k=1)
    alike_LL = np.round(unit_LD @ unit_LD.T, 6)  # float32 has no more digits: ties stay ties
    far, alike = (_ranks(values[pairs]) for values in (squared_LL, alike_LL))
    return float(np.corrcoef(far, alike)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0 on; equal values share the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts + 1) / 2)[which]
