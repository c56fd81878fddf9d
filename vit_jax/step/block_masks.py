# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Masks blocks of patches, in one of two views of each image (iBOT, arXiv:2111.07832).

Axes: T = 2 views, L patches, M the most masked patches. Start from `draw`.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

_BLOCKS, _LEAST, _ASPECT = 8, 4, 0.3  # at most so many blocks; patches, aspect ratio: at least


class Masks(NamedTuple):
    """The masked patches of an image; with a batch, each array has its axis in front."""

    view: jax.Array  # int32 [], 0 or 1
    source: jax.Array  # int32 [T, L], -1 for the mask token, see `ViT.__call__`
    patch: jax.Array  # int32 [M], the masked patches; those without weight fill up
    weight: jax.Array  # float32 [M], 1 over the number of masked patches, or 0


def check(name: str, shares: Any) -> None:
    """Raises ValueError unless an argument is the lowest and the highest share of patches."""
    pair = shares if isinstance(shares, tuple) else ()
    if len(pair) != 2 or not 0 < pair[0] <= pair[1] <= 1:
        raise ValueError(f"{name}={shares!r}; give two shares, such as (0.1, 0.5).")


def most(shares: tuple[float, float], patches: int) -> int:
    """Returns M for the lowest and the highest share of masked patches."""
    return max(1, math.floor(shares[1] * patches))


def draw(key: jax.Array, rows: int, columns: int, shares: tuple[float, float]) -> Masks:
    """Draws the masks of an image.

    The number of masked patches is a uniform share. Blocks of random area and aspect ratio are
    masked one after another until they hold that number; single patches make up what is lacking.

    Args:
      key: typed key.
      rows: rows of patches.
      columns: columns of patches.
      shares: lowest and highest share of masked patches, above 0 and up to 1.
    """
    keys, patches = jax.random.split(key, 4), rows * columns
    size = most(shares, patches)
    share = jax.random.uniform(keys[0], (), minval=shares[0], maxval=shares[1])
    count = jnp.clip(jnp.floor(share * patches), 1, size)
    draws = jax.random.uniform(keys[1], (4, _BLOCKS, 1))
    area = _LEAST + draws[0] * jnp.maximum(count - _LEAST, 0)
    aspect = jnp.exp((2 * draws[1] - 1) * math.log(_ASPECT))
    height, width = jnp.sqrt(area * aspect).round(), jnp.sqrt(area / aspect).round()
    top = jnp.floor(draws[2] * jnp.maximum(rows - height + 1, 1))
    left = jnp.floor(draws[3] * jnp.maximum(columns - width + 1, 1))
    y_1L, x_1L = jnp.divmod(jnp.arange(patches)[None], columns)
    inside = (y_1L >= top) & (y_1L < top + height) & (x_1L >= left) & (x_1L < left + width)
    first_L = jnp.where(jnp.any(inside, 0), jnp.argmax(inside, 0), _BLOCKS)
    order_L = jnp.argsort(first_L + jax.random.uniform(keys[2], (patches,)))
    chosen_L = jnp.zeros(patches, bool).at[order_L].set(jnp.arange(patches) < count)
    view, own_L = jax.random.randint(keys[3], (), 0, 2), jnp.arange(patches)
    source_TL = jnp.where((jnp.arange(2) == view)[:, None] & chosen_L[None], -1, own_L[None])
    order_M = order_L[:size]
    return Masks(view, source_TL, order_M, (jnp.arange(len(order_M)) < count) / count)


def cross_entropy(target_BMK: jax.Array, log_p_BMK: jax.Array, masks: Masks) -> jax.Array:
    """Returns the loss of masked patches: the mean over both views, of which one is masked; [B]."""
    loss_BM = -jnp.sum(target_BMK * log_p_BMK, axis=-1)
    return jnp.sum(loss_BM * masks.weight, axis=1) / 2


def taken(tokens_BTLD: jax.Array, masks: Masks) -> jax.Array:
    """Returns the tokens of the masked patches, [B, M, D], from those of both views."""
    one = jax.vmap(lambda tokens_TLD, view, patch_M: tokens_TLD[view, patch_M + 1])
    return one(tokens_BTLD, masks.view, masks.patch)  # stays on the device of each image
