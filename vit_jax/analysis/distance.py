# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mean attention distance (Figures 7, right, and 11 of arXiv:2010.11929), in pixels.

Start from `of_weights`.
"""

import jax
import jax.numpy as jnp
import numpy as np


def between(grid: tuple[int, int], stride: int) -> np.ndarray:
    """Returns the pixels between the centres of any two patches, float32 [L, L].

    Patches are counted row by row.

    Args:
      grid: rows and columns.
      stride: pixels per patch in each direction.
    """
    places_L2 = stride * np.indices(grid).reshape(2, -1).T.astype(np.float32)
    return np.linalg.norm(places_L2[:, None] - places_L2, axis=-1)


def even(grid: tuple[int, int], stride: int) -> float:
    """Returns the distance under uniform attention to all patches: the mean of `between`."""
    return float(between(grid, stride).mean(dtype=np.float64))


def of_weights(weights_LM: jax.Array, pixels_LL: np.ndarray) -> jax.Array:
    """Returns the attention-weighted distance from a patch to the others, as a mean over patches.

    Weights of tokens without a patch are left out, and the rest is normalised to sum to 1. A patch
    that attends to no patch counts as 0.

    Args:
      weights_LM: attention weights [..., M, M]; the class token and registers come first.
      pixels_LL: distances [L, L] from `between`, L <= M.

    Returns:
      float32 [...], in pixels.
    """
    patches = len(pixels_LL)
    weights_LL = weights_LM[..., -patches:, -patches:].astype(jnp.float32)
    far_L = jnp.einsum("...lm,lm->...l", weights_LL, pixels_LL, precision="highest")
    total_L = jnp.maximum(jnp.sum(weights_LL, axis=-1), jnp.finfo(jnp.float32).tiny)
    return jnp.mean(far_L / total_L, axis=-1)
