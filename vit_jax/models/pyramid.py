# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The simple feature pyramid of ViTDet: levels of several strides from the last map of a backbone.

arXiv:2203.16527, section 3 and appendix A.2, as in its authors' code: transposed convolutions of
2 x 2 for finer levels (a LayerNorm and a GELU between two), max pooling for coarser ones. Then each
level gets a convolution of 1 x 1 and one of 3 x 3, both without bias and with a LayerNorm. Axes: B
batch, h w grid, D features, E width of the pyramid. Start from `Pyramid`.
"""

import math
from typing import Any

import flax.linen as nn
import jax

from vit_jax.models.layers import layer_norm
from vit_jax.sharding import Axes

FINEST = 4  # times as fine as the map, by two transposed convolutions
_EPSILON = 1e-6
_COUNT = 5  # levels of `strides`: as many as FCOS has
_FROM = 6  # pixels; the finest of them has at least this stride

AXES: Axes = {
    r"objective/pyramid/level_\d+_(up_\d|narrow|smooth)/kernel": (None, None, "embed", None),
    r"objective/pyramid/level_\d+_(up_\d/bias|(up_|narrow_|smooth_)?norm/(scale|bias))": (None,),
}


def strides(pixels: int) -> tuple[int, ...]:
    """Returns the strides of levels from 6 pixels on, e.g. FCOS's 8, 16, 32, 64, 128.

    The finest of an odd side is that side, since half of it is no whole number of pixels.

    Args:
      pixels: pixels per position of the map.
    """
    finest = pixels
    while finest % 2 == 0 and finest // 2 >= max(_FROM, pixels / FINEST):
        finest //= 2
    while finest < _FROM:
        finest *= 2
    return tuple(finest * 2**n for n in range(_COUNT))


def fits(stride: int, pixels: int) -> bool:
    """Returns True if a level of this stride can be made from a map of `pixels` a position."""
    power = math.log2(stride / pixels)
    return power == round(power) and stride * FINEST >= pixels


def grid(sides: tuple[int, int], stride: int, pixels: int) -> tuple[int, int]:
    """Returns rows and columns of a level, made from a map with these rows and columns."""
    if stride < pixels:
        return sides[0] * (pixels // stride), sides[1] * (pixels // stride)
    times = stride // pixels
    return -(-sides[0] // times), -(-sides[1] // times)


class Pyramid(nn.Module):
    """Makes the levels.

    Attributes:
      width: E.
      strides: pixels per position of each level.
      pixels: pixels per position of the map.
    """

    width: int
    strides: tuple[int, ...]
    pixels: int

    @nn.compact
    def __call__(self, x_BhwD: jax.Array) -> tuple[jax.Array, ...]:
        """Maps [B, h, w, D] to [B, h', w', E] for each stride."""
        return tuple(self._level(n, x_BhwD) for n in range(len(self.strides)))

    def _level(self, number: int, x: jax.Array) -> jax.Array:
        name, features = f"level_{number}", x.shape[-1]
        finer = self.pixels // self.strides[number]
        if finer > 1:
            for up in range(finer.bit_length() - 1):
                if up:
                    x = nn.gelu(_norm(f"{name}_up_norm")(x), approximate=False)
                x = nn.ConvTranspose(
                    features >> (up + 1), (2, 2), (2, 2), name=f"{name}_up_{up}"
                )(x)  # fmt: skip
        elif (coarser := self.strides[number] // self.pixels) > 1:
            window = coarser, coarser
            beyond: Any = [(0, -side % coarser) for side in x.shape[1:3]]  # as in `fcos.places`
            x = nn.max_pool(x, window, window, beyond)
        x = nn.Conv(self.width, (1, 1), use_bias=False, name=f"{name}_narrow")(x)
        x = _norm(f"{name}_narrow_norm")(x)
        x = nn.Conv(self.width, (3, 3), use_bias=False, name=f"{name}_smooth")(x)
        return _norm(f"{name}_smooth_norm")(x)


def _norm(name: str) -> nn.LayerNorm:
    return layer_norm(name, _EPSILON, "float32")


def multiply_adds(
    sides: tuple[int, int], features: int, width: int, strides: tuple[int, ...], pixels: int
) -> int:
    """Returns the multiply-adds of a pyramid for one image.

    Args:
      sides: rows and columns of the map.
      features: D.
      width: E.
      strides: see `Pyramid`.
      pixels: see `Pyramid`.
    """
    total = 0
    for stride in strides:
        d, positions = features, math.prod(sides)
        for _ in range((pixels // stride or 1).bit_length() - 1):
            total += 4 * positions * d * (d // 2)
            d, positions = d // 2, 4 * positions
        total += math.prod(grid(sides, stride, pixels)) * width * (d + 9 * width)
    return total
