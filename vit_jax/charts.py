# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Charts as SVG inside a page: no library, no link, no script. Start from `chart`."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 720, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 200, 16, 48
# Okabe and Ito's colours, which all eyes can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d00")


@dataclasses.dataclass(frozen=True)
class Series:
    """Points of one colour.

    Attributes:
      name: in the legend; empty is not listed.
      points: (x, y), at least one.
      line: joins them.
      filled: discs, else rings.
      colour: index into `COLOURS`, any number.
    """

    name: str
    points: Sequence[tuple[float, float]]
    line: bool = False
    filled: bool = True
    colour: int = 0


def chart(
    series: Sequence[Series],
    x_title: str,
    y_title: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    x_names: Mapping[float, str] | None = None,
    diagonal: bool = False,
) -> str:
    """An <svg> element; empty text without a point.

    Args:
      series: what is drawn, the later above the earlier.
      x_title: of the horizontal axis.
      y_title: of the vertical one.
      log_x: the horizontal axis is logarithmic; x is positive.
      log_y: likewise.
      x_names: what is written at which x instead of numbers.
      diagonal: draws the line x = y.
    """
    points = [point for one in series for point in one.points]
    if not points:
        return ""
    xs, ys = zip(*points, strict=True)
    x_axis = _Axis(xs, log_x, _LEFT, WIDTH - _RIGHT)
    y_axis = _Axis(ys, log_y, HEIGHT - _BOTTOM, _TOP)
    ticks = x_names or {tick: f"{tick:g}" for tick in x_axis.ticks()}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(f"{y_title} by {x_title}")}">',
        *_grid(x_axis, y_axis, ticks),
        *_titles(x_title, y_title),
    ]
    if diagonal:
        low, high = max(x_axis.low, y_axis.low), min(x_axis.high, y_axis.high)
        parts.append(
            _path([(x_axis(v), y_axis(v)) for v in (low, high)], "#999", ' stroke-dasharray="4"')
        )
    for one in series:
        parts += _draw(one, [(x_axis(x), y_axis(y)) for x, y in one.points])
    parts += _legend([one for one in series if one.name])
    return "\n".join([*parts, "</svg>"])


class _Axis:
    """Values to pixels, with some room at both ends."""

    def __init__(self, values: Sequence[float], log: bool, first: float, last: float):
        self._log, self._first, self._last = log, first, last
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
        return round(self._first + share * (self._last - self._first), 1)

    def ticks(self) -> list[float]:
        """Round values between the ends."""
        if self._log:
            decades = range(math.floor(self._low), math.ceil(self._high) + 1)
            found = [m * 10.0**d for d in decades for m in (1, 2, 5)]
        else:
            rough = (self.high - self.low) / 6
            unit = 10 ** math.floor(math.log10(rough))
            step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= rough)
            found = [i * step for i in range(math.ceil(self.low / step), int(self.high / step) + 1)]
        return [tick for tick in found if self.low <= tick <= self.high]


def _grid(x_axis: _Axis, y_axis: _Axis, ticks: Mapping[float, str]) -> list[str]:
    left, right, bottom = _LEFT, WIDTH - _RIGHT, HEIGHT - _BOTTOM
    parts = []
    for tick, name in ticks.items():
        x = x_axis(tick)
        parts += [_path([(x, _TOP), (x, bottom)], "#e4e4e4"), _text(x, bottom + 16, name)]
    for tick in y_axis.ticks():
        y = y_axis(tick)
        parts.append(_path([(left, y), (right, y)], "#e4e4e4"))
        parts.append(_text(left - 6, y + 4, f"{tick:g}", "end"))
    return [*parts, _path([(left, _TOP), (left, bottom), (right, bottom)], "#444")]


def _titles(x_title: str, y_title: str) -> list[str]:
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    turned = f' transform="rotate(-90 14 {middle:g})"'
    return [
        _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 10, x_title),
        _text(14, middle, y_title, "middle", turned),
    ]


def _draw(series: Series, places: Sequence[tuple[float, float]]) -> list[str]:
    colour = COLOURS[series.colour % len(COLOURS)]
    parts = [_path(places, colour)] if series.line and len(places) > 1 else []
    return parts + [_disc(x, y, colour, series.filled) for x, y in places]


def _legend(series: Sequence[Series]) -> list[str]:
    parts = []
    for i, one in enumerate(series):
        y = _TOP + 10 + 17 * i
        parts += [
            _disc(WIDTH - _RIGHT + 18, y, COLOURS[one.colour % len(COLOURS)], one.filled),
            _text(WIDTH - _RIGHT + 28, y + 4, one.name, "start"),
        ]
    return parts


def _disc(x: float, y: float, colour: str, filled: bool) -> str:
    inside = colour if filled else "#fff"
    return f'<circle cx="{x}" cy="{y}" r="4" fill="{inside}" stroke="{colour}" stroke-width="1.5"/>'


def _path(points: Sequence[tuple[float, float]], colour: str, more: str = "") -> str:
    where = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="1.5"{more}/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="12"{more}>{escape(text)}</text>'
    )
