# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws a contact sheet: the first training examples as the model sees them, with class names.

Masks are drawn as colours over the image, boxes as frames. Colours are those that the data give
the classes of masks, or else follow the number of the class; a legend below the images names the
classes that are drawn.
Pixels without a class stay as they are, and so does class 0 unless it has a name of its own other
than background. Examples without labels are named by the classes of their masks or boxes.

Start from `sheet`.
"""

import dataclasses
import io
import re
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from vit_jax.data.example import GRID
from vit_jax.data.inspect import colours
from vit_jax.data.numpy_ops import naflex
from vit_jax.data.pipeline.pipeline import Pipeline

_TILE = 224  # the largest side of an image, in pixels
_MARGIN = 12
_FONT = 15  # pixels
_LINE = 21
_INK, _PAPER = (20, 20, 20), (255, 255, 255)
_BACKGROUND = re.compile(r"_*background_*|bg", re.IGNORECASE)


def visible(images: np.ndarray) -> np.ndarray:
    """Returns images, uint8 [..., C], as RGB; other channels than three are averaged to gray."""
    if images.shape[-1] == 3:
        return images
    gray = images.mean(axis=-1, keepdims=True, dtype=np.float32).round().astype(np.uint8)
    return np.repeat(gray, 3, axis=-1)


def sheet(
    pipe: Pipeline, classes: Sequence[str], *, source: str, chain: str, rows: int, columns: int
) -> bytes:
    """Returns a PNG of the first rows * columns examples of the training order, left to right.

    Small images are enlarged by a whole factor, without smoothing; large images are shrunk. A name
    that is too long ends in an ellipsis. The heading is broken into lines. Rows of patches are
    drawn as the image that they make.

    Args:
      pipe: the pipeline of a training split; equal seeds give equal sheets, pixel for pixel.
      classes: class names, by label.
      source: the source's name, for the heading.
      chain: the text that `pipe.ops` was parsed from, for the heading.
      rows: number of rows of images.
      columns: number of columns of images.
    """
    batch = next(dataclasses.replace(pipe, batch_size=rows * columns).train(0, 1))
    larger = max(pipe.image_size)
    share = max(1, _TILE // larger) if larger <= _TILE else _TILE / larger
    high, wide = (max(1, round(side * share)) for side in pipe.image_size)
    font = colours.font_of(_FONT)
    step_x, step_y = wide + _MARGIN, high + _LINE + _MARGIN
    width = columns * step_x + _MARGIN
    facts = f"{source}: {len(pipe.split):,} training examples, {len(classes):,} classes"
    heading = [line for text in (facts, chain) for line in _lines(text, width - 2 * _MARGIN, font)]
    top = len(heading) * _LINE + 2 * _MARGIN
    table = pipe.split.table
    own = None if table.colours is None else table.colours()
    key = _legend(batch, classes, width - 2 * _MARGIN, own)
    bottom = top + rows * step_y
    page = Image.new("RGB", (width, bottom + len(key) + _MARGIN * bool(key.size)), _PAPER)
    draw = ImageDraw.Draw(page)
    for number, line in enumerate(heading):
        draw.text((_MARGIN, _MARGIN + number * _LINE), line, _INK, font)
    for number, pixels in enumerate(visible(batch["image"])):
        x, y = _MARGIN + number % columns * step_x, top + number // columns * step_y
        if "mask" in batch:
            labels = batch["labels"][number]
            pixels = _with_mask(pixels, batch["mask"][number], classes, labels, own)
        sides = (wide, high)
        if GRID in batch:  # the image itself, inside the place of the canvas
            patch = pipe.ops[-1].patch  # type: ignore[attr-defined]
            pixels = naflex.from_cells(pixels, patch, batch[GRID][number])
            fits = min(high / pixels.shape[0], wide / pixels.shape[1])
            sides = round(pixels.shape[1] * fits), round(pixels.shape[0] * fits)
        way = Image.Resampling.NEAREST if sides[1] >= len(pixels) else Image.Resampling.LANCZOS
        page.paste(Image.fromarray(pixels).resize(sides, way), (x, y))
        if "boxes" in batch:
            scale = np.array([wide, high] * 2) / np.array([*pipe.image_size[::-1]] * 2)
            none = np.zeros(len(batch["boxes"][number]), int)
            classes_M = batch["box_classes"][number] if "box_classes" in batch else none
            _frame(draw, (x, y), batch["boxes"][number] * scale, classes_M)
        text = _shortened(_names(_labels(batch, number), classes), wide, font)
        draw.text((x, y + high + 2), text, _INK, font)
    if key.size:
        page.paste(Image.fromarray(key), (_MARGIN, bottom))
    out = io.BytesIO()
    page.save(out, "PNG")
    return out.getvalue()


def _frame(
    draw: ImageDraw.ImageDraw, corner: tuple[int, int], boxes_M4: np.ndarray, classes_M: np.ndarray
) -> None:
    """Draws the boxes, in pixels, of an image whose corner is there; those of class -1 are none."""
    for box, k in zip(boxes_M4, classes_M, strict=True):
        if k >= 0 and box[2] > box[0] and box[3] > box[1]:
            begin = np.add(box[:2], corner)
            frame = [*begin, *np.maximum(begin, np.add(box[2:], corner) - 1)]
            draw.rectangle(frame, outline=_colour(int(k)), width=2)


def _with_mask(
    pixels: np.ndarray, mask_HW: np.ndarray, classes: Sequence[str], labels: np.ndarray,
    own: np.ndarray | None,
) -> np.ndarray:  # fmt: skip
    """Returns an image with half the colour of each pixel's class.

    Class 0 is painted where masks have the classes of the source, which then has no labels.
    """
    named = (labels < 0).all() and not _BACKGROUND.fullmatch(classes[0])
    shown = mask_HW if named else np.where(mask_HW > 0, mask_HW, -1)
    every = colours.palette(int(mask_HW.max(initial=0)) + 1) if own is None else own
    return colours.overlay(pixels, shown, every)


def _labels(batch: Mapping[str, np.ndarray], number: int) -> np.ndarray:
    """Returns the labels of an image; without any, the classes of its mask or of its boxes."""
    labels = batch["labels"][number]
    for field in ("mask", "box_classes"):
        if field in batch and (labels < 0).all():
            labels = _by_count(batch[field][number])
    return labels


def _legend(
    batch: Mapping[str, np.ndarray], classes: Sequence[str], width: int, own: np.ndarray | None
) -> np.ndarray:
    """Returns the names of the classes that are drawn, on their colours, uint8 [H, W, 3].

    It has no rows if there are none, or if the numbers of a mask have no names.
    """
    shown = set[int]()
    for number, labels in enumerate(batch["labels"]):
        if (labels < 0).all() and {"mask", "box_classes"} & {*batch}:
            shown |= {int(label) for label in _labels(batch, number) if label >= 0}
    if "mask" in batch and _BACKGROUND.fullmatch(classes[0]):
        shown.discard(0)  # which is not painted
    if not shown:
        return np.zeros((0, 0, 3), np.uint8)
    font = colours.font_of(14)
    names = [_shortened(_plain(name), width - 16, font) for name in classes]
    return colours.legend(names, sorted(shown), width, own)


def _by_count(classes: np.ndarray) -> np.ndarray:
    """Returns the classes of a mask or of boxes, those of the most pixels or boxes first."""
    counts = np.bincount(classes[classes >= 0])
    order = np.argsort(-counts, kind="stable")
    return order[counts[order] > 0]


def _colour(label: int) -> tuple[int, int, int]:
    red, green, blue = colours.palette(label + 1)[label].tolist()
    return red, green, blue


_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def _names(labels: np.ndarray, classes: Sequence[str]) -> str:
    return ", ".join(_plain(classes[int(k)]) for k in labels if k >= 0) or "(no label)"


def _plain(text: str) -> str:
    """Returns the text as one line of characters that can be drawn."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def _shortened(text: str, width: float, font: _Font) -> str:
    """Returns the text, or as much of its beginning as fits before an ellipsis."""
    kept = text[:300]
    if kept == text and font.getlength(text) <= width:
        return text
    while kept and font.getlength(kept + "…") > width:
        kept = kept[:-1].rstrip()
    return kept + "…"


def _lines(text: str, width: float, font: _Font) -> list[str]:
    """Breaks the text into lines that fit: after a space, `|`, `/` or `,`, or else anywhere."""
    lines = [""]
    for piece in re.findall(r"[^ |/,]*[ |/,]|[^ |/,]+", _plain(text)):
        if font.getlength(lines[-1] + piece) > width and lines[-1]:
            lines.append("")
        for character in piece:
            if font.getlength(lines[-1] + character) > width:
                lines.append("")
            lines[-1] += character
    return lines
