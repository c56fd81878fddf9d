# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws numbers as pictures, by matplotlib without its global state.

The module computes nothing about models.

Every function returns a PNG. Start from a function that `figures` calls.
"""

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vit_jax.analysis.filters import Components

DPI = 140
WIDTH = 4.4  # inches: text of 8 points has 10 pixels on a page of 400
TILES = 8  # tiles of similarity per side
COLOURS = "viridis"  # looks uniform, also to colour-blind eyes and in grey


def filters(components: Components) -> bytes:
    """Draws components in rows of seven, with their shares of the variance above.

    Unless the images have three channels, grey is the mean over their channels.
    """
    count, height, width, _ = components.images_ChwI.shape
    columns = min(7, max(count, 1))
    rows = max(1, math.ceil(count / columns))
    cells = math.ceil(64 / max(height, width))  # pixels of the picture per pixel of the filter
    down, right = height * cells + 20, width * cells + 6
    picture = np.ones((rows * down, columns * right - 6, 3))
    figure = Figure(
        figsize=(WIDTH / 7 * columns, WIDTH / 7 * columns * rows * down / columns / right)
    )
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for i, image in enumerate(components.images_ChwI):
        top, left = i // columns * down + 20, i % columns * right
        if image.shape[-1] != 3:
            image = np.repeat(image.mean(axis=-1, keepdims=True), 3, axis=-1)
        tile = np.kron(0.5 + image / (2 * np.abs(image).max()), np.ones((cells, cells, 1)))
        picture[top : top + height * cells, left : left + width * cells] = tile
        share = f"{components.shares_C[i]:.1%}"
        axes.text(left + width * cells / 2, top - 4, share, fontsize=8, ha="center")
    axes.imshow(picture, interpolation="nearest")
    return _png(figure)


def thinned(side: int) -> int:
    """Returns n such that every n-th row or column of patches gets a tile of similarity."""
    return math.ceil(side / TILES)


def similarity(tables: Mapping[str, np.ndarray]) -> bytes:
    """Draws one panel per table, one below the other: tiles by row and column of a patch.

    Args:
      tables: title of a panel, or "" -> [rows, columns, rows, columns] in [-1, 1]; a tile is the
        map of all patches for one patch.
    """
    pictures = [_mosaic(table) for table in tables.values()]
    ratio = pictures[0].shape[0] / pictures[0].shape[1]
    lines = max(title.count("\n") for title in tables)
    height = 0.75 * WIDTH * max(0.25, min(2.5, ratio)) + 0.7 + 0.17 * lines
    figure = Figure(figsize=(WIDTH, height * len(tables)), layout="constrained")
    axes = figure.subplots(len(tables), 1, squeeze=False)[:, 0]
    for one, (title, table), picture in zip(axes, tables.items(), pictures, strict=True):
        shown = one.imshow(picture, COLOURS, vmin=-1, vmax=1, interpolation="nearest")
        _number_tiles(one, *table.shape[:2])
        one.set_title("\n".join(map(_line, title.splitlines())), fontsize=10 if not lines else 9)
        figure.colorbar(shown, ax=one, fraction=0.05).set_label("cosine similarity")
    return _png(figure)


def _tiles(rows: int, columns: int) -> tuple[range, range, int]:
    """Returns the rows and columns whose tiles are shown, and the cells between tiles."""
    gap = max(1, round(max(rows, columns) / 8))
    return range(0, rows, thinned(rows)), range(0, columns, thinned(columns)), gap


def _mosaic(table: np.ndarray) -> np.ndarray:
    """Returns tiles with a gap of NaN between them, as one picture."""
    rows, columns = table.shape[:2]
    down, right, gap = _tiles(rows, columns)
    shape = (len(down) * (rows + gap) - gap, len(right) * (columns + gap) - gap)
    picture = np.full(shape, np.nan)
    for i, row in enumerate(down):
        for j, column in enumerate(right):
            top, left = i * (rows + gap), j * (columns + gap)
            picture[top : top + rows, left : left + columns] = table[row, column]
    return picture


def _number_tiles(axes: Axes, rows: int, columns: int) -> None:
    """Labels the edges of a mosaic with the row and column of each tile's patch, from 1 on."""
    down, right, gap = _tiles(rows, columns)
    middles = [i * (rows + gap) + (rows - 1) / 2 for i in range(len(down))]
    axes.set_yticks(middles, [str(row + 1) for row in down])
    middles = [j * (columns + gap) + (columns - 1) / 2 for j in range(len(right))]
    axes.set_xticks(middles, [str(column + 1) for column in right])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("column of the patch")
    axes.set_ylabel("row of the patch")


