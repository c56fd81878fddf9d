# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ranges of bytes of large files, by the file's number, safe in several threads.

Files may be held in memory whole, read ahead by threads: for stores where only reading in sequence
is fast. Also where indices of such files are kept. Start from `Files`.
"""

import concurrent.futures
import contextlib
import hashlib
import os
import resource
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

_READERS = 4  # whole files that are read at once


def open_file(path: str) -> int:
    """A descriptor for `os.pread`: the one place that opens files of records and tars."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def pread(descriptor: int, length: int, start: int) -> bytes:
    """`length` bytes from `start` on, fewer at the end; `os.pread` gives at most 2 GiB at once."""
    data = os.pread(descriptor, length, start)
    if len(data) == length or not data:
        return data
    parts = [data]
    while (got := sum(map(len, parts))) < length:
        if not (data := os.pread(descriptor, length - got, start + got)):
            break
        parts.append(data)
    return b"".join(parts)


class Files:
    """Several files: ranges of their bytes.

    Attributes:
      paths: by number.
    """

    def __init__(self, paths: Sequence[str]):
        self.paths = tuple(paths)
        self._descriptors: dict[int, int] = {}
        self._held: dict[int, concurrent.futures.Future[bytes]] = {}
        self._lock = threading.Lock()
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(paths) > soft // 2:  # all stay open
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def read(self, number: int, start: int, length: int) -> bytes:
        """A range of file `number`: from memory where the file is held, else one range read."""
        held = self._held.get(number)
        if held is not None:
            with contextlib.suppress(concurrent.futures.CancelledError):
                return held.result()[start : start + length]
        return pread(self._descriptor(number), length, start)

    def hold(self, numbers: Sequence[int]) -> None:
        """Holds these files in memory, and no others; threads read them, in this order."""
        with self._lock:
            if self._threads is None:
                self._threads = concurrent.futures.ThreadPoolExecutor(_READERS, "read-ahead")
            for number in self._held.keys() - set(numbers):
                self._held.pop(number).cancel()
            for number in numbers:
                if number not in self._held:
                    self._held[number] = self._threads.submit(self._whole, number)

    def held(self) -> set[int]:
        """The files that are in memory, or about to be."""
        return set(self._held)

    def _whole(self, number: int) -> bytes:
        return pread(self._descriptor(number), os.path.getsize(self.paths[number]), 0)

    def _descriptor(self, number: int) -> int:
        with self._lock:
            if number not in self._descriptors:
                self._descriptors[number] = open_file(self.paths[number])
            return self._descriptors[number]

    def __del__(self):
        for descriptor in self._descriptors.values():
            os.close(descriptor)


def indexed(path: str, what: str, build: Callable[[str], np.ndarray]) -> np.ndarray:
    """What `build(path)` gives, kept in the user's cache folder by path, size and time of change.

    Args:
      path: of the file that is indexed.
      what: is kept: another name, another array.
      build: called where nothing is kept; its errors are passed on.

    Returns:
      The array, where it is kept as a map of the file: it takes no memory until it is read.
    """
    stat = os.stat(path)
    identity = f"{what}\n{os.path.abspath(path)}\n{stat.st_size}\n{stat.st_mtime_ns}"
    cached = _cache_folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:24]}.npy"
    with contextlib.suppress(OSError, ValueError, EOFError):  # not there, not ours, or damaged
        return np.load(cached, mmap_mode="r")
    index = build(path)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        temporary = cached.with_suffix(f".{os.getpid()}.{threading.get_ident()}.npy")
        np.save(temporary, index)
        temporary.replace(cached)
    except OSError:
        pass  # the index is only rebuilt next time
    return index


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "vit_jax" / "offsets"
