# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ops that resize or crop without randomness. See `chain` for the definition of an op.

`bv_resize` and `bv_resize_small` repeat big_vision's resizing bit for bit, for chains whose results
are compared with its numbers. `bv_resize` does not average over source pixels when it should. Both
drop the fraction of a grey level, half a level on average, and compute sizes and pixels in float32.
"""

import dataclasses
from typing import Any

from vit_jax.data.ops import decode, geometry
from vit_jax.data.tensorflow import Tensor, tf

Size = int | tuple[int, int]  # a side, or rows and columns


def rows_columns(size: Size) -> tuple[int, int]:
    """Returns rows and columns."""
    return size if isinstance(size, tuple) else (size, size)


def resize(
    image: Tensor, height: int | Tensor, width: int | Tensor, *, antialias: bool,
    cubic: bool = False,
) -> Tensor:  # fmt: skip
    """Resizes uint8 [H, W, C] with half-pixel centres and rounds to uint8.

    Args:
      image: uint8 [H, W, C].
      height: rows of the result.
      width: columns of the result.
      antialias: whether shrinking averages over source pixels, for a bilinear resize.
      cubic: resizes by Keys' cubic kernel with a = -1/2, averaging, as Pillow's BICUBIC does.
    """
    if cubic:
        resized = tf.image.resize(image, [height, width], method="bicubic", antialias=True)
        resized = tf.clip_by_value(resized, 0.0, 255.0)  # it overshoots at edges
    else:
        resized = tf.image.resize(image, [height, width], method="bilinear", antialias=antialias)
    return tf.cast(tf.round(resized), tf.uint8)


@dataclasses.dataclass(frozen=True)
class Resize(geometry.Geometric):
    """Resizes to `size`, ignoring the aspect ratio: bilinear, rounded to uint8.

    `antialias` averages over source pixels when shrinking; published ViT chains do not. `cubic` is
    bicubic with averaging, as most weights of timm and transformers expect.
    """

    size: Size
    antialias: bool = False
    cubic: bool = False

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        return geometry.of_box((0, 0), sides, rows_columns(self.size))

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        sides = rows_columns(self.size)
        return resize(image, *sides, antialias=self.antialias, cubic=self.cubic)


@dataclasses.dataclass(frozen=True)
class ResizeSmall(geometry.Geometric):
    """Resizes the shorter side to `size`, keeping the aspect ratio: bilinear, rounded to uint8.

    With rows and columns, resizes to the smallest image that covers them. `cubic` is bicubic.
    """

    size: Size
    antialias: bool = True
    cubic: bool = False

    def _after(self, sides: Tensor) -> Tensor:
        """Returns int32 [2], the sides of the result for those of an image."""
        before = tf.cast(sides, tf.float64)
        scale = tf.reduce_max(tf.constant(rows_columns(self.size), tf.float64) / before)
        return tf.cast(tf.round(before * scale), tf.int32)

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        return geometry.of_box((0, 0), sides, self._after(sides))

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        after = tf.unstack(self._after(tf.shape(image)[:2]))
        after = decode.decodable(*after)
        return resize(image, *after, antialias=self.antialias, cubic=self.cubic)


@dataclasses.dataclass(frozen=True)
class CentralCrop(geometry.Geometric):
    """Crops the central `size`; the image must be at least that large."""

    size: Size

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        size = rows_columns(self.size)
        return geometry.of_box((sides - size) // 2, size, size)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        rows, columns = rows_columns(self.size)
        top, left = (tf.shape(image)[0] - rows) // 2, (tf.shape(image)[1] - columns) // 2
        return tf.image.crop_to_bounding_box(image, top, left, rows, columns)


def _truncated(image: Tensor, shape: Any, method: str) -> Tensor:
    resized = tf.image.resize(image, shape, method=method)
    return tf.cast(tf.clip_by_value(resized, 0.0, 255.0), tf.uint8)


@dataclasses.dataclass(frozen=True)
class BvResize(geometry.Geometric):
    """Resizes to `size` like big_vision's `resize`: bilinear, not antialiased, truncated."""

    size: Size

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        return geometry.of_box((0, 0), sides, rows_columns(self.size))

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        return _truncated(image, rows_columns(self.size), "bilinear")


@dataclasses.dataclass(frozen=True)
class BvResizeSmall(geometry.Geometric):
    """Resizes the shorter side to `size` like big_vision's `resize_small`: area mean, truncated.

    With rows and columns, resizes to the smallest image that covers them.
    """

    size: Size

    def _after(self, sides: Tensor) -> Tensor:
        """Returns int32 [2], the sides of the result for those of an image."""
        before = tf.cast(sides, tf.float32)
        factor = tf.reduce_max(tf.constant(rows_columns(self.size), tf.float32) / before)
        return tf.cast(tf.round(before * factor), tf.int32)

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        return geometry.of_box((0, 0), sides, self._after(sides))

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        after = tf.unstack(self._after(tf.shape(image)[:2]))
        return _truncated(image, decode.decodable(*after), "area")
