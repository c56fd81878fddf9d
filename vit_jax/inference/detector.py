# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Applies a run that learned detection to images of any size, on all devices.

An image is resized to the largest that fits the size of training, keeping its aspect ratio, and is
filled up on the right and below. The boxes come back in pixels of the image. Axes: n images of a
batch, R C their rows and columns, H W an image, N detections. Start from `open_run`, then
`Detector.of_images`.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from vit_jax.data.numpy_ops import resize, scale
from vit_jax.data.ops import scale as ops
from vit_jax.inference import dense_run
from vit_jax.step.detection import Detections

Step = Callable[[Any, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]
EACH = 4  # images in a batch on each device
_NOTHING_DRAWN = (0, 0)  # the seed of ops that draw nothing


@dataclasses.dataclass(frozen=True)
class Detector:
    """A model that is ready to be applied.

    Attributes:
      run: the run; its `size` is R and C.
      step: jitted: (params, uint8 [n, R, C, channels]) -> boxes float32 [n, N, 4] in pixels of the
        resized image, scores [n, N] and classes int32 [n, N], as `Detection.detect`.
    """

    run: dense_run.DenseRun
    step: Step

    def of_images(self, images: Iterable[np.ndarray]) -> Iterator[Detections]:
        """Yields the objects in each image uint8 [H, W, channels].

        Call `check` before on images of unknown shape.
        """
        count = EACH * self.run.rules.batch_parts
        left = iter(images)
        while batch := tuple(itertools.islice(left, count)):
            yield from self._of_batch(batch, count)

    def check(self, image: np.ndarray) -> None:
        """Raises Unsuitable if an image is so long that nothing of it is left when it fits."""
        if min(image.shape[:2]) * self._ratio(image) < 0.5:
            raise resize.Unsuitable(
                f"{image.shape[1]} x {image.shape[0]} pixels, resized to fit {self.run.size[1]} x "
                f"{self.run.size[0]}, are less than a pixel wide; cut the image"
            )

    def _ratio(self, image: np.ndarray) -> float:
        return min(wanted / own for wanted, own in zip(self.run.size, image.shape, strict=False))

    def _of_batch(self, images: tuple[np.ndarray, ...], count: int) -> Iterator[Detections]:
        given, scales = [], []
        for image in images:
            resized = scale.resize_inside(ops.ResizeInside(self.run.size), image, _NOTHING_DRAWN)
            given.append(scale.pad(ops.Pad(self.run.size), resized, _NOTHING_DRAWN))
            rows, columns = resized.shape[:2]
            scales.append((image.shape[1] / columns, image.shape[0] / rows))
        pixels = np.pad(np.stack(given), ((0, count - len(given)), *[(0, 0)] * 3))
        placed = jax.device_put(pixels, self.run.rules.sharding(("act_batch",), (count,)))
        found = jax.device_get(self.step(self.run.params, placed))
        for image, times, *rows in zip(images, scales, *found, strict=False):
            yield _of_image(image, times, *rows)


def _of_image(
    image: np.ndarray, scale: tuple[float, float], boxes: Any, scores: Any, classes: Any
) -> Detections:
    """Returns detections in pixels of the image, without those outside it."""
    height, width = image.shape[:2]
    ends = np.array([width, height] * 2, np.float32)
    boxes = (boxes * np.array([*scale, *scale], np.float32)).clip(0, ends)
    there = (scores > 0) & (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    return Detections(boxes[there], scores[there], classes[there])


def open_run(text: str, image_size: tuple[int, int] | None = None) -> Detector:
    """Loads a run that learned detection onto all devices of this process.

    Args:
      text: WORKDIR, WORKDIR@best or WORKDIR@STEP.
      image_size: R and C; None: those of training.

    Raises:
      BadInput: the run cannot be read, or does not take images of this size.
    """
    run = dense_run.open_run(text, image_size)

    def step(params: Any, images: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return run.objective.detect(run.network, params, images)

    over = run.rules.sharding(("act_batch",), (EACH * run.rules.batch_parts,))
    return Detector(run, jax.jit(step, out_shardings=over))
