# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines the frame of the pages about predicted masks and boxes, with the worst images.

Start from `Result`; `segmentation_page` and `detection_page` fill it.
"""

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from PIL import Image

from vit_jax.data.inspect import colours
from vit_jax.reports import pages

SHOWN = 12  # worst images on a page


@dataclasses.dataclass(frozen=True)
class Case:
    """An image with what it shows and what was predicted.

    Attributes:
      example: its name.
      score: the metric of this image alone, a share.
      picture: truth and prediction beside each other; a PNG file.
    """

    example: str
    score: float
    picture: bytes


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of an evaluation, and its inputs.

    Attributes:
      weights: the run.
      data: the source, `kind:rest`.
      split: name or slice of the split.
      size: rows and columns of the network's images.
      names: names of the classes.
      worst: the images with the lowest scores, the worst first.
      verdict: the comparison with the published result, in one line; "" without one.
    """

    weights: str
    data: str
    split: str
    size: tuple[int, int]
    names: tuple[str, ...]
    worst: list[Case]
    verdict: str

    def inputs(self) -> dict[str, Any]:
        """Returns the run and its data as plain values."""
        return {"weights": self.weights, "data": self.data, "split": self.split}

    def worst_as_json(self, metric: str) -> list[dict[str, Any]]:
        """Returns the worst images as plain values; `metric` names their score."""
        return [{"example": case.example, metric: case.score} for case in self.worst]

    def lines(self, *texts: str) -> list[str]:
        """Returns paragraphs, with the verdict if there is one."""
        return [*texts, *([self.verdict] if self.verdict else [])]

    def page(self, template: str, title: str, notes: Sequence[str], **values: Any) -> str:
        """Returns the whole HTML document; see `pages.render`."""
        lines = self.lines(*notes)
        return pages.render(
            template, f"{title} by {self.weights}", notes=lines, worst=self.worst, **values
        )


def lowest_first(classes: list[dict[str, Any]], metric: str) -> list[dict[str, Any]]:
    """Returns the classes in the order of a share; those without it come last."""
    return sorted(classes, key=lambda one: 2 if one[metric] is None else one[metric])


def fitting(shape: tuple[int, ...], most: int) -> tuple[float, tuple[int, int]]:
    """Returns the factor that shrinks an image to `most` columns, and its columns and rows then."""
    height, width = shape[:2]
    scale = min(1.0, most / width)
    return scale, (max(1, round(width * scale)), max(1, round(height * scale)))


def shrunk(image: np.ndarray, sides: tuple[int, int]) -> np.ndarray:
    """Returns uint8 [rows, columns, 3] of an image, where `sides` are columns and rows."""
    return np.asarray(Image.fromarray(image).resize(sides))


def beside(pictures: Sequence[np.ndarray]) -> bytes:
    """Returns pictures of the same height beside each other, as a PNG file."""
    return colours.png(np.concatenate(pictures, axis=1))


class Worst:
    """The `SHOWN` images with the lowest score so far, each drawn when it comes among them."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Case]] = []
        self._count = itertools.count()

    def add(self, score: float, draw: Callable[[], Case]) -> None:
        """Keeps an image if it is among the worst; of equal ones, the first to come."""
        rank = (-score, -next(self._count))
        if len(self._heap) < SHOWN:
            heapq.heappush(self._heap, (*rank, draw()))
        elif rank > self._heap[0][:2]:
            heapq.heapreplace(self._heap, (*rank, draw()))

    def cases(self) -> list[Case]:
        """Returns them, the worst first."""
        return [case for *_, case in sorted(self._heap, key=lambda one: one[:2], reverse=True)]
