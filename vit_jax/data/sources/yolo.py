# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens data sets in the layout of YOLO. Start from `open_yolo`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax.data.formats import yolo_file
from vit_jax.data.formats.boxes import Annotated, Problem
from vit_jax.data.sources import boxes, masks
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

_SHOWN = 5  # names that a message lists


def open_yolo(rest: str, options: Any) -> boxes.Opened:
    """Returns class names, splits and notes of a data set in the layout of YOLO.

    Raises:
      BadInput: the file of the data set, or a file of labels, is missing or damaged.
    """
    return boxes.opened(f"yolo:{rest}", find(rest))


def find(rest: str) -> boxes.Found:
    """Returns what the files hold."""
    key, given = f"data.source=yolo:{rest}", storage.path(rest).absolute()
    if given.is_dir():
        files = [p for p in sorted(given.iterdir()) if p.suffix.lower() in (".yaml", ".yml")]
        files = [p for p in files if p.stem in ("data", "dataset")] or files
        if len(files) != 1:
            several = ", ".join(p.name for p in files[:_SHOWN]) or "no YAML file"
            raise BadInput(f"{key}: {given} has {several}; give the file of the data set.")
        given = files[0]
    if not given.is_file():
        raise BadInput(f"{key}: there is no file {given}; give the YAML file of the data set.")
    names, places = yolo_file.read(given)
    parts = {split: _part(given.parent, some, names) for split, some in places.items()}
    for split, part in parts.items():
        if not part.paths:
            where = ", ".join(map(str, places[split]))
            raise BadInput(f"{given}: {split} is {where}, where there are no images.")
        if not part.problems and not any(os.path.isfile(_labels_of(path)) for path in part.paths):
            first = part.paths[0]
            raise BadInput(
                f"{given}: no image of {split} has a file of labels; expected {_labels_of(first)} "
                f"for {first}, and so on: the folder labels in place of images."
            )
    notes = [f"{split}: images of {', '.join(map(str, some))}" for split, some in places.items()]
    return names, parts, notes


def _part(root: Path, places: Sequence[Path], names: Sequence[str]) -> Annotated:
    paths = [path for place in places for path in _images(place)]
    rows, classes, ends, wrong = list[int](), list[int](), list[Any](), list[Problem]()
    unread = set[int]()
    for row, path in enumerate(paths):
        labels = _labels_of(path)
        try:
            if not os.path.isfile(path):
                raise ValueError("there is no such image")
            found = yolo_file.read_labels(yolo_file.text_of(labels))
        except FileNotFoundError:
            continue
        except (ValueError, OSError) as e:
            unread.add(row)
            at = labels if os.path.isfile(path) else path
            wrong.append(Problem(str(at), getattr(e, "strerror", None) or str(e)))
            continue
        for label, box in found:
            if not 0 <= label < len(names):
                what = "boxes left out, whose class has no name"
                last = len(names) - 1
                wrong.append(Problem(labels, f"there is no class {label}, only 0 to {last}", what))
                continue
            rows.append(row)
            classes.append(label)
            ends.append(box)
    images = [os.path.relpath(path, root) for path in paths]
    return Annotated(
        paths, images, images, np.zeros((len(paths), 2), np.int64), np.array(rows, np.int64),
        np.array(ends, np.float64).reshape(-1, 4),
        np.array(classes, np.int32), np.zeros(len(ends), bool), np.zeros(len(ends)),
        in_shares=True, problems=wrong, unread=unread,
    )  # fmt: skip


def _images(place: Path) -> list[str]:
    """Returns the images of a folder, or of a list of paths."""
    if place.is_dir():
        return [f"{place}/{name}" for name in masks.walked(place)]
    try:
        lines = yolo_file.text_of(place).splitlines()
    except (ValueError, OSError) as e:
        reason = getattr(e, "strerror", None) or str(e)
        raise BadInput(f"{place}: {reason}; give a folder of images, or a list of them.") from e
    names = [line.strip() for line in lines if line.strip()]
    return [os.path.join(place.parent, name) for name in names]


def _labels_of(path: str) -> str:
    """Returns the file of labels of an image: `labels` for the last `images` among its folders."""
    head, found, tail = path.rpartition("/images/")
    return os.path.splitext(f"{head}/labels/{tail}" if found else path)[0] + ".txt"
