# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Where examples come from, in one grammar, `kind:rest`.

    digits             the handwritten digits inside scikit-learn, 1,797 images of 8 x 8
    folder:PATH        class folders, or train/ and test/ (and val/) with class folders inside
    csv:FILE           rows of path,label[,split]; paths are relative to the file
    tfds:NAME          a TensorFlow Datasets name, e.g. tfds:cifar10 or tfds:mnist:3.0.1
    synthetic:NAME     noise in the size of jft300m, imagenet21k or imagenet

Start from `open_source`.
"""

import csv
import dataclasses
import gzip
import hashlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax.data import splits as splits_lib
from vit_jax.data import synthetic
from vit_jax.data.lazy import Tensor, tf
from vit_jax.data.splits import Split, Table
from vit_jax.errors import BadInput, unknown

EXTENSIONS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".bmp", ".gif", ".webp", ".tif",
    ".tiff",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset: its splits and class names.

    Attributes:
      spec: as given, `kind:rest`.
      classes: names, by label.
      splits: by name.
      notes: a sentence for everything a user should know (splits that were made, files left out).
    """

    spec: str
    classes: tuple[str, ...]
    splits: dict[str, Split]
    notes: tuple[str, ...] = ()

    def split(self, expression: str) -> Split:
        """A split by name or slice; see `splits.select`."""
        return splits_lib.select(self.splits, expression, self.spec)

    def fingerprint(self) -> dict[str, str]:
        """What is equal where the dataset is, wherever it lies: classes, and size and names."""
        classes = hashlib.blake2b("\0".join(self.classes).encode(errors="surrogateescape"))
        found = {"classes": f"{len(self.classes)} ({classes.hexdigest()[:12]})"}
        for name, split in self.splits.items():
            found[f"split {name}"] = f"{len(split)} examples ({split.digest()})"
        return found


@dataclasses.dataclass(frozen=True)
class Options:
    """What some kinds of source need besides their `rest`; the keys of `data` in configs/base.py.

    Attributes:
      data_dir: of TFDS; empty is its default.
      image_key: of `records:`, and so on; empty: the first usual name that is there.
      label_key: likewise.
      name_key: likewise.
      label_names: file of class names, one a line; empty: what lies beside the records.
      max_labels: K, the most labels that an image has.
    """

    data_dir: str = ""
    image_key: str = ""
    label_key: str = ""
    name_key: str = ""
    label_names: str = ""
    max_labels: int = 1


def open_source(spec: str, options: Options, *, val_percent: int, test_percent: int) -> Source:
    """Opens a source; decodes nothing.

    Args:
      spec: `kind:rest`, see the module.
      options: for the kinds that need them.
      val_percent: see `splits.standard`.
      test_percent: likewise.

    Raises:
      BadInput: unknown kind, nothing there, or not laid out as expected; says what was found.
    """
    kind, _, rest = spec.partition(":")
    if kind not in KINDS:
        raise unknown("data.source", spec, KINDS)
    if bool(rest) != (kind != "digits"):
        raise BadInput(f"data.source={spec!r}: write it as {KINDS[kind][0]}.")
    for key, percent in (("val_percent", val_percent), ("test_percent", test_percent)):
        if not 0 <= percent <= 90:
            raise BadInput(f"data.{key}={percent}; give a percentage from 0 to 90.")
    try:
        classes, given, notes = KINDS[kind][1](rest, options)
    except OSError as e:
        raise BadInput(f"data.source={spec!r} cannot be read: {e.strerror}: {e.filename}.") from e
    hold = splits_lib.cut if kind == "tfds" else splits_lib.hold_out
    made, more = splits_lib.standard(
        given, val_percent=val_percent, test_percent=test_percent, hold=hold
    )
    return Source(spec, tuple(classes), made, (*notes, *more))


_Opened = tuple[Sequence[str], dict[str, Split], list[str]]


def _digits(_: str, __: Options) -> _Opened:
    """Read from scikit-learn's data file, without importing scikit-learn (1 s) or scipy."""
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise BadInput("data.source=digits reads a file of scikit-learn; pip install scikit-learn.")
    path = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt") as file:
        values = np.array([line.split(",") for line in file], np.float32)
    grey = np.round(values[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    images, labels = np.repeat(grey, 3, axis=-1), values[:, -1:].astype(np.int32)

    def reader() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        all_images, all_labels = tf.constant(images), tf.constant(labels)
        return lambda row: (tf.gather(all_images, row), tf.gather(all_labels, row))

    table = Table(len(images), lambda row: f"digits/{row:04d}", reader, labels=lambda: labels)
    return [str(d) for d in range(10)], {"all": Split(table, range(len(images)))}, []


def _file_table(paths: Sequence[str], names: Sequence[str], labels: Sequence[int]) -> Table:
    """Image files with one label each."""
    labels_N1 = np.asarray(labels, np.int32)[:, None]

    def reader() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        all_paths, all_labels = tf.constant([os.fsencode(p) for p in paths]), tf.constant(labels_N1)
        return lambda row: (tf.io.read_file(tf.gather(all_paths, row)), tf.gather(all_labels, row))

    return Table(len(paths), lambda row: names[row], reader, labels=lambda: labels_N1)


_LAYOUT = (
    "expected PATH/CLASS/*.jpg, or PATH/train/CLASS/*.jpg and PATH/test/CLASS/*.jpg "
    f"({', '.join(EXTENSIONS)})"
)


def _subfolders(path: Path) -> list[Path]:
    return sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))


