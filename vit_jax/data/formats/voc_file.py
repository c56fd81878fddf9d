# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the XML files of Pascal VOC that list the objects of an image. Start from `read`."""

import math
from typing import Any, NamedTuple
from xml.etree import ElementTree


class VocObject(NamedTuple):
    """An object.

    Attributes:
      name: its class.
      box: left, top, right, bottom in pixels; the whole image is 0, 0, W, H.
      difficult: True if it counts neither in training nor in an evaluation.
    """

    name: str
    box: tuple[float, float, float, float]
    difficult: bool


class _NoDoctype(ElementTree.TreeBuilder):
    """Refuses a document type, which can define entities that grow or that read files."""

    def doctype(self, name: str, pubid: Any, system: Any) -> None:
        raise ValueError("it has a document type; remove <!DOCTYPE ...>")


def read(content: bytes) -> tuple[tuple[int, int], list[VocObject]]:
    """Returns rows and columns of the image, 0 if they are not stated, and its objects.

    VOC counts pixels from 1, and a box includes its last pixel: 1, 1, W, H is the whole image.

    Raises:
      ValueError: the file is damaged, or is not such a file.
    """
    try:
        root = ElementTree.fromstring(content, ElementTree.XMLParser(target=_NoDoctype()))
    except (ElementTree.ParseError, LookupError) as e:  # no such encoding
        raise ValueError(f"it is not XML: {e}") from e
    if root.tag != "annotation":
        raise ValueError(f"it begins with <{root.tag[:40]}>, expected <annotation>")
    sides = [_number(root.findtext(f"size/{side}"), 0) for side in ("height", "width")]
    objects = [_object(one) for one in root.iterfind("object")]
    return (int(sides[0]), int(sides[1])), objects


def _object(one: ElementTree.Element) -> VocObject:
    name = (one.findtext("name") or "").strip()
    if not name:
        raise ValueError("an object has no name")
    left, top, right, bottom = (
        _number(one.findtext(f"bndbox/{end}"), None) for end in ("xmin", "ymin", "xmax", "ymax")
    )
    difficult = _number(one.findtext("difficult"), 0) != 0
    return VocObject(name, (left - 1, top - 1, right, bottom), difficult)


def _number(text: str | None, default: float | None) -> float:
    if text is None and default is not None:
        return default
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not abs(number) < 2**31:
        raise ValueError(f"{(text or '')[:40]!r} stands where a number is expected")
    return number
