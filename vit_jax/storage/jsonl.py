# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Stores the rows that a run appends: metrics.jsonl on a disk, metrics/ in a bucket.

A bucket cannot append, so each row is an object there. `metric_writer` and `goodput` define the
meaning of the rows. Start from `open_for_append`, which writes, and `read_rows`.
"""

import concurrent.futures
import contextlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vit_jax.storage import files as storage

METRICS_FILE = "metrics.jsonl"
_NAME = re.compile(r"(\d{9,})-(\d{6,})\.jsonl")


def rows_path(path: Path) -> Path:
    """Returns the place of the rows of a .jsonl file: the file or, in a bucket, a folder."""
    return path.with_suffix("") if storage.is_remote(path) else path


def read_rows(path: Path, last: float = math.inf) -> list[dict[str, Any]]:
    """Reads the rows of a .jsonl file, or of its folder in a bucket.

    Args:
      path: the path of the file, also where a folder replaces it.
      last: the last step whose rows are read.

    Returns:
      The rows, in the order of writing. Torn lines, lines that are not rows, and rows with a number
      that is not finite are dropped.
    """
    return [row for _, row in _read(path, last) if row is not None and row["step"] <= last]


def objects_after(path: Path, last: int) -> list[Path]:
    """Returns the objects of a bucket with rows after a step; [] for a file."""
    return [path for path, step, _ in _objects(rows_path(path)) if step > last]


def damaged_lines(path: Path) -> list[int]:
    """Returns the numbers, from 1, of lines that are not rows, except a torn last line.

    Args:
      path: as for `read_rows`.
    """
    lines = enumerate(_read(path), 1)
    return [n for n, (line, row) in lines if row is None and line.endswith(b"\n")]


def _read(path: Path, last: float = math.inf) -> list[tuple[bytes, dict[str, Any] | None]]:
    """Returns the lines, each with its row."""
    if storage.is_remote(path):
        files = [path for path, step, _ in _objects(rows_path(path)) if step <= last]
    else:
        files = [path] if path.exists() else []
    lines = b"".join(storage.read_all(files)).splitlines(keepends=True)
    return [(line, _row(line)) for line in lines]


def _row(line: bytes) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, RecursionError):
        row = json.loads(line)
        _line(row)  # raises for a row that could not be written again
        if isinstance(row, dict) and type(row.get("step")) is int:
            return row
    return None


def _objects(folder: Path) -> list[tuple[Path, int, int]]:
    """Returns (path, step, number) of the rows in a folder of a bucket."""
    matches = [(path, _NAME.fullmatch(path.name)) for path in storage.listed(folder)]
    return [(path, int(match[1]), int(match[2])) for path, match in matches if match]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, allow_nan=False) + "\n"


def open_for_append(path: Path, last: float = math.inf) -> "_File | _Objects":
    """Removes the rows after a step; returns an object that appends rows."""
    return (_Objects if storage.is_remote(path) else _File)(rows_path(path), last)


def copy_rows(source: Path, target: Path, last: int) -> None:
    """Replaces the rows of a .jsonl file by those of another up to a step.

    A bucket gets all of them as one object.
    """
    text = "".join(map(_line, read_rows(source, last)))
    if not storage.is_remote(target):
        storage.write(target, text)
        return
    for path, _, _ in _objects(rows_path(target)):
        storage.remove(path)
    if text:
        storage.write(rows_path(target) / f"{last:09d}-000000.jsonl", text)


class _File:
    """A file that rows are appended to."""

    def __init__(self, path: Path, last: float):
        storage.write(path, "".join(map(_line, read_rows(path, last))))
        self._file = open(path, "a", encoding="utf-8")

    def add(self, row: Mapping[str, Any]) -> None:
        """Writes a row."""
        self._file.write(_line(row))
        self._file.flush()

    def sync(self) -> None:
        """Makes the rows so far survive a crash of the machine."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class _Objects:
    """An object STEP-NUMBER.jsonl for each row, never changed: the names sort in order of arrival.

    A thread uploads them, so that no step waits for the store. A kill while later rows are
    removed leaves some of them; the next start, from the same checkpoint, removes the rest.
    """

    def __init__(self, folder: Path, last: float):
        self._folder, self._number = folder, 0
        for path, at, number in _objects(folder):
            if at > last:
                storage.remove(path)
            else:
                self._number = max(self._number, number + 1)
        self._thread = concurrent.futures.ThreadPoolExecutor(1, folder.name)
        self._puts = list[concurrent.futures.Future[None]]()

    def add(self, row: Mapping[str, Any]) -> None:
        """Hands a row to the thread; raises the error of an earlier upload."""
        name = f"{row['step']:09d}-{self._number:06d}.jsonl"
        self._puts.append(self._thread.submit(storage.write, self._folder / name, _line(row)))
        self._number += 1
        while self._puts and self._puts[0].done():
            self._puts.pop(0).result()

    def sync(self) -> None:
        """Waits until the rows so far are in the store."""
        while self._puts:
            self._puts.pop(0).result()

    def close(self) -> None:
        """Does the work of `sync`; no rows may be added afterwards."""
        try:
            self.sync()
        finally:
            self._thread.shutdown()
