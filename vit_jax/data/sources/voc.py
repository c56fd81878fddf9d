# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens Pascal VOC: its boxes or its masks. Start from `open_voc`."""

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vit_jax.data.formats import class_file, voc_file
from vit_jax.data.formats.boxes import Annotated, Problem
from vit_jax.data.ops.decode import EXTENSIONS
from vit_jax.data.sources import boxes, masks
from vit_jax.data.sources.source import Source
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

_FOLDERS = (("train", "train"), ("val", "valid"), ("val", "val"), ("test", "test"), ("all", ""))
_Objects = Sequence[Sequence[voc_file.VocObject]]
_SHOWN = 5  # files that a message lists

VOC_OBJECTS = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair",
    "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa",
    "train", "tvmonitor",
)  # fmt: skip


class _Place(NamedTuple):
    """Where a split is.

    Attributes:
      annotations: the folder of its XML files.
      images: the folder of its images.
      names: the names of both, without their endings.
    """

    annotations: Path
    images: Path
    names: Sequence[str]


def open_voc(rest: str, options: Any) -> boxes.Opened:
    """Returns class names, splits and notes of a folder in the layout of Pascal VOC.

    `PATH/ImageSets/Main` names its boxes, `PATH/ImageSets/Segmentation` its masks; PATH alone the
    masks, unless there are only boxes. Without lists, all XML files of Annotations are read, or
    those that lie beside their images, in PATH or in its folders train, valid and test.

    Raises:
      BadInput: the folder has another layout, or a file is missing or damaged.
    """
    root, lists = _folder(rest)
    if has_boxes(rest):
        return boxes.opened(f"voc:{rest}", find(rest, options))
    names, splits, notes = _open_masks(str(root), options)
    if not lists and (root / "ImageSets" / "Main").is_dir():
        notes = [*notes, f"masks are read; for boxes, give voc:{root}/ImageSets/Main"]
    return names, splits, notes


def _folder(rest: str) -> tuple[Path, str]:
    """Returns the folder of the data, and Main or Segmentation if `rest` names it."""
    path = storage.path(rest)
    if path.parent.name == "ImageSets" and path.name in ("Main", "Segmentation"):
        return path.parent.parent, path.name
    return path, ""


def has_boxes(rest: str) -> bool:
    """Returns True if `voc:REST` reads boxes, not masks."""
    root, lists = _folder(rest)
    there = {name: (root / "ImageSets" / name).is_dir() for name in ("Main", "Segmentation")}
    if lists or there["Segmentation"]:
        return lists == "Main"
    return there["Main"] or bool(_unlisted(root))


def find(rest: str, options: Any) -> boxes.Found:
    """Returns what the files hold."""
    key, (root, lists), notes = f"data.source=voc:{rest}", _folder(rest), list[str]()
    if lists or (root / "ImageSets" / "Main").is_dir():
        places, notes = _listed(root)
    else:
        places = _unlisted(root)
        notes = [f"{split}: all of {one.annotations}" for split, one in places.items()]
    if not places:
        raise BadInput(
            f"{key}: {root} lacks Annotations, or lists of images such as ImageSets/Main/train.txt;"
            " give the folder with JPEGImages, Annotations and ImageSets, such as VOCdevkit/VOC2012"
            "; or one with folders train and valid, where images have their XML files beside them."
        )
    read = {split: _read(place) for split, place in places.items()}
    used = {one.name for _, objects, *_ in read.values() for some in objects for one in some}
    names = VOC_OBJECTS
    if options.label_names:
        path = class_file.find(root, options.label_names, key)
        names = class_file.read(path).names
    elif not used <= {*names}:
        names = tuple(sorted(used))
    return tuple(names), {s: _part(root, *one, names) for s, one in read.items()}, notes


def _listed(root: Path) -> tuple[dict[str, _Place], list[str]]:
    """Returns the splits that ImageSets/Main lists, and notes."""
    annotations, images = root / "Annotations", root / "JPEGImages"
    if not annotations.is_dir():
        return {}, []
    known = {path.stem for path in annotations.glob("*.xml")} | {*_endings(images)}
    lists, notes = _lists(root / "ImageSets" / "Main", ("train", "val", "test"), known)
    return {split: _Place(annotations, images, names) for split, names in lists.items()}, notes


