# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Owns a folder of copies: each file under a hash of its original's path, and a list of them.

A copy gets its name only once it is whole and its checksum is verified on the disk, so a kill at
any time leaves whole copies and a part that the next process removes. Several processes may use one
folder: whoever reserves room, or lists a copy, holds a lock on the list. Start from `Copies`.
"""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vit_jax.data.formats import byte_ranges
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

LIST, PARTS = "staged.jsonl", ".parts"  # in the folder: the list, and the folder of partial files
_CHUNK = 2**23  # bytes
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_FREE_SHARE = 0.9  # of the free space is used if no budget is given


class Interrupted(Exception):
    """Copying has been told to stop."""


class Unreadable(Exception):
    """A file cannot be read at its origin; the text names it and says why."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the list.

    Attributes:
      path: the whole path of the original.
      size: its bytes.
      version: a value that changes with the content of the original.
      sha256: its checksum.
    """

    path: str
    size: int
    version: str
    sha256: str


def budget(key: str, text: str) -> int:
    """Returns a number of bytes such as 400GB or 2GiB; 0 for an empty text.

    Raises:
      BadInput: the text is not a size.
    """
    if not text:
        return 0
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]i?)?B?", text.strip(), re.IGNORECASE)
    size = int(float(match[1]) * _UNITS[(match[2] or "").upper()]) if match else 0
    if size:
        return size
    raise BadInput(f"{key}={text!r}; give a size with a unit, such as 400GB or 2GiB.")


def in_units(size: float) -> str:
    """Returns bytes for people, in powers of 1,000."""
    for unit in "TGMK":
        if size >= _UNITS[unit]:
            return f"{size / _UNITS[unit]:,.1f} {unit}B"
    return f"{size:.0f} bytes"


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Turns an error of a file at its origin into `Unreadable`."""
    try:
        yield
    except OSError as e:
        raise Unreadable(f"{path} cannot be read: {e.strerror or e}") from e


def _never() -> bool:
    return False


