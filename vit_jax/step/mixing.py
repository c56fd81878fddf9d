# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mixup (arXiv:1710.09412) and CutMix (arXiv:1905.04899): images of a batch mixed in pairs.

Mixup averages two images, CutMix puts a box of one into the other; targets are averaged by how much
there is of each. Who is mixed with whom, and how, is decided on the global batch, before it is
split into micro-batches; so results depend on neither the mesh nor accumulation. Until they are
mixed, images stay uint8. Axes: B batch, H W C image. Start from `draw`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

PARTNER = "partner_"  # before the name of what belongs to the partner of each row


class Mix(NamedTuple):
    """How every image of a batch is mixed with its partner.

    Attributes:
      pixels: float32, how much of each pixel is the row's own: [] or [1, H, W, 1], of 0 and 1.
      share: float32 [] in [1/2, 1], how much of the whole image is, and so of the targets.
    """

    pixels: jax.Array
    share: jax.Array


def draw(key: jax.Array, sides: tuple[int, ...], mixup: float, cutmix: float) -> Mix:
    """Draws the mix of a step: mixup, CutMix, or where both are on one of them, by a coin.

    Args:
      key: typed key, of the step.
      sides: H and W.
      mixup: alpha of `share`; 0 is off.
      cutmix: alpha of `box`; 0 is off. One of the two is on.
    """
    if not cutmix:
        ratio = share(key, mixup)
        return Mix(ratio, ratio)
    mixup_key, box_key, coin_key = jax.random.split(key, 3)
    boxed = box(box_key, cutmix, sides)
    if not mixup:
        return boxed
    ratio, coin = share(mixup_key, mixup), jax.random.bernoulli(coin_key)
    return jax.tree.map(lambda cut: jnp.where(coin, cut, ratio), boxed)


def with_partners(batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The global batch [B, ...] with `partner_image` and `partner_labels` beside it.

    The partner of row i is row i - 1, of row 0 the last: examples come in random order, so it is as
    random as any, and only one image of each device crosses to another. Batches of training have
    no padding rows; a padding row would be mixed in like any other.
    """
    partners = {PARTNER + name: jnp.roll(batch[name], 1, axis=0) for name in ("image", "labels")}
    return batch | partners


def share(key: jax.Array, alpha: float) -> jax.Array:
    """How much of a mixed image is the row itself: float32 [] in [1/2, 1], one for a whole batch.

    It is the larger of lambda and 1 - lambda, lambda ~ Beta(alpha, alpha). The mixed images are the
    paper's (with 1 - lambda the two of a pair swap roles), and the row itself is what most of the
    image shows, so accuracy against its own labels means something.

    Args:
      key: typed key, of the step.
      alpha: above 0; the paper has 0.2 to 0.4 on ImageNet.
    """
    ratio = jax.random.beta(key, alpha, alpha)
    return jnp.maximum(ratio, 1.0 - ratio)


def box(key: jax.Array, alpha: float, sides: tuple[int, ...]) -> Mix:
    """A box of the partner's pixels: the paper's, one for a whole batch.

    Its sides are sqrt(1 - lambda) of the image's, lambda ~ Beta(alpha, alpha); its centre is any
    pixel, and what lies outside is cut off, so the share is counted from the pixels that are left.
    Where the box is the larger part of an image, the two of a pair swap roles, as in `share`: the
    row itself is then inside the box. The mixed images are the paper's either way.

    Args:
      key: typed key, of the step.
      alpha: above 0; the paper has 1.
      sides: H and W.
    """
    size_key, *place_keys = jax.random.split(key, 3)
    scale = jnp.sqrt(1.0 - jax.random.beta(size_key, alpha, alpha))

    def inside(place_key: jax.Array, pixels: int) -> jax.Array:
        centre = jax.random.randint(place_key, (), 0, pixels)
        half = (pixels * scale).astype(jnp.int32) // 2
        offset = jnp.arange(pixels) - centre
        return (offset >= -half) & (offset < half)

    rows, columns = (inside(k, n) for k, n in zip(place_keys, sides, strict=True))
    share = 1.0 - jnp.sum(rows) * jnp.sum(columns) / (sides[0] * sides[1])
    own = (rows[None, :, None, None] & columns[None, None, :, None]) == (share < 0.5)
    return Mix(own.astype(jnp.float32), jnp.maximum(share, 1.0 - share))


def mixed(own: jax.Array, partner: jax.Array, ratio: jax.Array | float) -> jax.Array:
    """`ratio` of one array and 1 - `ratio` of the other, in float32: normalised images, targets."""
    return ratio * own + (1.0 - ratio) * partner
