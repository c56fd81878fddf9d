# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random erasing (arXiv:1708.04896): fills a box in an image with noise or with one grey level.

See `chain` for the definition of an op.
"""

import dataclasses
import math
from typing import ClassVar

from vit_jax.data.example import FIELDS, SPATIAL
from vit_jax.data.ops import geometry, randaugment
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

LEAST_ASPECT = 0.3
TRIES = 10  # boxes drawn; the first that fits is used


@dataclasses.dataclass(frozen=True)
class RandomErasing:
    """Erases a box of `area_min` to `area_max` of the image's area, with a given probability.

    The ratio of height to width lies between 0.3 and 1 / 0.3. Its logarithm is drawn uniformly, as
    in torchvision and timm (the paper draws the ratio itself). `fill` is a grey level, or -1 to
    draw each value from 0 to 255. If none of ten boxes fits, the image stays as it is. An erased
    area has no class in the mask, and boxes of objects that are wholly erased are dropped.
    """

    changes: ClassVar[tuple[str, ...]] = ("image", *SPATIAL)

    probability: float = 0.5
    area_min: float = 0.02
    area_max: float = 0.4
    fill: int = -1

    def __post_init__(self) -> None:
        if self.area_min > self.area_max:
            raise BadInput(
                f"random_erasing: area_min={self.area_min} is above area_max={self.area_max}."
            )

    def _area(self, sides: Tensor, seed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns True if an area is erased; and its begin and extent, int32 [2] each."""
        draws = tf.random.stateless_uniform([2 * TRIES + 3], seed)
        areas, aspects = draws[:TRIES], draws[TRIES:-3]
        pixels = tf.cast(tf.reduce_prod(sides), tf.float32)
        area = pixels * (self.area_min + (self.area_max - self.area_min) * areas)
        aspect = tf.exp((2.0 * aspects - 1.0) * math.log(LEAST_ASPECT))
        boxes = tf.stack([tf.sqrt(area * aspect), tf.sqrt(area / aspect)], axis=1)
        boxes = tf.cast(tf.round(boxes), tf.int32)
        fits = tf.reduce_all(boxes <= sides, axis=1)
        box = boxes[tf.argmax(tf.cast(fits, tf.int32))]
        places = tf.cast(sides - box + 1, tf.float32)
        begin = tf.cast(draws[-2:] * places, tf.int32)
        return (draws[-3] < self.probability) & tf.reduce_any(fits), begin, box

    def follow(self, fields: dict[str, Tensor], sides: Tensor, seed: Tensor) -> dict[str, Tensor]:
        """Returns the fields of `SPATIAL` after the op; `sides` are those of the image."""
        erase, begin, box = self._area(sides, seed)
        end, moved, dropped = begin + box, dict(fields), None
        if "mask" in fields:
            rows, columns = (
                (tf.range(sides[i]) >= begin[i]) & (tf.range(sides[i]) < end[i]) for i in (0, 1)
            )
            inside = erase & rows[:, None] & columns
            moved["mask"] = tf.where(inside, FIELDS["mask"].missing, fields["mask"])
        if "boxes" in fields:
            left_top = fields["boxes"][:, :2] >= tf.cast(begin[::-1], tf.float32)
            right_bottom = fields["boxes"][:, 2:] <= tf.cast(end[::-1], tf.float32)
            dropped = erase & tf.reduce_all(left_top & right_bottom, axis=1)
        return geometry.without_empty_boxes(moved, dropped)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        erase, begin, box = self._area(tf.shape(image)[:2], seed)

        def erased() -> Tensor:
            return randaugment.with_box(image, begin, self._fill(box, image.shape[-1], seed))

        return tf.ensure_shape(tf.cond(erase, erased, lambda: image), image.shape)

    def _fill(self, box: Tensor, channels: int, seed: Tensor) -> Tensor:
        shape = tf.concat([box, [channels]], axis=0)
        if self.fill >= 0:
            return tf.fill(shape, tf.constant(self.fill, tf.uint8))
        noise = tf.random.experimental.stateless_fold_in(seed, 1)
        return tf.cast(tf.random.stateless_uniform(shape, noise, 0, 256, tf.int32), tf.uint8)
