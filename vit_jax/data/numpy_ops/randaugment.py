# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""RandAugment in numpy; see `ops/randaugment.py` for its numbers and their oddities."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_jax.data.numpy_ops import draws
from vit_jax.data.numpy_ops.augment import coordinates, nearest
from vit_jax.data.numpy_ops.color import invert_from
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.ops import randaugment as ops

_FILL = ops.FILL
_GRAY = np.float32(0.2989), np.float32(0.5870), np.float32(0.1140)  # `tf.image.rgb_to_grayscale`

# (image, level, draws float32 [3]) -> image; see `ops.Apply`.
_Apply = Callable[[np.ndarray, float, np.ndarray], np.ndarray]


def randaug(op: ops.RandAugment, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `randaug`: uint8 [H, W, 3] to the same shape."""
    for layer in range(op.layers):
        shares = draws.uniform(draws.fold_in(seed, layer), 4)
        choices = _COLORS if op.colors else OPS
        apply = choices[int(shares[0] * len(choices))]
        image = apply(image, op.magnitude / 10, shares[1:])
    return image


def _blend(degenerate: np.ndarray, image: np.ndarray, factor: float) -> np.ndarray:
    start = degenerate.astype(np.float32)
    blended = start + np.float32(factor) * (image.astype(np.float32) - start)
    return np.clip(blended, 0, 255).astype(np.uint8)


def _factor(level: float) -> float:
    return level * 1.8 + 0.1


def _signed(value: float, shares: np.ndarray) -> np.float32:
    return np.float32(value if shares[0] < 0.5 else -value)


def _auto_contrast(image: np.ndarray, _: float, __: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    rows = image.reshape(height, 3 * width)  # ops on three values at a time are slow
    extremes = (f(f(rows, axis=0).reshape(width, 3), axis=0) for f in (np.min, np.max))
    low, high = (one.astype(np.float32) for one in extremes)
    spread = high > low
    scale = np.where(spread, np.float32(255) / np.maximum(high - low, np.float32(1)), 1)
    scale = scale.astype(np.float32)
    offset = np.where(spread, -low * scale, np.float32(0))
    stretched = rows.astype(np.float32) * np.tile(scale, width) + np.tile(offset, width)
    return np.clip(stretched, 0, 255).astype(np.uint8).reshape(image.shape)


def _equalize(image: np.ndarray, _: float, __: np.ndarray) -> np.ndarray:
    channels = []
    for c in range(3):
        values = image[..., c]
        counts = np.bincount(values.reshape(-1), minlength=256)
        step = int(values.size - counts[values.max()]) // 255
        below = np.cumsum(counts) - counts
        levels = np.minimum((below + step // 2) // max(step, 1), 255)
        channels.append((levels if step else np.arange(256)).astype(np.uint8)[values])
    return np.stack(channels, axis=-1)


def _invert(image: np.ndarray, _: float, __: np.ndarray) -> np.ndarray:
    return 255 - image


def _posterize(image: np.ndarray, level: float, _: np.ndarray) -> np.ndarray:
    return image & np.uint8(256 - 2 ** min((8 - int(level * 4)) % 256, 7))


def _solarize(image: np.ndarray, level: float, _: np.ndarray) -> np.ndarray:
    return invert_from(image, int(level * 256) % 256)


def _solarize_add(image: np.ndarray, level: float, _: np.ndarray) -> np.ndarray:
    added = np.minimum(image.astype(np.int32) + int(level * 110), 255).astype(np.uint8)
    return np.where(image < 128, added, image)


def _gray(image: np.ndarray) -> np.ndarray:
    """Returns the luma as TensorFlow's own function has it, uint8 [H, W, 1]."""
    # `tf.image.rgb_to_grayscale` works with values in [0, 1], and rounds by adding a half.
    scaled = image.astype(np.float32) * np.float32(1 / 255)
    luma = sum(scaled[..., c : c + 1] * _GRAY[c] for c in range(3))
    return np.clip(luma * np.float32(255.5), 0, 255).astype(np.uint8)


def _color(image: np.ndarray, level: float, _: np.ndarray) -> np.ndarray:
    return _blend(_gray(image), image, _factor(level))


def _contrast(image: np.ndarray, level: float, _: np.ndarray) -> np.ndarray:
    mean = _gray(image).mean(dtype=np.float64)
    return _blend(np.asarray(int(mean)), image, _factor(level))


def _brightness(image: np.ndarray, level: float, _: np.ndarray) -> np.ndarray:
    return _blend(np.asarray(0), image, _factor(level))


def _sharpness(image: np.ndarray, level: float, _: np.ndarray) -> np.ndarray:
    values = image.astype(np.float32)
    rows = values[:-2] + values[1:-1] + values[2:]
    sums = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * values[1:-1, 1:-1]
    sharpened = image.copy()
    sharpened[1:-1, 1:-1] = _blend(np.floor(sums / 13), image[1:-1, 1:-1], _factor(level))
    return sharpened


def _warp(image: np.ndarray, *matrix: Any) -> np.ndarray:
    """Takes each pixel from the nearest one to its place; see `coordinates`."""
    height, width = image.shape[:2]
    return nearest(image, *coordinates(matrix, height, width), np.array(_FILL, np.uint8))


def _rotate(image: np.ndarray, level: float, shares: np.ndarray) -> np.ndarray:
    angle = _signed(level * 30.0 * math.pi / 180.0, shares)
    cos, sin = np.cos(angle), np.sin(angle)
    height, width = (np.float32(side - 1) for side in image.shape[:2])
    x = (width - (cos * width - sin * height)) / 2
    y = (height - (sin * width + cos * height)) / 2
    return _warp(image, cos, -sin, x, sin, cos, y)


def _shear_x(image: np.ndarray, level: float, shares: np.ndarray) -> np.ndarray:
    return _warp(image, 1, _signed(level * 0.3, shares), 0, 0, 1, 0)


def _shear_y(image: np.ndarray, level: float, shares: np.ndarray) -> np.ndarray:
    return _warp(image, 1, 0, 0, _signed(level * 0.3, shares), 1, 0)


def _translate(image: np.ndarray, level: float, shares: np.ndarray, axis: int) -> np.ndarray:
    pixels = min(round(level * 100), image.shape[axis])
    moved = np.full_like(image, _FILL)
    here, there = [slice(None)] * 2, [slice(None)] * 2
    kept = image.shape[axis] - pixels
    here[axis], there[axis] = slice(0, kept), slice(pixels, None)
    if shares[0] < 0.5:
        moved[tuple(here)] = image[tuple(there)]
    else:
        moved[tuple(there)] = image[tuple(here)]
    return moved


def _translate_x(image: np.ndarray, level: float, shares: np.ndarray) -> np.ndarray:
    return _translate(image, level, shares, axis=1)


def _translate_y(image: np.ndarray, level: float, shares: np.ndarray) -> np.ndarray:
    return _translate(image, level, shares, axis=0)


def _cutout(image: np.ndarray, level: float, shares: np.ndarray) -> np.ndarray:
    half, sides = int(level * 40), np.array(image.shape[:2])
    middle = (shares[1:] * sides.astype(np.float32)).astype(int)
    (top, left), (bottom, right) = np.maximum(middle - half, 0), np.minimum(middle + half, sides)
    cut = image.copy()
    cut[top:bottom, left:right] = _FILL
    return cut


# In the order of `ops.OPS`, since a random number chooses among them.
OPS: tuple[_Apply, ...] = (
    _auto_contrast, _equalize, _invert, _rotate, _posterize, _solarize, _color, _contrast,
    _brightness, _sharpness, _shear_x, _shear_y, _translate_x, _translate_y, _cutout, _solarize_add,
)  # fmt: skip
_COLORS = tuple(apply for apply, name in zip(OPS, ops.OPS, strict=True) if name in ops.COLORS)
