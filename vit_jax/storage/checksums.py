# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One file with the SHA-256 of every file of a folder: written once, compared before use.

`sha256sum -c` reads it too. Knows nothing of what the files hold. Start from `write`; `damage`
compares.
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
_READERS = 8  # threads: hashing releases the interpreter, and a remote store answers late


def write(folder: Path) -> None:
    """Writes the checksums of the files under `folder`; all of it is on the disk afterwards.

    Args:
      folder: local or remote; nobody writes into it meanwhile.
    """
    names = sorted(_files(folder))
    with ThreadPoolExecutor(_READERS) as pool:
        digests = list(pool.map(lambda name: _digest(folder / name, settle=True), names))
    lines = [f"{digest}  {name}\n" for digest, name in zip(digests, names, strict=True)]
    storage.write(folder / FILE, sealed("".join(lines)))


def damage(
    folder: Path,
    *,
    wanted: Callable[[str], bool] = lambda name: True,
    part: tuple[int, int] = (0, 1),
) -> str:
    """What has happened to the files under `folder` since `write`; "" if nothing.

    Files that `write` did not see are not looked at.

    Args:
      folder: holds the checksums, or should.
      wanted: which files to look at, by their names (relative, with slashes).
      part: (i, n): every n-th of these files from the i-th on, so that n processes share the work.

    Returns:
      For people, e.g. `state/manifest.ocdbt has changed (and 2 more files)`.

    Raises:
      BadInput: no right to read a file, which is no damage.
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
    with ThreadPoolExecutor(_READERS) as pool:
        states = pool.map(lambda name: _state(folder / name, listed[name]), names)
        found = [f"{name} {state}" for name, state in zip(names, states, strict=True) if state]
    more = f" (and {len(found) - 1} more files)" if found[1:] else ""
    return found[0] + more if found else ""


def _files(folder: Path) -> list[str]:
    """The names of all files under a folder, relative to it."""
    found = []
    for place, _, files in storage.walk(folder):
        found += [(place / name).relative_to(folder).as_posix() for name in files]
    return found


def sealed(text: str) -> bytes:
    """The content of a small file that tells by itself whether it is as it was written."""
    return f"# {hashlib.sha256(text.encode()).hexdigest()}\n{text}".encode()


def unsealed(content: bytes) -> str:
    """The text in what `sealed` has made; a ValueError if it has changed."""
    text = content.decode().partition("\n")[2]
    if content != sealed(text):
        raise ValueError("it has changed")
    return text


def _parse(content: bytes) -> dict[str, str]:
    """Name -> digest; a ValueError if this is not what `write` has written."""
    pairs = [line.split("  ", 1) for line in unsealed(content).split("\n")[:-1]]
    return {name: digest for digest, name in pairs}


def _state(path: Path, digest: str) -> str:
    try:
        return "" if _digest(path) == digest else "has changed"
    except FileNotFoundError:
        return "is missing"
    except OSError as e:
        return _unreadable(e)


def _unreadable(error: OSError) -> str:
    """What damage an error is; raises what is none: a right that is missing, for one."""
    if error.errno not in (errno.EIO, errno.EISDIR, errno.ENOTDIR):
        with permitted("read"):
            raise error
    return f"cannot be read: {error.strerror}"


def _digest(path: Path, *, settle: bool = False) -> str:
    """The SHA-256 of a file; `settle`: of what is then on the disk, if it is local."""
    with storage.opened(path) as file:
        if settle and not storage.is_remote(path):
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
