# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Keeps the aspect ratio within a budget of patches; see `ops/naflex.py` for what it promises."""

import math

import numpy as np

from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.numpy_ops.resize import resized
from vit_jax.data.ops import naflex as ops
from vit_jax.data.ops.scale import FILL


def grid(op: ops.NaFlex, sides: tuple[int, ...]) -> tuple[int, int]:
    """Returns the rows and columns of patches of an image with these rows and columns of pixels."""
    rows, columns = ops.grid_of(np.array(sides, np.float64), op, np).astype(int).tolist()
    return rows, columns


def naflex(op: ops.NaFlex, image: np.ndarray, _: Seed) -> np.ndarray:
    """Applies `naflex`: uint8 [H, W, C] to [rows, columns, C] of `op.size`."""
    rows, columns = grid(op, image.shape[:2])
    sides = rows * op.patch, columns * op.patch
    return in_cells(op, resized(image, *sides, antialias=True), FILL)


def in_cells(op: ops.NaFlex, image: np.ndarray, fill: float) -> np.ndarray:
    """Returns an image of whole patches with these in the cells of `op.size`, row by row."""
    side, channels = op.patch, image.shape[2]
    rows, columns = image.shape[0] // side, image.shape[1] // side
    patches = image.reshape(rows, side, columns, side, channels).transpose(0, 2, 1, 3, 4)
    shape = (math.prod(op.cells), side, side, channels)
    cells = np.full(shape, fill, image.dtype)
    cells[: rows * columns] = patches.reshape(rows * columns, side, side, channels)
    canvas = cells.reshape(*op.cells, *shape[1:]).transpose(0, 2, 1, 3, 4)
    return canvas.reshape(op.cells[0] * side, op.cells[1] * side, channels)


def from_cells(canvas: np.ndarray, patch: int, grid: np.ndarray) -> np.ndarray:
    """Returns the image of `grid` whose patches lie in the cells of a canvas; see `in_cells`."""
    (rows, columns), channels = grid, canvas.shape[2]
    down, across = canvas.shape[0] // patch, canvas.shape[1] // patch
    cells = canvas.reshape(down, patch, across, patch, channels).transpose(0, 2, 1, 3, 4)
    cells = cells.reshape(-1, patch, patch, channels)[: rows * columns]
    patches = cells.reshape(rows, columns, patch, patch, channels).transpose(0, 2, 1, 3, 4)
    return patches.reshape(rows * patch, columns * patch, channels)
