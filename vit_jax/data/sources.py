# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Where examples come from, in one grammar, `kind:rest`.

    tfds:NAME          a TensorFlow Datasets name, e.g. tfds:cifar10 or tfds:mnist:3.0.1
    folder:PATH        class folders, or train/ and test/ (and val/) with class folders inside
    csv:FILE           rows of path,label[,split]; paths are relative to the file
    records:GLOB       TFRecord files of tf.train.Example, or the folder that they lie in; splits
                       by name, x-train-00000-of-00064.tfrecord; class names in labels.txt beside
                       them; the keys of data.records say which features are what
    tar:GLOB           uncompressed tar files, or their folder: WebDataset shards (x.jpg with x.cls,
                       x.json or x.txt), class folders, or a tar a class; splits by name or folder
    vtab:TASK[/full]   a task of VTAB, e.g. vtab:eurosat: 1,000 training examples, or all
    mix:3*A,1*B        of every 4 training images 3 from A and 1 from B, sources of other kinds;
                       classes of the same name are one, val and test are those of all
    synthetic:NAME     noise in the size of a dataset of the recipes, e.g. jft300m or vtab/eurosat
    objectnet:PATH     ObjectNet's 113 classes that are ImageNet's: a test set
    python:M:F(k=v)    a function of a user's own package, see docs/extending.md
    digits             the handwritten digits inside scikit-learn, 1,797 images of 8 x 8

PATH, FILE and GLOB may begin with ~, those of folder, csv, records and tar with gs://BUCKET/; a
GLOB is quoted in a shell, e.g. "records:/data/x-*".
Start from `open_source`.
"""

import dataclasses
import gzip
import hashlib
import importlib.util
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax import named, storage, synonyms
from vit_jax.data import (
    file_sources,
    mixture,
    objectnet,
    record_source,
    subset,
    synthetic,
    tar_source,
    tfds_source,
    vtab,
)
from vit_jax.data import splits as splits_lib
from vit_jax.data.splits import Split
from vit_jax.errors import BadInput, unknown

# Kinds whose examples may lie class by class: the first 90 % would be without the last classes.
BY_CLASS = ("folder", "csv", "tar")
IN_BUCKETS = ("folder", "csv", "records", "tar")


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset: its splits and class names.

    Attributes:
      spec: as given, `kind:rest`.
      classes: names, by label.
      splits: by name.
      notes: a sentence for everything a user should know (splits that were made, files left out).
      stands_for: the classes of another dataset that each class is, by name; (): each is itself.
    """

    spec: str
    classes: tuple[str, ...]
    splits: dict[str, Split]
    notes: tuple[str, ...] = ()
    stands_for: tuple[tuple[str, ...], ...] = ()

    def split(self, expression: str) -> Split:
        """A split by name or slice; see `splits.select`."""
        part = subset.part if self.spec.partition(":")[0] in BY_CLASS else None
        return splits_lib.select(self.splits, expression, self.spec, part)

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


_ENDINGS = {  # kind -> how names of its files end
    "csv": r"\.csv",
    "tar": r"\.(tar|tar\.gz|tgz)",
    "records": r"\.(tfrecords?|tfrec)(\.gz)?|-of-\d+",
}


def kind_of_path(text: str) -> str:
    """Returns the kind of source that reads what looks like a path; "" for any other text."""
    there = os.path.expanduser(text)
    if re.match(r"\w+:(?!//)", text) and not os.path.exists(there):  # another kind, misspelt
        return ""
    for kind, ending in _ENDINGS.items():
        if re.search(f"({ending})$", text, re.IGNORECASE):
            return kind
    is_path = re.match(r"gs://|[/~]|\.\.?(/|$)", text) or os.path.isdir(there)
    return "folder" if is_path else ""


