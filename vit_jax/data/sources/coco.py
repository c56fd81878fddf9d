# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens COCO's files of instances and finds their images. Start from `open_coco`."""

import collections
import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax.data.formats import coco_file
from vit_jax.data.formats.boxes import Annotated, ImageId, Problem
from vit_jax.data.formats.coco_file import CocoFile
from vit_jax.data.sources import boxes
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

_SPLIT = re.compile(r"(?<![a-z])(train|val|valid|test)(?![a-z])", re.IGNORECASE)
_SHOWN = 5  # names that a message lists


def open_coco(rest: str, options: Any) -> boxes.Opened:
    """Returns class names, splits and notes of a file of instances, or of a folder with some.

    A file whose name holds train, val or test is that split, and `instances_train2017.json` brings
    `instances_val2017.json` and `instances_test2017.json`, where they are beside it.

    Raises:
      BadInput: a file is missing or damaged, or images are missing.
    """
    return boxes.opened(f"coco:{rest}", find(rest))


def coco_ids(spec: str) -> tuple[dict[str, int], dict[str, ImageId]]:
    """Returns the id of each category by name, and of each image by the real path of its file."""
    categories, images = dict[str, int](), dict[str, ImageId]()
    for file in _coco_files(spec.partition(":")[2]).values():
        content, _ = _with_images(file)
        categories |= {name: number for number, name in file.categories.items()}
        paths = map(os.path.realpath, content.paths)
        images |= dict(zip(paths, content.ids, strict=True))
    return categories, images


def find(rest: str, polygons: bool = False) -> boxes.Found:
    """Returns what the files hold; `polygons` also looks for polygons that cross themselves."""
    files = _coco_files(rest, polygons)
    names: dict[int, str] = {}
    for file in files.values():
        for number, name in file.categories.items():
            if names.setdefault(number, name) != name:
                raise BadInput(
                    f"{file.path} calls category {number} {name!r}, another split {names[number]!r}"
                    "; give files with the same categories."
                )
    if twice := [name for name, n in collections.Counter(names.values()).items() if n > 1]:
        raise BadInput(
            f"data.source=coco:{rest}: the category {twice[0]!r} has one number in one split and "
            "another in another; give files with the same categories."
        )
    label_of = {number: label for label, number in enumerate(sorted(names))}
    parts, notes = dict[str, Annotated](), list[str]()
    for split, file in files.items():
        own = np.array([label_of[number] for number in file.categories], np.int32)
        content, folder = _with_images(file)
        parts[split] = dataclasses.replace(content, classes=own[content.classes])
        notes.append(f"{split}: {file.path}, images in {folder}")
    return tuple(names[number] for number in sorted(names)), parts, notes


def _coco_files(rest: str, polygons: bool = False) -> dict[str, CocoFile]:
    """Returns the file of each split; `all` for one whose name says no split."""
    key, given = f"data.source=coco:{rest}", storage.path(rest)
    if given.is_dir():
        paths = _found_in(given, key)
    elif given.is_file() or storage.is_odd(given):
        paths = {_split_of(given) or "all": given}
        if _split_of(given) == "train":
            paths |= _siblings(given)
    else:
        raise BadInput(f"{key}: {given} does not exist; give a JSON file, or a folder with some.")
    return {split: coco_file.read(path, polygons) for split, path in paths.items()}


def _found_in(folder: Path, key: str) -> dict[str, Path]:
    places = [folder / "annotations", folder]
    files = [p for place in places for p in sorted(place.glob("instances*.json"))]
    files = files or sorted(folder.glob("*/_annotations.coco.json"))
    files = files or [p for place in places for p in sorted(place.glob("*.json"))]
    of_split: dict[str, Path] = {}
    for path in files:
        split = _split_of(path) or "all"
        if split in of_split:
            raise BadInput(
                f"{key} has two files for {split}: {of_split[split]} and {path}; give the file of "
                "train, which brings those beside it."
            )
        of_split[split] = path
    if not files or ("all" in of_split and len(of_split) > 1):
        names = ", ".join(path.name for path in files[:_SHOWN]) or "no JSON files"
        raise BadInput(
            f"{key}: {folder} has {names}; expected instances_train.json and instances_val.json, "
            "in it or in a folder annotations; or give one file."
        )
    return of_split


def _split_of(path: Path) -> str:
    """Returns the split that the name of a file, or else of its folder, states."""
    for text in (path.stem, path.parent.name if path.stem.startswith("_") else ""):
        if match := _SPLIT.search(text):
            return match[1].lower().replace("valid", "val")
    return ""


def _siblings(train: Path) -> dict[str, Path]:
    """Returns the files of other splits, which have the same name but for that of the split."""
    if not _SPLIT.search(train.stem):
        beside = {"val": train.parent.parent / "valid", "test": train.parent.parent / "test"}
        files = {split: folder / train.name for split, folder in beside.items()}
    else:
        names = {split: _SPLIT.sub(split, train.stem) for split in ("val", "valid", "test")}
        files = {split: train.with_stem(name) for split, name in names.items()}
    return {k.replace("valid", "val"): path for k, path in files.items() if path.is_file()}


def _with_images(file: CocoFile) -> tuple[Annotated, Path]:
    """Returns the content with the paths of images, and their folder."""
    at, split = file.path.parent, _SPLIT.search(file.path.stem)
    own = file.path.stem[split.start() :] if split else file.path.stem
    subset = re.sub("^instances_", "", file.path.stem)  # as CVAT calls it
    names = [own, split[1] if split else own, subset]
    folders = [top / name for top in (at.parent, at) for name in names]
    folders += [top / "images" / name for top in (at.parent, at) for name in (*names, "")]
    folders = [*dict.fromkeys([*folders, at, at.parent])]
    own_names = file.content.names
    some = [name for name in own_names if "\0" not in name][:20]
    hits = [sum(os.path.isfile(_joined(folder, name)) for name in some) for folder in folders]
    folder = folders[hits.index(max(hits))] if any(hits) else at
    paths = [_joined(folder, name) for name in own_names]
    gone = [path for path in paths if not os.path.isfile(path)]
    reasons = [f"there is no image {path}" for path in gone]
    if gone and len(gone) == len(paths):
        tried = ", ".join(map(str, folders))
        reasons = [f"there is no image {own_names[0]}, nor any other of its {len(paths):,}, in one "
                   f"of the folders {tried}; move the images to one of them"]  # fmt: skip
    wrong = [Problem(str(file.path), reason) for reason in reasons]
    content = dataclasses.replace(
        file.content,
        paths=paths,
        names=[os.path.join(folder.name, name) for name in own_names],
        problems=[*wrong, *file.content.problems],
    )
    return content, folder


def _joined(folder: Path, name: str) -> str:
    """Returns the path of an image, whose name may be a whole path, or one as Windows writes it."""
    path = os.path.join(folder, name)
    if "\\" in name and not os.path.isfile(path):
        path = os.path.join(folder, name.replace("\\", "/"))
    return path
