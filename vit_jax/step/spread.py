# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures how far the representations, or the targets, of different images are apart.

A model that gives all images the same has collapsed. Axes: B images, T V views, D width, K
prototypes, A micro-batches. Start from `watched`, whose means `spread` reads.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models.layers import unit
from vit_jax.step import multicrop

_UNINFORMED, _NARROW = 0.05, 0.05  # `information` and `std` of a collapsed model are below
_LEFT_OUT, _SMALL = -1e9, 1e-8  # score of an image that does not count; added to distances


def _entropy(p: Any, xp: Any) -> Any:
    return -xp.sum(p * xp.log(xp.maximum(p, 1e-30)), axis=-1)


def watched(target_BTK: jax.Array, features_BTD: jax.Array) -> dict[str, jax.Array]:
    """Returns what `spread` needs of each image: entropy, mean target, mean unit vector."""
    return {
        "entropy": jnp.mean(_entropy(target_BTK, jnp), axis=1),
        "target": jnp.mean(target_BTK, axis=1),
        "direction": jnp.mean(unit(features_BTD, -1), axis=1),
    }


def spread(means: Mapping[str, Any], xp: Any) -> dict[str, Any]:
    """Returns `information` and `std` from the means of `watched`.

    `information` is how many nats a target tells about its image. `std` is the deviation of unit
    vectors per dimension, times sqrt(D): 1 if they point everywhere, 0 if they are all alike.
    """
    information = _entropy(means["target"], xp) - means["entropy"]
    return {
        "information": xp.maximum(information, 0.0),
        "std": xp.sqrt(xp.maximum(1.0 - xp.sum(means["direction"] ** 2), 0.0)),
    }


def collapsed(means: Mapping[str, Any]) -> jax.Array:
    """Returns 1 if all images have the same target or representation, else 0; float32 []."""
    bad = (means["information"] < _UNINFORMED) | (means["std"] < _NARROW)
    return bad.astype(jnp.float32)


def koleo(
    x_BTD: jax.Array, mask_B: jax.Array, known: tuple[jax.Array, jax.Array] | None = None
) -> jax.Array:
    """Returns -log of the distance to the nearest other image, summed over views; [B].

    Distances are those of unit vectors, within each view (arXiv:1806.03198, equation 2).

    Args:
      x_BTD: representations.
      mask_B: True for real images.
      known: gradient and value by the images of all micro-batches, from `koleo_of_all`.
    """
    if known is not None:
        share_B = jnp.sum(x_BTD * known[0], axis=(1, 2))
        return known[1] + share_B - jax.lax.stop_gradient(share_B)
    x_TBD = jnp.swapaxes(unit(x_BTD, -1), 0, 1)
    cosines_TBB = jnp.einsum("tbd,tcd->tbc", x_TBD, x_TBD, precision="highest")
    out_BB = jnp.eye(len(mask_B), dtype=bool) | ~mask_B[None]
    nearest_TB = jnp.argmax(jnp.where(out_BB[None], _LEFT_OUT, cosines_TBB), axis=-1)
    apart = x_TBD - jnp.take_along_axis(x_TBD, nearest_TB[..., None], axis=1)
    distance_TB = jnp.sqrt(jnp.sum(apart * apart, axis=-1) + _SMALL**2)
    return -jnp.sum(jnp.log(distance_TB + _SMALL), axis=0)


def koleo_of_all(every_ABTD: jax.Array, mask_AB: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the gradient of the sum of `koleo` over micro-batches, and its parts, [A, B/A]."""

    def loss(every_ABTD: jax.Array) -> tuple[jax.Array, jax.Array]:
        loss_B = koleo(multicrop.joined(every_ABTD), multicrop.joined(mask_AB))
        return jnp.sum(loss_B), loss_B

    gradient_ABTD, loss_B = jax.grad(loss, has_aux=True)(every_ABTD)
    return gradient_ABTD, multicrop.parted(loss_B, len(mask_AB))


def moments(x_BVD: jax.Array, mask_B: jax.Array) -> jax.Array:
    """Returns the sum over real images of the products of features, the mean of views; [D, D]."""
    real_BVD = jnp.where(mask_B[:, None, None], x_BVD, 0.0)
    return jnp.einsum("bvd,bve->de", real_BVD, real_BVD, precision="highest") / x_BVD.shape[1]


def rankme(moments_DD: np.ndarray) -> float:
    """Returns the effective rank of representations from their second moments (arXiv:2210.02885).

    It is exp of the entropy of the singular values; those below 1/1000 of the largest count as 0,
    because moments are sums in float32.
    """
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(np.asarray(moments_DD, np.float64)), 0.0))
    values = np.where(values < 1e-3 * values.max(), 0.0, values)
    return float(np.exp(_entropy(values / max(values.sum(), 1e-30), np)))