def unknown_kind(key: str, spec: str) -> BadInput:
    """Returns the error for a source that begins with no known kind.

    Args:
      key: of the configuration, or an argument.
      spec: as given.
    """
    usages = [usage for usage, _ in KINDS.values()]
    kind = kind_of_path(spec)
    if kind:
        return BadInput(
            f"{key}={spec!r} is a path without a kind; did you mean {kind}:{spec}? "
            f"Known kinds: {', '.join(usages)}."
        )
    return unknown(key, spec, usages, synonyms.hint("data.source", spec))


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
        raise unknown_kind("data.source", spec)
    if bool(rest) != (kind != "digits"):
        raise BadInput(f"data.source={spec!r}: write it as {KINDS[kind][0]}.")
    for key, percent in (("val_percent", val_percent), ("test_percent", test_percent)):
        if not 0 <= percent <= 90:
            raise BadInput(f"data.{key}={percent}; give a percentage from 0 to 90.")
    if storage.is_remote(rest) and kind not in IN_BUCKETS:
        raise BadInput(
            f"data.source={spec!r}: of gs://, {', '.join(IN_BUCKETS)} are read; copy it to a disk."
        )
    if kind == "mix":
        percents = {"val_percent": val_percent, "test_percent": test_percent}
        weights, specs = mixture.parse(rest)
        parts = [open_source(one, options, **percents) for one in specs]
        return Source(spec, *mixture.mix(weights, parts))
    try:
        classes, given, notes = KINDS[kind][1](rest, options)
        meant = objectnet.stands_for(rest, options.data_dir) if kind == "objectnet" else {}
    except OSError as e:
        raise BadInput(f"data.source={spec!r} cannot be read: {e.strerror}: {e.filename}.") from e
    hold = splits_lib.cut if kind == "tfds" else splits_lib.hold_out
    made, more = splits_lib.standard(
        given, val_percent=val_percent, test_percent=test_percent, hold=hold
    )
    return Source(spec, tuple(classes), made, (*notes, *more), tuple(meant.values()))


_Opened = tuple[Sequence[str], dict[str, Split], list[str]]


def _own(rest: str, options: Options) -> _Opened:
    """What a function of a user's own package opens; it is called with `options=` by keyword."""
    made = named.find(f"data.source='python:{rest}'", rest, options=options)(options=options)
    empty: _Opened = ((), {}, [])
    classes, found, notes = made if isinstance(made, tuple) and len(made) == 3 else empty
    good = isinstance(found, dict) and all(isinstance(s, Split) for s in found.values())
    if not good or not found or not len(classes):
        raise BadInput(
            f"data.source='python:{rest}' gave {type(made).__name__}; expected (names of classes, "
            "{name: Split}, notes), see docs/extending.md."
        )
    return classes, found, notes


def _digits(_: str, __: Options) -> _Opened:
    """Read from scikit-learn's data file, without importing scikit-learn (1 s) or scipy."""
    found = importlib.util.find_spec("sklearn")
    if found is None or not found.submodule_search_locations:
        raise BadInput("data.source=digits reads a file of scikit-learn; pip install scikit-learn.")
    path = Path(found.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        values = np.array([line.split(",") for line in file], np.float32)
    grey = np.round(values[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    images, labels = np.repeat(grey, 3, axis=-1), values[:, -1:].astype(np.int32)

    split = splits_lib.of_arrays("digits", images, labels)
    return [str(d) for d in range(10)], {"all": split}, []


# Kind -> how it is written, and (rest, options) -> class names, splits, notes; `open_source` itself
# opens the sources of a mixture.
KINDS: dict[str, tuple[str, Any]] = {
    "tfds": ("tfds:NAME", lambda rest, options: tfds_source.open_tfds(rest, options.data_dir)),
    "folder": ("folder:PATH", file_sources.open_folder),
    "csv": ("csv:FILE", file_sources.open_csv),
    "records": ("records:GLOB", record_source.open_records),
    "tar": ("tar:GLOB", tar_source.open_tar),
    "vtab": ("vtab:TASK[/full]", lambda rest, options: vtab.open_vtab(rest, options.data_dir)),
    "mix": ("mix:N*SOURCE,N*SOURCE", None),
    "synthetic": ("synthetic:NAME", synthetic.open_synthetic),
    "objectnet": (
        "objectnet:PATH",
        lambda rest, options: objectnet.open_objectnet(rest, options.data_dir),
    ),
    "python": ("python:MODULE:FUNCTION", _own),
    "digits": ("digits", _digits),
}
