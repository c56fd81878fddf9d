# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the file that says which class a number or a colour in a mask stands for.

A line holds a name, and may hold a number before it, a colour after it, or both: `road`, `3 road`,
`road 128 64 128`, `3,road,#804080`; or only a colour before it, `128 64 128 road`. Without numbers,
the first line is 0. A line that can be read in two ways is an error. A class named void, ignore or
unlabelled is no class. JSON is read too. Start from `read`.
"""

import collections
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
_HEADER |= {"color_rgb", "parts", "actions", "category", "pixel"}
_STEM = re.compile(r"(^|[\W\d_])(class|label|colou?r|names|categor)", re.IGNORECASE)
_SHOWN = 5  # files that a message lists
_SUFFIXES = (".txt", ".csv", ".json", ".names")
USAGE = (
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
      lists_255: True if the file says what 255 is.
      twice: names that stand in several lines, which are one class.
    """

    names: tuple[str, ...]
    of_value: Mapping[int, int]
    of_colour: Mapping[Colour, int]
    numbered: bool
    lists_255: bool
    twice: tuple[str, ...] = ()

    @property
    def by_colour(self) -> bool:
        """True if only colours say what a pixel is, also in masks with a palette."""
        return bool(self.of_colour) and not self.numbered

    def notes(self) -> list[str]:
        """Returns sentences for the user."""
        return [f"several lines of classes have the name {name!r}; they are one class"
                for name in self.twice]  # fmt: skip


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
            raise BadInput(f"data.records.label_names={given}: there is no such file; {USAGE}.")
        return path
    files = [p for p in sorted(root.iterdir()) if p.suffix.lower() in _SUFFIXES and p.is_file()]
    named = [p for p in files if _STEM.search(p.stem) and p.name[0] != "."]
    if not named:
        named = [p for p in sorted(root.glob("*/_classes.csv")) if p.is_file()]  # Roboflow's
        if len({storage.read(p) for p in named}) == 1:
            named = named[:1]
    best = [p for p in named if p.stem.lower() == "classes"]
    if len(best or named) != 1:
        several = ", ".join(str(p.relative_to(root)) for p in best or named)
        others = ", ".join(p.name for p in files[:_SHOWN])
        raise BadInput(
            f"{key}: {root} has {f'several files of classes, {several}' if several else 'no file'}"
            f"{'' if several else ' of classes, such as classes.txt'}"
            f"{f', but {others}' if others and not several else ''}; "
            + (f"name one with --config.data.records.label_names=FILE; {USAGE}.")
        )
    return (best or named)[0]


def read(path: Path) -> Classes:
    """Reads a file of classes.

    Raises:
      BadInput: it cannot be read, or does not name two classes or more; the message names it.
    """
    try:
        text = storage.read_all([path])[0].decode("utf-8-sig")
        entries = _of_json(json.loads(text)) if path.suffix.lower() == ".json" else _of_lines(text)
        return _classes(entries)
    except (ValueError, OSError, RecursionError) as e:
        reason = " ".join(str(e).split())[:200]
        raise BadInput(f"{path}: {reason or type(e).__name__}; {USAGE}.") from e


def of_lines(text: str) -> Classes:
    """Returns the classes that the lines of a file name."""
    return _classes(_of_lines(text))


def named(names: Sequence[str]) -> Classes:
    """Returns classes that are numbered from 0 in their order."""
    return _classes([_Entry(name) for name in names])


_BEFORE = re.compile(r"(?:\d+(?:[\s,;:]+|$))*")
_AFTER = re.compile(r"(?:[\s,;:(\[]+\d+)*$")
# A name with a number beside it, which all names have where it is none of theirs.
_BESIDE = re.compile(r"[-+]?\d+[\W_]+(?P<after>.*)|(?P<before>.*?)[\W_]+\d+(?:[\W_]+\d+)*")
_SURE = re.compile(r"^\d+\s*[.)=](?!\d)|[,;:=(\[]\s*\d+$")  # one line is enough
_NUMERIC = re.compile(r"[-+]?\d*\.?\d+([\s,;:]|$)")


def _of_lines(text: str) -> list[_Entry]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [line for line in lines if not re.match(r"#(?![0-9a-fA-F]{6}\b)", line)]
    words = re.split(r"[\s,;:]+", lines[0].lower()) if lines else []
    if len(lines) > 1 and {*words} - {""} <= _HEADER and re.search(r"\d", lines[1]):
        lines = lines[1:]
    entries = [_of_line(line) for line in lines]
    for what, field in (("a colour", "colour"), ("a number before the name", "value")):
        there = [getattr(entry, field) is not None for entry in entries]
        if any(there) and not all(there):
            lacking = lines[there.index(False)]
            raise ValueError(f"some lines have {what}, but {lacking!r} has none")
    beside = [_BESIDE.fullmatch(entry.name) for entry in entries if not is_void(entry.name)]
    stems = {match and (match["after"] or match["before"]) for match in beside}
    sure = [line for line, entry in zip(lines, entries, strict=True) if _SURE.search(entry.name)]
    if sure or (all(beside) and len(stems) > 1):
        raise ValueError(
            f"{(sure or lines)[0]!r} has a number that may belong to the name or not; write the "
            "number before the name with a space between, and no other number"
        )
    return _after_ignore(entries)


