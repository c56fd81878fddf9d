# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Paths on a disk, and names under gs://BUCKET/ in Google Cloud Storage.

`path` returns a `pathlib.Path` or a `BucketPath` with the same methods. This module adds what
neither class has, above all writing a file as a whole. Reading a named pipe or a device may never
end, so `read` and `read_list` look at the kind of a file. Start from `workdir` and `write`.
"""

import contextlib
import errno
import glob as glob_lib
import importlib.util
import itertools
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from vit_jax.errors import BadInput, StoreLost

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)  # from file systems without hard links
_NOT_A_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)
FILE, FOLDER = "file", "folder"
_KINDS = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: FOLDER,
    stat.S_IFIFO: "named pipe",
    stat.S_IFSOCK: "socket",
}
_MOST_BYTES = 2**26  # limit for a list that comes through a pipe


def is_remote(place: str | Path) -> bool:
    """Returns True if the place is an object or a folder of a bucket."""
    return str(place).startswith("gs://")


def check_address(text: str) -> None:
    """Raises BadInput for another scheme, a bucket without a name in it, or a name with * ? [ ]."""
    scheme, separator, rest = text.partition("://")
    if not separator or not re.fullmatch("[A-Za-z][A-Za-z0-9+.-]*", scheme):
        return
    if scheme != "gs":
        raise BadInput(f"{text}: expected a path, or gs://BUCKET/NAME; {scheme}:// is not read.")
    bucket, _, name = rest.partition("/")
    if not _BUCKET.fullmatch(bucket) or not name.strip("/"):
        raise BadInput(f"{text}: expected gs://BUCKET/NAME, a name inside a bucket.")
    if ".." in name.split("/") or re.search(r"[*?\[\]#\x00-\x1f\x7f]", name):
        raise BadInput(f"{text}: a name in a bucket has no .. and none of * ? [ ] #; give another.")


def path(text: str) -> Path:
    """Returns a path on the disk (`~` is expanded) or a `BucketPath`; sends no request.

    Raises:
      BadInput: see `check_address`; or the extra `gcs` is not installed.
    """
    check_address(text)
    if not is_remote(text):
        place = Path(os.path.expanduser(text))  # unchanged if the user does not exist
        return place.absolute() if str(place).startswith("~") else place  # not expanded again later
    if importlib.util.find_spec("gcsfs") is None:
        raise BadInput(f"{text}: to read and write gs://, pip install 'vit_jax[gcs]'.")
    return as_path(text)


def as_path(name: str) -> Path:
    """Returns the path of a name as it is, such as one from a listing; sends no request."""
    if not is_remote(name):
        return Path(name)
    from vit_jax.storage import bucket

    return bucket.BucketPath(name)  # type: ignore[return-value]


def workdir(text: str) -> Path:
    """Returns the folder of a run, which need not exist; checks a bucket with one request.

    Raises:
      BadInput: as for `path`; or the bucket does not exist, or access is denied.
      StoreLost: the store does not answer.
    """
    folder: Any = path(text)
    if is_remote(folder):
        folder.check_access()
    return folder


def lost(place: Path, text: str) -> StoreLost | None:
    """Returns the error for a library that failed in a bucket; None for a place on a disk.

    A store is expected to come back, so the run is started again. A disk needs a person.
    """
    return StoreLost(f"{text} Run again.") if is_remote(place) else None


def write(place: Path, content: str | bytes) -> None:
    """Replaces a file as a whole: a reader sees the old or the new content, also after a kill."""
    data = content.encode() if isinstance(content, str) else content
    if is_remote(place):
        place.write_bytes(data)
        return
    with _temporary(place, data) as temporary:
        temporary.replace(place)


def create(place: Path, content: str | bytes) -> bool:
    """Writes a file as a whole, unless it exists; returns False if it exists.

    If several processes try at the same time, on any hosts, exactly one succeeds.
    """
    data = content.encode() if isinstance(content, str) else content
    if is_remote(place):
        return place.create(data)  # type: ignore[attr-defined]
    with _temporary(place, data) as temporary, contextlib.suppress(FileExistsError):
        try:
            os.link(temporary, place)
        except OSError as e:
            if e.errno not in _NO_LINKS:
                raise
            with open(place, "xb") as file:  # other processes may see a part of it for a moment
                file.write(data)
        return True
    return False


@contextlib.contextmanager
def _temporary(place: Path, data: bytes) -> Iterator[Path]:
    """Yields a file of this writer alone beside a place; removes it at the end of the block."""
    start = place.name[:40]  # a name has 255 bytes at most
    temporary = place.with_name(f".{start}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):  # usually it has been renamed
            temporary.unlink()


def is_dir(place: Path) -> bool:
    """Returns True for a folder, False for a name that no disk can hold; a failing store raises."""
    return place.is_dir() if is_remote(place) else os.path.isdir(place)


def existing(folder: Path) -> Path:
    """Returns a folder, or its nearest existing parent; a bucket is returned unchanged.

    Raises:
      NotADirectoryError: the existing path is a file, or a link that does not lead to a folder.
    """
    if is_remote(folder):
        return folder
    whole = folder.absolute()
    nearest = next(p for p in (whole, *whole.parents) if os.path.lexists(p))
    if not os.path.isdir(nearest):
        raise NotADirectoryError(errno.ENOTDIR, f"{nearest} is not a folder")
    return nearest


def make_folder(folder: Path) -> list[Path]:
    """Makes a folder and its parents; returns those that are new: none in a bucket."""
    folders = () if is_remote(folder) else (folder, *folder.parents)
    new = [place for place in folders if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return new


def remove(place: Path) -> None:
    """Removes a file, or a folder with its contents; a missing one is fine."""
    if is_remote(place):
        place.rmtree(missing_ok=True)  # type: ignore[attr-defined]
    elif os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def listed(folder: Path) -> list[Path]:
    """Returns the contents of a folder, sorted by name; [] if the folder does not exist."""
    try:
        return sorted(folder.iterdir())
    except OSError as e:
        if e.errno not in _NOT_A_FOLDER:
            raise
    except ValueError:  # a null byte
        pass
    return []


def read_all(places: Sequence[Path]) -> list[bytes]:
    """Returns the contents of several regular files; reads those in a bucket in parallel."""
    if not places or not is_remote(places[0]):
        return [read(place) for place in places]
    from vit_jax.storage import bucket

    return bucket.read_all(places)


def walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Walks a folder like `os.walk`, from the top: folders removed from the list are skipped."""
    if is_remote(root):
        yield from root.walk()  # type: ignore[attr-defined]
    else:
        yield from ((Path(folder), inside, names) for folder, inside, names in os.walk(root))


