# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens sources of image files: class folders, and CSV files that list images.

Start from `open_folder` and `open_csv`.
"""

import contextlib
import csv
import io
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vit_jax.data.formats.shards import SPLITS
from vit_jax.data.ops.decode import EXTENSIONS
from vit_jax.data.splits.split import Fields, NumpyFields, Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

_Opened = tuple[Sequence[str], dict[str, Split], list[str]]


def _file_table(
    paths: Sequence[str],
    names: Sequence[str],
    labels: Sequence[int],
    texts: Sequence[str] | None = None,
) -> Table:
    """Returns a table of image files with one label each, and a text if there are any."""
    labels_N1 = np.asarray(labels, np.int32)[:, None]

    def reader() -> Callable[[Tensor], Fields]:
        fields: dict[str, Any] = {"image": [os.fsencode(p) for p in paths], "labels": labels_N1}
        if texts is not None:
            fields["text"] = [text.encode() for text in texts]
        constants = {key: tf.constant(values) for key, values in fields.items()}

        def read(row: Tensor) -> Fields:
            own = {key: tf.gather(values, row) for key, values in constants.items()}
            return own | {"image": content(own["image"])}

        return read

    def content(path: Tensor) -> Tensor:
        if not any(map(storage.is_remote, paths[:1])):
            return tf.io.read_file(path)
        data = tf.numpy_function(_get, [path], tf.string, stateful=False)
        data.set_shape([])
        return data

    def numpy_reader() -> Callable[[int], NumpyFields]:
        from vit_jax.data.formats.stored import WholeFile

        def read(row: int) -> NumpyFields:
            fields = {"image": WholeFile(paths[row]), "labels": labels_N1[row]}
            return fields if texts is None else fields | {"text": texts[row]}

        return read

    return Table(
        len(paths), lambda row: names[row], reader, labels=lambda: labels_N1, most_labels=1,
        numpy_reader=numpy_reader,
    )  # fmt: skip


def _get(path: np.ndarray) -> bytes:
    """Reads an object of a bucket; raises NotFoundError if it is gone, as a disk read would."""
    name = os.fsdecode(np.asarray(path).item())
    try:
        return storage.as_path(name).read_bytes()
    except FileNotFoundError as e:
        raise tf.errors.NotFoundError(None, None, f"{name} is gone") from e


_LAYOUT = (
    "expected PATH/CLASS/*.jpg, or PATH/train/CLASS/*.jpg and PATH/test/CLASS/*.jpg, or images "
    f"without labels in PATH, or in PATH/train and PATH/test ({', '.join(EXTENSIONS)})"
)


def _subfolders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def sort_files(class_folder: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Sorts a class folder into images, other files, and pipes, sockets or devices.

    The last kind is kept apart because reading a pipe would wait for ever. A broken link counts as
    a file: reading it will report the missing target.
    """
    images, others, odd = [], [], []
    for path in _entries(class_folder):
        if path.is_file() or (path.is_symlink() and not path.exists()):
            is_image = path.name.lower().endswith(EXTENSIONS) and path.name[0] != "."
            (images if is_image else others).append(path)
        elif not path.is_dir():
            odd.append(path)
    return images, others, odd


def _first(paths: Sequence[Path], root: Path) -> str:
    names = ", ".join(path.relative_to(root).as_posix() for path in paths[:3])
    return f"first {names}"


def _parts(rest: str, root: Path) -> dict[str, Path]:
    """Returns split -> folder; the only split is `all` if no folder is named after a split.

    The names of folders may have capitals.

    Raises:
      BadInput: the names of two folders of splits differ only in case.
    """
    folders: dict[str, list[Path]] = {name: [] for name in SPLITS}
    for path in _subfolders(root):
        folders.get(path.name.lower(), []).append(path)
    layouts = {name: paths for name, paths in folders.items() if paths}
    # A lone folder called train that holds images is a class of that name.
    train = layouts.get("train", [])
    if not train or not (len(layouts) > 1 or any(map(_subfolders, train))):
        return {"all": root}
    twice = next((paths for paths in layouts.values() if len(paths) > 1), None)
    if twice:
        raise BadInput(
            f"data.source=folder:{rest}: {' and '.join(p.name for p in twice)} in {root} differ "
            "only in capitals, and are one split; put their images into one folder."
        )
    return {name: paths[0] for name, paths in layouts.items()}


