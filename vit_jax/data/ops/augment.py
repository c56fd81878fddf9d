# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random image ops: they map uint8 [H, W, C] and a seed to uint8; equal seeds give equal images.

See `chain` for the definition of an op and for the list of all ops.
"""

import dataclasses
import math
from typing import ClassVar

from vit_jax.data.ops import geometry
from vit_jax.data.ops.resize import Crop, resize, rows_columns
from vit_jax.data.tensorflow import Tensor, tf


@dataclasses.dataclass(frozen=True)
class FlipLr(geometry.Geometric):
    """Mirrors left and right with probability 1/2."""

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from; draws what TensorFlow's function draws."""
        last = tf.cast(sides[1], tf.float32) - 1.0
        flipped = tf.random.stateless_uniform([], seed) < 0.5
        source = tf.where(flipped, [-1.0, 0.0, last, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0, 1.0, 0.0])
        return geometry.Placement(sides, source)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        return tf.image.stateless_random_flip_left_right(image, seed)


def _begin(room: Tensor, seed: Tensor) -> Tensor:
    """Returns where `tf.image.stateless_random_crop` begins to cut, int32 [2], row and column.

    Args:
      room: int32 [2], how many rows and columns the image has more than the crop.
      seed: the seed of the crop.
    """
    draws = tf.random.stateless_uniform([3], seed, maxval=tf.int32.max, dtype=tf.int32)
    return draws[:2] % (room + 1)


@dataclasses.dataclass(frozen=True)
class RandomCrop(Crop):
    """Crops a random `size`; the image must be at least that large."""

    def begin(self, room: Tensor, seed: Tensor) -> Tensor:
        """Returns the first row and column of the box."""
        return _begin(room, seed)

    def cut(self, image: Tensor, seed: Tensor) -> Tensor:
        """Returns the pixels of the box."""
        return tf.image.stateless_random_crop(
            image, [*rows_columns(self.size), image.shape[-1]], seed
        )


@dataclasses.dataclass(frozen=True)
class Shift(geometry.Geometric):
    """Moves the image by up to `pixels` in each direction; uncovered pixels are black."""

    pixels: int

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        begin = _begin(tf.constant([2 * self.pixels] * 2), seed) - self.pixels
        return geometry.of_box(begin, sides, sides)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        shape = tf.shape(image)
        margin = [[self.pixels, self.pixels], [self.pixels, self.pixels], [0, 0]]
        moved = tf.image.stateless_random_crop(tf.pad(image, margin), shape, seed)
        return tf.ensure_shape(moved, image.shape)


@dataclasses.dataclass(frozen=True)
class InceptionCrop(Crop):
    """Crops a random box and resizes it to `size`.

    The box covers 5 % (`area_min`) to 100 % (`area_max`) of the area and has an aspect ratio of 3/4
    to 4/3, as described in arXiv:1409.4842. The resize is bilinear without antialias, as in the
    published code, or bicubic with averaging if `cubic`.
    """

    IN_PARTS: ClassVar[bool] = False  # True: needs the bytes of a file, and decodes parts of it

    area_min: float = 0.05
    area_max: float = 1.0
    cubic: bool = False

    def fits(self, shape: Tensor) -> Tensor:
        """Returns True: every image has such boxes."""
        return tf.constant(True)

    def box(self, shape: Tensor, seed: Tensor) -> tuple[Tensor, Tensor]:
        """Returns begin and extent, int32 [3] each, of a box in an image of shape int32 [3]."""
        begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
            shape,
            tf.zeros([0, 0, 4], tf.float32),
            seed,
            area_range=(self.area_min, self.area_max),
            aspect_ratio_range=(0.75, 1.33),
            min_object_covered=0.0,
            use_image_if_no_bounding_boxes=True,
        )
        return begin, extent

    def cut(self, image: Tensor, seed: Tensor) -> Tensor:
        """Returns the pixels of the box."""
        box = tf.slice(image, *self.box(tf.shape(image), seed))
        box.set_shape([None, None, image.shape[-1]])
        return box

    def reads_edges(self, width: Tensor) -> Tensor:
        """Returns bool [], whether the result depends on the edge columns of a box so wide."""
        return (width < 4 * rows_columns(self.size)[1]) | self.cubic

    def resize(self, box: Tensor) -> Tensor:
        """Resizes the pixels of a box, uint8 [h, w, C], to `size`."""
        return resize(box, *rows_columns(self.size), antialias=False, cubic=self.cubic)


@dataclasses.dataclass(frozen=True)
class Affine(geometry.Geometric):
    """Turns by up to `degrees`, scales sides by up to 1 +- `scale`, moves by up to `shift` pixels.

    Bilinear; uncovered pixels are black. Meant for small images, such as digits.
    """

    degrees: float = 0.0
    scale: float = 0.0
    shift: float = 0.0

    def placement(self, sides: Tensor, seed: Tensor) -> geometry.Placement:
        """Returns where pixels come from."""
        draws = tf.random.stateless_uniform([5], seed, -1.0, 1.0)
        angle = draws[0] * (self.degrees * math.pi / 180.0)
        zoom_x, zoom_y = 1.0 + draws[1] * self.scale, 1.0 + draws[2] * self.scale
        # Output pixel p takes the input at centre + matrix (p - centre) + move.
        a, b = tf.cos(angle) / zoom_x, -tf.sin(angle) / zoom_y
        c, d = tf.sin(angle) / zoom_x, tf.cos(angle) / zoom_y
        centre = (tf.cast(sides, tf.float32) - 1.0) / 2.0
        x = centre[1] - a * centre[1] - b * centre[0] + draws[3] * self.shift
        y = centre[0] - c * centre[1] - d * centre[0] + draws[4] * self.shift
        return geometry.Placement(sides, tf.stack([a, b, x, c, d, y]))

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        place = self.placement(tf.shape(image)[:2], seed)
        moved = tf.raw_ops.ImageProjectiveTransformV3(
            images=tf.cast(image, tf.float32)[None],
            transforms=tf.concat([place.source, [0.0, 0.0]], axis=0)[None],
            output_shape=place.sides,
            interpolation="BILINEAR",
            fill_mode="CONSTANT",
            fill_value=0.0,
        )[0]
        return tf.ensure_shape(tf.cast(tf.round(moved), tf.uint8), image.shape)
