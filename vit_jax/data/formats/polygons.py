# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks polygons and run lengths of masks. Start from `crosses_itself`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

_MOST_CORNERS = 4096  # a polygon with more is not checked: pairs of edges are compared
_ROWS = 256  # edges that are compared with all others at a time


class Unchecked(Exception):
    """A polygon has too many corners to be checked."""


def crosses_itself(polygon: Any) -> str:
    """Returns why a polygon is not one, as in "crosses itself at (3, 4)", or "".

    Edges that touch without crossing are allowed.

    Args:
      polygon: a list x, y, x, y, ... in pixels.

    Raises:
      Unchecked: it has more than 4,096 corners.
    """
    try:
        corners = np.array(polygon, np.float64)
    except (TypeError, ValueError, OverflowError):
        corners = np.zeros((0, 0))
    if corners.ndim != 1 or len(corners) < 6 or len(corners) % 2 or not np.isfinite(corners).all():
        return "is not a list x, y, x, y, ... of three corners or more"
    begin = corners.reshape(-1, 2)
    begin = begin[(begin != np.roll(begin, 1, axis=0)).any(axis=1)]
    end = np.roll(begin, -1, axis=0)
    if len(begin) > _MOST_CORNERS:
        raise Unchecked(f"has {len(begin):,} corners, and is checked up to {_MOST_CORNERS:,}")
    for first in range(0, len(begin), _ROWS):
        a, b = begin[first : first + _ROWS, None], end[first : first + _ROWS, None]
        apart = _side(a, b, begin) * _side(a, b, end) < 0
        crossing = apart & (_side(begin, end, a) * _side(begin, end, b) < 0)
        if crossing.any():
            x, y = begin[first + np.argwhere(crossing)[0, 0]].tolist()
            return f"crosses itself, at the edge from ({x:g}, {y:g})"
    return ""


def _side(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Returns the sign that tells on which side of the line from a to b the point c is."""
    across, down = b - a, c - a
    return np.sign(across[..., 0] * down[..., 1] - across[..., 1] * down[..., 0])


def wrong_runs(mask: Mapping[str, Any]) -> str:
    """Returns why run lengths are not a mask, as in "has runs of 12 pixels, expected 16", or "".

    Args:
      mask: COCO's `size`, rows and columns, and `counts`: the lengths of runs of 0 and 1 in turn
        down the columns, as a list or as text.
    """
    size, counts = mask.get("size"), mask.get("counts")
    if not isinstance(size, list) or [*map(type, size)] != [int, int] or min(size) < 1:
        return "has no size of rows and columns"
    counts = run_lengths(counts) if isinstance(counts, str) else counts
    if not isinstance(counts, list) or not all(type(n) is int and n >= 0 for n in counts):
        return "has counts that are not lengths of runs"
    if sum(counts) != size[0] * size[1]:
        return f"has runs of {sum(counts):,} pixels, expected {size[0] * size[1]:,}"
    return ""


def run_lengths(text: str) -> list[int] | None:
    """Returns the run lengths of COCO's text, None if it is not such a text.

    Each character holds five bits of a number, the lowest first, and whether more follow; the last
    has its sign. From the fourth run on, numbers are differences to the run two before.
    """
    counts, number, bits = list[int](), 0, 0
    for character in text:
        part = ord(character) - 48
        if not 0 <= part < 64 or bits > 30:
            return None
        number |= (part & 31) << bits
        bits += 5
        if part & 32:
            continue
        number -= (part & 16 and 1) << bits
        counts.append(number + (counts[-2] if len(counts) > 2 else 0))
        number = bits = 0
    return None if bits else counts
