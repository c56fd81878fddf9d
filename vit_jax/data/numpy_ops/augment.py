# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Flips, crops, shifts, affine maps and erasing; see `ops/augment.py` and `ops/erasing.py`."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_jax.data.numpy_ops import draws
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.numpy_ops.resize import check_covers, resized
from vit_jax.data.ops import augment as ops
from vit_jax.data.ops import erasing
from vit_jax.data.ops.resize import rows_columns

_float = np.float32


def flip_lr(_: ops.FlipLr, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `flip_lr`: uint8 [H, W, C] to the same shape."""
    return image[:, ::-1] if draws.uniform(seed, 1)[0] < 0.5 else image


def begin(height: int, width: int, seed: Seed) -> tuple[int, int]:
    """Returns where a random crop begins, which leaves out so many rows and columns."""
    down, across, _ = draws.integers(seed, 3, 2**31 - 1)
    return down % (height + 1), across % (width + 1)


def random_crop(op: ops.RandomCrop, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `random_crop`: uint8 [H, W, C] to [rows, columns, C] of `op.size`.

    Raises:
      Unsuitable: the image is smaller.
    """
    rows, columns = rows_columns(op.size)
    check_covers(image, rows, columns)
    top, left = begin(image.shape[0] - rows, image.shape[1] - columns, seed)
    return image[top : top + rows, left : left + columns]


def shift(op: ops.Shift, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `shift`: uint8 [H, W, C] to the same shape."""
    top, left = begin(2 * op.pixels, 2 * op.pixels, seed)
    rows, columns = image.shape[:2]
    padded = np.zeros((rows + 2 * op.pixels, columns + 2 * op.pixels, image.shape[2]), image.dtype)
    padded[op.pixels : op.pixels + rows, op.pixels : op.pixels + columns] = image
    return padded[top : top + rows, left : left + columns]


def crop_box(op: ops.InceptionCrop, height: int, width: int, seed: Seed) -> tuple[slice, slice]:
    """Returns the rows and columns that `inception_crop` takes.

    Args:
      op: the crop.
      height: rows of the image.
      width: columns of the image.
      seed: the seed of the crop.

    Returns:
      Two slices within [0, height) and [0, width), neither of them empty.
    """
    top, left, rows, columns = draws.box(
        seed, height, width, (op.area_min, op.area_max), (0.75, 1.33)
    )
    return slice(top, top + rows), slice(left, left + columns)


def inception_crop(op: ops.InceptionCrop, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `inception_crop`: uint8 [H, W, C] to [rows, columns, C] of `op.size`."""
    cut = image[crop_box(op, image.shape[0], image.shape[1], seed)]
    return resized(cut, *rows_columns(op.size), antialias=False, cubic=op.cubic)


def coordinates(
    matrix: Sequence[Any] | np.ndarray, height: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns where pixels come from, x and y, float32 [height, width] each.

    Args:
      matrix: (a, b, x, c, d, y): pixel (i, j), across and down, comes from
        (a i + b j + x, c i + d j + y).
      height: rows of the result.
      width: columns of the result.
    """
    a, b, x, c, d, y = (_float(value) for value in matrix)
    across = np.arange(width, dtype=np.float32)
    down = np.arange(height, dtype=np.float32)[:, None]
    return a * across + b * down + x, c * across + d * down + y


def nearest(
    values: np.ndarray, x: np.ndarray, y: np.ndarray, outside: int | np.ndarray
) -> np.ndarray:
    """Returns values [H, W, ...] at the pixels nearest to places; `outside` where there are none.

    Halves round away from zero, as in TensorFlow.
    """
    height, width = values.shape[:2]
    at = []
    for place in (x, y):
        whole = np.trunc(place)
        further = np.copysign(np.abs(place - whole) >= _float(0.5), place)
        at.append((whole + further).astype(np.intp))
    across, down = at
    inside = (across >= 0) & (across < width) & (down >= 0) & (down < height)
    flat = values.reshape(height * width, *values.shape[2:])
    choice = np.concatenate([flat, np.full((1, *flat.shape[1:]), outside, values.dtype)])
    return np.take(choice, np.where(inside, down * width + across, height * width), axis=0)


def affine_matrix(op: ops.Affine, height: int, width: int, seed: Seed) -> tuple[Any, ...]:
    """Returns where `affine` takes pixels from, as `coordinates` takes it."""
    turn, wider, higher, right, down = draws.uniform(seed, 5, -1.0, 1.0)
    angle = turn * _float(op.degrees * math.pi / 180.0)
    zoom_x, zoom_y = 1 + wider * _float(op.scale), 1 + higher * _float(op.scale)
    a, b = np.cos(angle) / zoom_x, -np.sin(angle) / zoom_y
    c, d = np.sin(angle) / zoom_x, np.cos(angle) / zoom_y
    centre_x, centre_y = _float(width - 1) / 2, _float(height - 1) / 2
    x = centre_x - a * centre_x - b * centre_y + right * _float(op.shift)
    y = centre_y - c * centre_x - d * centre_y + down * _float(op.shift)
    return a, b, x, c, d, y


def affine(op: ops.Affine, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `affine`: uint8 [H, W, C] to the same shape."""
    height, width = image.shape[:2]
    return _bilinear_at(image, *coordinates(affine_matrix(op, height, width, seed), height, width))


def _bilinear_at(image: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Returns the image at places between pixels, rounded; zero outside."""
    height, width = image.shape[:2]
    padded = np.pad(image.astype(np.float32), [(1, 1), (1, 1), (0, 0)])
    left, top = np.floor(x), np.floor(y)

    def line(rows: np.ndarray) -> np.ndarray:
        row = np.clip(rows, -1, height).astype(np.intp) + 1
        ends = (np.clip(left + n, -1, width).astype(np.intp) + 1 for n in (0, 1))
        here, there = (padded[row, column] for column in ends)
        return (left + 1 - x)[..., None] * here + (x - left)[..., None] * there

    values = (top + 1 - y)[..., None] * line(top) + (y - top)[..., None] * line(top + 1)
    return np.rint(values).astype(np.uint8)


def erased_area(
    op: erasing.RandomErasing, height: int, width: int, seed: Seed
) -> tuple[slice, slice] | None:
    """Returns the rows and columns that `random_erasing` erases; None for nothing."""
    tries = erasing.TRIES
    shares = draws.uniform(seed, 2 * tries + 3)
    sides = np.array([height, width])
    least, most = _float(op.area_min), _float(op.area_max - op.area_min)
    area = _float(sides.prod()) * (least + most * shares[:tries])
    aspect = np.exp((2 * shares[tries:-3] - 1) * _float(math.log(erasing.LEAST_ASPECT)))
    boxes = np.rint(np.sqrt(np.stack([area * aspect, area / aspect], axis=1))).astype(int)
    fits = (boxes <= sides).all(axis=1)
    if not (shares[-3] < op.probability and fits.any()):
        return None
    box = boxes[fits.argmax()]
    top, left = (shares[-2:] * (sides - box + 1).astype(np.float32)).astype(int).tolist()
    rows, columns = box.tolist()
    return slice(top, top + rows), slice(left, left + columns)


def random_erasing(op: erasing.RandomErasing, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `random_erasing`: uint8 [H, W, C] to the same shape."""
    area = erased_area(op, image.shape[0], image.shape[1], seed)
    if area is None:
        return image
    erased = image.copy()
    shape = erased[area].shape
    erased[area] = op.fill if op.fill >= 0 else draws.noise(draws.fold_in(seed, 1), shape)
    return erased
