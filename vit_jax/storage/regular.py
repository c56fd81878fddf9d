# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tells what kind of file a name on a disk is, and reads regular files.

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
_MOST_BYTES = 2**26  # limit for a list that comes through a pipe


def kind(place: str | Path | int) -> str:
    """Returns the kind of a file, by name (following links) or descriptor; "" if it does not exist.

    Returns:
      `FILE`, `FOLDER`, or a noun for a kind that cannot be read as a file.

    Raises:
      OSError: the place may not be inspected, its name is too long, or links form a circle.
    """
    try:
        mode = os.stat(place).st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null byte
        return ""
    return _KINDS.get(stat.S_IFMT(mode), "device")


def is_odd(place: str | Path) -> bool:
    """Returns True if a name is that of a pipe, a socket or a device."""
    try:
        return kind(place) not in (FILE, FOLDER, "")
    except OSError:
        return False  # reading the place raises the reason


def read(place: str | Path) -> bytes:
    """Returns the bytes of a regular file.

    Raises:
      OSError: the file cannot be read, or it is a pipe, a socket or a device.
    """
    if is_odd(place):
        raise OSError(errno.EINVAL, f"it is a {kind(place)}, not a file", str(place))
    return Path(place).read_bytes()


def read_list(place: str | Path) -> bytes:
    """Returns the bytes of a list that a user names; a shell may give it as a pipe: `<(ls)`.

    Raises:
      OSError: it cannot be read, or a pipe or device gives more than 64 MiB.
    """
    if not is_odd(place):
        return (Path(place) if isinstance(place, str) else place).read_bytes()
    with open(place, "rb") as source:
        content = source.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise _too_long(kind(place), str(place))
    return content


def read_open_list(source: TextIO) -> str:
    """Returns the text of a list that is already open, such as standard input.

    Raises:
      OSError: it cannot be read, or a pipe or device gives more than 2**26 characters.
    """
    try:
        noun = kind(source.fileno())
    except OSError:  # the list is in memory
        noun = FILE
    text = source.read() if noun == FILE else source.read(_MOST_BYTES + 1)
    if noun != FILE and len(text) > _MOST_BYTES:
        raise _too_long(noun, source.name)
    return text


def _too_long(noun: str, name: str) -> OSError:
    text = f"it is a {noun} that gives more than {_MOST_BYTES >> 20} MiB"
    return OSError(errno.EFBIG, text, name)
