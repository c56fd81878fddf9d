# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Packs several images into a sequence (NaViT, arXiv:2307.06304), for models with `naflex`.

Small images leave most of a canvas empty, and a model computes its padding too. Start from `pack`.
"""

from collections.abc import Sequence

import numpy as np

from vit_jax.errors import BadInput
from vit_jax.models.naflex import Canvas


def first_fit(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Returns the numbers of the images of each sequence: the first one with room takes an image.

    Args:
      lengths: patches of each image, at most `budget`.
      budget: patches of a sequence.
    """
    sequences, left = list[list[int]](), list[int]()
    for number, length in enumerate(lengths):
        assert 0 < length <= budget, (length, budget)
        place = next((i for i, room in enumerate(left) if room >= length), len(left))
        if place == len(left):
            sequences.append([])
            left.append(budget)
        sequences[place].append(number)
        left[place] -= length
    return sequences


def pack(canvas: Canvas, patch: int) -> tuple[Canvas, np.ndarray]:
    """Packs images, each in a row of its own, into as few rows as the first fit finds.

    Args:
      canvas: images float32 [N, H, W, C], and grids int32 [N, 2].
      patch: pixels a side of a patch.

    Returns:
      The packed canvas, with grids [M, S, 2]; and int32 [N, 2], the row of each image and its
      number there. For the output of the model [M, S, Y], `output[place[:, 0], place[:, 1]]` has
      the order of the images.

    Raises:
      BadInput: no image, patches that do not tile the images, or grids of another shape, of no
        patch, or of more than the canvas has.
    """
    _check(canvas, patch)
    count, height, width, channels = canvas.images_BHWC.shape
    rows, columns = height // patch, width // patch
    images = np.asarray(canvas.images_BHWC).reshape(count, rows, patch, columns, patch, channels)
    cells = images.transpose(0, 1, 3, 2, 4, 5).reshape(count, rows * columns, patch, patch, -1)
    grids, lengths = np.asarray(canvas.grids), np.asarray(canvas.grids).prod(axis=1)
    sequences = first_fit(lengths.tolist(), rows * columns)
    packed = np.zeros((len(sequences), *cells.shape[1:]), cells.dtype)
    together = np.zeros((len(sequences), max(map(len, sequences)), 2), np.int32)
    places = np.zeros((count, 2), np.int32)
    for row, numbers in enumerate(sequences):
        start = 0
        for at, number in enumerate(numbers):
            packed[row, start : start + lengths[number]] = cells[number, : lengths[number]]
            together[row, at], places[number] = grids[number], (row, at)
            start += lengths[number]
    packed = packed.reshape(-1, rows, columns, patch, patch, channels).transpose(0, 1, 3, 2, 4, 5)
    return Canvas(packed.reshape(-1, height, width, channels), together), places


def _check(canvas: Canvas, patch: int) -> None:
    shape, grids = np.shape(canvas.images_BHWC), np.asarray(canvas.grids)
    whole = len(shape) == 4 and patch > 0 and 0 not in shape
    if not whole or shape[1] % patch or shape[2] % patch:
        raise BadInput(
            f"pack: images {shape} and patch={patch}; give [N, H, W, C] of whole patches, N >= 1."
        )
    budget = shape[1] // patch * (shape[2] // patch)
    if grids.shape != (shape[0], 2) or grids.min() < 1 or grids.prod(axis=1).max() > budget:
        raise BadInput(
            f"pack: grids {grids.shape} for {shape[0]} images of {budget} patches each; give "
            f"[N, 2], rows and columns of 1 to {budget} patches, and the patch of the model."
        )
