# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads COCO's files of instances: JSON with images, categories and annotations.

Each annotation becomes numbers of arrays while the text is parsed, so that those of COCO's training
images take less memory than their file. Start from `read`.
"""

import array
import collections
import dataclasses
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax.data.formats import json_lists
from vit_jax.data.formats.boxes import NOT_CHECKED, NOT_READ, Annotated, ImageId, Problem
from vit_jax.data.formats.polygons import Unchecked, crosses_itself, wrong_runs
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

# Most of the text; a list of numbers ends at its last bracket. Leaving it out saves half the time.
_POLYGONS = re.compile(r'"segmentation"\s*:\s*\[[][\s\d.,eE+-]*\]')
_LARGEST = 2**31  # of numbers that can be pixels
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
        self.wrong_images: set[str] = set()  # ids; their boxes are not to blame
        self.sides = array.array("q")
        self.of: list[tuple[Any, Any, Any]] = []  # annotation, image and category
        self.bboxes, self.areas = array.array("d"), array.array("d")
        self.crowds = bytearray()
        self.masks: list[tuple[int, Any]] = []  # position in `of`, and run lengths
        self.categories: list[Any] = []

    def image(self, position: int, one: Any) -> None:
        where = self._place("image", position, one, ("id", "file_name"))
        if not where:
            return
        number, name = _key(one["id"]), one["file_name"]
        sides = [one.get(side, 0) for side in ("height", "width")]
        known = all(type(side) is int and 0 <= side < 2**31 for side in sides)
        if not isinstance(name, str) or not name or type(number) not in (int, str):
            self.wrong(where, f"its file_name is {name!r}, expected id and name")
        else:
            self.images.append((number, name))  # type: ignore[arg-type]
            self.sides.extend(sides if known else (0, 0))

    def annotation(self, position: int, one: Any) -> None:
        if isinstance(one, dict) and "segments_info" in one:
            raise ValueError("it has panoptic segments; give the file of instances")
        where = self._place("annotation", position, one, ("image_id", "category_id", "bbox"))
        if not where:
            return
        bbox = one["bbox"]
        try:
            numbers = array.array("d", bbox if isinstance(bbox, list) else ())
            stated = one.get("area")
            area = float(numbers[2] * numbers[3] if stated is None else stated)
        except (TypeError, ValueError, IndexError, OverflowError):
            numbers, area = array.array("d"), 0.0
        small = all(abs(number) < _LARGEST for number in numbers)
        if len(numbers) != 4 or not small or not math.isfinite(area):
            more = f" and its area {_short(one['area'])}" if one.get("area") else ""
            expected = "expected [left, top, width, height], and a number"
            self.wrong(where, f"its bbox is {_short(bbox)}{more}, {expected}")
            return
        keys = {key: _key(one.get(key)) for key in ("id", "image_id", "category_id")}
        for key, value in keys.items():
            if type(value) not in (int, str) and (value is not None or key != "id"):
                self.wrong(where, f"its {key} is {_short(value)}, expected a whole number")
                return
        crowd = one.get("iscrowd", 0)
        if crowd not in (0, 1):
            self.wrong(where, f"its iscrowd is {_short(crowd)}, expected 0 or 1")
            return
        if self._polygons and "segmentation" in one:
            self._segmentation(where, one["segmentation"])
        self.of.append((keys["id"], keys["image_id"], _number(keys["category_id"])))
        self.bboxes.extend(numbers)
        self.areas.append(area)
        self.crowds.append(crowd == 1)

    def category(self, position: int, one: Any) -> None:
        self.categories.append(one)

    def _segmentation(self, where: str, given: Any) -> None:
        for polygon in given if isinstance(given, list) else ():
            try:
                problem, left_out = crosses_itself(polygon), NOT_READ
            except Unchecked as e:
                problem, left_out = str(e), NOT_CHECKED
            if problem:
                self.wrong(where, f"its polygon {problem}", left_out)
        if isinstance(given, dict):
            if problem := wrong_runs(given):
                self.wrong(where, f"its mask {problem}", NOT_READ)
            else:
                self.masks.append((len(self.of), tuple(given["size"])))

    def _place(self, kind: str, position: int, one: Any, needed: Sequence[str]) -> str:
        """Returns the name of a member for messages; "" if it lacks what it needs."""
        where = f"{kind}s[{position}]"
        if not isinstance(one, dict):
            self.wrong(where, f"it is {_short(one)}, expected an object")
            return ""
        if one.get("id") is not None:
            where = f"{kind} {one['id']!r:.80}"
        lacking = [key for key in needed if one.get(key) is None]
        if not lacking:
            return where
        self.wrong(where, f"it has no {' and no '.join(lacking)}")
        if kind == "image" and type(number := _key(one.get("id"))) in (int, str):
            self.wrong_images.add(str(number))
        return ""

    def wrong(self, where: str, reason: str, left_out: str = "") -> None:
        self.problems.append(Problem(f"{self.path}, {where}", reason, left_out))


def _short(value: Any) -> str:
    return json.dumps(value)[:80]


def _number(value: Any) -> Any:
    """Returns the id of a category; some tools write its digits as a string."""
    digits = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 19
    return int(value) if digits else value


def _key(value: Any) -> Any:
    """Returns an id; numbers such as 1.0, which some tools write, are whole."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read(path: Path, polygons: bool = False) -> CocoFile:
    """Reads a file.

    Args:
      path: the file.
      polygons: also looks for polygons that cross themselves, and for masks that cannot be read.

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
        lists = {
            "images": take.image,
            "annotations": take.annotation,
            "categories": take.category,
        }
        json_lists.read(text, lists)
        del text
        categories = _categories(take.categories, {category for *_, category in take.of})
    except UnicodeDecodeError as e:
        raise BadInput(f"{path}: it is not text in UTF-8; {_USAGE}.") from e
    except (ValueError, RecursionError, MemoryError) as e:
        reason = " ".join(str(e).split())[:200] or type(e).__name__
        raise BadInput(f"{path}: {reason}; {_USAGE}.") from e
    if not take.images and not take.problems:
        raise BadInput(f"{path} lists no images; {_USAGE}.")
    return CocoFile(path, categories, _content(take, categories))


def _categories(given: Sequence[Any], used: set[Any]) -> dict[int, str]:
    """Returns the categories by number; of two with one name, without the one that is not used.

    Roboflow lists such a category first: that above all others.
    """
    if not given:
        raise ValueError("its list of categories is empty")
    found: dict[int, str] = {}
    for position, one in enumerate(given):
        if not isinstance(one, dict):
            raise ValueError(f"categories[{position}] is {_short(one)}, expected an object")
        number, name = _number(_key(one.get("id"))), one.get("name")
        if type(number) is not int or not isinstance(name, str) or not name.strip():
            raise ValueError(f"a category has the id {number!r} and the name {name!r}")
        if number in found:
            raise ValueError(f"two categories have the id {number}")
        found[number] = name
    for name in [name for name, n in collections.Counter(found.values()).items() if n > 1]:
        *others, last = [number for number, one in found.items() if one == name]
        for number in [n for n in (*others, last) if n not in used][: len(others)]:
            del found[number]
        both = [number for number, one in found.items() if one == name]
        if both[1:]:
            raise ValueError(
                f"the categories {both[0]} and {both[1]} have one name, {name!r}; "
                "give each its own, or boxes of that name one category_id"
            )
    return dict(sorted(found.items()))


def _content(take: _Collector, categories: dict[int, str]) -> Annotated:
    row_of: dict[ImageId, int] = {}
    for row, (number, name) in enumerate(take.images):
        if row_of.setdefault(number, row) != row:
            first = take.images[row_of[number]][1]
            take.wrong(f"image {number!r}", f"two images have this id, {first} and {name}")
    label_of = {number: label for label, number in enumerate(categories)}
    row_of_text = {str(number): row for number, row in row_of.items()}  # some tools quote ids
    rows = np.array(
        [row_of.get(image, row_of_text.get(str(image), -1)) for _, image, _ in take.of], np.int64
    )
    classes = np.array([label_of.get(category, -1) for *_, category in take.of], np.int32)
    for at in np.flatnonzero(rows < 0).tolist():
        number, image, _ = take.of[at]
        if str(image) in take.wrong_images:
            continue
        what = "boxes left out, whose image is not listed"
        take.wrong(f"annotation {number!r}", f"there is no image {image!r}", what)
    for at in np.flatnonzero(classes < 0).tolist():
        number, _, category = take.of[at]
        what = "boxes left out, whose category is not listed"
        take.wrong(f"annotation {number!r}", f"there is no category {category!r}", what)
    for at, size in take.masks:
        row = rows[at]
        stated = tuple(take.sides[2 * row : 2 * row + 2])
        if row >= 0 and all(stated) and stated != size:
            reason = (
                f"its mask has {size[1]} x {size[0]} pixels, its image {stated[1]} x {stated[0]}"
            )
            take.wrong(f"annotation {take.of[at][0]!r}", reason, NOT_READ)
    seen = set[Any]()
    for number, _, _ in take.of:
        if number is not None and number in seen:
            what = "annotations that have the id of another"
            take.wrong(f"annotation {number!r}", "another has this id", what)
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