class Copies:
    """The copies in a folder; safe in several threads and processes.

    Attributes:
      folder: the folder.
      most: the number of bytes that it may hold.
      copied: bytes that this object has copied.
    """

    def __init__(self, key: str, folder: str, most: int):
        """Opens a folder, which is made if it does not exist.

        Args:
          key: the name of the setting, for messages.
          folder: the folder, on a disk of this host.
          most: the number of bytes that it may hold; 0: those there and 90 % of the free space.

        Raises:
          BadInput: the folder is in a bucket, has no name or cannot be written.
        """
        if not folder or storage.is_remote(folder):
            raise BadInput(f"{key}={folder}: give a folder on a disk of this host.")
        self.folder = storage.path(folder).absolute()
        self._lock, self._read, self._entries = threading.Lock(), 0, dict[str, Entry]()
        self._used, self.copied = 0, 0  # bytes
        self._secs = [0.0, 0.0]  # of a reader, at the origin and in the folder, for `copied`
        try:
            storage.make_folder(self.folder / PARTS)
            with self._locked():
                self._held()
                for entry in list(self._entries.values()):
                    if not self.place(entry.path).exists():  # somebody has removed it
                        self._used -= self._entries.pop(entry.path).size
        except OSError as e:
            raise BadInput(
                f"{key}={folder} cannot be written: {e.strerror}; give a folder on a disk of this "
                "host that this user may write."
            ) from e
        self.most = most or self._used + int(self.free() * _FREE_SHARE)

    def free(self) -> int:
        """Returns the free bytes of the disk."""
        return shutil.disk_usage(self.folder).free

    def room(self) -> int:
        """Returns the bytes that may still be added."""
        with self._locked():
            return max(self.most - self._used - self._held(), 0)

    def place(self, path: str) -> Path:
        """Returns where the copy of a file is, if it has one."""
        name = hashlib.sha256(os.fsencode(_whole(path))).hexdigest()
        return self.folder / name[:2] / name[2:]

    def whole(self, path: str, stopped: Callable[[], bool] = _never) -> Path | None:
        """Returns the copy of a file, after a comparison with its checksum; None if it has none.

        Raises:
          Unreadable: the file cannot be read at its origin.
          StoreLost: the object store does not answer.
          Interrupted: `stopped` returned True.
        """
        entry = self._entry(path)
        if entry is None:
            return None
        with reading(path):
            if (entry.size, entry.version) != storage.size_and_version(path):
                return None
        place = self.place(path)
        with contextlib.suppress(OSError):
            if place.stat().st_size == entry.size and _digest(place, stopped)[0] == entry.sha256:
                return place
        return None

    def has(self, path: str, size: int) -> bool:
        """Returns True if the list has a copy of that size; reads no copy."""
        entry = self._entry(path)
        return entry is not None and entry.size == size

    def copy(self, path: str, stopped: Callable[[], bool] = _never) -> Path | None:
        """Copies a file and returns its copy; None if it is over the budget.

        Raises:
          OSError: the folder cannot be written, or the disk changed what was written.
          Unreadable: the file cannot be read at its origin.
          StoreLost: the object store does not answer.
          Interrupted: `stopped` returned True.
        """
        with reading(path):
            size, version = storage.size_and_version(path)
        with self._reserved(path, size) as part:
            if part is None:
                return None
            place = self.place(path)
            storage.make_folder(place.parent)
            sha256, secs = _transferred(path, size, part[1], stopped)
            again, back_secs = _digest(part[0], stopped)
            if again != sha256:
                raise OSError(errno.EIO, "the disk changed what was written", str(place))
            line = json.dumps(dataclasses.asdict(Entry(_whole(path), size, version, sha256)))
            with self._locked() as list_file:
                part[0].replace(place)
                list_file.write(f"\n{line}\n".encode())  # ends a line torn by a crash
                self.copied += size
                self._secs[0] += secs
                self._secs[1] += back_secs
        return place

    def speeds(self) -> str:
        """Returns how fast one reader read what was copied, there and here; empty for nothing."""
        if not all(self._secs):
            return ""
        origin, folder = (in_units(self.copied / secs) for secs in self._secs)
        return f"; a reader gets {origin}/s from the origin and {folder}/s from the folder"

    @contextlib.contextmanager
    def _reserved(self, path: str, size: int) -> Iterator[tuple[Path, int] | None]:
        """Yields a locked partial file and its descriptor; None if the copy is over the budget.

        Its name begins with the bytes by which the folder grows; see `_held`. It is removed unless
        it was renamed.
        """
        with self._locked():
            old = self._entries.get(_whole(path))
            more = max(size - (old.size if old else 0), 0)
            file, part = -1, self.folder / PARTS / f"{more}-{secrets.token_hex(8)}"
            if self._used + self._held() + more <= self.most:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                file = os.open(part, flags, 0o644)
                fcntl.flock(file, fcntl.LOCK_EX)
        if file < 0:
            yield None
            return
        try:
            if size > self.free():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(part))
            yield part, file
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
            os.close(file)

    def _held(self) -> int:
        """Returns the bytes of copies being written, by any process; removes abandoned parts."""
        total = 0
        for part in storage.listed(self.folder / PARTS):
            with contextlib.suppress(OSError), open(part, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    part.unlink()
                except BlockingIOError:
                    total += int(part.name.partition("-")[0])
        return total

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Any]:
        """Yields the list, open for writing; no other thread or process has it meanwhile."""
        with self._lock, open(self.folder / LIST, "a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(self._read)
            lines = file.read()
            lines = lines[: lines.rfind(b"\n") + 1]
            self._read += len(lines)
            for line in lines.splitlines():
                with contextlib.suppress(ValueError, TypeError):  # empty, or torn by a crash
                    entry = Entry(**json.loads(line))
                    old = self._entries.get(entry.path)
                    self._used += entry.size - (old.size if old else 0)
                    self._entries[entry.path] = entry
            yield file

    def _entry(self, path: str) -> Entry | None:
        with self._locked():
            return self._entries.get(_whole(path))


def _transferred(path: str, size: int, file: int, stopped: Callable[[], bool]) -> tuple[str, float]:
    """Writes a file's content to a descriptor; returns its checksum, and seconds of reading."""
    digest, at, began = hashlib.sha256(), 0, time.monotonic()
    with reading(path):
        origin = byte_ranges.open_file(path, in_sequence=True)
    secs = time.monotonic() - began
    try:
        while at < size:
            if stopped():
                raise Interrupted
            began = time.monotonic()
            with reading(path):
                data = origin.read(min(_CHUNK, size - at), at)
                if not data:
                    raise OSError(errno.EIO, "it became shorter while it was copied", path)
            secs += time.monotonic() - began
            digest.update(data)
            at += len(data)
            while data:
                data = data[os.write(file, data) :]
    finally:
        origin.close()
    os.fsync(file)
    if hasattr(os, "posix_fadvise"):  # so that the check reads the disk, not the memory
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return digest.hexdigest(), secs


def _digest(place: Path, stopped: Callable[[], bool]) -> tuple[str, float]:
    """Returns a file's SHA-256, and seconds of reading, unless `stopped` returns True meanwhile."""
    digest, secs, began = hashlib.sha256(), 0.0, time.monotonic()
    with open(place, "rb", buffering=0) as file:
        while data := file.read(_CHUNK):
            secs += time.monotonic() - began
            if stopped():
                raise Interrupted
            digest.update(data)
            began = time.monotonic()
    return digest.hexdigest(), secs


def _whole(path: str) -> str:
    return path if storage.is_remote(path) else os.path.abspath(path)
