# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Views of several sizes: two global ones that a teacher sees, and local ones.

Axes: B images, T = 2 global views, N local views, V views, L patches, D width, K prototypes, A
micro-batches. Start from `fields`, then `tokens`.
"""

from typing import Any

import jax
import jax.numpy as jnp

from vit_jax.step.objective import Batch, Network, PyTree

GLOBAL = ("global_1", "global_2")


def fields(
    size: tuple[int, int], local: int, local_size: int, channels: int
) -> dict[str, jax.ShapeDtypeStruct]:
    """Returns the fields of an example: `global_1`, `global_2`, and `local` if N is above 0."""
    shapes: dict[str, tuple[int, ...]] = {name: (*size, channels) for name in GLOBAL}
    if local:
        shapes["local"] = (local, local_size, local_size, channels)
    return {name: jax.ShapeDtypeStruct(shape, jnp.uint8) for name, shape in shapes.items()}


def size(batch: Batch) -> tuple[int, int]:
    """Returns rows and columns of a global view."""
    return batch[GLOBAL[0]].shape[1:3]


def pair(batch: Batch) -> jax.Array:
    """Returns the global views, uint8 [B, T, H, W, C]."""
    return jnp.stack([batch[name] for name in GLOBAL], axis=1)


def joined(tree: PyTree) -> PyTree:
    """Returns micro-batches [A, B/A, ...] as one batch [B, ...], each row on its device.

    Row a + A i is row i of micro-batch a, as `train_step.micro_batches` takes them.
    """
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), tree)


def parted(x: jax.Array, count: int) -> jax.Array:
    """Returns a batch [B, ...] as `count` micro-batches; the inverse of `joined`."""
    return jnp.swapaxes(x.reshape(-1, count, *x.shape[1:]), 0, 1)


def tokens(network: Network, params: PyTree, views: jax.Array, **options: Any) -> jax.Array:
    """Maps uint8 [B, V, H, W, C] to tokens, float32 [B, V, 1 + L, D]."""
    images = network.normalise(views.reshape(-1, *views.shape[2:]))
    seen = network.apply(params, images, **options)
    return seen.reshape(*views.shape[:2], *seen.shape[1:])


def patches(network: Network, params: PyTree, batch: Batch) -> jax.Array:
    """Returns the tokens of the patches of the global views as in evaluation, [B, T, L, D]."""
    return tokens(network, params, pair(batch), train=False, key=None)[:, :, 1:]


def total(x: jax.Array, mask_B: jax.Array) -> jax.Array:
    """Returns the sum of [B, ...] over the real images."""
    return jnp.sum(jnp.where(mask_B.reshape(-1, *[1] * (x.ndim - 1)), x, 0.0), axis=0)


def cross_entropy(target_BTK: jax.Array, log_p_BVK: jax.Array) -> jax.Array:
    """Returns the mean cross-entropy of all pairs of different views; [B]."""
    pairs_BTV = -jnp.einsum("btk,bvk->btv", target_BTK, log_p_BVK, precision="highest")
    other_1TV = 1.0 - jnp.eye(pairs_BTV.shape[1], pairs_BTV.shape[2])[None]
    return jnp.sum(pairs_BTV * other_1TV, axis=(1, 2)) / jnp.sum(other_1TV)
