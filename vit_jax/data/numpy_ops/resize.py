# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Resizes and crops without randomness; see `ops/resize.py` for what each op promises."""

import functools
import math
from typing import NamedTuple

import numpy as np

from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.ops import resize as ops
from vit_jax.data.ops.decode import MOST_PIXELS

_half = np.float32(0.5)


class Unsuitable(ValueError):
    """An image that an op cannot take; the message is the reason."""


def _centres(after: int, before: int) -> np.ndarray:
    """Returns where the centres of pixels come from, float32 [after], in pixels of the source."""
    scale = np.float32(before) / np.float32(after)
    return (np.arange(after, dtype=np.float32) + _half) * scale


def between(after: int, before: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns what a bilinear resize of a side mixes, with half-pixel centres.

    Returns:
      The source pixels on both sides of each pixel, int [2, after], and the share of the second
      one, float32 [after]. Both pixels are the same beyond the centres of the first and last one.
    """
    at = _centres(after, before) - _half
    first = np.floor(at)
    near = np.clip(np.stack([first, first + 1]), 0, before - 1).astype(np.intp)
    return near, at - first


def bilinear(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Resizes without averaging, half-pixel centres; returns float32 [height, width, C]."""
    rows, columns, channels = image.shape
    if (rows, columns) == (height, width):
        return image.astype(np.float32)
    (first, down), (near, across) = between(height, rows), between(width, columns)
    y, x = down[:, None], np.repeat(across, channels)

    def across_of(lines: np.ndarray) -> np.ndarray:
        """Returns each line with its pixels between columns, float32 [lines, width * C]."""
        a, b = (lines.take(n, axis=1).reshape(len(lines), -1).astype(np.float32) for n in near)
        b -= a
        b *= x
        b += a
        return b

    if rows < 2 * height:
        lines = across_of(image)
        above, below = lines[first[0]], lines[first[1]]
    else:
        above, below = (across_of(image[n]) for n in first)
    below -= above
    below *= y
    below += above
    return below.reshape(height, width, channels)


class _Band(NamedTuple):
    """A sparse matrix: output n is the sum over t of weights[n, t] * input[starts[n] + t]."""

    starts: np.ndarray  # int [after]
    weights: np.ndarray  # float32 [after, taps]

    def of_rows(self, image: np.ndarray) -> np.ndarray:
        """Returns the product with the rows of an image, float32; adds in ascending order."""
        total = np.zeros([len(self.starts), *image.shape[1:]], np.float32)
        for tap, weight in enumerate(self.weights.T):
            rows = image[np.minimum(self.starts + tap, len(image) - 1)]
            total += np.multiply(rows, weight[:, None, None], dtype=np.float32)
        return total

    def of_columns(self, image: np.ndarray) -> np.ndarray:
        """Returns the product with the columns of an image, float32."""
        columns = np.ascontiguousarray(image.transpose(1, 0, 2))
        return np.ascontiguousarray(self.of_rows(columns).transpose(1, 0, 2))


def _triangle(distance: np.ndarray) -> np.ndarray:
    return np.maximum(np.float32(1) - distance, 0)


def _keys(distance: np.ndarray) -> np.ndarray:
    """Returns the cubic kernel of Keys with a = -1/2, for distances in pixels, float32."""
    near = ((1.5 * distance - 2.5) * distance) * distance + 1
    far = ((-0.5 * distance + 2.5) * distance - 4) * distance + 2
    return np.where(distance < 1, near, np.where(distance < 2, far, 0)).astype(np.float32)


@functools.lru_cache(64)
def _averaging(after: int, before: int, cubic: bool) -> _Band:
    """Returns the kernel of a resize that averages.

    It is as wide as pixels of the result, but at least as those of the source: a triangle of one
    pixel to each side, or a cubic kernel of two.
    """
    # `tf.image.resize` states the scale, and its kernel computes the inverse, both in float32.
    inverse = np.float32(1.0 / float(np.float32(after) / np.float32(before)))
    wide = max(inverse, np.float32(1))
    centres = (np.arange(after, dtype=np.float32) + _half) * inverse
    reach = wide * np.float32(2 if cubic else 1)
    starts = np.clip(np.ceil(centres - reach - _half), 0, before - 1)
    ends = np.clip(np.floor(centres + reach - _half), 0, before - 1)
    places = starts[:, None] + np.arange(int((ends - starts).max()) + 1, dtype=np.float32)
    distance = np.abs((places + _half - centres[:, None]) * (np.float32(1) / wide))
    weights = (_keys if cubic else _triangle)(distance) * (places <= ends[:, None])
    total = np.add.accumulate(weights, axis=1)[:, -1:]
    return _Band(starts.astype(int), weights * (np.float32(1) / total))


@functools.lru_cache(64)
def _areas(after: int, before: int) -> _Band:
    """Returns the share of each source pixel in each pixel, in pixels of the source."""
    scale = np.float32(before) / np.float32(after)
    edges = np.arange(after + 1, dtype=np.float32) * scale
    begin, end = edges[:-1, None], edges[1:, None]
    starts, ends = np.floor(begin), np.ceil(end)
    places = starts + np.arange(int((ends - starts).max()), dtype=np.float32)
    one = np.float32(1)
    rest = np.where(places + one > end, scale, places + one - begin)
    whole = np.where(places + one > end, end - places, one)
    weights = np.where(places < begin, rest, whole) * (places < ends)
    return _Band(starts[:, 0].astype(int), weights.astype(np.float32))


def resized(
    image: np.ndarray, height: int, width: int, *, antialias: bool, cubic: bool = False
) -> np.ndarray:
    """Resizes uint8 [H, W, C] and rounds to uint8, as `ops.resize.resize` does."""
    if (antialias or cubic) and image.shape[:2] != (height, width):
        values = _averaging(height, image.shape[0], cubic).of_rows(image)
        values = _averaging(width, image.shape[1], cubic).of_columns(values)
    else:
        values = bilinear(image, height, width)
    return np.rint(np.clip(values, 0, 255) if cubic else values).astype(np.uint8)


def _truncated(values: np.ndarray) -> np.ndarray:
    return np.clip(values, 0, 255).astype(np.uint8)


def checked_size(rows: int, columns: int) -> tuple[int, int]:
    """Returns the sides of a result; raises Unsuitable if it would have too many pixels."""
    if rows * columns > MOST_PIXELS:
        raise Unsuitable(f"it would be resized to more than {MOST_PIXELS} pixels")
    return rows, columns


def resize(op: ops.Resize, image: np.ndarray, _: Seed) -> np.ndarray:
    """Applies `resize`: uint8 [H, W, C] to [rows, columns, C] of `op.size`."""
    sides = ops.rows_columns(op.size)
    return resized(image, *sides, antialias=op.antialias, cubic=op.cubic)


def covering(op: ops.ResizeSmall, sides: tuple[int, int]) -> tuple[int, int]:
    """Returns rows and columns of the result of `resize_small` for those of an image."""
    before = np.array(sides, np.float64)
    after = np.rint(before * (np.array(ops.rows_columns(op.size)) / before).max())
    rows, columns = after.astype(int).tolist()
    return rows, columns


def resize_small(op: ops.ResizeSmall, image: np.ndarray, _: Seed) -> np.ndarray:
    """Applies `resize_small`: uint8 [H, W, C] to [rows, columns, C] that covers `op.size`.

    Raises:
      Unsuitable: the result would have too many pixels.
    """
    sides = checked_size(*covering(op, image.shape[:2]))
    return resized(image, *sides, antialias=op.antialias, cubic=op.cubic)


def central_crop(op: ops.CentralCrop, image: np.ndarray, _: Seed) -> np.ndarray:
    """Applies `central_crop`: uint8 [H, W, C] to [rows, columns, C] of `op.size`.

    Raises:
      Unsuitable: the image is smaller.
    """
    rows, columns = ops.rows_columns(op.size)
    check_covers(image, rows, columns)
    top, left = (image.shape[0] - rows) // 2, (image.shape[1] - columns) // 2
    return image[top : top + rows, left : left + columns]


def check_covers(image: np.ndarray, rows: int, columns: int) -> None:
    """Raises Unsuitable if an image is smaller than a crop."""
    if image.shape[0] < rows or image.shape[1] < columns:
        raise Unsuitable(f"{image.shape[1]} x {image.shape[0]} pixels are less than the crop")


def bv_resize(op: ops.BvResize, image: np.ndarray, _: Seed) -> np.ndarray:
    """Applies `bv_resize`: uint8 [H, W, C] to [rows, columns, C] of `op.size`."""
    return _truncated(bilinear(image, *ops.rows_columns(op.size)))


def bv_covering(op: ops.BvResizeSmall, sides: tuple[int, int]) -> tuple[int, int]:
    """Returns rows and columns of the result of `bv_resize_small` for those of an image."""
    before = np.array(sides, np.float32)
    factor = (np.array(ops.rows_columns(op.size), np.float32) / before).max()
    rows, columns = np.rint(before * factor).astype(int).tolist()
    return rows, columns


def bv_resize_small(op: ops.BvResizeSmall, image: np.ndarray, _: Seed) -> np.ndarray:
    """Applies `bv_resize_small`: uint8 [H, W, C] to [rows, columns, C] that covers `op.size`.

    Raises:
      Unsuitable: the result would have too many pixels.
    """
    rows, columns = checked_size(*bv_covering(op, image.shape[:2]))
    if (rows, columns) == image.shape[:2]:
        return image
    values = _areas(columns, image.shape[1]).of_columns(image)
    values = _areas(rows, image.shape[0]).of_rows(values)
    scales = (
        np.float32(a) / np.float32(b) for a, b in zip(image.shape, (rows, columns), strict=False)
    )
    return _truncated(values * np.float32(1.0 / float(math.prod(scales))))
