# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What stands under a name on a disk, and the bytes of a regular file.

Reading a named pipe or a device may never end. Start from `read`.
"""

import errno
import os
import stat
from pathlib import Path
from typing import TextIO

FILE, FOLDER = "file", "folder"
_KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
}
_MOST_BYTES = 2**26  # of a list that comes through a pipe


def kind(place: str | Path | int) -> str:
    """Says what stands under a name, behind links, or is open as a number; "" for nothing.

    Returns:
      `FILE`, `FOLDER`, or a noun for what cannot be read as a file.

    Raises:
      OSError: nobody may look there, the name is too long, or links lead in a circle.
    """
    try:
        mode = os.stat(place).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte
        return ""
    return _KINDS.get(stat.S_IFMT(mode), "device")


def is_odd(place: str | Path) -> bool:
    """Says whether a name is that of a pipe, a socket or a device."""
    try:
        return kind(place) not in (FILE, FOLDER, "")
    except OSError:
        return False  # who reads it is told why it cannot be read


def read(place: str | Path) -> bytes:
    """Returns the bytes of a regular file.

    Raises:
      OSError: it cannot be read, or it is a pipe, a socket or a device.
    """
    if is_odd(place):
        raise OSError(errno.EINVAL, f"it is a {kind(place)}, not a file", str(place))
    return Path(place).read_bytes()


def read_list(place: str | Path) -> bytes:
    """Returns the bytes of a list that a user names, which a shell may give as a pipe: `<(ls)`.

    Raises:
      OSError: it cannot be read, or more comes from a pipe or a device than any list holds.
    """
    if not is_odd(place):
        return Path(place).read_bytes()
    with open(place, "rb") as source:
        content = source.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise _too_long(kind(place), str(place))
    return content


def read_open_list(source: TextIO) -> str:
    """Returns the text of a list that is open already, such as standard input.

    Raises:
      OSError: it cannot be read, or more comes from a pipe or a device than any list holds.
    """
    try:
        what = kind(source.fileno())
    except OSError:  # it is in memory
        what = FILE
    text = source.read() if what == FILE else source.read(_MOST_BYTES + 1)
    if what != FILE and len(text) > _MOST_BYTES:
        raise _too_long(what, source.name)
    return text


def _too_long(what: str, name: str) -> OSError:
    said = f"it is a {what} that gives more than {_MOST_BYTES >> 20} MiB"
    return OSError(errno.EFBIG, said, name)
