# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The headers of a tar file, read one after another, whatever they claim.

Python's `tarfile` believes a size that is negative (and goes round in circles), allocates what a
header asks for, and raises what it likes. Reads no content. Start from `Tar`.
"""

import tarfile
from collections.abc import Iterator
from typing import IO, Any

LONGEST_NAME = 4096  # bytes, as Linux has it for paths


class Window:
    """A range of another file; of a file's methods, those that tarfile needs.

    It ends where it ends: a header that claims more gets what is there.
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
    """The members of the tar that is `size` bytes of a file from `start` on.

    Attributes:
      end: bytes from `start` to where the last header or member that was read ends.
    """

    def __init__(self, file: IO[bytes], start: int, size: int):
        self._window: Any = Window(file, start, size)
        self._size = size
        self.end = 0

    def __iter__(self) -> Iterator[tarfile.TarInfo]:
        """Each member, as stored; of plain ones all bytes are there.

        Raises:
          tarfile.ReadError: no tar file, or a header that cannot be; `end` is where.
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
            except RecursionError:  # each reads the next
                raise tarfile.ReadError("hundreds of extended headers for one member") from None
            except Exception as e:  # what a header makes tarfile raise
                raise tarfile.ReadError(f"a header that cannot be: {e}") from e
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
        """Up to `most` bytes from `end` on."""
        self._window.seek(self.end)
        return self._window.read(most)
