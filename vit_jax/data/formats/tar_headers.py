# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the headers of a tar file one after another and trusts none of their claims.

Python's `tarfile` accepts a negative size (and loops), allocates as much as a header asks for, and
raises arbitrary errors. This module reads no content. Start from `Tar`.
"""

import tarfile
from collections.abc import Iterator
from typing import IO, Any

LONGEST_NAME = 4096  # bytes, Linux's limit for paths


class Window:
    """A range of another file, with only the file methods that tarfile needs.

    The range has a fixed end: a header that claims more bytes gets those that exist.
    """

    def __init__(self, file: IO[bytes], start: int, size: int):
        self._file, self._start, self._size, self._at = file, start, size, 0

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int) -> None:
        self._at = offset

    def read(self, size: int) -> bytes:
        left = max(0, min(size, self._size - self._at))
        if not left:
            return b""
        self._file.seek(self._start + self._at)
        data = self._file.read(left)
        self._at += len(data)
        return data


class Tar:
    """The members of the tar that is `size` bytes of a file, from `start` on.

    Attributes:
      end: bytes from `start` to the end of the last header or member that was read.
    """

    def __init__(self, file: IO[bytes], start: int, size: int):
        self._window: Any = Window(file, start, size)
        self._size = size
        self.end = 0

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """Yields each member as stored; a plain member is sure to have all its bytes.

        Raises:
          tarfile.ReadError: the file is not a tar, or a header is impossible; `end` is the
            position.
        """
        archive = None
        while True:
            try:
                archive = archive or tarfile.open(fileobj=self._window, mode="r:")
                archive.members = []  # pyright: ignore[reportAttributeAccessIssue]  # it keeps all
                entry = archive.next()
                self.end = archive.offset
            except tarfile.ReadError:
                raise
            except RecursionError:  # each extended header reads the next
                raise tarfile.ReadError("hundreds of extended headers for one member") from None
            except Exception as e:  # tarfile may raise anything here
                raise tarfile.ReadError(f"an impossible header: {e}") from e
            if entry is None:
                return
            self._check(entry)
            yield entry

    def _check(self, entry: tarfile.TarInfo) -> None:
        if len(entry.name) > LONGEST_NAME:
            raise tarfile.ReadError(f"a name of {len(entry.name)} characters")
        plain = entry.isreg() and not entry.issparse()
        ends = entry.offset_data + entry.size if plain else entry.offset_data
        if entry.size < 0 or self.end < entry.offset_data or ends > self._size:
            raise tarfile.ReadError(
                f"unexpected end of data: {entry.name!r} claims {entry.size} bytes from "
                f"{entry.offset_data} of {self._size} on"
            )

    def rest(self, most: int) -> bytes:
        """Reads up to `most` bytes from `end` on."""
        self._window.seek(self.end)
        return self._window.read(most)
