# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Attention rollout (Abnar and Zuidema, arXiv:2005.00928; Figure 6 of arXiv:2010.11929).

Each layer mixes tokens by its attention, averaged over heads, and keeps half of each token because
of the residual connection. The matrices of the layers are multiplied. Start from `of_weights`.
"""

import jax
import jax.numpy as jnp
import numpy as np


def of_weights(weights_SBNLL: jax.Array, start_BL: jax.Array) -> jax.Array:
    """Returns the share of each input token in the representation at the output.

    Args:
      weights_SBNLL: attention weights of the S layers.
      start_BL: shares of the output tokens in the representation; they sum to 1.

    Returns:
      float32 [B, L], shares of the input tokens; they sum to 1.
    """

    def back(shares_BL: jax.Array, weights_BNLL: jax.Array) -> tuple[jax.Array, None]:
        mixed_BLL = jnp.mean(weights_BNLL.astype(jnp.float32), axis=1)
        mixed_BLL /= jnp.sum(mixed_BLL, axis=-1, keepdims=True)
        through_BL = jnp.einsum("bl,blm->bm", shares_BL, mixed_BLL, precision="highest")
        return 0.5 * shares_BL + 0.5 * through_BL, None

    return jax.lax.scan(back, start_BL, weights_SBNLL, reverse=True)[0]


def upsampled(shares_Bhw: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns shares of patches as multiples of their mean, float32 [B, H, W].

    Values are bilinear between the centres of patches.

    Args:
      shares_Bhw: [B, rows, columns].
      size: rows and columns of pixels.
    """
    even_B11 = shares_Bhw.mean(axis=(1, 2), keepdims=True)
    shape = (len(shares_Bhw), *size)
    return np.asarray(jax.image.resize(shares_Bhw / even_B11, shape, "bilinear"))
