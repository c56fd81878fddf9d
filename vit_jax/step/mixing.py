# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mixup (arXiv:1710.09412) and CutMix (arXiv:1905.04899): mixes the images of a batch in pairs.

Mixup averages two images; CutMix pastes a box of one into the other. Targets are averaged by the
share of each image. The pairs and the mix are drawn on the global batch, before it is split into
micro-batches. So results depend on neither the mesh nor accumulation. Images stay uint8 until they
are mixed. Axes: B batch, H W C image. Start from `draw`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

PARTNER = "partner_"  # prefix of the arrays that belong to the partner of each row


class Mix(NamedTuple):
    """The mix of every image of a batch with its partner.

    Attributes:
      pixels: float32, the row's own share of each pixel: [] or [1, H, W, 1], of 0 and 1.
      share: float32 [] in [1/2, 1], the row's own share of the whole image and of the targets.
    """

    pixels: jax.Array
    share: jax.Array


def draw(key: jax.Array, sides: tuple[int, ...], mixup: float, cutmix: float) -> Mix:
    """Draws the mix of a step: mixup, CutMix, or one of them by a coin if both are on.

    Args:
      key: typed key of the step.
      sides: H and W.
      mixup: alpha of `share`; 0 turns mixup off.
      cutmix: alpha of `box`; 0 turns CutMix off. At least one of the two is on.
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
    """Returns the global batch [B, ...] with `partner_image` and `partner_labels` added.

    The partner of row i is row i - 1; the partner of row 0 is the last row. Examples come in random
    order, so the pairs are random, and only one image per device crosses to another device.
    Training batches have no padding rows; a padding row would be mixed in like any other.
    """
    partners = {PARTNER + name: jnp.roll(batch[name], 1, axis=0) for name in ("image", "labels")}
    return batch | partners


def share(key: jax.Array, alpha: float) -> jax.Array:
    """Draws the row's own share of a mixed image: float32 [] in [1/2, 1], one for a whole batch.

    It is the larger of lambda and 1 - lambda, lambda ~ Beta(alpha, alpha). The mixed images are the
    paper's: with 1 - lambda the two of a pair swap roles. The row itself is most of the image, so
    accuracy against its own labels is meaningful.

    Args:
      key: typed key of the step.
      alpha: above 0; the paper has 0.2 to 0.4 on ImageNet.
    """
    ratio = jax.random.beta(key, alpha, alpha)
    return jnp.maximum(ratio, 1.0 - ratio)


def box(key: jax.Array, alpha: float, sides: tuple[int, ...]) -> Mix:
    """Draws the box of the partner's pixels, as in the paper, one for a whole batch.

    Its sides are sqrt(1 - lambda) of the image's, lambda ~ Beta(alpha, alpha). Its centre is any
    pixel. The part outside the image is cut off, so the share is counted from the remaining pixels.
    Where the box is the larger part of an image, the two of a pair swap roles, as in `share`: the
    row itself is then inside the box. The mixed images are the paper's either way.

    Args:
      key: typed key of the step.
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
    """Returns `ratio * own + (1 - ratio) * partner` in float32, of normalised images or targets."""
    return ratio * own + (1.0 - ratio) * partner
