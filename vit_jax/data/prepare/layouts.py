# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Recognises the layout of a user's dataset: class folders, with or without splits, or a CSV.

Start from `index_images`; every layout is turned into an `Index`.
"""

import dataclasses
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vit_jax.data.formats.archives import ARCHIVE, Member, Progress, members, no_progress
from vit_jax.data.ops import decode
from vit_jax.data.sources import folders
from vit_jax.errors import BadInput

SPLITS = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}  # a folder's name -> TFDS's name of the split


class Example(NamedTuple):
    """An image: its name, unique in its split; its class; and where its bytes are."""

    name: str
    label: int
    member: Member


@dataclasses.dataclass(frozen=True)
class Index:
    """Every example of a dataset, before any byte of it is read.

    Attributes:
      classes: class names, by label.
      splits: examples, by name of the split.
      notes: a sentence for everything that was left out or assumed.
      accepts: raises BadInput unless the readable examples, by split, are enough.
    """

    classes: tuple[str, ...]
    splits: dict[str, list[Example]]
    notes: tuple[str, ...] = ()
    accepts: Callable[[dict[str, list[Example]]], None] = lambda kept: None


def index_images(origin: Path, scratch: Path, unpacked: Progress = no_progress) -> Index:
    """Indexes a user's dataset: class folders (as folder, zip or tar) or a CSV.

    The rows of a CSV are path,label[,split]. Images outside split folders are `train`; the sources
    hold missing splits out of it.

    Args:
      origin: the folder or file.
      scratch: see `archives.members`.
      unpacked: see `archives.members`.

    Raises:
      BadInput: the layout is different (the message says what was found), or a class or split has a
        name that a prepared dataset cannot have.
    """
    if origin.is_file() and origin.suffix.lower() == ".csv":
        index = _csv(origin)
    else:
        files = list(members(origin, scratch, lambda _: False, unpacked))
        index = _class_folders(files, str(origin))
    for name in index.classes:
        _line(name, origin)
    return index


def _line(name: str, origin: Path) -> None:
    """Raises BadInput unless a class name is one line of text, since TFDS stores names as lines."""
    try:
        name.encode()
    except UnicodeEncodeError:
        problem = "is not UTF-8"
    else:
        if name.splitlines() == [name] == [name.strip()]:
            return
        problem = "has line breaks, or blanks at its ends"
    raise BadInput(f"--from={origin}: the name of the class {name!r} {problem}; rename that class.")


def _csv(path: Path) -> Index:
    classes, own_splits, notes = folders.open_csv(str(path), None)
    splits: dict[str, list[Example]] = {}
    for part, split in own_splits.items():
        if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", str(part)):
            raise BadInput(
                f"--from={path}: the split {part!r} must have a name of letters, digits and _, "
                "such as train, val and test."
            )
        labels = split.table.labels()  # type: ignore[misc]  # a list of files has labels
        examples = splits.setdefault(
            "train" if part == "all" else SPLITS.get(str(part), str(part)), []
        )
        for at, row in enumerate(split.rows):
            name = split.name(at)
            file = path.parent / os.path.expanduser(name)
            member = Member(name, file.stat().st_size, str(file))
            examples.append(Example(name, int(labels[row, 0]), member))
    return Index(tuple(classes), splits, tuple(notes))


def _class_folders(files: Sequence[Member], origin: str) -> Index:
    images = [f for f in files if f.name.lower().endswith(decode.EXTENSIONS)]
    images = [f for f in images if not any(p[0] == "." for p in f.name.split("/"))]
    paths = _below_one_folder([f.name.split("/") for f in images])
    divided = any(len(p) == 3 and p[0].lower() == "train" for p in paths)
    by_split: dict[str, list[tuple[str, str, Member]]] = {}
    left_out = len(files) - len(images)
    for path, member in zip(paths, images, strict=True):
        split = SPLITS.get(path[0].lower())
        if len(path) == 3 and divided and split:
            by_split.setdefault(split, []).append((path[1], "/".join(path[1:]), member))
        elif len(path) == 2 and not divided:
            by_split.setdefault("train", []).append((path[0], "/".join(path), member))
        else:
            left_out += 1
    classes = sorted({label for label, _, _ in by_split.get("train", [])})
    extra = sorted({label for part in by_split.values() for label, _, _ in part} - set(classes))
    if len(classes) < 2 or extra:
        inside = [f.name for f in files if ARCHIVE.search(f.name)]
        problem = f"classes {extra} are not in train/" if extra else f"{len(classes)} class folders"
        if len(classes) == 1 and not extra:
            problem = f"needs two classes or more, found one: {classes[0]}"
        raise BadInput(
            f"--from={origin}: {problem}; expected CLASS/*.jpg, or train/CLASS/*.jpg and "
            f"test/CLASS/*.jpg ({', '.join(decode.EXTENSIONS)}); found "
            f"{', '.join(f.name for f in files[:4]) or 'nothing'}"
            + (f". Unpack {', '.join(inside[:3])} first, or give one of them." if inside else ".")
        )
    label = {name: number for number, name in enumerate(classes)}
    splits = {
        split: [Example(name, label[cls], member) for cls, name, member in part]
        for split, part in by_split.items()
    }
    note = f"{left_out} files left out: no image extension, or not in a class folder"
    return Index(tuple(classes), splits, (note,) if left_out else ())


def _below_one_folder(paths: list[list[str]]) -> list[list[str]]:
    """Removes the folders that all paths share, unless such a folder is a split."""
    while paths and all(len(p) > 2 and p[0] == paths[0][0] for p in paths):
        if paths[0][0].lower() in SPLITS:
            break
        paths = [p[1:] for p in paths]
    return paths


def check_unique(index: Index, origin: str | os.PathLike[str]) -> None:
    """Raises BadInput if two files of a split have the same name."""
    for split, examples in index.splits.items():
        seen: dict[str, Member] = {}
        for example in examples:
            other = seen.setdefault(example.name, example.member)
            if other is not example.member:
                raise BadInput(
                    f"--from={origin}: {example.name} of {split} is there twice, in "
                    f"{other.container} and {example.member.container}. An archive may lie beside "
                    "its unpacked files; give a folder with one of them."
                )