def _folder(rest: str, _: Options) -> _Opened:
    root = Path(rest).expanduser()
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise BadInput(f"data.source=folder:{rest}: {root} {what}; {_LAYOUT}.")
    folders = {p.name: p for p in _subfolders(root)}
    layouts = [n for n in ("train", "val", "validation", "valid", "test") if n in folders]
    # A lone folder called train that holds images is a class of that name.
    divided = "train" in folders and bool(layouts[1:] or _subfolders(folders["train"]))
    parts = {n: folders[n] for n in layouts} if divided else {"all": root}

    names: list[str] = []
    files: list[tuple[str, str]] = []  # (split, path relative to root)
    skipped = deeper = 0
    for part, folder in parts.items():
        skipped += sum(e.is_file() and e.name[0] != "." for e in os.scandir(folder))
        for class_folder in _subfolders(folder):
            inside = sorted(e.name for e in os.scandir(class_folder) if e.is_file())
            images = [n for n in inside if n.lower().endswith(EXTENSIONS) and n[0] != "."]
            skipped += len(inside) - len(images)
            deeper += len(_subfolders(class_folder))
            files += [(part, (class_folder / n).relative_to(root).as_posix()) for n in images]
    names = sorted({path.split("/")[-2] for part, path in files if part in ("train", "all")})
    extra = sorted({path.split("/")[-2] for _, path in files} - set(names))
    if len(names) < 2 or extra:
        found = ", ".join(sorted(os.listdir(root))[:8]) or "nothing"
        what = (
            f"classes {extra} are not in train/"
            if extra
            else f"{len(names)} class folders with images"
        )
        raise BadInput(f"data.source=folder:{rest}: {what}; {_LAYOUT}; found in {root}: {found}.")

    label = {name: i for i, name in enumerate(names)}
    table = _file_table(
        [str(root / path) for _, path in files],
        [path for _, path in files],
        [label[path.split("/")[-2]] for _, path in files],
    )
    given = {p: np.array([i for i, f in enumerate(files) if f[0] == p], np.int64) for p in parts}
    notes = []
    if skipped:
        notes.append(f"{skipped} files left out: beside class folders, or no image extension")
    if deeper:
        notes.append(f"{deeper} folders inside class folders left out")
    return names, {p: Split(table, rows) for p, rows in given.items() if len(rows)}, notes


def _csv(rest: str, _: Options) -> _Opened:
    path = Path(rest).expanduser()
    if not path.is_file():
        raise BadInput(f"data.source=csv:{rest}: no file {path}; expected rows of path,label.")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = [row for row in csv.reader(file) if row]
    except (UnicodeDecodeError, csv.Error) as e:
        raise BadInput(f"data.source=csv:{rest}: not a CSV file: {e}.") from e
    header = [c.strip().lower() for c in rows[0]] if rows else []
    if header[1:2] == ["label"]:
        rows = rows[1:]
    short = next((i for i, row in enumerate(rows) if len(row) < 2 or not row[1].strip()), None)
    labels = sorted({row[1].strip() for row in rows if len(row) > 1}, key=_as_number)
    if short is not None or len(labels) < 2:
        what = f"row {short + 1} is {rows[short]}" if short is not None else f"{len(labels)} labels"
        raise BadInput(f"data.source=csv:{rest}: {what}; expected rows of path,label[,split].")
    files = [str(path.parent / Path(row[0].strip()).expanduser()) for row in rows]
    missing = [f for f in files if not os.path.isfile(f)]
    if missing:
        raise BadInput(
            f"data.source=csv:{rest}: {len(missing)} of {len(files)} images are not there, first "
            f"{missing[0]}; paths are relative to {path.parent}."
        )
    label = {name: i for i, name in enumerate(labels)}
    table = _file_table(
        files, [row[0].strip() for row in rows], [label[r[1].strip()] for r in rows]
    )
    parts = [row[2].strip() if len(row) > 2 and row[2].strip() else "all" for row in rows]
    given = {p: np.flatnonzero([q == p for q in parts]) for p in dict.fromkeys(parts)}
    if "all" in given and len(given) > 1:
        raise BadInput(f"data.source=csv:{rest}: some rows name a split and some do not.")
    return labels, {p: Split(table, indices) for p, indices in given.items()}, []


def _as_number(text: str) -> tuple[int, str]:
    """Sorts labels that are numbers as numbers."""
    return (int(text), "") if text.isdecimal() else (0, text)


def _tfds(rest: str, options: Options) -> _Opened:
    from vit_jax.data import tfds_source  # needs TensorFlow

    return tfds_source.open_tfds(rest, options.data_dir)


KINDS: dict[str, tuple[str, Any]] = {
    "digits": ("digits", _digits),
    "folder": ("folder:PATH", _folder),
    "csv": ("csv:FILE", _csv),
    "tfds": ("tfds:NAME", _tfds),
    "synthetic": ("synthetic:NAME", synthetic.open_synthetic),
}
