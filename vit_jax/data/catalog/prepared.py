# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds prepared datasets on disk and checks that they are complete. Imports no TensorFlow.

A prepared dataset is the folder DATA_DIR/NAME[/CONFIG]/VERSION with dataset_info.json,
features.json and files of records, as TFDS writes them. `vit_jax.json` beside them holds our own
notes: fingerprints of records and of class names, and the images left out. Start from `find` and
`check`.
"""

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax.data import tensorflow
from vit_jax.data.catalog.sizes import CLASSES, SIZES, WITHOUT_NAMES
from vit_jax.data.formats.tfrecord import offsets
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

NOTES_FILE = "vit_jax.json"
_SAMPLE = 1_000  # records of a split whose content enters its fingerprint
_TEMPLATE = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
# Errors that JSON with an unexpected layout causes.
_MALFORMED = (AttributeError, LookupError, OverflowError, TypeError, ValueError)
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclasses.dataclass(frozen=True)
class SplitState:
    """One split: its stated size, the content of its files, and a hash of them.

    Attributes:
      examples: number stated by dataset_info.json.
      records: number of records in the files.
      expected: the known number of examples, else None.
      fingerprint: a hash of order and content, see `_fingerprint`.
      recorded: the fingerprint when the dataset was prepared; "" if it was not recorded.
    """

    examples: int
    records: int
    expected: int | None
    fingerprint: str
    recorded: str


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The result of `check`; `problems` is empty if the dataset is complete."""

    name: str
    folder: str
    file_format: str
    classes: int
    splits: dict[str, SplitState]
    left_out: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]

    def text(self) -> str:
        """Formats the result as lines for people."""
        lines = [f"{self.name}: {self.folder} ({self.file_format}, {self.classes} classes)"]
        for name, split in self.splits.items():
            known = "" if split.expected is None else f" of {split.expected}"
            since = f"{split.recorded or 'not recorded'} when prepared"
            since = "as when prepared" if split.fingerprint == split.recorded else since
            found = f"{split.records}{known} examples, {split.fingerprint} ({since})"
            lines.append(f"  {name}: {found if split.fingerprint else 'cannot be read'}")
        lines += [f"  left out: {file}: {reason}" for file, reason in self.left_out[:20]]
        if len(self.left_out) > 20:
            lines.append(f"  left out: {len(self.left_out)} files in all, listed in {NOTES_FILE}")
        lines += [f"  problem: {problem}" for problem in self.problems]
        return "\n".join(lines)


def tfds_package() -> Path:
    """Returns the folder of the installed TFDS without importing it, which takes seconds."""
    spec = importlib.util.find_spec("tensorflow_datasets")
    if spec is None or not spec.submodule_search_locations:
        raise tensorflow.NotInstalled("TensorFlow Datasets")
    return Path(spec.submodule_search_locations[0])


def is_listed(name: str) -> bool:
    """Returns True if the installed TFDS keeps a folder or checksums for a dataset of that name."""
    package = tfds_package()
    places = package / "datasets" / name, package / "url_checksums" / f"{name}.txt"
    return any(place.exists() for place in places)


def data_folder(data_dir: str) -> Path:
    """Returns DATA_DIR as given, else TFDS's default."""
    folder = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    if "://" in folder:
        raise BadInput(
            f"data.data_dir={folder}: prepared datasets are read from a disk; copy them to one, or "
            "train from tar files or records: data.source=tar:gs://..., records:gs://..."
        )
    return Path(os.path.expanduser(folder))


def manual_path(name: str, data_dir: str) -> Path:
    """Returns a path as given if it exists, else that name among the manually fetched files."""
    path = Path(os.path.expanduser(name))
    inside = data_folder(data_dir) / "downloads" / "manual" / path
    return path if name and path.exists() else inside


def find(name: str, data_dir: str) -> Path | None:
    """Returns the newest fitting folder of a prepared dataset NAME[/CONFIG][:VERSION], or None.

    A * in VERSION matches any number. Without CONFIG: the only prepared one, or the dataset's
    default.
    """
    name, _, version = name.partition(":")
    if not re.fullmatch(r"[\w.+-]+(/[\w.+-]+)?", name):
        return None
    root = data_folder(data_dir) / name
    roots = [root, *_configs(root)] if "/" not in name else [root]
    for folder in roots:
        versions = [v for v in _versions(folder) if _is(v.name, version)]
        if versions:
            return _newest(versions)
    return None


def _is(version: str, wanted: str) -> bool:
    pattern = re.escape(wanted).replace(r"\*", r"\d+")
    return not wanted or bool(re.fullmatch(pattern, version))


def _newest(versions: list[Path]) -> Path:
    return max(versions, key=lambda v: tuple(map(int, v.name.split("."))))


def _versions(folder: Path) -> list[Path]:
    """Returns the prepared versions below a folder; an empty list if the folder does not exist."""
    inside = folder.iterdir() if folder.is_dir() else ()
    named = (p for p in inside if _VERSION.fullmatch(p.name))
    return [p for p in named if (p / "dataset_info.json").is_file()]


