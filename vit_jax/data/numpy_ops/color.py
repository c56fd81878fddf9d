# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random colours, blur and 3-Augment; see `ops/color.py` for what each op promises."""

import math

import numpy as np

from vit_jax.data.numpy_ops import draws
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.numpy_ops.resize import Unsuitable
from vit_jax.data.ops import color as ops

_GRAY = np.float32(0.299), np.float32(0.587), np.float32(0.114)


def _gray(image: np.ndarray) -> np.ndarray:
    """Returns the luma of an image, float32 [H, W, 1]."""
    red, green, blue = (image[..., c : c + 1].astype(np.float32) for c in range(3))
    return _GRAY[0] * red + _GRAY[1] * green + _GRAY[2] * blue


def _as_gray(image: np.ndarray) -> np.ndarray:
    return np.repeat(_to_uint8(_gray(image)), 3, axis=-1)


def _to_uint8(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def invert_from(image: np.ndarray, threshold: int) -> np.ndarray:
    """Inverts uint8 values of at least `threshold`: value -> 255 - value."""
    return np.where(image >= threshold, 255 - image, image)


def color_jitter(op: ops.ColorJitter, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `color_jitter`: uint8 [H, W, 3] to the same shape."""
    if op.probability != 1.0:
        if not draws.uniform(draws.fold_in(seed, 1), 1)[0] < np.float32(op.probability):
            return image
    most = np.array([op.brightness, op.contrast, op.saturation], np.float32)
    shares = draws.uniform(seed, 4, -1.0, 1.0)
    brightness, contrast, saturation = np.maximum(1 + most * shares[:3], np.float32(0))
    luma = _gray(image)
    grays = contrast * (1 - saturation) * luma + (1 - contrast) * luma.mean(dtype=np.float32)
    jittered = brightness * (contrast * saturation * image.astype(np.float32) + grays)
    if op.hue:
        jittered = _turned(np.clip(jittered, 0, 255), shares[3] * np.float32(op.hue))
    return _to_uint8(jittered)


def _turned(values: np.ndarray, turns: np.float32) -> np.ndarray:
    """Turns the hue of RGB, float32 [H, W, 3], at equal largest and smallest values.

    On a circle of 6, red, yellow, green, cyan, blue and magenta stand at 0 to 5.
    """
    red, green, blue = (values[..., c] for c in range(3))
    low, high = values.min(axis=-1), values.max(axis=-1)
    span = high - low
    safe = np.where(span > 0, span, 1)
    hue = np.where(
        high == red,
        (green - blue) / safe,
        np.where(high == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = (hue + turns * 6) % 6
    # Each channel is largest within one of its own hue, and smallest from two on.
    distances = (np.abs((hue - own + 3) % 6 - 3) for own in (0, 2, 4))
    shares = [np.clip(2 - distance, 0, 1) for distance in distances]
    return low[..., None] + span[..., None] * np.stack(shares, axis=-1)


def grayscale(op: ops.Grayscale, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `grayscale`: uint8 [H, W, 3] to the same shape."""
    changes = draws.uniform(seed, 1)[0] < np.float32(op.probability)
    return _as_gray(image) if changes else image


def solarize(op: ops.Solarize, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `solarize`: uint8 [H, W, C] to the same shape."""
    changes = draws.uniform(seed, 1)[0] < np.float32(op.probability)
    return invert_from(image, 128) if changes else image


def gaussian_blur(op: ops.GaussianBlur, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `gaussian_blur`: uint8 [H, W, C] to the same shape."""
    reach = min(max(min(image.shape[:2]) // 20, 1), math.ceil(3 * op.sigma_max))
    draw, share = draws.uniform(seed, 2)
    if not draw < np.float32(op.probability):
        return image
    return _blur(image, np.float32(op.sigma_min) + np.float32(op.sigma_max - op.sigma_min) * share,
                 reach)  # fmt: skip


def _blur(image: np.ndarray, sigma: np.float32, reach: int) -> np.ndarray:
    """Blurs with a Gaussian of `sigma` pixels, cut off at `reach`, mirrored outside."""
    if min(image.shape[:2]) < reach:  # what is mirrored would be mirrored again
        raise Unsuitable(f"a side is shorter than the {reach} pixels that a blur reaches")
    steps = np.arange(reach + 1, dtype=np.float32) / sigma
    weights = np.exp((np.float32(-0.5) * steps**2).astype(np.float64)).astype(np.float32)
    weights = weights / (2 * weights.sum() - weights[0])
    values = image.astype(np.float32)
    for _ in range(2):
        padded = np.pad(values, [(reach, reach), (0, 0), (0, 0)], mode="symmetric")
        rows = len(values)
        blurred = weights[0] * values
        for n in range(1, reach + 1):
            before, after = padded[reach - n :][:rows], padded[reach + n :][:rows]
            blurred += weights[n] * (before + after)
        values = blurred.transpose(1, 0, 2)
    return _to_uint8(values)


def three_augment(_: ops.ThreeAugment, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `three_augment`: uint8 [H, W, 3] to the same shape.

    Raises:
      Unsuitable: a side is too short for the blur that is drawn.
    """
    choice, share = draws.uniform(draws.fold_in(seed, 0), 2)
    kind = int(choice * 3)
    if kind == 0:
        changed = _as_gray(image)
    elif kind == 1:
        changed = invert_from(image, 128)
    else:
        changed = _blur(image, np.float32(0.1) + np.float32(1.9) * share, ops.REACH)
    jitter = ops.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3)
    return color_jitter(jitter, changed, draws.fold_in(seed, 1))
