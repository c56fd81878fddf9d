# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Packs several images into a sequence (NaViT, arXiv:2307.06304), for models with `naflex`.

Small images leave most of a canvas empty, and a model computes its padding too. Start from `pack`
for images in memory, and from `Packing` for a stream of batches.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from vit_jax.data.example import GRID
from vit_jax.data.pipeline.pipeline import NumpyBatch
from vit_jax.errors import BadInput
from vit_jax.models.naflex import Canvas
from vit_jax.weights import image_settings


def first_fit(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Returns the numbers of the images of each sequence: the first one with room takes an image.

    Args:
      lengths: patches of each image, at most `budget`.
      budget: patches of a sequence.
    """
    sequences, left = list[list[int]](), list[int]()
    for number, length in enumerate(lengths):
        assert 0 < length <= budget, (length, budget)
        place = _first_with_room(left, length)
        if place < 0:
            sequences.append([])
            left.append(budget)
        sequences[place].append(number)
        left[place] -= length
    return sequences


def _first_with_room(left: Sequence[int], length: int) -> int:
    """Returns the number of the first sequence with `length` patches left; -1 if there is none."""
    return next((i for i, room in enumerate(left) if room >= length), -1)


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
    count, height, width, _ = canvas.images_BHWC.shape
    cells, grids = _cells(np.asarray(canvas.images_BHWC), patch), np.asarray(canvas.grids)
    sequences = first_fit(grids.prod(axis=1).tolist(), cells.shape[1])
    packed = _packed([[(cells[n], grids[n]) for n in row] for row in sequences], (height, width))
    places = np.zeros((count, 2), np.int32)
    for row, numbers in enumerate(sequences):
        places[numbers] = [(row, at) for at in range(len(numbers))]
    return packed, places


_Image = tuple[np.ndarray, np.ndarray]  # cells [L, P, P, C], of which the grid [2] has the first


def _cells(images_BHWC: np.ndarray, patch: int) -> np.ndarray:
    """Returns the cells of canvases, [B, L, P, P, C]."""
    count, height, width, channels = images_BHWC.shape
    rows, columns = height // patch, width // patch
    cells = images_BHWC.reshape(count, rows, patch, columns, patch, channels)
    return cells.transpose(0, 1, 3, 2, 4, 5).reshape(count, rows * columns, patch, patch, channels)


def _packed(
    sequences: Sequence[Sequence[_Image]], sides: tuple[int, int], images: int = 0
) -> Canvas:
    """Returns sequences of images as a canvas of rows of `sides` pixels, zeros at their ends.

    Args:
      sequences: the images of each row.
      sides: rows and columns of pixels.
      images: S; 0: as many as the longest row has.
    """
    some, _ = next(row[0] for row in sequences if row)
    patch, channels = some.shape[1], some.shape[-1]
    rows, columns = sides[0] // patch, sides[1] // patch
    cells = np.zeros((len(sequences), rows * columns, *some.shape[1:]), some.dtype)
    grids = np.zeros((len(sequences), images or max(map(len, sequences)), 2), np.int32)
    for row, members in enumerate(sequences):
        start = 0
        for at, (image, grid) in enumerate(members):
            end = start + int(grid.prod())
            cells[row, start:end], grids[row, at] = image[: end - start], grid
            start = end
    cells = cells.reshape(-1, rows, columns, patch, patch, channels).transpose(0, 1, 3, 2, 4, 5)
    return Canvas(cells.reshape(-1, *sides, channels), grids)


@dataclasses.dataclass
class Packing:
    """Packs batches of single images into batches of sequences.

    Attributes:
      budget: patches of a sequence.
      patch: pixels a side of a patch.
      rows: sequences of a batch.
      order: for each output so far, in the order of rows, the number of its image.
    """

    budget: int
    patch: int
    rows: int
    order: list[int] = dataclasses.field(default_factory=list)

    def batches(self, singles: Iterator[NumpyBatch]) -> Iterator[NumpyBatch]:
        """Yields packed batches: the first sequence with room takes an image.

        A batch ends when an image has no room. The S of a batch is a power of 2, so that a step is
        compiled for a few shapes only.

        Args:
          singles: batches with `image` [B, H, W, C], `_mask` bool [B], and `grid` int32 [B, 2];
            without grids, images fill their canvases.

        Yields:
          The same fields, with `grid` int32 [R, S, 2] and `_mask` bool [R, S].
        """
        sequences, numbers, left = self._empty()
        count = 0
        for batch in singles:
            real = batch["_mask"]
            cells = _cells(batch["image"][real], self.patch)
            whole = np.array(batch["image"].shape[1:3]) // self.patch
            grids = batch[GRID][real] if GRID in batch else [whole] * len(cells)
            for image, grid in zip(cells, grids, strict=True):
                length = int(grid.prod())
                row = _first_with_room(left, length)
                if row < 0:
                    yield self._batch(sequences, numbers)
                    (sequences, numbers, left), row = self._empty(), 0
                sequences[row].append((image[:length].copy(), grid))
                numbers[row].append(count)
                left[row] -= length
                count += 1
        if count:
            yield self._batch(sequences, numbers)

    def _empty(self) -> tuple[list[list[_Image]], list[list[int]], list[int]]:
        rows = range(self.rows)
        return [[] for _ in rows], [[] for _ in rows], [self.budget] * self.rows

    def _batch(self, sequences: list[list[_Image]], numbers: list[list[int]]) -> NumpyBatch:
        self.order += [number for row in numbers for number in row]
        lengths_R = np.array([len(row) for row in numbers])
        most = 1 << int(lengths_R.max() - 1).bit_length()
        sides = image_settings.canvas_of(self.budget, self.patch)
        packed = _packed(sequences, sides, most)
        mask_RS = np.arange(most) < lengths_R[:, None]
        return {"image": packed.images_BHWC, GRID: packed.grids, "_mask": mask_RS}


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
