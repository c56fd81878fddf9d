# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Owns a folder of copies: each file under the path of its original, and a list with checksums.

A copy gets its name only once it is whole and its checksum is verified on the disk, so a kill at
any time leaves whole copies and a part that the next process removes. Several processes may use one
folder. Start from `Copies`.
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

from vit_jax.data.formats import byte_ranges
from vit_jax.errors import BadInput
from vit_jax.storage import checksums
from vit_jax.storage import files as storage

LIST, PARTS = "staged.jsonl", ".parts"  # in the folder: the list, and the folder of partial files
_CHUNK = 2**23  # bytes
_ABANDONED_SECS = 60  # age of a part that nobody writes
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_FREE_SHARE = 0.9  # of the free space is used if no budget is given


class Interrupted(Exception):
    """Copying has been told to stop."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A line of the list.

    Attributes:
      name: the path of the copy in the folder.
      size: its bytes.
      version: a value that changes with the content of the original.
      sha256: its checksum.
    """

    name: str
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


class Copies:
    """The copies in a folder; safe in several threads and processes.

    Attributes:
      folder: the folder.
      most: the number of bytes that it may hold.
      copied: bytes that this object has copied.
      read_secs: the time that reading them from their origin took.
      check_secs: the time that reading them from the folder took.
    """

    def __init__(self, key: str, folder: str, most: int):
        """Opens a folder, which is made if it does not exist.

        Args:
          key: the name of the setting, for messages.
          folder: the folder, on a disk of this host.
          most: the number of bytes that it may hold; 0: those there and 90 % of the free space.

        Raises:
          BadInput: the folder is in a bucket or cannot be written.
        """
        if storage.is_remote(folder):
            raise BadInput(f"{key}={folder}: give a folder on a disk of this host.")
        self.folder = storage.path(folder).absolute()
        try:
            storage.make_folder(self.folder / PARTS)
            self._remove_parts()
            (self.folder / LIST).touch()
        except OSError as e:
            raise BadInput(
                f"{key}={folder} cannot be written: {e.strerror}; give a folder on a disk of this "
                "host that this user may write."
            ) from e
        self._lock, self._read, self._entries = threading.Lock(), 0, dict[str, Entry]()
        self._used, self._held = 0, 0  # bytes of copies, and of those that are being written
        self.copied, self.read_secs, self.check_secs = 0, 0.0, 0.0
        self._listed()
        self.most = most or self._used + int(self.free() * _FREE_SHARE)

    def free(self) -> int:
        """Returns the free bytes of the disk."""
        return shutil.disk_usage(self.folder).free

    def room(self) -> int:
        """Returns the bytes that may still be added."""
        self._listed()
        return max(self.most - self._used, 0)

    def whole(self, path: str) -> Path | None:
        """Returns the copy of a file, after a comparison with its checksum; None if it has none."""
        entry = self._listed().get(_name(path))
        if entry is None or (entry.size, entry.version) != storage.size_and_version(path):
            return None
        place = self.folder / entry.name
        with contextlib.suppress(OSError):
            if place.stat().st_size == entry.size and checksums.digest(place) == entry.sha256:
                return place
        return None

    def has(self, path: str, size: int) -> bool:
        """Returns True if the list has a copy of that size; reads no copy."""
        entry = self._listed().get(_name(path))
        return entry is not None and entry.size == size

    def copy(self, path: str, stopped: Callable[[], bool] = lambda: False) -> Path | None:
        """Copies a file and returns its copy; None if it is over the budget.

        Raises:
          OSError: the file cannot be read or written, or the disk changed what was written.
          StoreLost: the object store does not answer.
          Interrupted: `stopped` returned True.
        """
        size, version = storage.size_and_version(path)
        name = _name(path)
        with self._reserved(name, size) as fits:
            if not fits:
                return None
            place = self.folder / name
            storage.make_folder(place.parent)
            with self._part(size) as (part, file):
                sha256 = self._transferred(path, size, file, stopped)
                began = time.monotonic()
                if checksums.digest(part) != sha256:
                    raise OSError(errno.EIO, "the disk changed what was written", str(place))
                checked = time.monotonic() - began
                part.replace(place)
            self._add(Entry(name, size, version, sha256))
        with self._lock:
            self.copied, self.check_secs = self.copied + size, self.check_secs + checked
        return place

    @contextlib.contextmanager
    def _reserved(self, name: str, size: int) -> Iterator[bool]:
        """Yields True if a copy of that size, in place of an older one, is within the budget."""
        old = self._listed().get(name)
        more = size - (old.size if old else 0)
        with self._lock:
            fits = self._used + self._held + more <= self.most
            self._held += more if fits else 0
        try:
            yield fits
        finally:
            self._listed()
            with self._lock:
                self._held -= more if fits else 0

    def _transferred(self, path: str, size: int, file: int, stopped: Callable[[], bool]) -> str:
        """Writes the content of a file to a descriptor; returns its checksum."""
        digest, at, secs = hashlib.sha256(), 0, 0.0
        origin = byte_ranges.open_file(path, in_sequence=True)
        try:
            while at < size:
                if stopped():
                    raise Interrupted
                began = time.monotonic()
                data = origin.read(min(_CHUNK, size - at), at)
                secs += time.monotonic() - began
                if not data:
                    raise OSError(errno.EIO, "it became shorter while it was copied", path)
                digest.update(data)
                at += len(data)
                while data:
                    data = data[os.write(file, data) :]
        finally:
            origin.close()
        os.fsync(file)
        if hasattr(os, "posix_fadvise"):  # so that the check reads the disk, not the memory
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        with self._lock:
            self.read_secs += secs
        return digest.hexdigest()

    @contextlib.contextmanager
    def _part(self, size: int) -> Iterator[tuple[Path, int]]:
        """Yields a locked partial file and its descriptor; removes it unless it was renamed."""
        part = self.folder / PARTS / f"{os.getpid()}-{secrets.token_hex(6)}"
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if size > self.free():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(part))
            yield part, file
        finally:
            with contextlib.suppress(OSError):
                part.unlink()
            os.close(file)

    def _remove_parts(self) -> None:
        """Removes what processes have left that ended in the middle of a copy."""
        for part in storage.listed(self.folder / PARTS):
            with contextlib.suppress(OSError), open(part, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while it is written
                if time.time() - os.fstat(file.fileno()).st_mtime > _ABANDONED_SECS:
                    part.unlink()

    def _listed(self) -> dict[str, Entry]:
        """Returns the entries by name, with those that other processes have added."""
        with self._lock, open(self.folder / LIST, "rb") as file:
            file.seek(self._read)
            lines = file.read()
            lines = lines[: lines.rfind(b"\n") + 1]
            self._read += len(lines)
            for line in lines.splitlines():
                with contextlib.suppress(ValueError, TypeError):  # empty, or torn by a crash
                    entry = Entry(**json.loads(line))
                    old = self._entries.get(entry.name)
                    self._used += entry.size - (old.size if old else 0)
                    self._entries[entry.name] = entry
            return self._entries

    def _add(self, entry: Entry) -> None:
        line = json.dumps(dataclasses.asdict(entry))
        with open(self.folder / LIST, "ab", buffering=0) as file:
            file.write(f"\n{line}\n".encode())  # one write, so lines of other processes stay whole


def _name(path: str) -> str:
    """Returns the name of a copy: the whole path of the original, without a leading slash."""
    whole = path if storage.is_remote(path) else os.path.abspath(path)
    return whole.replace("://", "/").lstrip("/")