def _configs(root: Path) -> list[Path]:
    prepared = [p for p in sorted(root.iterdir()) if _versions(p)] if root.is_dir() else []
    default = root / ".config" / "metadata.json"
    if len(prepared) > 1 and default.is_file():
        prepared = [root / str(_json(default).get("default_config_name", ""))]
    return prepared if len(prepared) == 1 else []


def find_at(name: str, origin: Path) -> Path | None:
    """Finds a prepared dataset at `origin`: VERSION, the folder of VERSION, or DATA_DIR.

    `name` is as for `find`. In the first two cases only its version has to fit.
    """
    version = name.partition(":")[2]
    if (origin / "dataset_info.json").is_file():
        return origin if _is(origin.name, version) else None
    versions = [v for v in _versions(origin) if _is(v.name, version)]
    return _newest(versions) if versions else find(name, str(origin))


def files(folder: Path) -> dict[str, tuple[list[Path], list[int]]]:
    """Returns, for each split with examples, its files and the number of records of each file.

    Raises:
      BadInput: the description is not readable.
    """
    info = description(folder)
    try:
        by_split = {}
        for split in info.get("splits", ()):
            lengths = [int(n) for n in split["shardLengths"]]
            template = split.get("filepathTemplate") or _TEMPLATE
            values = {
                "DATASET": info["name"],
                "SPLIT": split["name"],
                "FILEFORMAT": info.get("fileFormat", "tfrecord"),
            }
            shards = range(len(lengths))
            paths = [folder / _file_name(template, values, i, len(lengths)) for i in shards]
            if sum(lengths):
                by_split[split["name"]] = (paths, lengths)
    except _MALFORMED as e:
        raise BadInput(
            f"{folder}/dataset_info.json is not of TFDS: {e!r}. Prepare it again."
        ) from e
    return by_split


def _file_name(template: str, values: dict[str, str], shard: int, shards: int) -> str:
    values = values | {
        "SHARD_X_OF_Y": f"{shard:05d}-of-{shards:05d}",
        "SHARD_INDEX": f"{shard:05d}",
        "NUM_SHARDS": f"{shards:05d}",
    }
    name = re.sub(r"\{(\w+)\}", lambda match: values[match[1]], template)
    return os.path.basename(name)


def description(folder: Path) -> dict[str, Any]:
    """Returns the content of dataset_info.json.

    Raises:
      BadInput: the file is missing or damaged.
    """
    return _json(folder / "dataset_info.json")


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it holds a {type(content).__name__}, expected an object")
        return content
    except (OSError, ValueError, RecursionError) as e:
        raise BadInput(f"{path} cannot be read: {e}. Prepare the dataset again.") from e


@dataclasses.dataclass(frozen=True)
class _Label:
    """A class label: the class count in features.json; the class names, None without a file."""

    classes: int
    names: tuple[str, ...] | None

    @property
    def digest(self) -> str:
        """Returns 12 digits that change with the names or their order; "" without names."""
        if self.names is None:
            return ""
        return hashlib.blake2b("\n".join(self.names).encode(), digest_size=6).hexdigest()


def _labels(folder: Path) -> dict[str, _Label]:
    """Returns the class labels of features.json by name, with the class names as TFDS reads them.

    Raises:
      BadInput: a file is damaged.
    """
    features = _json(folder / "features.json").get("featuresDict", {}).get("features", {})
    labels = {}
    for key, feature in features.items():
        if "classLabel" in feature:
            path, names = folder / f"{key}.labels.txt", None
            if path.is_file():
                try:
                    lines = path.read_text(encoding="utf-8").split("\n")
                except (OSError, ValueError) as e:
                    raise BadInput(f"{path} cannot be read: {e}. Prepare the dataset again.") from e
                names = tuple(line.strip() for line in lines if line.strip())
            labels[key] = _Label(int(feature["classLabel"].get("numClasses", 0)), names)
    return labels


def _class_problems(name: str, labels: dict[str, _Label], notes: dict[str, Any]) -> list[str]:
    """Returns the problems with the classes, compared with the notes and with known counts.

    Missing names are a problem only if names were recorded or are known to exist, because some TFDS
    datasets have only numbers as classes.
    """
    problems, recorded = [], notes.get("classes", {})
    for key in {**recorded, **CLASSES.get(name, {})}:
        if key not in labels:
            problems.append(f"{key}: features.json has no such label")
    for key, label in labels.items():
        expected, before = CLASSES.get(name, {}).get(key), recorded.get(key)
        if label.names is not None and len(label.names) != label.classes:
            problems.append(
                f"{key}: {len(label.names)} names of classes in {key}.labels.txt, features.json "
                f"says {label.classes}"
            )
        if expected is not None and label.classes != expected:
            problems.append(f"{key}: {label.classes} classes, {name} has {expected}")
        named = expected is not None and name.partition("/")[0] not in WITHOUT_NAMES
        if label.names is None and (before or named):
            problems.append(f"{key}: {key}.labels.txt, the names of the classes, is missing")
        elif before is not None and label.digest != before:
            problems.append(f"{key}: not the names of classes, or order, as when prepared")
    return problems


