# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""RandAugment (arXiv:1909.13719) with the numbers of the TensorFlow code that AugReg used.

The reference is that code (big_vision's), including its oddities; it differs from timm's and from
the paper's description. Every layer applies the op it chose: the code also draws a probability, but
none of the 16 ops uses it. `magnitude` is on a scale of 10 and extrapolates. A larger magnitude is
not stronger for Posterize, which then keeps more bits. Nor is it for Solarize, whose threshold
wraps around in uint8 (10 and 20 invert everything; 15 inverts from 128 on). Start from
`RandAugment`; `OPS` lists all ops.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

from vit_jax.data.tensorflow import Tensor, tf

FILL = 128  # fills uncovered and cut-out areas


@dataclasses.dataclass(frozen=True)
class RandAugment:
    """Applies `layers` ops, each drawn uniformly from 16, at `magnitude`.

    With `colors`, it draws from the 10 that change colours alone (`COLORS`). Magnitude 10 is full
    strength; magnitude 0 still changes the image.
    """

    ONLY_RGB: ClassVar[bool] = True

    layers: int
    magnitude: float
    colors: bool = False

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        shape = image.shape
        for layer in range(self.layers):
            draws = tf.random.stateless_uniform(
                [4], tf.random.experimental.stateless_fold_in(seed, layer)
            )
            names = COLORS if self.colors else tuple(OPS)
            branches = [self._branch(OPS[name], image, draws[1:]) for name in names]
            image = tf.switch_case(tf.cast(draws[0] * len(names), tf.int32), branches)
        return tf.ensure_shape(image, shape)

    def _branch(self, op: "Apply", image: Tensor, draws: Tensor) -> Callable[[], Tensor]:
        return lambda: op(image, self.magnitude / 10, draws)


# (image uint8 [H, W, 3], level = magnitude / 10, draws float32 [3] in [0, 1)) -> uint8 [H, W, 3].
# draws[0] below 1/2 means a positive sign; draws[1:] are a position (y, x) as shares of the sides.
Apply = Callable[[Tensor, float, Tensor], Tensor]


def blend(degenerate: Tensor, image: Tensor, factor: float | Tensor) -> Tensor:
    """Returns uint8: `degenerate` at factor 0, `image` at 1, extrapolated above; truncated."""
    start = tf.cast(degenerate, tf.float32)
    blended = start + factor * (tf.cast(image, tf.float32) - start)
    return tf.cast(tf.clip_by_value(blended, 0.0, 255.0), tf.uint8)


def invert_from(image: Tensor, threshold: int) -> Tensor:
    """Inverts uint8 values of at least `threshold`: value -> 255 - value."""
    # tf.where would take five times as long on uint8.
    return tf.bitwise.bitwise_xor(image, tf.cast(image >= threshold, tf.uint8) * tf.uint8.max)


def _factor(level: float) -> float:
    return level * 1.8 + 0.1


def _signed(value: float, draws: Tensor) -> Tensor:
    return tf.where(draws[0] < 0.5, value, -value)


def _sides(image: Tensor) -> tuple[Tensor, Tensor]:
    """Returns height and width, float32."""
    shape = tf.cast(tf.shape(image), tf.float32)
    return shape[0], shape[1]


# Ops on three values at a time are slow in TensorFlow, so the ops below work on whole rows.


def _rows(image: Tensor) -> Tensor:
    """Returns [H, W, 3] as [H, 3 W]."""
    height, width = tf.unstack(tf.shape(image)[:2])
    return tf.reshape(image, [height, width * 3])


def _in_row(values: Tensor, image: Tensor) -> Tensor:
    """Repeats the values of three channels for each pixel of a row: [3] -> [3 W]."""
    return tf.tile(values, [tf.shape(image)[1]])


def _auto_contrast(image: Tensor, _: float, __: Tensor) -> Tensor:
    """Stretches each channel's range to 0..255; leaves a channel with one value unchanged."""
    rows = _rows(tf.cast(image, tf.float32))
    low = tf.reduce_min(tf.reshape(tf.reduce_min(rows, axis=0), [-1, 3]), axis=0)
    high = tf.reduce_max(tf.reshape(tf.reduce_max(rows, axis=0), [-1, 3]), axis=0)
    scale = tf.where(high > low, 255.0 / tf.maximum(high - low, 1.0), 1.0)
    offset = tf.where(high > low, -low * scale, 0.0)
    stretched = rows * _in_row(scale, image) + _in_row(offset, image)
    clipped = tf.cast(tf.clip_by_value(stretched, 0.0, 255.0), tf.uint8)
    return tf.reshape(clipped, tf.shape(image))


def _equalize(image: Tensor, _: float, __: Tensor) -> Tensor:
    """Maps each channel through the table that flattens its histogram, as in Pillow."""
    places = _rows(tf.cast(image, tf.int32)) + _in_row(tf.constant([0, 256, 512]), image)
    no_weights = tf.constant([], tf.int32)
    counts = tf.reshape(tf.raw_ops.Bincount(arr=places, size=768, weights=no_weights), [3, 256])
    largest = tf.reduce_max(tf.where(counts > 0, tf.range(256), 0), axis=1)
    pixels = tf.reduce_prod(tf.shape(image)[:2])
    step = (pixels - tf.gather(counts, largest, batch_dims=1))[:, None] // 255
    below = tf.cumsum(counts, axis=1, exclusive=True)
    levels = tf.minimum((below + step // 2) // tf.maximum(step, 1), 255)
    tables = tf.reshape(tf.where(step > 0, levels, tf.range(256)), [-1])
    # tf.gather would take longer to fetch single elements.
    equalized = tf.gather_nd(tf.cast(tables, tf.uint8), places[..., None])
    return tf.reshape(equalized, tf.shape(image))


def _invert(image: Tensor, _: float, __: Tensor) -> Tensor:
    return 255 - image


def _posterize(image: Tensor, level: float, _: Tensor) -> Tensor:
    """Keeps int(4 level) bits; 0 bits become 1, since TensorFlow shifts uint8 by at most 7."""
    shift = min((8 - int(level * 4)) % 256, 7)
    return tf.bitwise.bitwise_and(image, tf.constant(256 - 2**shift, tf.uint8))


def _solarize(image: Tensor, level: float, _: Tensor) -> Tensor:
    return invert_from(image, int(level * 256) % 256)


def _solarize_add(image: Tensor, level: float, _: Tensor) -> Tensor:
    """Adds int(110 level) to values below 128."""
    values = tf.cast(image, tf.float32)
    added = tf.cast(values < 128.0, tf.float32) * int(level * 110)
    return tf.cast(tf.minimum(values + added, 255.0), tf.uint8)


def _color(image: Tensor, level: float, _: Tensor) -> Tensor:
    gray = tf.cast(tf.image.rgb_to_grayscale(image), tf.float32)
    three = tf.matmul(tf.reshape(gray, [-1, 1]), tf.ones([1, 3]))  # faster than to repeat it
    return blend(tf.reshape(three, tf.shape(image)), image, _factor(level))


def _contrast(image: Tensor, level: float, _: Tensor) -> Tensor:
    gray = tf.image.rgb_to_grayscale(image)
    mean = tf.reduce_mean(tf.cast(gray, tf.float64))
    return blend(tf.cast(mean, tf.uint8), image, _factor(level))


def _brightness(image: Tensor, level: float, _: Tensor) -> Tensor:
    return blend(0, image, _factor(level))


def _sharpness(image: Tensor, level: float, _: Tensor) -> Tensor:
    """Blends with the mean of 3 x 3 pixels, the centre counted five times; the rim stays as it is.

    The mean is exact before truncation. The reference's convolution rounds. So at magnitude 15 one
    value in 200 of a photograph differs from it by up to 2.
    """
    values = tf.cast(image, tf.float32)
    # A depthwise convolution would take twenty times as long for three channels.
    rows = values[:-2] + values[1:-1] + values[2:]
    sums = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4.0 * values[1:-1, 1:-1]
    inner = blend(tf.floor(sums / 13.0), image[1:-1, 1:-1], _factor(level))
    last_row, last_column = image[1:][-1:], image[1:-1, 1:][:, -1:]  # none if it is the first too
    middle = tf.concat([image[1:-1, :1], inner, last_column], axis=1)
    return tf.concat([image[:1], middle, last_row], axis=0)


def _warp(image: Tensor, a: Any, b: Any, x: Any, c: Any, d: Any, y: Any) -> Tensor:
    """Takes pixel (i, j), across and down, from the nearest to (a i + b j + x, c i + d j + y)."""
    # The op of TensorFlow that transforms images takes twice as long for three channels.
    height, width = tf.unstack(tf.shape(image)[:2])
    down, across = tf.meshgrid(tf.range(height), tf.range(width), indexing="ij")
    down, across = tf.cast(down, tf.float32), tf.cast(across, tf.float32)
    column, row = a * across + b * down + x, c * across + d * down + y
    last_row, last_column = (side - 0.5 for side in _sides(image))
    inside = (column > -0.5) & (column < last_column) & (row > -0.5) & (row < last_row)
    at = tf.cast(row + 0.5, tf.int32) * width + tf.cast(column + 0.5, tf.int32)
    pixels = tf.concat(
        [tf.reshape(image, [-1, 3]), tf.fill([1, 3], tf.constant(FILL, tf.uint8))], 0
    )
    return tf.gather(pixels, tf.where(inside, at, height * width))


def _rotate(image: Tensor, level: float, draws: Tensor) -> Tensor:
    """Rotates by 30 level degrees about the middle; a positive sign means counter-clockwise."""
    angle = _signed(level * 30.0 * math.pi / 180.0, draws)
    cos, sin = tf.cos(angle), tf.sin(angle)
    height, width = _sides(image)
    x = ((width - 1) - (cos * (width - 1) - sin * (height - 1))) / 2
    y = ((height - 1) - (sin * (width - 1) + cos * (height - 1))) / 2
    return _warp(image, cos, -sin, x, sin, cos, y)


def _shear_x(image: Tensor, level: float, draws: Tensor) -> Tensor:
    return _warp(image, 1, _signed(level * 0.3, draws), 0, 0, 1, 0)


def _shear_y(image: Tensor, level: float, draws: Tensor) -> Tensor:
    return _warp(image, 1, 0, 0, _signed(level * 0.3, draws), 1, 0)


def _translate(image: Tensor, level: float, draws: Tensor, axis: int) -> Tensor:
    """Moves by 100 level pixels, whatever the side; a positive sign means up or left."""
    pixels = round(level * 100)
    margin, begin = [[0, 0]] * 3, [0] * 3
    margin[axis] = [pixels, pixels]
    begin[axis] = tf.where(draws[0] < 0.5, 2 * pixels, 0)
    return tf.slice(tf.pad(image, margin, constant_values=FILL), begin, tf.shape(image))


def _translate_x(image: Tensor, level: float, draws: Tensor) -> Tensor:
    return _translate(image, level, draws, axis=1)


def _translate_y(image: Tensor, level: float, draws: Tensor) -> Tensor:
    return _translate(image, level, draws, axis=0)


def _cutout(image: Tensor, level: float, draws: Tensor) -> Tensor:
    """Cuts out a square of side 2 int(40 level) about a random pixel, clipped at the edge."""
    half, sides = int(level * 40), tf.shape(image)[:2]
    middle = tf.cast(draws[1:] * tf.cast(sides, tf.float32), tf.int32)
    begin, end = tf.maximum(middle - half, 0), tf.minimum(middle + half, sides)
    return with_box(
        image, begin, tf.fill([*tf.unstack(end - begin), 3], tf.constant(FILL, tf.uint8))
    )


def with_box(image: Tensor, begin: Tensor, box: Tensor) -> Tensor:
    """Returns the image with `box`, uint8 [h, w, C], pasted in from `begin`, (y, x), on."""
    (top, left), (bottom, right) = tf.unstack(begin), tf.unstack(begin + tf.shape(box)[:2])
    middle = tf.concat([image[top:bottom, :left], box, image[top:bottom, right:]], axis=1)
    return tf.concat([image[:top], middle, image[bottom:]], axis=0)


OPS: dict[str, Apply] = {
    "auto_contrast": _auto_contrast,
    "equalize": _equalize,
    "invert": _invert,
    "rotate": _rotate,
    "posterize": _posterize,
    "solarize": _solarize,
    "color": _color,
    "contrast": _contrast,
    "brightness": _brightness,
    "sharpness": _sharpness,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
    "cutout": _cutout,
    "solarize_add": _solarize_add,
}
# The ops that move no pixels, in the same order.
COLORS = (
    "auto_contrast", "equalize", "invert", "posterize", "solarize", "color", "contrast",
    "brightness", "sharpness", "solarize_add",
)  # fmt: skip
