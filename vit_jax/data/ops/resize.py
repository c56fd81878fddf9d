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
class Crop(geometry.Geometric):
    """An op that takes a box of an image; right after `decode`, only the box of a JPEG is decoded.

    This one takes a box of `size` from an image that is at least that large. A subclass says where
    it begins, or has another `box` and resizes it. One with a `__call__` of its own gets whole
    images. See `crops.decode_box`.
    """

    size: Size

    def fits(self, shape: Tensor) -> Tensor:
        """Returns bool [], whether an image of shape int32 [3] has the box."""
        return tf.reduce_all(shape[:2] >= rows_columns(self.size))

    def begin(self, room: Tensor, seed: Tensor) -> Tensor:
        """Returns the first row and column of the box, int32 [2].

        Args:
          room: int32 [2], how many rows and columns the image has more than the box.
          seed: the seed of the op.
        """
        raise NotImplementedError

    def box(self, shape: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Returns begin and extent, int32 [3] each, of a box in an image of shape int32 [3]."""
        size = rows_columns(self.size)
        begin = self.begin(shape[:2] - size, seed)
        return tf.concat([begin, [0]], axis=0), tf.stack([*size, shape[2]])

    def cut(self, image: Tensor, seed: Tensor) -> Tensor:
        """Returns the pixels of the box, uint8 [h, w, C]; fails if the image is too small."""
        begin, _ = self.box(tf.shape(image), seed)
        return tf.image.crop_to_bounding_box(image, begin[0], begin[1], *rows_columns(self.size))

    def reads_edges(self, width: Tensor) -> Tensor:
        """Returns bool [], whether the result depends on the edge columns of a box so wide."""
        return tf.constant(True)

    def resize(self, box: Tensor) -> Tensor:
        """Returns the pixels of a box, uint8 [h, w, C], in `size`."""
        box.set_shape([*rows_columns(self.size), None])
        return box

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        begin, extent = self.box(tf.concat([sides, [3]], axis=0), seed)
        return geometry.of_box(begin[:2], extent[:2], rows_columns(self.size))

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        return self.resize(self.cut(image, seed))


@dataclasses.dataclass(frozen=True)
class CentralCrop(Crop):
    """Crops the central `size`; the image must be at least that large."""

    def begin(self, room: Tensor, seed: Tensor) -> Tensor:
        """Returns the first row and column of the box."""
        return room // 2


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
