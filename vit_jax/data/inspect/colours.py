# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Colours of classes, and pictures of masks and boxes in them. Start from `palette`."""

import colorsys
import functools
import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

# Okabe and Ito's, which people with any colour vision tell apart.
FIRST = np.array(
    [
        [230, 159, 0], [86, 180, 233], [0, 158, 115], [240, 228, 66], [0, 114, 178],
        [213, 94, 0], [204, 121, 167],
    ],
    np.uint8,
)  # fmt: skip
_GOLDEN = 0.618033988749895  # of a turn: hues stay apart, however many there are


def palette(count: int) -> np.ndarray:
    """Returns a colour for each class, uint8 [count, 3]; more classes do not change the first."""
    more = [
        colorsys.hsv_to_rgb(n * _GOLDEN % 1, (0.9, 0.6)[n % 2], (0.95, 0.65, 0.8)[n % 3])
        for n in range(max(0, count - len(FIRST)))
    ]
    later = np.round(255 * np.array(more).reshape(-1, 3)).astype(np.uint8)
    return np.concatenate([FIRST, later])[:count]


def overlay(pixels: np.ndarray, mask: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Returns an image, uint8 [H, W, 3], half in the colour of each pixel's class.

    Args:
      pixels: the image, uint8 [H, W, 3].
      mask: class of each pixel, int [H, W]; below 0, the pixel stays as it is.
      colours: uint8 [Y, 3].
    """
    mixed = (pixels.astype(int) + colours[np.maximum(mask, 0)]) // 2
    return np.where(mask[..., None] >= 0, mixed, pixels).astype(np.uint8)


def framed(
    pixels: np.ndarray, boxes: np.ndarray, colours: np.ndarray, texts: Sequence[str] = ()
) -> np.ndarray:
    """Returns an image, uint8 [H, W, 3], with the frames of boxes and a text at each.

    Args:
      pixels: the image, uint8 [H, W, 3].
      boxes: float [n, 4], left, top, right, bottom in pixels; the first are drawn above the others.
      colours: the colour of each frame, uint8 [n, 3].
      texts: a short text for each box; (): none.
    """
    picture = Image.fromarray(pixels)
    draw = ImageDraw.Draw(picture)
    longest = max(picture.size)
    wide, font = max(1, round(longest / 300)), font_of(max(9, longest // 45))
    shown = texts or [""] * len(boxes)
    rows = [*zip(boxes.tolist(), colours.tolist(), shown, strict=True)]
    for box, colour, text in rows[::-1]:
        left, top, right, bottom = box
        frame = [left, top, max(left, right - 1), max(top, bottom - 1)]
        draw.rectangle(frame, outline=tuple(colour), width=wide)
        if text:
            place = draw.textbbox((left + wide, top + wide), text, font)
            draw.rectangle(place, fill=tuple(colour))
            draw.text((left + wide, top + wide), text, _ink(colour), font)
    return np.asarray(picture)


def legend(
    names: Sequence[str],
    shown: Sequence[int] | None = None,
    width: int = 0,
    own: np.ndarray | None = None,
) -> np.ndarray:
    """Returns a picture, uint8 [H, W, 3], with a field for each class: its name on its colour.

    Args:
      names: the names of all classes.
      shown: the classes in the picture; None: all.
      width: pixels in which fields stand side by side; 0: one field in each row.
      own: the colours of all classes, uint8 [Y, 3]; None: those of `palette`.
    """
    shown = range(len(names)) if shown is None else shown
    height, font = 22, font_of(14)
    wide = 16 + max(round(font.getlength(names[label])) for label in shown)
    columns = max(1, min(width // wide, len(shown)))
    size = wide * columns, height * -(-len(shown) // columns)
    picture = Image.new("RGB", size, (255, 255, 255))
    draw = ImageDraw.Draw(picture)
    every = (palette(len(names)) if own is None else own).tolist()
    for number, label in enumerate(shown):
        left, top = wide * (number % columns), height * (number // columns)
        field = (left, top, left + wide - 1, top + height - 1)
        draw.rectangle(field, fill=tuple(every[label]))
        draw.text((left + 8, top + 3), names[label], _ink(every[label]), font)
    return np.asarray(picture)


@functools.cache
def font_of(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Returns a font of so many pixels that has Latin, Greek and Cyrillic letters.

    Pillow's own font, which has only ASCII, stands in where matplotlib came without its fonts.
    """
    found = importlib.util.find_spec("matplotlib")  # does not import it
    if found is None or found.origin is None:
        return ImageFont.load_default(size)
    file = Path(found.origin).parent / "mpl-data" / "fonts" / "ttf" / "DejaVuSans.ttf"
    return ImageFont.truetype(file, size) if file.exists() else ImageFont.load_default(size)


def _ink(colour: Sequence[int]) -> tuple[int, int, int]:
    """Returns black or white, whichever can be read on a colour."""
    light = np.dot(colour, (0.299, 0.587, 0.114)) > 140
    return (0, 0, 0) if light else (255, 255, 255)


def png(pixels: np.ndarray) -> bytes:
    """Returns uint8 [H, W, 3] as a PNG file."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def index_png(mask: np.ndarray, colours: np.ndarray) -> bytes:
    """Returns a PNG file whose pixels are classes.

    Args:
      mask: classes, int [H, W], from 0 on.
      colours: uint8 [Y, 3]; up to 256 classes, the file has them as its palette. With more, it has
        16 bits and no palette.
    """
    if len(colours) > 256:
        picture = Image.fromarray(mask.astype(np.uint16))
    else:
        picture = Image.fromarray(mask.astype(np.uint8))
        picture.putpalette(colours.tobytes())
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()
