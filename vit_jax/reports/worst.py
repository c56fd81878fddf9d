# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Keeps the images on which a model does worst, for a page. Start from `Worst`."""

import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

SHOWN = 12  # worst images on a page

Case = TypeVar("Case")


class Worst(Generic[Case]):
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
