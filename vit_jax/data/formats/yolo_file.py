# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads YOLO's files: one of the data set, as YAML, and one of labels for each image.

Start from `read_labels`.
"""

import math
from pathlib import Path
from typing import Any

import yaml

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

_USAGE = (
    "expected YAML with names (a list, or numbers with names), train, and val or test: folders of "
    "images, beside which a folder `labels` stands for `images`"
)


def text_of(path: str | Path) -> str:
    """Returns the text of a file; raises ValueError if it is not UTF-8, and OSError."""
    try:
        return storage.read(path).decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise ValueError("it is not text in UTF-8") from e


def read_labels(text: str) -> list[tuple[int, tuple[float, float, float, float]]]:
    """Returns class and left, top, right, bottom of each box, in shares of the sides.

    A line holds the class, then centre, width and height of a box; or then the corners of a
    polygon, whose box is returned.

    Raises:
      ValueError: a line cannot be read.
    """
    found = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        try:
            found += [_box(line)] if line else []
        except ValueError as e:
            raise ValueError(f"line {number}: {e}") from e
    return found


def _box(line: str) -> tuple[int, tuple[float, float, float, float]]:
    try:
        label, *numbers = map(float, line.split())
    except ValueError:
        label, numbers = math.nan, []
    if not numbers or not all(map(math.isfinite, (label, *numbers))):
        raise ValueError(f"{line[:60]!r} is not a class and numbers")
    if not label.is_integer():
        raise ValueError(f"{line[:60]!r} begins with {label:g}, expected the number of a class")
    if len(numbers) == 4:
        x, y, width, height = numbers
        return int(label), (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    if len(numbers) >= 6 and len(numbers) % 2 == 0:
        across, down = numbers[::2], numbers[1::2]
        return int(label), (min(across), min(down), max(across), max(down))
    raise ValueError(
        f"{line[:60]!r} has {len(numbers)} numbers after the class; expected centre, width "
        "and height, or the corners of a polygon"
    )


def read(path: Path) -> tuple[tuple[str, ...], dict[str, list[Path]]]:
    """Returns the names of the classes, and for each split its folders or lists of images.

    Raises:
      BadInput: the file cannot be read, or names no classes or no folder.
    """
    try:
        content = yaml.safe_load(text_of(path))
        if not isinstance(content, dict):
            raise ValueError("it is not an object")
        if "kpt_shape" in content:
            raise ValueError("it has kpt_shape, so its labels are poses, which are not read")
        names = _names(content.get("names"))
        if (count := content.get("nc", len(names))) != len(names):
            raise ValueError(f"its nc is {count!r}, and it has {len(names)} names")
        splits = {
            split: [_place(path, content.get("path"), text) for text in _texts(content[split])]
            for split in ("train", "val", "test")
            if content.get(split)
        }
        if not splits:
            raise ValueError("it names no split")
    except (ValueError, LookupError, AttributeError, yaml.YAMLError, RecursionError) as e:
        raise BadInput(f"{path}: {' '.join(str(e).split())[:200]}; {_USAGE}.") from e
    return names, splits


def _names(given: Any) -> tuple[str, ...]:
    if isinstance(given, dict):
        if {*given} != {*range(len(given))}:
            raise ValueError("the numbers of its names are not 0, 1, 2, ...")
        given = [given[number] for number in range(len(given))]
    if isinstance(given, list) and any(isinstance(one, bool) for one in given):
        raise ValueError("YAML takes a name such as yes, no, on or off for true or false; quote it")
    plain = isinstance(given, list) and all(isinstance(one, str | int | float) for one in given)
    if not plain or not given:
        raise ValueError("it has no list of names")
    names = tuple(map(str, given))
    if len({*names}) < len(names):
        raise ValueError("two classes have one name")
    return names


def _texts(given: Any) -> list[str]:
    texts = given if isinstance(given, list) else [given]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a split is not a folder or a list of folders")
    return texts


def _place(file: Path, root: Any, text: str) -> Path:
    """Returns a folder or list.

    Exporters write `../train/images` for the folder beside the file, so that comes first.
    """
    tops = [file.parent]
    if isinstance(root, str):
        tops = [file.parent / Path(root).expanduser(), file.parent]
    beside = text
    while beside.startswith("../"):
        beside = beside.removeprefix("../")
    places = [top / name for name in (beside, text) for top in tops]
    return next((place for place in places if place.exists()), tops[0] / text)
