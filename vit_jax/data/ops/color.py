# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random colours, blur and 3-Augment: these ops map uint8 [H, W, 3] and a seed to uint8.

See `chain` for the definition of an op. Start from `ColorJitter`.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import ClassVar

from vit_jax.data.ops import randaugment
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

_GRAY = (0.299, 0.587, 0.114)  # ITU-R 601-2, like Pillow


def gray(image: Tensor) -> Tensor:
    """Returns the luma of an image, float32 [H, W, 1]."""
    red, green, blue = tf.split(tf.cast(image, tf.float32), 3, axis=-1)
    return _GRAY[0] * red + _GRAY[1] * green + _GRAY[2] * blue


def as_gray(image: Tensor) -> Tensor:
    """Returns the luma of an image in each of three channels, uint8 [H, W, 3]."""
    return tf.repeat(to_uint8(gray(image)), 3, axis=-1)


def to_uint8(values: Tensor) -> Tensor:
    """Rounds, clips and casts to uint8."""
    return tf.cast(tf.clip_by_value(tf.round(values), 0.0, 255.0), tf.uint8)


def _with_probability(
    probability: float, draw: Tensor, image: Tensor, change: Callable[[], Tensor]
) -> Tensor:
    """Returns the changed image if a draw from [0, 1) is below the probability, else the image."""
    return tf.ensure_shape(tf.cond(draw < probability, change, lambda: image), image.shape)


@dataclasses.dataclass(frozen=True)
class ColorJitter:
    """Jitters brightness, contrast and saturation by factors from [max(0, 1 - x), 1 + x], then hue.

    Factors are drawn uniformly; the hue turns by [-x, x] turns. Brightness blends with black,
    contrast with the mean grey, saturation with each pixel's grey. Apart from clipping the three
    commute. So they are one step here, clipped and rounded once; torchvision applies them in random
    order and rounds in between. `probability` is that of any change.
    """

    ONLY_RGB: ClassVar[bool] = True
    changes: ClassVar[tuple[str, ...]] = ("image",)

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    probability: float = 1.0

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        if self.probability == 1.0:
            return self._jittered(image, seed)
        draw = tf.random.stateless_uniform([], tf.random.experimental.stateless_fold_in(seed, 1))
        return _with_probability(self.probability, draw, image, lambda: self._jittered(image, seed))

    def _jittered(self, image: Tensor, seed: Tensor) -> Tensor:
        most = tf.constant([self.brightness, self.contrast, self.saturation])
        draws = tf.random.stateless_uniform([4], seed, -1.0, 1.0)
        brightness, contrast, saturation = tf.unstack(tf.maximum(1.0 + most * draws[:3], 0.0))
        luma = gray(image)
        mean = tf.reduce_mean(luma)
        grays = contrast * (1.0 - saturation) * luma + (1.0 - contrast) * mean
        colors = (contrast * saturation) * tf.cast(image, tf.float32)
        jittered = brightness * (colors + tf.repeat(grays, 3, axis=-1))
        if self.hue:
            clipped = tf.clip_by_value(jittered, 0.0, 255.0)
            jittered = tf.raw_ops.AdjustHue(images=clipped, delta=draws[3] * self.hue)
        return tf.ensure_shape(to_uint8(jittered), image.shape)


@dataclasses.dataclass(frozen=True)
class Grayscale:
    """Makes the image grey with `probability`; it keeps its three channels."""

    ONLY_RGB: ClassVar[bool] = True
    changes: ClassVar[tuple[str, ...]] = ("image",)

    probability: float = 0.2

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        draw = tf.random.stateless_uniform([], seed)
        return _with_probability(self.probability, draw, image, lambda: as_gray(image))


@dataclasses.dataclass(frozen=True)
class Solarize:
    """Inverts all values from 128 on, with `probability`."""

    changes: ClassVar[tuple[str, ...]] = ("image",)

    probability: float = 0.2

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        draw = tf.random.stateless_uniform([], seed)
        change = lambda: randaugment.invert_from(image, 128)  # noqa: E731
        return _with_probability(self.probability, draw, image, change)


