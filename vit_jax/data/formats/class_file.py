# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the file that says which class a number or a colour in a mask stands for.

A line holds a name, and may hold a number, a colour or both: `road`, `3 road`, `road 128 64 128`,
`3,road,#804080`. Without numbers, the first line is 0. A class named void, ignore or unlabelled is
no class. JSON is read too. Start from `read`.
"""

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

VOID = -1  # the class of a pixel that does not count
USUAL_VOID = 255  # void in masks whose file of classes does not list it
LARGEST = 65535  # value of a pixel of a mask
_VOID_NAMES = {
    "void", "void label", "ignore", "ignored", "ignore label", "unlabeled", "unlabelled",
    "unlabel", "dont care", "don't care", "out of roi", "rectification border",
}  # fmt: skip
_HEADER = {"name", "names", "class", "classes", "label", "labels", "id", "ids", "index", "idx"}
_HEADER |= {"r", "g", "b", "red", "green", "blue", "rgb", "color", "colour", "value", "number"}
_HEADER |= {"color_rgb", "parts", "actions", "category"}
_STEM = re.compile(r"class|label|colou?r|names|categor", re.IGNORECASE)
_SUFFIXES = (".txt", ".csv", ".json", ".names")
_USAGE = (
    "write one class per line: a name, before it the number that the masks have (else lines count "
    "from 0), after it the colour if the masks are coloured, as in `3 road 128 64 128`; name "
    "pixels that do not count void"
)

Colour = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes of masks.

    Attributes:
      names: the names, by class.
      of_value: value of a pixel -> class, or `VOID`.
      of_colour: colour of a pixel -> class, or `VOID`; empty if the file has no colours.
      numbered: True if the file states the values; otherwise they are numbers of lines.
    """

    names: tuple[str, ...]
    of_value: Mapping[int, int]
    of_colour: Mapping[Colour, int]
    numbered: bool

    @property
    def by_colour(self) -> bool:
        """True if only colours say what a pixel is, also in masks with a palette."""
        return bool(self.of_colour) and not self.numbered


@dataclasses.dataclass(frozen=True)
class _Entry:
    name: str
    value: int | None = None
    colour: Colour | None = None


def find(root: Path, given: str, key: str) -> Path:
    """Returns the file of classes: `given`, or the one in the folder of the data.

    Args:
      root: the folder of the data.
      given: a path; "": none.
      key: `data.source=...`, for messages.

    Raises:
      BadInput: there is none, or several.
    """
    if given:
        path = storage.path(given)
        if not path.is_file():
            raise BadInput(f"data.records.label_names={given}: there is no such file; {_USAGE}.")
        return path
    files = [p for p in sorted(root.iterdir()) if p.suffix.lower() in _SUFFIXES and p.is_file()]
    named = [p for p in files if _STEM.search(p.stem) and p.name[0] != "."]
    best = [p for p in named if p.stem.lower() == "classes"]
    if len(best or named) != 1:
        several = ", ".join(p.name for p in best or named)
        raise BadInput(
            f"{key}: {root} has {f'several files of classes, {several}' if several else 'no file'}"
            f"{'' if several else ' of classes, such as classes.txt'}; "
            + (f"name one with --config.data.records.label_names=FILE; {_USAGE}.")
        )
    return (best or named)[0]


def read(path: Path) -> Classes:
    """Reads a file of classes.

    Raises:
      BadInput: it cannot be read, or does not name two classes or more; the message names it.
    """
    try:
        text = storage.read_all([path])[0].decode("utf-8-sig")
        entries = _of_json(json.loads(text)) if path.suffix == ".json" else _of_lines(text)
        return _classes(entries)
    except (ValueError, OSError, RecursionError) as e:
        reason = " ".join(str(e).split())[:200]
        raise BadInput(f"{path}: {reason or type(e).__name__}; {_USAGE}.") from e


def named(names: Sequence[str]) -> Classes:
    """Returns classes that are numbered from 0 in their order."""
    return _classes([_Entry(name) for name in names])


def _of_lines(text: str) -> list[_Entry]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"#(?![0-9a-fA-F]{6}\b)", line)]
    entries = [_of_line(line) for line in lines]
    plain = [e.value is None and e.colour is None for e in entries]
    words = re.split(r"[\s,;:]+", lines[0].lower()) if lines else []
    if lines and plain[0] and not all(plain[1:]) and {*words} - {""} <= _HEADER:
        entries, lines = entries[1:], lines[1:]
    numbered, coloured = ([getattr(e, f) is not None for e in entries] for f in ("value", "colour"))
    names = [e.name for e in entries]
    # Names such as `class 1` end in a number that is no value.
    if any(coloured) and not all(coloured):
        lacking = lines[coloured.index(False)]
        raise ValueError(f"some lines have a colour, but {lacking!r} has none")
    mixed = any(numbered) and not all(numbered)
    if not any(coloured) and (mixed or "" in names or (all(numbered) and len({*names}) == 1)):
        entries = [_Entry(line) for line in lines]
    return entries


