# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""big_vision's resizing, bit for bit, for chains whose results are compared with its numbers.

`bv_resize` does not average over source pixels when it should. Both ops drop the fraction of a grey
level, half a level on average. `chain` has better ops. Sizes and pixels are computed in float32, as
in big_vision.
"""

import dataclasses
from typing import Any

from vit_jax.data.ops import decode
from vit_jax.data.tensorflow import Tensor, tf


def _truncated(image: Tensor, sides: Any, method: str) -> Tensor:
    resized = tf.image.resize(image, sides, method=method)
    return tf.cast(tf.clip_by_value(resized, 0.0, 255.0), tf.uint8)


@dataclasses.dataclass(frozen=True)
class BvResize:
    """Resizes to size x size like big_vision's `resize`: bilinear, not antialiased, truncated."""

    size: int

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        return _truncated(image, [self.size, self.size], "bilinear")


@dataclasses.dataclass(frozen=True)
class BvResizeSmall:
    """Resizes the shorter side to `size` like big_vision's `resize_small`: area mean, truncated."""

    size: int

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        sides = tf.cast(tf.shape(image)[:2], tf.float32)
        factor = tf.constant(self.size, tf.float32) / tf.reduce_min(sides)
        sides = tf.cast(tf.round(sides * factor), tf.int32)
        return _truncated(image, decode.decodable(*tf.unstack(sides)), "area")