SIZELESS = (
    "gaussian_blur takes the width of its kernel from the size of the image; put it after an op "
    "that sets the size, e.g. inception_crop({size})|gaussian_blur."
)


@dataclasses.dataclass(frozen=True)
class GaussianBlur:
    """Blurs with `probability`, by a Gaussian of `sigma_min` to `sigma_max` pixels.

    The kernel covers 10 % of the shorter side, as in SimCLR (arXiv:2002.05709, appendix A), but at
    least 3 pixels, and not more than 3 `sigma_max` to either side. Stands after an op that sets the
    size.
    """

    changes: ClassVar[tuple[str, ...]] = ("image",)

    probability: float = 0.5
    sigma_min: float = 0.1
    sigma_max: float = 2.0

    def __post_init__(self) -> None:
        if self.sigma_min > self.sigma_max:
            raise BadInput(
                f"gaussian_blur: sigma_min={self.sigma_min} is above sigma_max={self.sigma_max}."
            )

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        sides = image.shape[:2].as_list()
        if None in sides:
            raise BadInput(SIZELESS)
        reach = min(max(min(sides) // 20, 1), math.ceil(3 * self.sigma_max))
        draws = tf.random.stateless_uniform([2], seed)
        sigma = self.sigma_min + (self.sigma_max - self.sigma_min) * draws[1]
        return _with_probability(
            self.probability, draws[0], image, lambda: blur(image, sigma, reach)
        )


@dataclasses.dataclass(frozen=True)
class ThreeAugment:
    """3-Augment of DeiT III (arXiv:2204.07118), without its flip.

    Makes the image grey, solarizes it from 128 on, or blurs it with a Gaussian of 0.1 to 2 pixels,
    each equally often. Then jitters brightness, contrast and saturation by 0.3.
    """

    ONLY_RGB: ClassVar[bool] = True
    changes: ClassVar[tuple[str, ...]] = ("image",)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        fold_in = tf.random.experimental.stateless_fold_in
        choice, sigma = tf.unstack(tf.random.stateless_uniform([2], fold_in(seed, 0)))
        changed = tf.switch_case(
            tf.cast(choice * 3, tf.int32),
            [
                lambda: as_gray(image),
                lambda: randaugment.invert_from(image, 128),
                lambda: blur(image, 0.1 + 1.9 * sigma),
            ],
        )
        jitter = ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3)
        return jitter(tf.ensure_shape(changed, image.shape), fold_in(seed, 1))


REACH = 6  # of the blur of `three_augment`, in pixels


def blur(image: Tensor, sigma: Tensor, reach: int = REACH) -> Tensor:
    """Blurs with a Gaussian of `sigma` pixels, cut off at `reach`, mirrored outside; gives uint8.

    Sides must be at least `reach`. Pillow approximates the Gaussian by three means over boxes.
    """
    weights = tf.exp(-0.5 * (tf.range(reach + 1, dtype=tf.float32) / sigma) ** 2)
    weights = tf.unstack(weights / (2.0 * tf.reduce_sum(weights) - weights[0]))
    values = tf.cast(image, tf.float32)
    # A depthwise convolution would take ten times as long for three channels.
    for _ in range(2):
        padded = tf.pad(values, [[reach, reach], [0, 0], [0, 0]], "SYMMETRIC")
        rows = tf.shape(values)[0]
        shifted = [padded[i : i + rows] for i in range(2 * reach + 1)]
        pairs = zip(shifted[reach - 1 :: -1], shifted[reach + 1 :], weights[1:], strict=True)
        values = tf.add_n([weights[0] * shifted[reach], *(w * (a + b) for a, b, w in pairs)])
        values = tf.transpose(values, [1, 0, 2])
    return to_uint8(values)