def _opened(paths: Sequence[Path], file_format: str) -> tuple[int, Callable[[int], bytes]]:
    """Returns the number of records in some files, and a reader of one record; keeps no file open.

    Raises:
      BadInput: a file is damaged, or its format has no random access.
    """
    try:
        if file_format == "tfrecord":
            return _tfrecords(paths)
        if file_format == "array_record":
            from array_record.python.array_record_data_source import ArrayRecordDataSource

            source = ArrayRecordDataSource([str(p) for p in paths])
            return len(source), source.__getitem__
    except (ValueError, RuntimeError, OSError) as e:
        raise BadInput(f"a file is missing or damaged: {' '.join(str(e).split())[:200]}") from e
    raise BadInput(f"it is stored as {file_format}; expected tfrecord or array_record")


def _tfrecords(paths: Sequence[Path]) -> tuple[int, Callable[[int], bytes]]:
    starts = [offsets(str(p)) for p in paths]
    ends = np.cumsum([len(s) - 1 for s in starts])

    def read(row: int) -> bytes:
        number = int(np.searchsorted(ends, row, side="right"))
        at = row - (int(ends[number - 1]) if number else 0)
        begin, end = int(starts[number][at]), int(starts[number][at + 1])
        with paths[number].open("rb", buffering=0) as file:
            return os.pread(file.fileno(), end - begin, begin)  # includes framing between records

    return int(ends[-1]), read


def _fingerprint(count: int, read: Callable[[int], bytes]) -> str:
    """Returns 12 digits that change with the number, order or content of records.

    They are a hash of the number of records and of the bytes of up to 1,000 evenly spread records.
    """
    digest = hashlib.blake2b(str(count).encode(), digest_size=6)
    chosen = np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(int))
    for row in chosen:
        digest.update(hashlib.blake2b(read(int(row))).digest())
    return digest.hexdigest()


def check(folder: Path) -> Prepared:
    """Compares a prepared dataset with its description, known sizes and recorded notes.

    Raises:
      BadInput: one of its files is damaged or has an unexpected layout.
    """
    try:
        return _check(folder)
    except BadInput:
        raise
    except _MALFORMED as e:
        raise BadInput(
            f"{folder}: its JSON files are not as TFDS and we write them: {type(e).__name__}: {e}. "
            "Prepare it again."
        ) from e


def _check(folder: Path) -> Prepared:
    info = description(folder)
    name = "/".join(filter(None, (info.get("name"), info.get("configName"))))
    notes = _json(folder / NOTES_FILE) if (folder / NOTES_FILE).is_file() else {}
    known, file_format = SIZES.get(name, {}), info.get("fileFormat", "tfrecord")
    splits, problems = {}, []
    for split, (paths, lengths) in files(folder).items():
        expected, recorded = known.get(split), notes.get("fingerprints", {}).get(split, "")
        try:
            count, read = _opened(paths, file_format)
            digest = _fingerprint(count, read)
        except BadInput as e:
            problems.append(f"{split}: {str(e).rstrip('.')}; prepare it again")
            count, digest = 0, ""
        if count and count != sum(lengths):
            problems.append(f"{split}: {count} records, its description says {sum(lengths)}")
        if expected is not None and sum(lengths) != expected:
            problems.append(f"{split}: {sum(lengths)} examples, {name} has {expected}")
        if digest and recorded and digest != recorded:
            problems.append(f"{split}: fingerprint {digest}, it was {recorded} when prepared")
        splits[split] = SplitState(sum(lengths), count, expected, digest, recorded)
    problems += [f"{split}: missing" for split in known if split not in splits]
    labels = _labels(folder)
    problems += _class_problems(name, labels, notes)
    classes = next((label.classes for label in labels.values()), 0)
    left_out = tuple((str(f), str(r)) for f, r in notes.get("left_out", ()))
    version = f"{name}:{info.get('version', folder.name)}"
    return Prepared(version, str(folder), file_format, classes, splits, left_out, tuple(problems))


def write_notes(folder: Path, left_out: Sequence[tuple[str, str]] = ()) -> None:
    """Writes `vit_jax.json`: hashes of splits and of class names, and the images left out."""
    file_format = description(folder).get("fileFormat", "tfrecord")
    opened = {s: _opened(paths, file_format) for s, (paths, _) in files(folder).items()}
    fingerprints = {split: _fingerprint(*one) for split, one in opened.items()}
    classes = {key: label.digest for key, label in _labels(folder).items()}
    notes = {"fingerprints": fingerprints, "classes": classes, "left_out": sorted(left_out)}
    storage.write(folder / NOTES_FILE, json.dumps(notes, indent=2) + "\n")