def distance(distance_SN: np.ndarray, even: float, printed_SN: np.ndarray | None = None) -> bytes:
    """Draws a point for each head above the number of its layer.

    Args:
      distance_SN: distances in pixels.
      even: distance in pixels under uniform attention; drawn as a dashed line.
      printed_SN: distances in a paper, drawn as rings beside the points; None leaves them out.
    """
    layers, heads = distance_SN.shape
    figure = Figure(figsize=(WIDTH, 0.7 * WIDTH), layout="constrained")
    axes = figure.subplots()
    layer_SN, head_SN = np.indices(distance_SN.shape) + 1
    beside = 0.0 if printed_SN is None else 0.2
    points = axes.scatter(
        layer_SN - beside, distance_SN, c=head_SN.ravel(), cmap=COLOURS, vmin=1, vmax=heads, s=22,
        linewidths=0.4, edgecolors="white", zorder=3,
    )  # fmt: skip
    line = axes.axhline(even, color="#666", linestyle="--", linewidth=1)
    named: dict[str, Any] = {"uniform attention": line}
    most = max(even, distance_SN.max())
    if printed_SN is not None:
        named["measured"] = points
        named["the paper"] = axes.scatter(
            layer_SN + beside, printed_SN, s=14, facecolors="none", edgecolors="#c1272d",
            linewidths=0.7, zorder=2,
        )  # fmt: skip
        most = max(most, printed_SN.max())
    axes.legend(
        [*named.values()], [*named], loc="lower right", bbox_to_anchor=(1, 1), ncols=len(named),
        frameon=False, fontsize=9, borderaxespad=0.2, columnspacing=1.0, handletextpad=0.3,
    )  # fmt: skip
    axes.set_xlim(0.5, layers + 0.5)
    axes.set_ylim(0, 1.08 * most)
    axes.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    axes.grid(color="#e4e4e4", zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlabel("layer")
    axes.set_ylabel("mean attention distance (pixels)")
    if heads > 1:
        bar = figure.colorbar(points, ax=axes, ticks=MaxNLocator(8, integer=True))
        bar.set_label("head, in the order of the weights")
    return _png(figure)


def rollout(pictures_BHW3: np.ndarray, attended_BHW: np.ndarray) -> bytes:
    """Draws a row for each image: the image, the image dimmed by attention, and the attention.

    Args:
      pictures_BHW3: uint8 images.
      attended_BHW: attention as multiples of the mean, not negative.
    """
    count, height, width = attended_BHW.shape
    gap = max(1, height // 20)
    brightness_BHW1 = (attended_BHW / attended_BHW.max(axis=(1, 2), keepdims=True))[..., None]
    figure = Figure(
        figsize=(WIDTH, WIDTH / 3 * count * (height + gap) / width + 0.9), layout="constrained"
    )
    axes = figure.subplots(1, 3)
    columns = {
        "image": pictures_BHW3 / 255,
        "image, as attended": pictures_BHW3 / 255 * brightness_BHW1,
        "attention": attended_BHW,
    }
    for one, (title, images) in zip(axes, columns.items(), strict=True):
        white = np.nan if title == "attention" else 1.0
        edges = [(0, 0), (0, gap), *[(0, 0)] * (images.ndim - 2)]
        column = np.concatenate(list(np.pad(images, edges, constant_values=white)))[:-gap]
        shown = one.imshow(column, COLOURS, vmin=0, vmax=attended_BHW.max())
        one.set_axis_off()
        one.set_title(title, fontsize=10)
    bar = figure.colorbar(shown, ax=axes, location="bottom", aspect=40, pad=0.01)
    bar.set_label("attention rollout (multiples of the mean over patches)")
    return _png(figure)


NAMED = 40  # largest number of classes for names beside a matrix, or for bars on a screen
NUMBERED = 15  # largest number of classes whose counts fit into a matrix
_BLUE = "#0072b2"


def accuracies(names: Sequence[str], shares_Y: np.ndarray, counts_Y: np.ndarray) -> bytes:
    """Draws a bar for each class, the first on top.

    Args:
      names: names of Y classes.
      shares_Y: accuracy of each class, in [0, 1].
      counts_Y: number of examples of each class.
    """
    figure = Figure(figsize=(WIDTH, 0.6 + 0.22 * len(names)), layout="constrained")
    axes, places = figure.subplots(), range(len(names))
    axes.barh(places, 100 * shares_Y, height=0.75, color=_BLUE)
    for place, share, count in zip(places, shares_Y, counts_Y, strict=True):
        inside = share > 0.25
        axes.text(
            1 if inside else 100 * share + 1, place, f"{share:.0%} of {count}", va="center",
            fontsize=7.5, color="white" if inside else "black",
        )  # fmt: skip
    axes.set_yticks(places, list(map(_label, names)), fontsize=8)
    axes.set_xlim(0, 100)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("accuracy (%)")
    return _png(figure)


def confusions(names: Sequence[str], counts_YY: np.ndarray) -> bytes:
    """Draws a confusion matrix, coloured by row shares so that rare classes are not pale.

    Args:
      names: names of Y classes; with more than `NAMED` classes they are not drawn.
      counts_YY: examples by class (row) and predicted class (column).
    """
    classes = len(names)
    shares_YY = 100 * counts_YY / np.maximum(counts_YY.sum(axis=1, keepdims=True), 1)
    figure = Figure(figsize=(WIDTH, 0.88 * WIDTH), layout="constrained")
    axes = figure.subplots()
    drawn = axes.imshow(shares_YY, cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
    figure.colorbar(drawn, ax=axes, label="share of the class (%)", shrink=0.8)
    if classes <= NUMBERED:
        for row, column in zip(*np.nonzero(counts_YY), strict=True):
            colour = "white" if shares_YY[row, column] > 50 else "black"
            axes.text(column, row, f"{counts_YY[row, column]}", ha="center", va="center",
                      fontsize=7, color=colour)  # fmt: skip
    of = " (number)"
    if classes <= NAMED:
        labels, of = list(map(_label, names)), ""
        size = 8 if classes <= NUMBERED else 6
        axes.set_xticks(range(classes), labels, rotation=90, fontsize=size)
        axes.set_yticks(range(classes), labels, fontsize=size)
    axes.set_xlabel(f"taken for{of}")
    axes.set_ylabel(f"class{of}")
    return _png(figure)


def printable(text: str) -> str:
    """Returns a text with a question mark for each character that cannot be drawn."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _label(name: str) -> str:
    return _line(name, 24)


def _line(text: str, most: int = 60) -> str:
    """Returns a short text that can be drawn; a raw $ would begin a formula."""
    plain = printable(text).replace("$", r"\$")
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def _png(figure: Figure) -> bytes:
    FigureCanvasAgg(figure)
    tight = {"bbox_inches": "tight", "pad_inches": 0.06}  # so that nothing is cut off
    return saved(figure, format="png", dpi=DPI, metadata={"Software": None}, **tight)


def saved(figure: Figure, **settings: Any) -> bytes:
    """Returns a figure as the bytes of a file; characters that the font lacks become boxes."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font|Matplotlib currently")
        figure.savefig(out, **settings)
    return out.getvalue()