def _wrong_layout(
    rest: str, root: Path, names: Sequence[str], extra: Sequence[str], images: Sequence[Path]
) -> BadInput:
    """Returns the error for a folder with another layout.

    Args:
      rest: the path as given.
      root: that folder.
      names: the names of its classes.
      extra: the classes that train lacks.
      images: the images outside class folders.
    """
    place, has_splits = ("", False) if names or images or extra else _elsewhere(root)
    if place:
        meant = shlex.quote(f"folder:{place}")
        return BadInput(
            f"data.source=folder:{rest}: no class folders with images in {root}; "
            f"did you mean {meant}?"
        )
    if has_splits:
        problem = "train/ is missing; rename the folder of training images to train"
    elif extra:
        problem = f"classes {extra} are not in train/"
    elif images:
        problem = (
            f"{len(images)} images are not in a class folder, {_first(images, root)}; move them "
            "into one folder a class, or list them with their labels in a CSV file and give "
            "csv:FILE"
        )
    elif names:
        problem = f"one class folder, {names[0]}, with folders in it"
    else:
        problem = "0 class folders with images"
    entries = ", ".join([p.name for p in _entries(root)][:8]) or "nothing"
    return BadInput(f"data.source=folder:{rest}: {problem}; {_LAYOUT}; found in {root}: {entries}.")


_DEEPEST, _MOST_FOLDERS = 3, 100  # limits of a search for class folders: levels, folders a level
_SPLIT = re.compile("train|val|test")  # how the name of a folder of a split begins


def _elsewhere(root: Path) -> tuple[str, bool]:
    """Searches below a folder for the class folders that the user may have meant.

    Returns:
      The path to give instead if there is exactly one, else ""; and True if it is `root` itself,
      which has folders of splits but no train/. The path is then "" too.
    """
    places = set[str]()
    level = [(root, path) for path in _subfolders(root)]
    for _ in range(_DEEPEST):
        deeper = []
        for parent, folder in level[:_MOST_FOLDERS]:
            with contextlib.suppress(OSError):  # a folder that cannot be listed
                inside = _subfolders(folder)
                if any(map(_has_images, inside)):
                    is_split = _SPLIT.match(folder.name.lower())
                    places.add(str(parent if is_split else folder))
                else:
                    deeper += [(folder, path) for path in inside]
        level = deeper
    if len(places) != 1:
        return "", False
    [place] = places
    return ("", True) if place == str(root) else (place, False)


def _has_images(folder: Path) -> bool:
    return any(p.name.lower().endswith(EXTENSIONS) and p.name[0] != "." for p in folder.iterdir())


_LEARNED = ("train", "all")  # the splits whose folders name the classes


class _Found(NamedTuple):
    """What the folders of the splits hold.

    Attributes:
      labelled: (split, image) in a class folder.
      loose: (split, image) beside class folders.
      others: files that are no images.
      odd: pipes, sockets or devices.
      deeper: number of folders inside class folders.
    """

    labelled: list[tuple[str, Path]]
    loose: list[tuple[str, Path]]
    others: list[Path]
    odd: list[Path]
    deeper: int


def _search(parts: Mapping[str, Path]) -> _Found:
    labelled, loose = list[tuple[str, Path]](), list[tuple[str, Path]]()
    others, odd = list[Path](), list[Path]()
    deeper = 0
    for part, top in parts.items():
        images, files, devices = sort_files(top)
        loose += [(part, path) for path in images]
        others += [path for path in files if path.name[0] != "."]
        odd += devices
        for folder in _subfolders(top):
            images, files, devices = sort_files(folder)
            labelled += [(part, path) for path in images]
            others += files
            odd += devices
            deeper += len(_subfolders(folder))
    return _Found(labelled, loose, others, odd, deeper)


def open_folder(rest: str, _: Any) -> _Opened:
    """Returns class names, splits and notes of a folder.

    Images in no class folders have no labels, and there are no names.

    Raises:
      BadInput: the folder is missing or has another layout.
    """
    root = storage.tree(rest)
    if not root.is_dir():
        kind = storage.kind(root)
        problem = f"is a {kind}" if kind else "does not exist"
        raise BadInput(f"data.source=folder:{rest}: {root} {problem}; {_LAYOUT}.")
    parts = _parts(rest, root)
    found = _search(parts)
    files, left_out = found.labelled, [path for _, path in found.loose] + found.others
    names = sorted({path.parent.name for part, path in files if part in _LEARNED})
    extra = sorted({path.parent.name for _, path in files} - {*names})
    learned = any(part in _LEARNED for part, _ in found.loose)
    if unlabelled := learned and not files and not found.deeper:
        files, left_out = found.loose, found.others
    elif not names or extra or (len(names) == 1 and (found.loose or found.deeper)):
        raise _wrong_layout(rest, root, names, extra, [path for _, path in found.loose])

    label = {name: i for i, name in enumerate(names)}
    paths = [path.relative_to(root).as_posix() for _, path in files]
    table = _file_table(
        [f"{root}/{path}" for path in paths],
        paths,
        [label.get(path.parent.name, -1) for _, path in files],
    )
    rows_of = {p: np.array([i for i, f in enumerate(files) if f[0] == p], np.int64) for p in parts}
    notes = ["images without labels: they are in no class folders"] if unlabelled else []
    if left_out:
        text = f"{len(left_out)} files left out: beside class folders, or no image extension"
        notes.append(f"{text}; {_first(left_out, root)}")
    if found.odd:
        text = f"{len(found.odd)} pipes, sockets or devices left out"
        notes.append(f"{text}; {_first(found.odd, root)}")
    if found.deeper:
        notes.append(f"{found.deeper} folders inside class folders left out")
    return names, {p: Split(table, rows) for p, rows in rows_of.items() if len(rows)}, notes


