# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ops that keep the aspect ratio and fill up; see `ops/scale.py` for what each op promises."""

import numpy as np

from vit_jax.data.numpy_ops import draws
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.numpy_ops.resize import Unsuitable, checked_size, resized
from vit_jax.data.ops import scale as ops
from vit_jax.data.ops.resize import Size, rows_columns

Sides = tuple[int, int]


def _scaled(sides: Sides, size: Size, factor: float, covers: bool) -> Sides:
    before = np.array(sides, np.float64)
    ratios = np.array(rows_columns(size), np.float64) / before
    after = np.rint(before * (ratios.max() if covers else ratios.min()) * np.float64(factor))
    rows, columns = np.maximum(after.astype(int), 1).tolist()
    return rows, columns


def _filled(image: np.ndarray, size: Size) -> np.ndarray:
    lacking = [side - own for side, own in zip(rows_columns(size), image.shape, strict=False)]
    if min(lacking) < 0:
        raise Unsuitable(f"{image.shape[1]} x {image.shape[0]} pixels are more than the size")
    widths = ((0, lacking[0]), (0, lacking[1]), (0, 0))
    return np.pad(image, widths, constant_values=ops.FILL)


def inside(op: ops.ResizeInside, sides: Sides) -> Sides:
    """Returns rows and columns of the result of `resize_inside` for those of an image."""
    return _scaled(sides, op.size, 1.0, False)


def resize_inside(op: ops.ResizeInside, image: np.ndarray, _: Seed) -> np.ndarray:
    """Applies `resize_inside`: uint8 [H, W, C] to the largest image inside `op.size`."""
    after = inside(op, image.shape[:2])
    return resized(image, *after, antialias=op.antialias, cubic=op.cubic)


def pad(op: ops.Pad, image: np.ndarray, _: Seed) -> np.ndarray:
    """Applies `pad`: uint8 [H, W, C] to [rows, columns, C] of `op.size`.

    Raises:
      Unsuitable: the image is larger.
    """
    return _filled(image, op.size)


def jittered(op: ops.ScaleJitter, sides: Sides, seed: Seed) -> tuple[Sides, Sides]:
    """Returns rows and columns that `scale_jitter` resizes to, and where its crop begins."""
    drawn = draws.uniform(seed, 3)
    factor = np.float32(op.smallest) + np.float32(op.largest - op.smallest) * drawn[0]
    after, begin = _scaled(sides, op.size, factor, op.covers), []
    for side, wanted, share in zip(after, rows_columns(op.size), drawn[1:], strict=True):
        room = max(side - wanted, 0)
        begin.append(min(int(share * np.float32(room + 1)), room))
    return after, (begin[0], begin[1])


def scale_jitter(op: ops.ScaleJitter, image: np.ndarray, seed: Seed) -> np.ndarray:
    """Applies `scale_jitter`: uint8 [H, W, C] to [rows, columns, C] of `op.size`.

    Raises:
      Unsuitable: the image would have too many pixels.
    """
    after, (top, left) = jittered(op, image.shape[:2], seed)
    size = rows_columns(op.size)
    whole = resized(image, *checked_size(*after), antialias=True)
    return _filled(whole[top : top + size[0], left : left + size[1]], op.size)
