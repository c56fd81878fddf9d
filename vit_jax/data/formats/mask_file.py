# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads masks: images whose pixels are numbers or colours of classes. Start from `read`."""

import dataclasses
import functools
import io
from typing import Any

import numpy as np

from vit_jax.data.formats.boxes import TURNED
from vit_jax.data.formats.class_file import LARGEST, USUAL_VOID, VOID, Classes
from vit_jax.data.formats.stored import Stored, WholeFile, read_image
from vit_jax.data.ops import decode
from vit_jax.data.ops.decode import BadImage

_UNKNOWN = -2
# Formats whose numbers are read as they are; WebP may lose them, PPM has a scale.
_LOSSLESS = ("PNG", "TIFF", "BMP", "GIF")
_PHOTOMETRIC = 262  # tag of a TIFF file; 0: white is 0
_COLOURED = ("P", "PA", "RGB", "RGBA", "RGBX")
_GRAY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")


@dataclasses.dataclass(frozen=True)
class StoredMask:
    """A mask that is read when it is needed.

    Attributes:
      path: its file.
      classes: what its pixels stand for.
    """

    path: str
    classes: Classes

    def read(self) -> np.ndarray:
        """Returns int32 [H, W], -1 where no class counts; raises OSError and BadImage."""
        return read(WholeFile(self.path).read(), self.classes)


@dataclasses.dataclass(frozen=True)
class Renumbered:
    """A mask of a mixture, whose classes have other numbers than in its source.

    Attributes:
      mask: int32 [H, W], or where it is stored.
      numbers: the new number of each class.
    """

    mask: np.ndarray | Stored
    numbers: tuple[int, ...]

    @property
    def path(self) -> str:
        """The file of the mask."""
        return getattr(self.mask, "path", "its mask")

    def read(self) -> np.ndarray:
        """Returns int32 [H, W], -1 where no class counts; raises OSError and BadImage."""
        own_HW = np.asarray(read_image(self.mask))
        if problem := fault(own_HW, None, len(self.numbers)):
            raise BadImage(problem)
        return np.array([*self.numbers, VOID], np.int32)[own_HW]


def read(content: bytes, classes: Classes) -> np.ndarray:
    """Decodes a mask.

    Args:
      content: the bytes of a file without loss, such as PNG. A palette counts as numbers, unless
        the file of classes has colours alone.
      classes: what its pixels stand for.

    Returns:
      int32 [H, W], the class of each pixel; -1 where none counts.

    Raises:
      BadImage: it cannot be decoded, or a pixel is of no known class.
    """
    with decode.opened(content) as picture:
        kind = str(picture.info.get("compression", "")) if picture.format == "TIFF" else ""
        if picture.format not in _LOSSLESS or kind in ("jpeg", "webp"):
            name = f"{picture.format} {kind}".strip()
            raise BadImage(f"{name} can change the numbers of classes; give masks as PNG")
        if reason := _rescaled(picture, content):
            raise BadImage(f"{reason}; save it as a PNG file of 8 bits")
        if picture.mode in _GRAY and not (classes.by_colour and _all_gray(classes)):
            values = np.asarray(picture.getchannel(0) if picture.mode == "LA" else picture)
            return _of_values(values.astype(np.int64), classes)
        if picture.mode == "P" and not classes.by_colour:
            return _of_values(np.asarray(picture).astype(np.int64), classes)
        colours = np.asarray(picture.convert("RGB")).astype(np.int64)
    if classes.of_colour:
        return _of_colours(colours, classes)
    if (colours == colours[..., :1]).all():
        return _of_values(colours[..., 0], classes)
    raise BadImage("it is coloured, and the file of classes has no colours; add r g b to each line")


def colours(content: bytes, classes: Classes) -> np.ndarray | None:
    """Returns the colour that the data give each class, uint8 [Y, 3]; None if they give none.

    The file of classes says it for each class, otherwise the palette of a mask, unless that is a
    scale of gray.

    Args:
      content: the bytes of a mask.
      classes: what the pixels of masks stand for.
    """
    first = {label: colour for colour, label in reversed(list(classes.of_colour.items()))}
    if all(label in first for label in range(len(classes.names))):
        return np.array([first[label] for label in range(len(classes.names))], np.uint8)
    if classes.by_colour:
        return None
    try:
        with decode.opened(content) as picture:
            stored = picture.getpalette("RGB") if picture.mode == "P" else None
    except BadImage:  # to be told when it is read as an example
        return None
    palette = np.array(stored or [], np.uint8).reshape(-1, 3)
    values = {label: value for value, label in reversed(list(classes.of_value.items()))}
    own = [values[label] for label in range(len(classes.names))]
    if not len(palette) or max(own) >= len(palette):
        return None
    chosen = palette[own]
    is_scale = (chosen == np.array(own)[:, None]).all()
    return None if is_scale or len(np.unique(chosen, axis=0)) < len(own) else chosen


