# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes one file with the SHA-256 of every file of a folder, and compares it before use.

`sha256sum -c` can read it too. This module knows nothing of the contents of the files. Start from
`write`; `damage` compares.
"""

import errno
import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vit_jax.errors import permitted
from vit_jax.storage import files as storage

FILE = "checksums.sha256"
READERS = 8  # threads: hashing releases the GIL, and a remote store answers late


def write(folder: Path) -> None:
    """Writes the checksums of the files under `folder`, and flushes all of these to the disk.

    Args:
      folder: a local or remote folder, into which no process writes meanwhile.
    """
    names = storage.find(folder)
    with ThreadPoolExecutor(READERS) as pool:
        digests = list(pool.map(lambda name: digest(folder / name, settle=True), names))
    lines = [f"{digest}  {name}\n" for digest, name in zip(digests, names, strict=True)]
    storage.write(folder / FILE, seal("".join(lines)))


def damage(
    folder: Path,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    part: tuple[int, int] = (0, 1),
) -> str:
    """Describes the change to the files under `folder` since `write`; "" if nothing changed.

    Files that `write` did not see are ignored.

    Args:
      folder: the folder that should contain the checksums.
      wanted: selects the files to check, by their names (relative, with slashes).
      part: (i, n): every n-th of these files from the i-th on, so that n processes share the work.

    Returns:
      A text for people, e.g. `state/manifest.ocdbt has changed (and 2 more files)`.

    Raises:
      BadInput: this account may not read a file, which is not damage.
    """
    try:
        listed = _parse(storage.read_all([folder / FILE])[0])
    except FileNotFoundError:
        return f"{FILE} is missing"
    except ValueError:
        return f"{FILE} has changed"
    except OSError as e:
        return f"{FILE} {_unreadable(e)}"
    names = [name for name in sorted(listed) if wanted(name)][part[0] :: part[1]]
    with ThreadPoolExecutor(READERS) as pool:
        states = pool.map(lambda name: _state(folder / name, listed[name]), names)
        changes = [f"{name} {state}" for name, state in zip(names, states, strict=True) if state]
    more = f" (and {len(changes) - 1} more files)" if changes[1:] else ""
    return changes[0] + more if changes else ""


def seal(text: str) -> bytes:
    """Returns the content of a small file with its own checksum."""
    return f"# {hashlib.sha256(text.encode()).hexdigest()}\n{text}".encode()


def unseal(content: bytes) -> str:
    """Returns the text in the content that `seal` made; raises ValueError if it has changed."""
    text = content.decode().partition("\n")[2]
    if content != seal(text):
        raise ValueError("it has changed")
    return text


def _parse(content: bytes) -> dict[str, str]:
    """Returns name -> digest; raises ValueError if `write` did not write this content."""
    pairs = [line.split("  ", 1) for line in unseal(content).split("\n")[:-1]]
    return {name: digest for digest, name in pairs}


def _state(path: Path, expected: str) -> str:
    try:
        return "" if digest(path) == expected else "has changed"
    except FileNotFoundError:
        return "is missing"
    except OSError as e:
        return _unreadable(e)


def _unreadable(error: OSError) -> str:
    """Describes an error that is damage; raises any other, e.g. a missing permission."""
    if error.errno not in (errno.EIO, errno.EISDIR, errno.ENOTDIR):
        with permitted("read"):
            raise error
    return f"cannot be read: {error.strerror}"


def digest(path: Path, *, settle: bool = False) -> str:
    """Returns the SHA-256 of a file; with `settle`, a local file is flushed to the disk first."""
    if storage.is_remote(path):
        content = hashlib.sha256()
        for piece in path.pieces():  # type: ignore[attr-defined]
            content.update(piece)
        return content.hexdigest()
    with path.open("rb") as file:
        if settle:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
