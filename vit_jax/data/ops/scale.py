# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ops that keep the aspect ratio and fill up to a size; made for images with masks or boxes.

Filled-up pixels are gray, and no class in a mask. See `chain` for the definition of an op.
"""

import dataclasses

from vit_jax.data.ops import decode, geometry
from vit_jax.data.ops.resize import Size, resize, rows_columns
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

FILL = 128  # about 0 after normalisation


def scaled(sides: Tensor, size: Size, factor: Tensor | float, covers: bool) -> Tensor:
    """Returns int32 [2], sides times a factor of those that just fit into, or cover, a size."""
    before = tf.cast(sides, tf.float64)
    ratios = tf.constant(rows_columns(size), tf.float64) / before
    fitting = tf.reduce_max(ratios) if covers else tf.reduce_min(ratios)
    after = tf.round(before * fitting * tf.cast(factor, tf.float64))
    return tf.maximum(tf.cast(after, tf.int32), 1)


def filled(image: Tensor, size: Size) -> Tensor:
    """Appends gray rows and columns to uint8 [H, W, C], up to a size."""
    rows, columns = rows_columns(size)
    lacking = [rows, columns] - tf.shape(image)[:2]
    padded = tf.pad(image, [[0, lacking[0]], [0, lacking[1]], [0, 0]], constant_values=FILL)
    return tf.ensure_shape(padded, [rows, columns, image.shape[-1]])


@dataclasses.dataclass(frozen=True)
class ResizeInside(geometry.Geometric):
    """Resizes to the largest image inside `size`, keeping the aspect ratio; `pad` fills it up.

    Bilinear, or bicubic if `cubic`.
    """

    size: Size
    antialias: bool = True
    cubic: bool = False

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        return geometry.of_box((0, 0), sides, scaled(sides, self.size, 1.0, False))

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        after = tf.unstack(scaled(tf.shape(image)[:2], self.size, 1.0, False))
        return resize(image, after[0], after[1], antialias=self.antialias, cubic=self.cubic)


@dataclasses.dataclass(frozen=True)
class Pad(geometry.Geometric):
    """Fills up to `size` on the right and below; the image must be at most that large."""

    size: Size

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        size = rows_columns(self.size)
        return geometry.of_box((0, 0), size, size)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        return filled(image, self.size)


@dataclasses.dataclass(frozen=True)
class ScaleJitter(geometry.Geometric):
    """Large-scale jitter (arXiv:2012.07177): scales by a random factor, then crops or fills up.

    The factor is uniform from `smallest` to `largest`, and 1 is the largest image inside `size`.
    With `covers`, 1 is the smallest that covers it, as where the shorter side is given. A larger
    image is cropped at random, a smaller one filled up on the right and below.
    """

    size: Size
    smallest: float = 0.1
    largest: float = 2.0
    covers: bool = False

    def __post_init__(self) -> None:
        if self.smallest > self.largest:
            raise BadInput(
                f"scale_jitter: smallest={self.smallest} is above largest={self.largest}; give "
                "factors such as smallest=0.5, largest=2.0."
            )

    def drawn(self, sides: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the sides after scaling, and where the crop begins; int32 [2] each."""
        draws = tf.random.stateless_uniform([3], seed)
        factor = self.smallest + (self.largest - self.smallest) * draws[0]
        after = scaled(sides, self.size, factor, self.covers)
        room = tf.maximum(after - rows_columns(self.size), 0)
        begin = tf.cast(draws[1:] * tf.cast(room + 1, tf.float32), tf.int32)
        return after, tf.minimum(begin, room)

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        after, begin = self.drawn(sides, seed)
        scale = tf.cast(sides, tf.float32) / tf.cast(after, tf.float32)
        start = (tf.cast(begin, tf.float32) + 0.5) * scale - 0.5  # centres of pixels
        source = tf.stack([scale[1], 0.0, start[1], 0.0, scale[0], start[0]])
        return geometry.Placement(rows_columns(self.size), source)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        after, begin = self.drawn(tf.shape(image)[:2], seed)
        resized = resize(image, *decode.decodable(*tf.unstack(after)), antialias=True)
        rows, columns = rows_columns(self.size)
        cut = resized[begin[0] : begin[0] + rows, begin[1] : begin[1] + columns]
        return filled(cut, self.size)
