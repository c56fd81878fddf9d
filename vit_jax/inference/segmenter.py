# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Applies a run that learned segmentation to images of any size, on all devices.

An image is resized to `scale` times the smallest size that covers a window, and is covered by
windows of the size that the model was trained on; or it is resized as a whole into one. Logits are
averaged where windows overlap, resized to the image, and the highest wins. Axes: n windows, R C
their rows and columns, g k the grid of their logits, h w the resized image, H W the image, Y
classes. Start from `open_run`, then `Segmenter.of_images`.
"""

import collections
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from vit_jax.config import sections
from vit_jax.data.numpy_ops import resize
from vit_jax.data.ops.scale import FILL
from vit_jax.inference import dense_run
from vit_jax.step.objective import Network
from vit_jax.step.segmentation import Segmentation

Step = Callable[[Any, jax.Array], jax.Array]
EACH = 4  # windows in a batch on each device
_OVERLAP = 3  # a window begins at most 2/3 of its side after the one before (DINOv2: 341 of 512)
_MOST_BYTES = 2**31  # of the logits of an image
_TILE_BYTES = 2**24  # of the logits at the size of an image that are in memory at a time


@dataclasses.dataclass(frozen=True)
class Segmenter:
    """A model that is ready to be applied.

    Attributes:
      run: the run; its `size` is R and C.
      step: jitted: (params, uint8 [n, R, C, channels]) -> float32 [n, g, k, Y], g and k at most R
        and C.
      whole: whether an image is resized as a whole, not covered by windows.
    """

    run: dense_run.DenseRun
    step: Step
    whole: bool

    def of_images(self, images: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Yields the class of every pixel, int32 [H, W], of images uint8 [H, W, channels].

        Call `check` before on images of unknown shape.
        """
        count = EACH * self.run.rules.batch_parts
        waiting: collections.deque[_Canvas] = collections.deque()
        batch: list[tuple[_Canvas, tuple[int, int], np.ndarray]] = []
        for image in images:
            canvas, resized = self._canvas(image)
            waiting.append(canvas)
            for place in canvas.places:
                batch.append((canvas, place, _window(resized, place, self.run.size)))
                if len(batch) == count:
                    self._apply(batch, count)
                    batch = []
            while waiting and not waiting[0].left:
                yield waiting.popleft().classes()
        if batch:
            self._apply(batch, count)
        for canvas in waiting:
            yield canvas.classes()

    def check(self, image: np.ndarray) -> None:
        """Raises Unsuitable if an image, resized to cover a window, needs too much memory."""
        rows, columns = self._sides(image)
        size = 4 * rows * columns * len(self.run.names)
        if size > _MOST_BYTES:
            raise resize.Unsuitable(
                f"{image.shape[1]} x {image.shape[0]} pixels become {columns} x {rows} to cover a "
                f"window, whose logits take {size / 2**30:.0f} GiB; cut the image"
            )

    def _sides(self, image: np.ndarray) -> tuple[int, int]:
        ratios = [wanted / own for wanted, own in zip(self.run.size, image.shape, strict=False)]
        scale = min(ratios) if self.whole else max(ratios) * self.run.objective.scale
        rows, columns = (max(1, round(side * scale)) for side in image.shape[:2])
        return rows, columns

    def _canvas(self, image: np.ndarray) -> tuple["_Canvas", np.ndarray]:
        """Returns the empty logits of an image, and the image as windows are cut from it."""
        sides = self._sides(image)
        resized = resize.resized(image, *sides, antialias=True)
        starts = [_starts(side, wanted) for side, wanted in zip(sides, self.run.size, strict=True)]
        places = [(top, left) for top in starts[0] for left in starts[1]]
        return _Canvas(image.shape[:2], sides, places, len(self.run.names)), resized

    def _apply(self, batch: list[Any], count: int) -> None:
        windows = np.stack([pixels for _, _, pixels in batch])
        lacking = count - len(batch)
        windows = np.pad(windows, ((0, lacking), *[(0, 0)] * 3))
        placed = jax.device_put(windows, self.run.rules.sharding(("act_batch",), (count,)))
        grids = jax.device_get(self.step(self.run.params, placed))
        for (canvas, place, _), grid_gkY in zip(batch, grids, strict=False):
            canvas.add(place, resize.bilinear(grid_gkY, *self.run.size))


