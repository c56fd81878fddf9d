# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws charts as SVG for a page, by matplotlib without its global state.

Equal data give equal text. Start from `chart` (points and lines) or `bars`.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

from vit_jax.reports import drawing

WIDTH, HEIGHT = 720, 420  # for a page alone; the legend is below
NARROW, LOW = 400, 260  # beside another chart, and legible on a phone
_FONT, _LINE = 12, 18  # units of a character, and of a line of the legend
_UNITS = 72  # units of SVG in one of matplotlib's inches
_MARKED = 24  # the longest line whose points are also drawn
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d00")
_DASHES = ("-", "--", ":")  # for lines whose colour repeats
_SETTINGS = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": _FONT,
    "text.parse_math": False, "svg.fonttype": "none",
    "path.simplify_threshold": 1.0,  # units by which a long line may differ; no spike is lost
}  # fmt: skip
_METADATA = ("Creator", "Date", "Format", "Type")  # left out


@dataclasses.dataclass(frozen=True)
class Series:
    """Points of one colour.

    Attributes:
      name: name in the legend; an empty name is not listed.
      points: at least one (x, y).
      line: True if a line joins them; the points of a long line are not drawn.
      filled: True draws points as discs, False as rings.
      colour: index into `COLOURS`, any number; a line whose colour repeats is dashed.
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
    log: str = "",
    x_names: Mapping[float, str] | None = None,
    diagonal: bool = False,
    shares: bool = False,
    size: tuple[int, int] = (WIDTH, HEIGHT),
) -> str:
    """Returns an <svg> element; "" if there are no series.

    Args:
      series: the series to draw, later ones above earlier ones.
      x_title: title of the horizontal axis.
      y_title: title of the vertical axis.
      log: logarithmic axes, whose values must be positive: "", "x", "y" or "xy".
      x_names: texts to write at values of x instead of numbers.
      diagonal: True draws the line x = y.
      shares: True: both axes go from 0 to 1, with a margin for the lines at their ends.
      size: width and height without the legend; text has 12 units.
    """
    if not series:
        return ""
    width, height = size
    names = [_shortened(one.name, width // 10) for one in series]
    columns = max(1, width // (50 + 7 * max(map(len, names))))
    rows = -(-sum(map(bool, names)) // columns)
    title = f"{y_title} by {x_title}"
    with matplotlib.rc_context(_settings(title)):
        inches = width / _UNITS, (height + rows * _LINE) / _UNITS
        figure = Figure(figsize=inches, layout="constrained")
        axes = figure.subplots()
        _prepare(axes, xlabel=x_title, ylabel=y_title)
        axes.set(**{f"{letter}scale": "log" for letter in log})
        axes.grid(color="#e4e4e4")
        axes.margins(0.06)
        lines = [_draw(axes, one) for one in series]
        if shares:
            axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        longest = max(5, len(f"{axes.get_xlim()[1]:,.0f}"))  # characters of a number below the axis
        _put_ticks(axes.xaxis, width // (30 + 6 * longest))
        _put_ticks(axes.yaxis, height // 45)
        if x_names:
            axes.set_xticks(list(x_names), list(x_names.values()))
        if diagonal:
            low = axes.get_xlim()[0]
            axes.axline((low, low), slope=1, color="#999", dashes=(4, 4), zorder=1)
        if rows:
            shown = [(line, name) for line, name in zip(lines, names, strict=True) if name]
            figure.legend(
                *zip(*shown, strict=True), loc="outside lower left", ncols=columns, frameon=False
            )
        return _element(figure, title)


def bars(
    rows: Mapping[str, Sequence[float]], names: Sequence[str], x_title: str, *, width: int = WIDTH
) -> str:
    """Returns an <svg> element with one stacked bar for each row, the first on top; "" without any.

    Args:
      rows: name of a row -> the lengths that stand end to end, at least 0.
      names: what each length is, for the legend.
      x_title: title of the horizontal axis.
      width: width; text has 12 units.
    """
    if not rows:
        return ""
    with matplotlib.rc_context(_settings(x_title)):
        inches = width / _UNITS, (70 + 26 * len(rows)) / _UNITS
        figure = Figure(figsize=inches, layout="constrained")
        axes = figure.subplots()
        _prepare(axes, xlabel=x_title)
        axes.grid(color="#e4e4e4", axis="x")
        starts = [0.0] * len(rows)
        for number, name in enumerate(names):
            lengths = [row[number] for row in rows.values()]
            axes.barh(
                range(len(rows)), lengths, left=starts, height=0.72, label=name,
                color=COLOURS[number % len(COLOURS)],
            )  # fmt: skip
            starts = [start + length for start, length in zip(starts, lengths, strict=True)]
        axes.set_yticks(range(len(rows)), [_shortened(name, width // 16) for name in rows])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.margins(x=0.02)
        _put_ticks(axes.xaxis, width // 90)
        figure.legend(loc="outside lower left", ncols=len(names), frameon=False)
        return _element(figure, x_title)


def _settings(title: str) -> dict[Any, Any]:
    return {**_SETTINGS, "svg.hashsalt": title}


def _prepare(axes: Axes, **titles: str) -> None:
    axes.set(axisbelow=True, **titles)
    axes.spines[["top", "right"]].set_visible(False)


def _element(figure: Figure, title: str) -> str:
    """Returns a figure as an <svg> element."""
    svg = drawing.saved(figure, format="svg", metadata=dict.fromkeys(_METADATA))
    svg = re.sub(
        r'<g id="[^"]+">', "<g>", svg.decode().partition("<svg ")[2]
    )  # ids of a page differ
    return f'<svg role="img" aria-label="{escape(title)}" {svg}'


def _draw(axes: Axes, series: Series) -> Line2D:
    colour = COLOURS[series.colour % len(COLOURS)]
    dash = _DASHES[series.colour // len(COLOURS) % len(_DASHES)]
    marked = not series.line or len(series.points) <= _MARKED
    (line,) = axes.plot(
        *zip(*series.points, strict=True),
        color=colour,
        linestyle=dash if series.line else "none",
        linewidth=1.5,
        marker="o" if marked else "none",
        markersize=8,
        markerfacecolor=colour if series.filled else "white",
        markeredgewidth=1.5,
    )
    return line


def _put_ticks(axis: Axis, most: int) -> None:
    """Puts at most about `most` round numbers along an axis."""
    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1e4 else (1,)))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(StrMethodFormatter("{x:,.7g}"))


def _shortened(text: str, most: int) -> str:
    """Returns the text with characters that can be drawn, or only both its ends if it is long."""
    text = drawing.printable(text)
    half = most // 2 - 1
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"
