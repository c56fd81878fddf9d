# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds sets of large files, checks that they are complete, and reads splits from their names.

`records:` and `tar:` share it. Start from `find`; `class_names` reads the list of classes.
"""

import collections
import glob
import os
import re
from collections.abc import Sequence

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

SPLITS = ("train", "val", "validation", "valid", "test")
_SEPARATORS = re.compile(r"[-._]")
_NUMBERED = re.compile(r"(?P<start>.*-)(?P<number>\d{4,6})-of-(?P<count>\d{4,6})(?P<end>.*)")


def split_of(name: str) -> str:
    """Returns the split in a file's name, such as x-train-00000-of-00064.tfrecord; "" without one.

    Raises:
      BadInput: the name contains two splits.
    """
    splits = sorted({part for part in _SEPARATORS.split(name.lower()) if part in SPLITS})
    if len(splits) > 1:
        raise BadInput(f"{name} could be of the splits {' and '.join(splits)}; rename it.")
    return splits[0] if splits else ""


def find(spec: str, pattern: str, kinds: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the files that match a pattern, sorted by name, and notes for the user.

    Args:
      spec: the source, for messages.
      pattern: a glob pattern or a folder; ~ is the home folder.
      kinds: the patterns of file names to take in a folder.

    Raises:
      BadInput: no file matches, or a file of a numbered set (`-00003-of-00064`) is missing.
    """
    whole = os.path.expanduser(pattern)
    patterns = _patterns(whole, kinds)
    matches = sorted({p for one in patterns or [whole] for p in storage.glob(one)})
    odd = list(filter(storage.is_odd, matches))
    paths = [p for p in matches if p not in odd]
    if odd and not paths:
        problem = f"{odd[0]} is a {storage.kind(odd[0])}, not a file"
        raise BadInput(f"data.source={spec}: {problem}; give files.")
    if not paths:
        folder = storage.path(whole if patterns else storage.plain(whole))
        if not patterns and not glob.has_magic(whole):
            folder = folder.parent
        there = [p.name for p in storage.listed(folder)]
        inside = ", ".join(there[:8]) if storage.is_dir(folder) else "no such folder"
        wanted = f"; in a folder, {' and '.join(kinds)} are taken" if patterns else ""
        raise BadInput(
            f"data.source={spec}: no file of that name{wanted}; found in {folder}: "
            f"{inside or 'nothing'}."
        )
    notes = _partial_sets(spec, paths)
    if odd:
        notes.append(f"{len(odd)} pipes, sockets or devices left out; first {odd[0]}")
    return paths, notes


def _patterns(whole: str, kinds: Sequence[str]) -> list[str]:
    """Returns the patterns of the files in a folder; [] if `whole` is not a folder."""
    folder = storage.workdir(storage.plain(whole))
    is_folder = os.path.isdir(whole) or (not glob.has_magic(whole) and storage.is_dir(folder))
    return [os.path.join(glob.escape(whole), k) for k in kinds] if is_folder else []


def _partial_sets(spec: str, paths: Sequence[str]) -> list[str]:
    """Returns notes about numbered sets of which the pattern matches only a part.

    Raises:
      BadInput: a file of a set is missing.
    """
    sets = collections.Counter()
    for path in paths:
        match = _NUMBERED.fullmatch(path)
        if match:
            sets[match["start"], len(match["number"]), match["count"], match["end"]] += 1
    notes = []
    for (start, width, count, end), matching in sets.items():
        every = [f"{start}{number:0{width}d}-of-{count}{end}" for number in range(int(count))]
        folder, first = os.path.split(every[0])
        missing = [
            os.path.basename(p)
            for p in every
            if p not in paths and not storage.as_path(p).is_file()
        ]
        if missing:
            raise BadInput(
                f"data.source={spec}: {len(missing)} of {len(every)} files are missing: "
                f"{', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}; copy them to "
                f"{folder or '.'}."
            )
        if matching < len(every):
            notes.append(f"{matching} of the {len(every)} files such as {first} are read")
    return notes


def by_split(spec: str, paths: Sequence[str]) -> dict[str, list[str]]:
    """Returns split -> files; the only split is `all` if no name contains a split.

    Raises:
      BadInput: some names contain a split and some do not.
    """
    parts: dict[str, list[str]] = collections.defaultdict(list)
    for path in paths:
        parts[split_of(os.path.basename(path))].append(path)
    if "" in parts and len(parts) > 1:
        named = next(files[0] for name, files in parts.items() if name)
        raise BadInput(
            f"data.source={spec}: {os.path.basename(named)} names a split and "
            f"{os.path.basename(parts[''][0])} does not; name or remove it."
        )
    return {name or "all": files for name, files in parts.items()}


def class_names(spec: str, named: str, folder: str) -> list[str]:
    """Reads a file of class names; line n, counted from 0, is the name of label n.

    Args:
      spec: the source, for messages.
      named: data.records.label_names; "": labels.txt in `folder`, if it exists.
      folder: the folder of the data.

    Returns:
      The names; [] if `named` is empty and labels.txt does not exist.

    Raises:
      BadInput: the named file is missing, or a file has an empty line or fewer than two names.
    """
    path = storage.path(named) if named else storage.path(f"{folder or '.'}/labels.txt")
    if not named and not path.is_file():
        return []
    try:
        names = storage.read_list(path).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise BadInput(
            f"data.source={spec}: class names cannot be read: {e}; give "
            "data.records.label_names=FILE with one a line."
        ) from e
    names = [name.strip() for name in names]
    empty = next((i for i, name in enumerate(names) if not name), None)
    if empty is not None or len(names) < 2:
        problem = f"line {empty + 1} is empty" if empty is not None else f"{len(names)} names"
        raise BadInput(
            f"data.source={spec}: {path}: {problem}; expected the name of one class on each line."
        )
    return names