def _after_ignore(entries: list[_Entry]) -> list[_Entry]:
    """Leaves out the first line of a list of labelme's, which counts from -1 and saves that as 255.

    Raises:
      ValueError: it does not go on as such a list.
    """
    if not entries or entries[0] != _Entry("__ignore__"):
        return entries
    if entries[1:2] != [_Entry("_background_")]:
        raise ValueError(
            "the first line, '__ignore__', may be 0, or -1 as in a list of labelme's, whose second "
            "is '_background_'; write a number before each name"
        )
    return entries[1:]


def _of_line(line: str) -> _Entry:
    """Reads the numbers before and after a name: its value and its colour.

    Raises:
      ValueError: the numbers can be neither, or either.
    """
    as_numbers = re.sub(
        r"#([0-9a-fA-F]{6})\b", lambda m: " {} {} {}".format(*bytes.fromhex(m[1])), line
    )  # as r g b
    rest = as_numbers.strip("\"'()[],;: \t")
    before = _numbers(_BEFORE.match(rest))
    rest = _BEFORE.sub("", rest, count=1)
    after = _numbers(_AFTER.search(rest))
    value, colour = None, None
    if len(before) == 1:
        value = before[0]
    elif len(before) == 3 and not after:
        colour = before
    elif before:
        raise ValueError(f"{line!r}: not clear which number is the class")
    if len(after) == 3 or (len(after) > 3 and before):
        colour = after[-3:]
        rest = re.sub(r"(?:[\s,;:(\[]+\d+){3}$", "", rest)
    elif len(after) > 3:
        raise ValueError(f"{line!r}: not clear which numbers are the colour")
    name = " ".join(rest.strip("\"'()[],;: \t").split())
    if not name:
        raise ValueError(f"{line!r} has no name")
    if before and _NUMERIC.match(name):
        raise ValueError(f"{line!r} has numbers that are neither the class nor its colour")
    return _Entry(name, value, None if colour is None else (colour[0], colour[1], colour[2]))


def _numbers(match: re.Match[str] | None) -> list[int]:
    return [int(n[:9]) for n in re.findall(r"\d+", match[0])] if match else []


def _of_json(content: Any) -> list[_Entry]:
    for key in ("categories", "classes"):
        if isinstance(content, dict) and isinstance(content.get(key), list | dict):
            content = content[key]
    if isinstance(content, dict):
        return [
            _Entry(value, int(key))
            if key.isdecimal() and isinstance(value, str)
            else _of_pair(key, value)
            for key, value in content.items()
        ]
    if not isinstance(content, list):
        raise ValueError("expected a list or an object of classes")
    return [_of_item(one) for one in content]


def _of_item(one: Any) -> _Entry:
    if not isinstance(one, dict):
        return _Entry(str(one))
    name, value, colour = (one.get(key) for key in ("name", "id", "color"))
    if value is not None and type(value) is not int:  # True is an int too
        raise ValueError(f"{name} has the id {value!r}, expected a number")
    return _Entry(str(name or ""), value, None if colour is None else _colour(name, colour))


def _of_pair(name: str, value: Any) -> _Entry:
    return _Entry(name, value) if type(value) is int else _Entry(name, None, _colour(name, value))


def _colour(name: Any, value: Any) -> Colour:
    if isinstance(value, str) and re.fullmatch(r"#[0-9a-fA-F]{6}", value):
        value = list(bytes.fromhex(value[1:]))
    if isinstance(value, list) and len(value) in (3, 4) and all(type(v) is int for v in value):
        return value[0], value[1], value[2]
    raise ValueError(f"{name} has {value!r}, expected a number or a colour such as [128, 64, 128]")


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
        if entry.colour and not 0 <= min(entry.colour) <= max(entry.colour) <= 255:
            raise ValueError(
                f"{entry.name} has the colour {entry.colour}, and 0 to 255 are possible"
            )
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
    lists_255 = USUAL_VOID in of_value
    of_value.setdefault(USUAL_VOID, VOID)
    lines = collections.Counter(entry.name for entry in entries)
    twice = tuple(name for name in names if lines[name] > 1)
    return Classes(tuple(names), of_value, of_colour, numbered, lists_255, twice)
