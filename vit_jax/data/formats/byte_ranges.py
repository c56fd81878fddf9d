# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads ranges of bytes of large files, by file number; safe in several threads.

Threads can read whole files ahead into memory, for stores that are fast only for sequential reads.
This module also caches the indices of such files. Start from `Files`.
"""

import concurrent.futures
import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np

from vit_jax.storage import cache
from vit_jax.storage import files as storage

_READERS = 4  # whole files that are read at the same time
# Bytes that a request for parts of an object asks for: at first, and at most while all is needed.
_PIECE, _LARGEST_PIECE = 2**14, 2**22


class File:
    """A file of records or a tar, read by byte ranges; only this class opens such files."""

    def __init__(self, path: str):
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def size(self) -> int:
        """Returns the size in bytes."""
        return os.fstat(self._descriptor).st_size

    def read(self, length: int, start: int) -> bytes:
        """Reads `length` bytes from `start` on, fewer at the end; safe in several threads."""
        data = os.pread(self._descriptor, length, start)  # one call reads at most 2 GiB
        if len(data) == length or not data:
            return data
        parts = [data]
        while (got := sum(map(len, parts))) < length:
            if not (data := os.pread(self._descriptor, length - got, start + got)):
                break
            parts.append(data)
        return b"".join(parts)

    def stream(self) -> IO[bytes]:
        """Returns a file object of the same file, positioned at its beginning."""
        return os.fdopen(os.dup(self._descriptor), "rb")

    def close(self) -> None:
        """Closes the file; it cannot be read after this."""
        os.close(self._descriptor)


class _Object:
    """Like `File`, for an object in a bucket; each range is one request."""

    def __init__(self, path: str):
        self._path: Any = storage.as_path(path)
        self.size: int = self._path.stat().st_size

    def read(self, length: int, start: int) -> bytes:
        return self._path.read_range(start, min(start + length, self.size))

    def stream(self) -> IO[bytes]:
        return self._path.stream()

    def close(self) -> None:
        pass


class _Streamed(_Object):
    """An object in a bucket read from beginning to end; long reads serve several short ones."""

    def __init__(self, path: str):
        super().__init__(path)
        self._stream = self._path.stream()

    def read(self, length: int, start: int) -> bytes:
        self._stream.seek(start)
        return self._stream.read(length)

    def stream(self) -> IO[bytes]:
        self._stream.seek(0)
        return self._stream

    def close(self) -> None:
        self._stream.close()


class _Parts(_Object):
    """An object in a bucket of which parts are read, mostly from beginning to end.

    What lies between the parts is not downloaded unless it is shorter than a request is worth. The
    last two pieces are kept, so that a reader can go back over an image between them.
    """

    def __init__(self, path: str):
        super().__init__(path)
        self._length, self._kept = _PIECE, [(0, b""), (0, b"")]  # where each piece begins, and it

    def read(self, length: int, start: int) -> bytes:
        end = min(start + length, self.size)
        for at, piece in self._kept:
            if at <= start and end <= at + len(piece):
                return piece[start - at : end - at]
        at, piece = self._kept[-1]
        skipped = start - at - len(piece)
        more = skipped <= self._length and at <= start
        self._length = min(2 * self._length, _LARGEST_PIECE) if more else _PIECE
        piece = super().read(max(length, self._length), start)
        self._kept = [self._kept[-1], (start, piece)]
        return piece[:length]


def open_parts(path: str) -> File | _Object:
    """Opens a file on a disk or an object in a bucket, to read parts of it in their order."""
    return _Parts(path) if storage.is_remote(path) else File(path)


def open_file(path: str, *, in_sequence: bool = False) -> File | _Object:
    """Opens a file on a disk or an object in a bucket.

    Args:
      path: the path of the file or object.
      in_sequence: one thread will read it from beginning to end.
    """
    if not storage.is_remote(path):
        return File(path)
    return _Streamed(path) if in_sequence else _Object(path)


class Files:
    """Several files whose byte ranges can be read.

    Attributes:
      paths: the path of each file, by number.
    """

    def __init__(self, paths: Sequence[str]):
        self.paths = tuple(paths)
        self._open: dict[int, File | _Object] = {}
        self._held: dict[int, concurrent.futures.Future[bytes]] = {}
        self._lock = threading.Lock()
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        storage.allow_open(len(paths))  # all files stay open

    def read(self, number: int, start: int, length: int) -> bytes:
        """Reads a range of file `number`, from memory if the file is held, else by one request."""
        held = self._held.get(number)
        if held is not None:
            with contextlib.suppress(concurrent.futures.CancelledError):
                return held.result()[start : start + length]
        return self._file(number).read(length, start)

    def size(self, number: int) -> int:
        """Returns the size of file `number` in bytes."""
        return self._file(number).size

    def hold(self, numbers: Sequence[int]) -> None:
        """Holds these files, and no others, in memory; threads read them in this order."""
        with self._lock:
            if self._threads is None:
                self._threads = concurrent.futures.ThreadPoolExecutor(_READERS, "read-ahead")
            for number in self._held.keys() - set(numbers):
                self._held.pop(number).cancel()
            for number in numbers:
                if number not in self._held:
                    self._held[number] = self._threads.submit(self._whole, number)

    def held(self) -> set[int]:
        """Returns the numbers of the files that are in memory or being read."""
        return set(self._held)

    def _whole(self, number: int) -> bytes:
        file = self._file(number)
        return file.read(file.size, 0)

    def _file(self, number: int) -> File | _Object:
        with self._lock:
            if number not in self._open:
                self._open[number] = open_file(self.paths[number])
            return self._open[number]

    def __del__(self):
        for file in self._open.values():
            file.close()


def indexed(path: str, kind: str, build: Callable[[str], np.ndarray]) -> np.ndarray:
    """Returns `build(path)`, cached in the user's cache folder by path, size and time of change.

    Args:
      path: the path of the file to index.
      kind: names the kind of index; each kind is cached separately.
      build: called if no index is cached; its errors are passed on.

    Returns:
      The array. A cached array is memory-mapped, so it takes no memory until it is read.
    """
    size, version = storage.size_and_version(path)
    identity = f"{kind}\n{storage.as_path(path).absolute()}\n{size}\n{version}"
    name = hashlib.sha256(os.fsencode(identity)).hexdigest()[:24]
    cached = cache.root() / "offsets" / f"{name}.npy"
    with contextlib.suppress(OSError, ValueError, EOFError):  # missing, foreign or damaged
        return np.load(cached, mmap_mode="r")
    index = build(path)
    try:
        cached.parent.mkdir(parents=True, exist_ok=True)
        temporary = cached.with_suffix(f".{os.getpid()}.{threading.get_ident()}.npy")
        np.save(temporary, index)
        temporary.replace(cached)
    except OSError:
        pass  # the index will be rebuilt next time
    return index
