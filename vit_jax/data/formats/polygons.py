# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks polygons. Start from `crosses_itself`."""

from typing import Any

import numpy as np

_MOST_CORNERS = 4096  # a polygon with more is not checked: pairs of edges are compared
_ROWS = 256  # edges that are compared with all others at a time


def crosses_itself(polygon: Any) -> str:
    """Returns why a polygon is not one, as in "crosses itself at (3, 4)", or "".

    Edges that touch without crossing are allowed.

    Args:
      polygon: a list x, y, x, y, ... in pixels.
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
        return f"has {len(begin):,} corners, and is checked up to {_MOST_CORNERS:,}"
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
