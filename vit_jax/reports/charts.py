# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws charts as SVG inside a page, without libraries, links or scripts.

Start from `chart`.

The width of text is estimated in `_room`, because the module knows no font.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 420  # for a page alone; the legend is below
NARROW, LOW = 400, 260  # beside another chart, and legible on a phone
_LEFT, _RIGHT, _TOP, _BOTTOM = 28, 22, 14, 46  # the left one excludes the numbers
_FONT, _LINE = 12, 18  # pixels of a character, and of a line of the legend
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d00")
_DASHES = ("", "6 3", "2 3")  # for lines whose colour repeats


@dataclasses.dataclass(frozen=True)
class Series:
    """Points of one colour.

    Attributes:
      name: name in the legend; an empty name is not listed.
      points: at least one (x, y).
      line: whether a line joins them.
      filled: whether points are discs; otherwise rings.
      colour: index into `COLOURS`, any number; a line whose colour repeats is dashed.
      marks: whether to draw the points themselves; a single point is always drawn.
    """

    name: str
    points: Sequence[tuple[float, float]]
    line: bool = False
    filled: bool = True
    colour: int = 0
    marks: bool = True


def chart(
    series: Sequence[Series],
    x_title: str,
    y_title: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    x_names: Mapping[float, str] | None = None,
    diagonal: bool = False,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> str:
    """Returns an <svg> element; "" if there are no points.

    Args:
      series: the series to draw, later ones above earlier ones.
      x_title: title of the horizontal axis.
      y_title: title of the vertical axis.
      log_x: whether the horizontal axis is logarithmic; x must be positive.
      log_y: whether the vertical axis is logarithmic; y must be positive.
      x_names: texts to write at values of x instead of numbers.
      diagonal: whether to draw the line x = y.
      size: width and height without the legend; text has 12 units.
    """
    points = [point for one in series for point in one.points]
    if not points:
        return ""
    width, height = size
    xs, ys = zip(*points, strict=True)
    y_axis = _Axis(ys, log_y, height - _BOTTOM, _TOP)
    left = _LEFT + max(map(_room, y_axis.ticks(lambda _: _FONT).values()), default=0)
    x_axis = _Axis(xs, log_x, left, width - _RIGHT)
    ticks = x_names or x_axis.ticks(_room)
    legend, below = _legend([one for one in series if one.name], size)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + below}" '
        f'role="img" aria-label="{escape(f"{y_title} by {x_title}")}">',
        *_grid(x_axis, y_axis, ticks),
        *_titles(x_title, y_title, x_axis, size),
    ]
    if diagonal:
        low, high = max(x_axis.low, y_axis.low), min(x_axis.high, y_axis.high)
        ends = [(x_axis(v), y_axis(v)) for v in (low, high)]
        parts.append(_path(ends, "#999", ' stroke-dasharray="4"'))
    for one in series:
        parts += _draw(one, [(x_axis(x), y_axis(y)) for x, y in one.points])
    return "\n".join([*parts, *legend, "</svg>"])


def number(value: float) -> str:
    """Formats a number for a tick: `1,500`, `0.05`, `2e-05`."""
    if value and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:,.8f}".rstrip("0").rstrip(".")


def _room(text: str) -> float:
    """Returns the width of a text in pixels, rather too large."""
    return 0.62 * _FONT * len(text)


class _Axis:
    """An axis that maps values to pixels, with some room at both ends."""

    def __init__(self, values: Sequence[float], log: bool, first: float, last: float):
        self._log, self.first, self.last = log, first, last
        low, high = self._scale(min(values)), self._scale(max(values))
        room = 0.06 * (high - low) or abs(low) * 0.05 or 1.0
        self._low, self._high = low - room, high + room
        self.low, self.high = self._back(self._low), self._back(self._high)

    def _scale(self, value: float) -> float:
        return math.log10(value) if self._log else value

    def _back(self, value: float) -> float:
        return 10**value if self._log else value

    def __call__(self, value: float) -> float:
        share = (self._scale(value) - self._low) / (self._high - self._low)
        return round(self.first + share * (self.last - self.first), 1)

    def ticks(self, room: Callable[[str], float]) -> dict[float, str]:
        """Returns round values between the ends, with their texts, as many as fit side by side.

        Args:
          room: function from a text to the pixels that it takes along the axis.
        """
        found: dict[float, str] = {}
        for values in self._choices():
            found = {v: number(v) for v in values if self.low <= v <= self.high}
            pairs = itertools.pairwise(found.items())
            if all(
                x != y and abs(self(b) - self(a)) >= (room(x) + room(y)) / 2 + _FONT / 2
                for (a, x), (b, y) in pairs
            ):
                break
        return found

    def _choices(self) -> list[list[float]]:
        """Returns sets of round values, from many to few."""
        if self._log:
            decades = range(math.floor(self._low), math.ceil(self._high) + 1)
            each = ((1, 2, 5), (1, 3), (1,))
            choices = [[m * 10.0**d for d in decades for m in those] for those in each]
            if sum(self.low <= v <= self.high for v in choices[0]) > 1:  # else the ends are close
                return choices + [[10.0**d for d in decades if d % n == 0] for n in (2, 3, 5, 10)]
        choices = []
        for most in (6, 5, 4, 3, 2, 1):
            rough = (self.high - self.low) / most
            unit = 10 ** math.floor(math.log10(rough))
            step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= rough)
            begin, end = math.ceil(self.low / step), math.floor(self.high / step)
            choices.append([i * step for i in range(begin, end + 1)])
        return choices


