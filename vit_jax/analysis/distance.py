# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mean attention distance (Figures 7, right, and 11 of arXiv:2010.11929), in pixels.

Start from `of_weights`.
"""

import jax
import jax.numpy as jnp
import numpy as np


def between(grid: tuple[int, int], stride: int) -> np.ndarray:
    """float32 [L, L]: pixels between the centres of patches, which are counted row by row.

    Args:
      grid: rows and columns.
      stride: pixels per patch in each direction.
    """
    places_L2 = stride * np.indices(grid).reshape(2, -1).T.astype(np.float32)
    return np.linalg.norm(places_L2[:, None] - places_L2, axis=-1)


def even(grid: tuple[int, int], stride: int) -> float:
    """The distance where attention is the same to all patches: the mean of `between`."""
    return float(between(grid, stride).mean(dtype=np.float64))


def of_weights(weights_LM: jax.Array, pixels_LL: np.ndarray) -> jax.Array:
    """The distance to what a patch attends to, weighted by attention, as a mean over patches.

    Weights of tokens that belong to no patch are left out and the rest are made to sum to 1; a
    patch that attends to no other counts as 0.

    Args:
      weights_LM: attention weights [..., M, M], of the class token and registers first.
      pixels_LL: [L, L] from `between`, L <= M.

    Returns:
      float32 [...], pixels.
    """
    patches = len(pixels_LL)
    weights_LL = weights_LM[..., -patches:, -patches:].astype(jnp.float32)
    far_L = jnp.einsum("...lm,lm->...l", weights_LL, pixels_LL, precision="highest")
    total_L = jnp.maximum(jnp.sum(weights_LL, axis=-1), jnp.finfo(jnp.float32).tiny)
    return jnp.mean(far_L / total_L, axis=-1)