def _lists(
    folder: Path, splits: Sequence[str], known: Collection[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Returns the names of each split that a folder lists, and notes; trainval may be train.

    Args:
      folder: the folder of the lists.
      splits: the lists to read.
      known: names of files, without their endings.
    """
    notes, lists = list[str](), {split: folder / f"{split}.txt" for split in splits}
    if not lists["train"].is_file():
        lists["train"] = lists["train"].with_stem("trainval")
    listed = {
        split: sorted({_name(line.strip(), known) for line in _lines(path) if line.strip()})
        for split, path in lists.items()
        if path.is_file()
    }
    if lists["train"].stem == "trainval" and {*listed.get("train", ())} & {*listed.get("val", ())}:
        del listed["val"]
        notes.append("val: left out, as trainval, which has its images, is train")
    return {split: names for split, names in listed.items() if names}, notes


def _name(line: str, known: Collection[str]) -> str:
    """Returns the name in a line; the lists of a class have -1, 0 or 1 behind it."""
    names = (line, re.sub(r"\s+(-1|0|1)$", "", line))
    return next((name for name in names if name in known), names[-1])


def _unlisted(root: Path) -> dict[str, _Place]:
    """Returns the splits of data without lists: folders of them, or `all`."""
    folders = [(split, root / name, root / name) for split, name in _FOLDERS]
    if (root / "Annotations").is_dir():
        folders = [("all", root / "Annotations", root / "JPEGImages")]
    found = dict[str, _Place]()
    for split, annotations, images in folders:
        names = sorted(path.stem for path in annotations.glob("*.xml"))
        if names and (split != "all" or not found):
            found.setdefault(split, _Place(annotations, images, names))
    return found


def _lines(path: Path) -> list[str]:
    content = storage.read(path)
    try:
        return content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:  # names in Latin-1, in which any bytes are text
        return content.decode("latin-1").splitlines()


def _endings(folder: Path) -> dict[str, str]:
    """Returns the file of each image in a folder, by its name without the ending."""
    return {p.stem: p.name for p in folder.glob("*") if p.suffix.lower() in EXTENSIONS}


def _read(place: _Place) -> tuple[list[Any], _Objects, list[Problem], set[int]]:
    """Returns name, XML file, file and sides of each image, its objects, and what is wrong.

    Last come the images whose XML file cannot be read.
    """
    endings = _endings(place.images)
    images, objects, wrong, unread = [], [], list[Problem](), set[int]()
    for name in place.names:
        path, sides, own = place.annotations / f"{name}.xml", (0, 0), list[voc_file.VocObject]()
        try:
            sides, own = voc_file.read(storage.read(path))
        except (ValueError, OSError) as e:
            unread.add(len(images))
            wrong.append(Problem(str(path), getattr(e, "strerror", None) or str(e)))
        if name not in endings:
            wrong.append(Problem(str(path), f"there is no image {name} in {place.images.name}"))
        images.append((name, str(path), str(place.images / endings.get(name, name)), sides))
        objects.append(own)
    return images, objects, wrong, unread


def _part(
    root: Path,
    images: Any,
    objects: _Objects,
    wrong: list[Problem],
    unread: set[int],
    names: Sequence[str],
) -> Annotated:
    label_of = {name: label for label, name in enumerate(names)}
    found = [(row, one) for row, some in enumerate(objects) for one in some]
    for row, one in found:
        if one.name not in label_of:
            what = "boxes left out, whose class has no name in the file of classes"
            wrong.append(Problem(images[row][1], f"there is no class {one.name!r}", what))
    found = [(row, one) for row, one in found if one.name in label_of]
    ends = np.array([one.box for _, one in found], np.float64).reshape(-1, 4)
    return Annotated(
        paths=[path for _, _, path, _ in images],
        names=[os.path.relpath(path, root) for _, _, path, _ in images],
        ids=[name for name, *_ in images],
        sides=np.array([sides for *_, sides in images], np.int64).reshape(-1, 2),
        rows=np.array([row for row, _ in found], np.int64),
        boxes=ends,
        classes=np.array([label_of[one.name] for _, one in found], np.int32),
        ignored=np.array([one.difficult for _, one in found], bool),
        areas=np.prod(ends[:, 2:] - ends[:, :2], axis=1),
        problems=wrong,
        unread=unread,
    )


def _open_masks(rest: str, options: Any) -> boxes.Opened:
    """Returns class names, splits and notes of the masks that `ImageSets/Segmentation` lists.

    Classes are VOC's, unless `options.label_names` names a file.

    Raises:
      BadInput: the folder has another layout, or a mask is missing.
    """
    opened, missing = _find_masks(rest, options)
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if len(missing) > _SHOWN else "")
        root = storage.tree(rest)
        raise BadInput(
            f"data.source=voc:{rest}: {len(missing)} files are not in {root}: {shown}; add them."
        )
    return opened


def examined_masks(rest: str, options: Any) -> tuple[list[Problem], Source | None]:
    """Returns the missing files, and the source of the other images.

    The source is None if no file is missing.

    Raises:
      BadInput: the folder has another layout.
    """
    (names, splits, notes), missing = _find_masks(str(_folder(rest)[0]), options)
    problems = [Problem(path, "there is no such file; add it") for path in missing]
    return problems, Source(f"voc:{rest}", tuple(names), splits, tuple(notes)) if problems else None


def _find_masks(rest: str, options: Any) -> tuple[boxes.Opened, list[str]]:
    """Returns what is there, of images with masks, and the paths of the other listed files."""
    key, root = f"data.source=voc:{rest}", storage.tree(rest)
    lists = root / "ImageSets" / "Segmentation"
    endings = _endings(root / "JPEGImages")
    known = {*endings, *(path.stem for path in (root / "SegmentationClass").glob("*.png"))}
    listed, notes = _lists(lists, ("train", "val"), known)
    if "train" not in listed:
        raise BadInput(
            f"{key}: there is no {lists / 'train.txt'} or trainval.txt that lists images; give the "
            "folder with JPEGImages, SegmentationClass and ImageSets, such as VOCdevkit/VOC2012."
        )
    classes = class_file.named(("background", *VOC_OBJECTS))
    if options.label_names:
        classes = class_file.read(class_file.find(root, options.label_names, key))
    missing, pairs = list[str](), dict[str, list[tuple[str, str]]]()
    for split, names in listed.items():
        for n in names:
            pair = f"JPEGImages/{endings.get(n, f'{n}.jpg')}", f"SegmentationClass/{n}.png"
            gone = [path for path in pair if not os.path.isfile(root / path)]
            missing += gone
            pairs.setdefault(split, []).extend([] if gone else [pair])
    return (classes.names, masks.of_pairs(root, classes, pairs), notes), missing
