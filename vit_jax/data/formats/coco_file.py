# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads COCO's files of instances: JSON with images, categories and annotations.

Annotations become arrays while the text is parsed, so that those of COCO's training images take
less memory than their file. Start from `read`.
"""

import array
import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax.data.formats.boxes import Annotated, ImageId, Problem
from vit_jax.data.formats.polygons import crosses_itself
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

# Most of the text; a list of numbers ends at its last bracket. Leaving it out saves half the time.
_POLYGONS = re.compile(r'"segmentation"\s*:\s*\[[][\s\d.,eE+-]*\]')
_USAGE = (
    "expected COCO's instances: an object with the lists images (id, file_name, width, height), "
    "annotations (id, image_id, category_id, bbox) and categories (id, name)"
)


@dataclasses.dataclass(frozen=True)
class CocoFile:
    """The content of a file.

    Attributes:
      path: the file.
      categories: number of a category -> its name, by number.
      content: images, whose paths are as the file has them, and boxes, whose classes are
        positions in `categories`.
    """

    path: Path
    categories: dict[int, str]
    content: Annotated


class _Collector:
    """Takes annotations and images out of a text while it is parsed."""

    def __init__(self, path: Path, polygons: bool):
        self.path, self._polygons = path, polygons
        self.problems: list[Problem] = []
        self.images: list[tuple[ImageId, str]] = []
        self.sides = array.array("q")
        self.of: list[tuple[Any, Any, Any]] = []  # annotation, image and category
        self.bboxes, self.areas = array.array("d"), array.array("d")
        self.crowds = bytearray()

    def __call__(self, one: dict[str, Any]) -> Any:
        """Keeps what an object says; returns what stands for it in the parsed text."""
        if "image_id" in one:
            if "segments_info" in one:
                raise ValueError("it has panoptic segments; give the file of instances")
            self._annotation(one)
            return None
        if "file_name" in one:
            self._image(one)
            return None
        return one

    def _image(self, one: dict[str, Any]) -> None:
        number, name = one.get("id"), one["file_name"]
        sides = [one.get(side, 0) for side in ("height", "width")]
        known = all(type(side) is int and 0 <= side < 2**31 for side in sides)
        if not isinstance(name, str) or not name or type(number) not in (int, str):
            self._wrong(f"image {number!r}", f"its file_name is {name!r}, expected id and name")
        else:
            self.images.append((number, name))  # type: ignore[arg-type]
            self.sides.extend(sides if known else (0, 0))

    def _annotation(self, one: dict[str, Any]) -> None:
        where = f"annotation {one.get('id')!r}"
        bbox = one.get("bbox")
        try:
            numbers = array.array("d", bbox if isinstance(bbox, list) else ())
            area = float(one.get("area", numbers[2] * numbers[3]))
        except (TypeError, ValueError, IndexError, OverflowError):
            numbers, area = array.array("d"), 0.0
        if len(numbers) != 4 or not all(map(math.isfinite, (*numbers, area))):
            text = json.dumps(bbox)[:80]
            self._wrong(where, f"its bbox is {text}, expected [left, top, width, height]")
            return
        keys = tuple(one.get(key) for key in ("id", "image_id", "category_id"))
        if not all(key is None or type(key) in (int, str) for key in keys):
            self._wrong(where, "its image_id or category_id is not a number")
            return
        self.of.append((keys[0], keys[1], keys[2]))
        self.bboxes.extend(numbers)
        self.areas.append(area)
        self.crowds.append(one.get("iscrowd", 0) == 1)
        if self._polygons and isinstance(one.get("segmentation"), list):
            for polygon in one["segmentation"]:
                if problem := crosses_itself(polygon):
                    self._wrong(where, f"its polygon {problem}", "polygons, which are not read")

    def _wrong(self, where: str, reason: str, left_out: str = "") -> None:
        self.problems.append(Problem(f"{self.path}, {where}", reason, left_out))


def read(path: Path, polygons: bool = False) -> CocoFile:
    """Reads a file.

    Args:
      path: the file.
      polygons: also looks for polygons that cross themselves.

    Raises:
      BadInput: it cannot be read or is not such a file. What is wrong with a single image or
        annotation is in `problems` of the content.
    """
    take = _Collector(path, polygons)
    try:
        if storage.is_odd(path):
            raise ValueError(f"it is a {storage.kind(path)}, not a file")
        text = path.read_text(encoding="utf-8-sig")
        if not polygons:
            text = _POLYGONS.sub('"segmentation":0', text)
        top = json.loads(text, object_hook=take)
        del text
        lists = [top.get(k) for k in ("images", "annotations", "categories")] if top else []
        if not all(isinstance(one, list) for one in lists) or not lists:
            raise ValueError("it lacks one of the lists")
        categories = _categories(lists[2])
    except (ValueError, AttributeError, RecursionError, MemoryError) as e:
        reason = " ".join(str(e).split())[:200] or type(e).__name__
        raise BadInput(f"{path}: {reason}; {_USAGE}.") from e
    if not take.images:
        raise BadInput(f"{path} lists no images; {_USAGE}.")
    return CocoFile(path, categories, _content(take, categories))


def _categories(given: Sequence[Any]) -> dict[int, str]:
    if not given or not all(isinstance(one, dict) for one in given):
        raise ValueError("its categories are not a list of objects")
    found: dict[int, str] = {}
    for one in given:
        number, name = one.get("id"), one.get("name")
        if type(number) is not int or not isinstance(name, str) or not name.strip():
            raise ValueError(f"a category has the id {number!r} and the name {name!r}")
        if number in found or name in found.values():
            raise ValueError(f"two categories have the id {number} or the name {name!r}")
        found[number] = name
    return dict(sorted(found.items()))


def _content(take: _Collector, categories: dict[int, str]) -> Annotated:
    row_of: dict[ImageId, int] = {}
    for row, (number, name) in enumerate(take.images):
        if row_of.setdefault(number, row) != row:
            first = take.images[row_of[number]][1]
            take._wrong(f"image {number!r}", f"two images have this id, {first} and {name}")
    label_of = {number: label for label, number in enumerate(categories)}
    rows = np.array([row_of.get(image, -1) for _, image, _ in take.of], np.int64)
    classes = np.array([label_of.get(category, -1) for *_, category in take.of], np.int32)
    for at in np.flatnonzero(rows < 0).tolist():
        number, image, _ = take.of[at]
        what = "boxes left out, whose image is not listed"
        take._wrong(f"annotation {number!r}", f"there is no image {image!r}", what)
    for at in np.flatnonzero(classes < 0).tolist():
        number, _, category = take.of[at]
        what = "boxes left out, whose category is not listed"
        take._wrong(f"annotation {number!r}", f"there is no category {category!r}", what)
    seen = set[Any]()
    for number, _, _ in take.of:
        if number is not None and number in seen:
            what = "annotations that have the id of another"
            take._wrong(f"annotation {number!r}", "another has this id", what)
        seen.add(number)
    boxes = np.array(take.bboxes, np.float64).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    kept = (rows >= 0) & (classes >= 0)
    return Annotated(
        paths=[name for _, name in take.images],
        names=[name for _, name in take.images],
        ids=[number for number, _ in take.images],
        sides=np.array(take.sides, np.int64).reshape(-1, 2),
        rows=rows[kept],
        boxes=boxes[kept],
        classes=classes[kept],
        ignored=np.frombuffer(take.crowds, np.bool_)[kept],
        areas=np.array(take.areas, np.float64)[kept],
        problems=take.problems,
    )