def _grid(x_axis: _Axis, y_axis: _Axis, ticks: Mapping[float, str]) -> list[str]:
    left, right, bottom = x_axis.first, x_axis.last, y_axis.first
    parts = []
    for tick, name in ticks.items():
        x = x_axis(tick)
        inside = min(x, right + _RIGHT - _room(name) / 2)
        parts += [_path([(x, _TOP), (x, bottom)], "#e4e4e4"), _text(inside, bottom + 16, name)]
    for tick, name in y_axis.ticks(lambda _: _FONT).items():
        y = y_axis(tick)
        parts.append(_path([(left, y), (right, y)], "#e4e4e4"))
        parts.append(_text(left - 6, y + 4, name, "end"))
    return [*parts, _path([(left, _TOP), (left, bottom), (right, bottom)], "#444")]


def _titles(x_title: str, y_title: str, x_axis: _Axis, size: tuple[int, int]) -> list[str]:
    middle = (_TOP + size[1] - _BOTTOM) / 2
    turned = f' transform="rotate(-90 14 {middle:g})"'
    return [
        _text((x_axis.first + x_axis.last) / 2, size[1] - 10, x_title),
        _text(14, middle, y_title, "middle", turned),
    ]


def _draw(series: Series, places: Sequence[tuple[float, float]]) -> list[str]:
    colour = COLOURS[series.colour % len(COLOURS)]
    line = series.line and len(places) > 1
    parts = [_path(places, colour, _dash(series))] if line else []
    if line and not series.marks:
        return parts
    return parts + [_disc(x, y, colour, series.filled) for x, y in places]


def _dash(series: Series) -> str:
    dash = _DASHES[series.colour // len(COLOURS) % len(_DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def _legend(series: Sequence[Series], size: tuple[int, int]) -> tuple[list[str], int]:
    """Returns the names in columns below a chart, and their height."""
    if not series:
        return [], 0
    width = size[0] - 2 * _RIGHT
    each = min(width, max(_room(one.name) for one in series) + 40)
    columns = max(1, int(width // each))
    parts = []
    for i, one in enumerate(series):
        x = _RIGHT + i % columns * (width // columns)
        y = size[1] + _LINE // 2 + i // columns * _LINE
        colour = COLOURS[one.colour % len(COLOURS)]
        if one.line:
            parts.append(_path([(x, y), (x + 20, y)], colour, _dash(one)))
        if one.marks or not one.line:
            parts.append(_disc(x + 10, y, colour, one.filled))
        parts.append(_text(x + 26, y + 4, _shortened(one.name, width - 40), "start"))
    return parts, _LINE * -(-len(series) // columns) + 4


def _shortened(text: str, width: float) -> str:
    """Returns the text, or only both its ends if it is too wide."""
    most = int(width / _room("x"))
    return text if len(text) <= most else f"{text[: most // 2 - 1]}…{text[-(most // 2 - 1) :]}"


def _disc(x: float, y: float, colour: str, filled: bool) -> str:
    inside = colour if filled else "#fff"
    return f'<circle cx="{x}" cy="{y}" r="4" fill="{inside}" stroke="{colour}" stroke-width="1.5"/>'


def _path(points: Sequence[tuple[float, float]], colour: str, more: str = "") -> str:
    where = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="1.5"{more}/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{_FONT}"{more}>'
        f"{escape(text)}</text>"
    )