def _of_line(line: str) -> _Entry:
    """Reads the numbers before and after a name: a value, a colour, or a value and a colour."""
    line = re.sub(
        r"#([0-9a-fA-F]{6})\b", lambda m: " {} {} {}".format(*bytes.fromhex(m[1])), line
    )  # as r g b
    parts = re.split(r"[,;:\t]+|\s+", line) if re.search(r"\d", line) else [line]
    parts = [part.strip("\"'()[] ") for part in parts]
    parts = [part for part in parts if part]
    first = next((i for i, part in enumerate(parts) if not part.isdecimal()), len(parts))
    last = len(parts)
    while last > first and parts[last - 1].isdecimal():
        last -= 1
    before, after = ([int(p[:9]) for p in some] for some in (parts[:first], parts[last:]))
    name = " ".join(parts[first:last])
    value, colour = None, None
    for numbers in (before, after):
        if len(numbers) in (1, 4):
            value, numbers = numbers[0], numbers[1:]
        if len(numbers) == 3:
            colour = (numbers[0], numbers[1], numbers[2])
        elif numbers:
            return _Entry(line)
    return _Entry(name, value, colour)


def _of_json(content: Any) -> list[_Entry]:
    for key in ("categories", "labels", "classes", "names"):
        if isinstance(content, dict) and isinstance(content.get(key), list | dict):
            content = content[key]
    if isinstance(content, dict):
        return [
            _Entry(str(value), int(key)) if key.isdecimal() else _of_pair(key, value)
            for key, value in content.items()
        ]
    if not isinstance(content, list):
        raise ValueError("expected a list or an object of classes")
    entries = []
    for one in content:
        if isinstance(one, dict):
            value = next(
                (one[k] for k in ("id", "value", "label") if isinstance(one.get(k), int)), None
            )
            colour = one.get("color", one.get("colour"))
            entries.append(_Entry(str(one.get("name", "")), value, _colour(colour)))
        else:
            entries.append(_Entry(str(one)))
    return entries


def _of_pair(name: str, value: Any) -> _Entry:
    return _Entry(name, value) if isinstance(value, int) else _Entry(name, None, _colour(value))


def _colour(value: Any) -> Colour | None:
    if isinstance(value, str) and re.fullmatch(r"#[0-9a-fA-F]{6}", value):
        value = list(bytes.fromhex(value[1:]))
    if isinstance(value, list) and len(value) in (3, 4) and all(isinstance(v, int) for v in value):
        return value[0], value[1], value[2]
    return None


def is_void(name: str) -> bool:
    """Returns True for a name that says that pixels do not count."""
    return re.sub(r"[\s_\-]+", " ", name).strip().lower() in _VOID_NAMES


def _classes(entries: Sequence[_Entry]) -> Classes:
    numbered = any(entry.value is not None for entry in entries)
    names: dict[str, int] = {}
    of_value: dict[int, int] = {}
    of_colour: dict[Colour, int] = {}
    for line, entry in enumerate(entries):
        value = line if entry.value is None else entry.value
        if not entry.name:
            raise ValueError(f"class {value} has no name")
        if entry.name in names and not (numbered or entry.colour):
            raise ValueError(f"the name {entry.name!r} stands twice")
        if not 0 <= value <= LARGEST:
            raise ValueError(
                f"{entry.name} has the number {value}, and 0 to {LARGEST} are possible"
            )
        if entry.colour and max(entry.colour) > 255:
            raise ValueError(f"{entry.name} has the colour {entry.colour}, and 255 is the largest")
        if value in of_value:
            raise ValueError(f"two classes have the number {value}")
        if entry.colour in of_colour:
            raise ValueError(f"two classes have the colour {entry.colour}")
        label = VOID if is_void(entry.name) else names.setdefault(entry.name, len(names))
        of_value[value] = label
        if entry.colour:
            of_colour[entry.colour] = label
    if len(names) < 2:
        raise ValueError(f"needs two classes or more, has {', '.join(names) or 'none'}")
    if numbered and min(of_value) == 1:
        of_value[0] = VOID  # masks that count from 1 have 0 where there is no class
    of_value.setdefault(USUAL_VOID, VOID)
    return Classes(tuple(names), of_value, of_colour, numbered)
