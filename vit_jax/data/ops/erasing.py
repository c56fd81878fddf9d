# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random erasing (arXiv:1708.04896): fills a box in an image with noise or with one grey level.

See `chain` for the definition of an op.
"""

import dataclasses
import math

from vit_jax.data.ops import randaugment
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

_LEAST_ASPECT = 0.3
_TRIES = 10  # boxes drawn; the first that fits is used


@dataclasses.dataclass(frozen=True)
class RandomErasing:
    """Erases a box of `area_min` to `area_max` of the image's area, with a given probability.

    The ratio of height to width lies between 0.3 and 1 / 0.3. Its logarithm is drawn uniformly, as
    in torchvision and timm (the paper draws the ratio itself). `fill` is a grey level, or -1 to
    draw each value from 0 to 255. If none of ten boxes fits, the image stays as it is.
    """

    probability: float = 0.5
    area_min: float = 0.02
    area_max: float = 0.4
    fill: int = -1

    def __post_init__(self) -> None:
        if self.area_min > self.area_max:
            raise BadInput(
                f"random_erasing: area_min={self.area_min} is above area_max={self.area_max}."
            )

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        draws = tf.random.stateless_uniform([2 * _TRIES + 3], seed)
        areas, aspects = draws[:_TRIES], draws[_TRIES:-3]
        sides = tf.shape(image)[:2]
        pixels = tf.cast(tf.reduce_prod(sides), tf.float32)
        area = pixels * (self.area_min + (self.area_max - self.area_min) * areas)
        aspect = tf.exp((2.0 * aspects - 1.0) * math.log(_LEAST_ASPECT))
        boxes = tf.stack([tf.sqrt(area * aspect), tf.sqrt(area / aspect)], axis=1)
        boxes = tf.cast(tf.round(boxes), tf.int32)
        fits = tf.reduce_all(boxes <= sides, axis=1)
        box = boxes[tf.argmax(tf.cast(fits, tf.int32))]

        def erased() -> Tensor:
            places = tf.cast(sides - box + 1, tf.float32)
            begin = tf.cast(draws[-2:] * places, tf.int32)
            return randaugment.with_box(image, begin, self._fill(box, image.shape[-1], seed))

        erase = (draws[-3] < self.probability) & tf.reduce_any(fits)
        return tf.ensure_shape(tf.cond(erase, erased, lambda: image), image.shape)

    def _fill(self, box: Tensor, channels: int, seed: Tensor) -> Tensor:
        shape = tf.concat([box, [channels]], axis=0)
        if self.fill >= 0:
            return tf.fill(shape, tf.constant(self.fill, tf.uint8))
        noise = tf.random.experimental.stateless_fold_in(seed, 1)
        return tf.cast(tf.random.stateless_uniform(shape, noise, 0, 256, tf.int32), tf.uint8)