class _Canvas:
    """The logits of an image while its windows come in."""

    def __init__(self, image: Any, sides: Any, places: list[tuple[int, int]], classes: int):
        self.image, self.places, self.left = image, places, len(places)
        self._sums_hwY = np.zeros((*sides, classes), np.float32)
        self._times_hw1 = np.zeros((*sides, 1), np.float32)

    def add(self, place: tuple[int, int], logits_RCY: np.ndarray) -> None:
        top, left = place
        part = self._sums_hwY[top : top + logits_RCY.shape[0], left : left + logits_RCY.shape[1]]
        rows, columns = part.shape[:2]
        part += logits_RCY[:rows, :columns]
        self._times_hw1[top : top + rows, left : left + columns] += 1
        self.left -= 1

    def classes(self) -> np.ndarray:
        self._sums_hwY /= self._times_hw1
        return highest(self._sums_hwY, *self.image)


def _window(image: np.ndarray, place: tuple[int, int], size: tuple[int, int]) -> np.ndarray:
    (top, left), (rows, columns) = place, size
    cut = image[top : top + rows, left : left + columns]
    widths = ((0, rows - cut.shape[0]), (0, columns - cut.shape[1]), (0, 0))
    return np.pad(cut, widths, constant_values=FILL)


def _starts(length: int, window: int) -> list[int]:
    """Returns where windows begin that cover a length; the last one ends where it ends."""
    if length <= window:
        return [0]
    stride = max(1, window * (_OVERLAP - 1) // _OVERLAP)
    count = math.ceil((length - window) / stride) + 1
    return [min(n * stride, length - window) for n in range(count)]


def highest(logits_hwY: np.ndarray, height: int, width: int) -> np.ndarray:
    """Returns the class with the highest logit at each pixel after a bilinear resize, int32 [H, W].

    It holds the resized logits of a tile at a time.
    """
    ((above, below), down), ((left, right), across) = (
        resize.between(after, before)
        for after, before in zip((height, width), logits_hwY.shape, strict=False)
    )
    most = max(1, _TILE_BYTES // (4 * logits_hwY.shape[2]))  # pixels of a tile
    wide = min(width, most)
    tall = max(1, most // (wide * math.ceil(logits_hwY.shape[1] / width)))
    classes_HW = np.empty((height, width), np.int32)
    for top, start in itertools.product(range(0, height, tall), range(0, width, wide)):
        some, part = slice(top, top + tall), slice(start, start + wide)
        first = left[part][0]
        near = logits_hwY[:, first : right[part][-1] + 1]
        rows = _mixed(near[above[some]], near[below[some]], down[some, None, None])
        a, b = (rows[:, side[part] - first] for side in (left, right))
        classes_HW[some, part] = _mixed(a, b, across[None, part, None]).argmax(axis=-1)
    return classes_HW


def _mixed(a: np.ndarray, b: np.ndarray, share: np.ndarray) -> np.ndarray:
    return a + (b - a) * share


# ---------------------------------------------------------------- runs


def open_run(
    text: str, image_size: tuple[int, int] | None = None, whole: bool = False
) -> Segmenter:
    """Loads a run that learned segmentation onto all devices of this process.

    Args:
      text: WORKDIR, WORKDIR@best or WORKDIR@STEP.
      image_size: rows and columns of a window; None: those of training.
      whole: see `Segmenter`.

    Raises:
      BadInput: the run cannot be read, or does not take images of this size.
    """
    run = dense_run.open_run(text, image_size)
    over = run.rules.sharding(("act_batch",), (EACH * run.rules.batch_parts,))
    step = jax.jit(step_of(run.objective, run.network), out_shardings=over)
    if whole:  # published results are those of windows
        run = dataclasses.replace(run, expected=sections.Expected())
    return Segmenter(run, step, whole)


def step_of(objective: Segmentation, network: Network) -> Step:
    """Returns `Segmenter.step`, not jitted yet."""

    def step(params: Any, windows: jax.Array) -> jax.Array:
        return objective.exported(network, params, windows)["logits"]

    return step