def open_csv(rest: str, _: Any) -> _Opened:
    """Returns class names, splits and notes of a CSV file.

    Raises:
      BadInput: the file is missing or has another layout, or an image is missing.
    """
    path = storage.path(rest)
    if not path.is_file():
        kind = storage.kind(path)
        problem = f"{path} is a {kind}, not a file" if kind else f"no file {path}"
        raise BadInput(f"data.source=csv:{rest}: {problem}; expected rows of path,label.")
    try:
        text = storage.read_all([path])[0].decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
    except (UnicodeDecodeError, csv.Error) as e:
        raise BadInput(f"data.source=csv:{rest}: not a CSV file: {e}.") from e
    header = [c.strip().lower() for c in rows[0]] if rows else []
    at = {"label": 1, "split": 2}  # columns
    if header[1:2] in (["label"], *([name] for name in _TEXTS)):
        at = {"text" if name in _TEXTS else name: n for n, name in enumerate(header)}
        rows = rows[1:]
    columns = {
        name: [row[at[name]].strip() if len(row) > at[name] else "" for row in rows]
        for name in ("label", "text", "split")
        if name in at
    }
    labels = sorted({*columns.get("label", ())}, key=as_number)
    _check_csv(rest, rows, columns, labels)
    files = [str(path.parent / os.path.expanduser(row[0].strip())) for row in rows]
    missing = storage.missing(files, path.parent)
    odd = bool(missing) and storage.is_odd(missing[0])
    if missing == files[:1] and len(files) > 1 and not odd:
        raise BadInput(
            f"data.source=csv:{rest}: there is no image {rows[0][0]}, the first row; if that row "
            f"is a header, {','.join(rows[0])}, name its second column label or text, or leave the "
            "row out."
        )
    if missing:
        problem = f" (a {storage.kind(missing[0])})" if odd else ""
        raise BadInput(
            f"data.source=csv:{rest}: {len(missing)} of {len(files)} images are not there, first "
            f"{missing[0]}{problem}; paths are relative to {path.parent}."
        )
    label = {name: i for i, name in enumerate(labels)}
    table = _file_table(
        files,
        [row[0].strip() for row in rows],
        [label[name] for name in columns["label"]] if labels else [-1] * len(rows),
        columns.get("text"),
    )
    parts = [part or "all" for part in columns.get("split", [""] * len(rows))]
    parts = [part.lower() if part.lower() in SPLITS else part for part in parts]
    rows_of = {p: np.flatnonzero([q == p for q in parts]) for p in dict.fromkeys(parts)}
    if "all" in rows_of and len(rows_of) > 1:
        raise BadInput(f"data.source=csv:{rest}: some rows name a split and some do not.")
    return labels, {p: Split(table, indices) for p, indices in rows_of.items()}, []


_TEXTS = ("text", "caption")  # names of the column of texts


def _check_csv(
    rest: str, rows: list[list[str]], columns: dict[str, list[str]], labels: Sequence[str]
) -> None:
    """Raises BadInput for a row without a label or a text, or a column of a single label."""
    given = [name for name in ("label", "text") if name in columns]
    expected = f"expected rows of path,{','.join(given)}[,split]"
    for number, row in enumerate(rows):
        if lacking := [name for name in given if not columns[name][number]]:
            raise BadInput(
                f"data.source=csv:{rest}: row {number + 1} is {row}, which has no {lacking[0]}; "
                f"{expected}."
            )
    if not rows or ("label" in columns and len(labels) < 2):
        what = "labels" if "label" in columns else "rows"
        found = f"one: {labels[0]}" if labels else "none"
        raise BadInput(
            f"data.source=csv:{rest}: needs two {what} or more, found {found}; {expected}."
        )


def as_number(text: str) -> tuple[int, str]:
    """Returns a sorting key that orders numeric labels as numbers."""
    return (int(text), "") if text.isdecimal() and len(text) < 20 else (0, text)