def find(folder: Path) -> list[str]:
    """Returns the names of all files below a folder, relative to it, sorted."""
    if is_remote(folder):
        return folder.find()  # type: ignore[attr-defined]
    return sorted(
        (place / name).relative_to(folder).as_posix()
        for place, _, names in walk(folder)
        for name in names
    )


def size_and_version(place: str) -> tuple[int, str]:
    """Returns the bytes of a file, and a value that changes with the content."""
    stat: Any = as_path(place).stat()
    return stat.st_size, str(getattr(stat, "generation", 0) or stat.st_mtime_ns)


def allow_open(files: int) -> int:
    """Raises the limit of open files of this process if so many take more than half of it.

    Returns:
      The limit that holds now, or `files` if there is none. Connections count as files.
    """
    import resource  # the system may have none; only this function needs it

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files > soft // 2:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return files if soft == resource.RLIM_INFINITY else soft


# ---------------------------------------------------------------- data


def plain(pattern: str) -> str:
    """Returns the part of a pattern before its first wildcard, in whole folders."""
    parts = pattern.split("/")
    whole = "/".join(itertools.takewhile(lambda part: not re.search(r"[*?\[]", part), parts))
    return whole or pattern[: pattern.startswith("/")]


def glob(pattern: str) -> list[str]:
    """Returns the files that match a pattern with wildcards such as *, sorted."""
    if not is_remote(pattern):
        names = set(glob_lib.glob(pattern, recursive=True))
        return sorted(name for name in names if os.path.exists(name) and not os.path.isdir(name))
    path(plain(pattern))
    from vit_jax.storage import bucket

    return sorted(bucket.glob(pattern))


def missing(places: Sequence[str], folder: Path) -> list[str]:
    """Returns the files that do not exist; lists `folder`, above them all, if it is in a bucket."""
    if not is_remote(folder):
        return [place for place in places if not os.path.isfile(place)]
    names = {f"{folder}/{name}" for name in find(folder)}
    return [place for place in places if place not in names]


def tree(text: str) -> Path:
    """Returns a folder to search in; one in a bucket is listed here, with all that is below it.

    Raises:
      BadInput: as for `workdir`; or a folder in a bucket is empty.
    """
    folder: Any = workdir(text)
    if is_remote(folder):
        from vit_jax.storage import bucket

        return bucket.tree(folder)  # type: ignore[return-value]
    return folder


# ---------------------------------------------------------------- kinds of files


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
