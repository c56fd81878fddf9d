# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Records of TFRecord files by number: an index of offsets, built once, then range reads.

A TFRecord file is a sequence of: length (uint64), its checksum (4 bytes), data, checksum of the
data (4 bytes). Start from `RecordFiles`.
"""

import contextlib
import hashlib
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

_HEADER, _FOOTER = 12, 4


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vit_jax" / "offsets"


def offsets(path: str) -> np.ndarray:
    """Start of the data of each record and, last, where the next would start; int64 [records + 1].

    Reads 8 bytes of each record. The result is kept in the user's cache folder, by path, size and
    time of change.

    Raises:
      ValueError: the file is not a whole number of records.
    """
    stat = os.stat(path)
    identity = f"{os.path.abspath(path)}\n{stat.st_size}\n{stat.st_mtime_ns}"
    cached = _cache_folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.npy"
    with contextlib.suppress(OSError, ValueError, EOFError):  # not there, not ours, or damaged
        return np.load(cached)
    starts, position = [], 0
    with open(path, "rb", buffering=0) as file:
        while position < stat.st_size:
            header = os.pread(file.fileno(), 8, position)
            starts.append(position + _HEADER)
            position += (
                _HEADER + _FOOTER + (struct.unpack("<Q", header)[0] if len(header) == 8 else 1)
            )
    if position != stat.st_size:
        raise ValueError(f"{path} is truncated or not a TFRecord file: {stat.st_size} bytes.")
    index = np.array([*starts, position + _HEADER], np.int64)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        temporary = cached.with_suffix(f".{os.getpid()}.npy")
        np.save(temporary, index)
        temporary.replace(cached)
    except OSError:
        pass  # the index is only rebuilt next time
    return index


class RecordFiles:
    """Records 0 to n - 1 of several files, in file order."""

    def __init__(self, paths: Sequence[str]):
        self._paths = list(paths)
        self._offsets = [offsets(p) for p in self._paths]
        self._ends = np.cumsum([len(o) - 1 for o in self._offsets])
        self._files: dict[int, int] = {}

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> bytes:
        """The data of record `index`: one range read. Safe in several threads."""
        number = int(np.searchsorted(self._ends, index, side="right"))
        starts = self._offsets[number]
        row = index - (int(self._ends[number - 1]) if number else 0)
        start, end = int(starts[row]), int(starts[row + 1]) - _HEADER - _FOOTER
        if number not in self._files:
            self._files[number] = os.open(self._paths[number], os.O_RDONLY)
        return os.pread(self._files[number], end - start, start)