def _rescaled(picture: Any, content: bytes) -> str:
    """Returns why Pillow's pixels are not the numbers in the file, or ""."""
    if picture.mode not in (*_GRAY, *_COLOURED):
        return f"its pixels are of the kind {picture.mode}, no numbers or colours of classes"
    if picture.format == "TIFF" and picture.tag_v2.get(_PHOTOMETRIC) == 0:
        return "its numbers are inverted, as white is 0"
    if picture.format == "PNG" and content[24] in (2, 4) and content[25] == 0:  # depth, and gray
        return f"its numbers have {content[24]} bits, and count as parts of white"
    return ""


def sides(content: bytes) -> tuple[int, int] | None:
    """Returns rows and columns of an image file from its first bytes; None if they do not say."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as picture:
            return picture.size[1], picture.size[0]
    except Exception:  # decoding it will tell
        return None


def _all_gray(classes: Classes) -> bool:
    return all(r == g == b for r, g, b in classes.of_colour)


@functools.lru_cache(maxsize=8)
def _table(values: tuple[tuple[int, int], ...]) -> np.ndarray:
    table = np.full(LARGEST + 1, _UNKNOWN, np.int32)
    for value, label in values:
        table[value] = label
    return table


def _of_values(values: np.ndarray, classes: Classes) -> np.ndarray:
    if values.ndim != 2 or values.min() < 0 or values.max() > LARGEST:
        raise BadImage(f"its pixels are not numbers from 0 to {LARGEST}")
    labels = _table(tuple(classes.of_value.items()))[values]
    if (unknown := labels == _UNKNOWN).any():
        value, where = _first(unknown, values)
        known = sorted(classes.of_value)
        hint = ""
        if not classes.numbered and value == len(known) - 1:
            hint = "; if the masks count from 1, write the number before each name"
        raise BadImage(
            f"pixels of {value} ({where}) are of no class, the file of classes has "
            f"{_ranges(known)}{hint}"
        )
    of_two = len(classes.names) == 2 and not classes.lists_255
    zero = classes.of_value.get(0, VOID)
    if of_two and zero != VOID and (values == USUAL_VOID).any() and not (labels == 1 - zero).any():
        other = classes.names[1 - zero]
        raise BadImage(
            f"its pixels are {', '.join(map(str, np.unique(values)))}, and may be those of two "
            f"classes; write `255 {other}` in the file of classes, or `255 void` if they do not "
            "count, and a number before each name"
        )
    return labels


def _of_colours(colours: np.ndarray, classes: Classes) -> np.ndarray:
    codes = colours[..., 0] << 16 | colours[..., 1] << 8 | colours[..., 2]
    known = {r << 16 | g << 8 | b: label for (r, g, b), label in classes.of_colour.items()}
    ordered = np.array(sorted(known))
    at = np.minimum(np.searchsorted(ordered, codes), len(ordered) - 1)
    if (unknown := ordered[at] != codes).any():
        code, where = _first(unknown, codes)
        colour = code >> 16, code >> 8 & 255, code & 255
        raise BadImage(
            f"pixels of the colour {colour} ({where}) are of no class; add a line with this "
            "colour to the file of classes, named void if they do not count"
        )
    return np.array([known[code] for code in ordered.tolist()], np.int32)[at]


def _first(unknown: np.ndarray, values: np.ndarray) -> tuple[int, str]:
    row, column = np.argwhere(unknown)[0].tolist()
    value = int(values[row, column])
    return value, f"{(values == value).sum()}, first at row {row}, column {column}"


def _ranges(numbers: list[int]) -> str:
    """Returns ascending numbers as a text such as `0-10, 255`."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(texts[:8]) + (", ..." if len(texts) > 8 else "")


def fault(mask: np.ndarray, image_sides: tuple[int, int] | None, classes: int) -> str:
    """Returns why a mask does not belong to an image of these rows and columns, or ""."""
    if mask.max(initial=VOID) >= classes:
        value, where = _first(mask >= classes, mask)
        return f"pixels of {value} ({where}) are of no class, of which there are {classes}"
    if image_sides is not None and mask.shape != image_sides:
        rows, columns = mask.shape
        turned = TURNED * (mask.shape == image_sides[::-1])
        return (
            f"the mask has {columns} x {rows} pixels, its image {image_sides[1]} x {image_sides[0]}"
            f"{turned}"
        )
    return ""


def is_empty(mask: np.ndarray) -> bool:
    """Returns True if no pixel of a mask counts."""
    return bool((mask == VOID).all())
