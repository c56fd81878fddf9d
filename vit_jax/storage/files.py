# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Files on a disk, and objects in a Google Cloud Storage bucket under gs://BUCKET/NAME.

Only this module knows the difference. An object is written as a whole or not at all. It is never
appended to, renamed or locked, and folders are only prefixes of names. Only this module uses gcsfs.
No listing is cached, because other hosts write too. Start from `workdir` and `write`.
"""

import collections
import contextlib
import errno
import functools
import importlib.util
import itertools
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any

from vit_jax.errors import BadInput, PeerLost
from vit_jax.storage import regular

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP)  # from file systems without hard links
_READ_AHEAD = 16 * 2**20  # bytes, for an object that is read in sequence


class StoreLost(PeerLost):
    """The object store does not answer. Exit code 43: run again."""


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
    """Returns a path on the disk (`~` is expanded) or an `etils.epath.Path`; sends no request.

    Raises:
      BadInput: see `check_address`; or the extra `gcs` is not installed.
    """
    check_address(text)
    if not is_remote(text):
        place = Path(os.path.expanduser(text))  # unchanged if the user does not exist
        return place.absolute() if str(place).startswith("~") else place  # not expanded again later
    if importlib.util.find_spec("gcsfs") is None:
        raise BadInput(f"{text}: to read and write gs://, pip install 'vit_jax[gcs]'.")
    _store()
    from etils import epath

    return epath.Path(text)  # type: ignore[return-value]


def workdir(text: str) -> Path:
    """Returns the folder of a run, which need not exist; checks a bucket with one request.

    Raises:
      BadInput: as for `path`; or the bucket does not exist, or access is denied.
      StoreLost: the store does not answer.
    """
    folder = path(text)
    if is_remote(folder):
        bucket, _, name = text.removeprefix("gs://").partition("/")
        asked = {"prefix": f"{name.rstrip('/')}/", "maxResults": 1}
        try:
            with _reaching(text):
                _store().call("GET", "b/{}/o", bucket, json_out=True, **asked)
        except FileNotFoundError as e:
            raise BadInput(f"{text}: there is no bucket {bucket}; make it, or correct it.") from e
        except PermissionError as e:
            raise BadInput(
                f"{text}: no access ({e.strerror}); log in with `gcloud auth application-default "
                "login`, or give the account of this machine the role Storage Object Admin."
            ) from e
    return folder


def absolute(place: Path) -> Path:
    """Returns the absolute path."""
    return place if is_remote(place) else place.absolute()


def write(place: Path, content: str | bytes) -> None:
    """Replaces a file as a whole: a reader sees the old or the new content, also after a kill."""
    data = content.encode() if isinstance(content, str) else content
    if is_remote(place):
        with _reaching(place):
            _store().pipe_file(str(place), data)
        return
    with _temporary(place, data) as temporary:
        temporary.replace(place)


def create(place: Path, content: str | bytes) -> bool:
    """Writes a file as a whole, unless it exists; returns False if it exists.

    If several processes try at the same time, on any hosts, exactly one succeeds.
    """
    data = content.encode() if isinstance(content, str) else content
    if is_remote(place):
        with _reaching(place):
            try:
                _store().pipe_file(str(place), data, mode="create")
            except FileExistsError:
                return False
        return True
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
    begin = place.name[:40]  # a name has 255 bytes at most
    temporary = place.with_name(f".{begin}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
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
    if not is_remote(place):
        return os.path.isdir(place)
    found = _info(place)
    return found is not None and found["type"] == "directory"


def exists(place: Path) -> bool:
    """Returns True if a file or a folder of that name exists; a failing store raises."""
    return _info(place) is not None if is_remote(place) else place.exists()


def _info(place: Path) -> dict[str, Any] | None:
    """Returns the store's information on a name; None if the name does not exist."""
    with _reaching(place):
        try:
            return _store().info(str(place))
        except FileNotFoundError:
            return None


def rename(place: Path, target: Path) -> None:
    """Renames a file or folder to a free name; in a bucket it moves one object at a time."""
    if not is_remote(place):
        place.rename(target)
        return
    with _reaching(place):
        _store().mv(str(place), str(target), recursive=True)


@contextlib.contextmanager
def opened(place: Path) -> Iterator[IO[bytes]]:
    """Yields a file for reading in sequence; a store that fails in the block raises StoreLost."""
    if not is_remote(place):
        with open(place, "rb") as file:
            yield file
        return
    with _reaching(place):
        how = {"block_size": _READ_AHEAD, "cache_type": "readahead"}
        with _store().open(str(place), "rb", **how) as file:
            yield file


def make_folder(folder: Path) -> None:
    """Makes a folder and its parents; does nothing in a bucket, which has no folders."""
    if not is_remote(folder):
        folder.mkdir(parents=True, exist_ok=True)


def remove(place: Path) -> None:
    """Removes a file, or a folder with its contents; a missing one is fine."""
    if is_remote(place):
        with _reaching(place), contextlib.suppress(FileNotFoundError):
            _store().rm(str(place), recursive=True)
    elif os.path.isdir(place) and not os.path.islink(place):
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def listed(folder: Path) -> list[Path]:
    """Returns the contents of a folder, sorted by name; [] if the folder does not exist.

    A denied access to a store raises here, while `Path.is_dir` would answer False.
    """
    if not is_remote(folder):
        return sorted(folder.iterdir()) if os.path.isdir(folder) else []
    with _reaching(folder):
        try:
            found = _store().ls(str(folder), detail=False)
        except FileNotFoundError:
            return []
    names = {name.rstrip("/").rpartition("/")[2] for name in found}
    return [folder / name for name in sorted(names - {folder.name})]


def changed(place: Path) -> float:
    """Returns when a file was last written, in seconds since 1970, by the clock of the store."""
    if not is_remote(place):
        return place.stat().st_mtime
    with _reaching(place):
        return _store().info(str(place))["mtime"].timestamp()


def read_all(places: Sequence[Path]) -> list[bytes]:
    """Returns the contents of several regular files; reads those in a bucket in parallel."""
    if not places or not is_remote(places[0]):
        return [regular.read(place) for place in places]
    names = [str(place).removeprefix("gs://") for place in places]
    with _reaching(places[0].parent):
        found = _store().cat(names)
    return [found[name] for name in names]


def walk(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Walks a folder like `os.walk`, from the top: folders removed from the list are skipped."""
    if not is_remote(root):
        for folder, inside, files in os.walk(root):
            yield Path(folder), inside, files
        return
    with _reaching(root):
        for folder, inside, files in _store().walk(str(root), on_error="raise"):
            yield path(f"gs://{folder}"), inside, files


# ---------------------------------------------------------------- data


def plain(pattern: str) -> str:
    """Returns the part of a bucket pattern before its first wildcard, in whole folders."""
    parts = pattern.split("/")
    return "/".join(itertools.takewhile(lambda part: not re.search(r"[*?\[]", part), parts))


def glob(pattern: str) -> list[str]:
    """Returns the objects that match a pattern with wildcards such as *, sorted."""
    with _reaching(pattern):
        return sorted(f"gs://{name}" for name in _store().glob(pattern))


def find(folder: str) -> list[str]:
    """Returns the names of all objects below a folder, relative to it, sorted; one listing."""
    root = folder.rstrip("/").removeprefix("gs://") + "/"
    with _reaching(folder):
        found = _store().find(root)
    return sorted(n.removeprefix(root) for n in found if n.startswith(root) and n[-1] != "/")


class Tree:
    """A place below a folder of a bucket, as it was when the folder was listed.

    It has the part of `Path` that is needed to find images in folders; no method sends a request.

    Attributes:
      name: the last part of the path.
    """

    def __init__(self, root: str, within: str, inside: dict[str, set[str]]):
        self._root, self._within, self._inside = root, within, inside
        self.name = within.rpartition("/")[2]

    def __str__(self) -> str:
        return f"{self._root}/{self._within}".rstrip("/")

    def __lt__(self, other: "Tree") -> bool:
        return self._within < other._within

    def iterdir(self) -> "Iterator[Tree]":
        """Yields the contents of this folder."""
        start = f"{self._within}/" if self._within else ""
        for name in self._inside[self._within]:
            yield Tree(self._root, start + name, self._inside)

    def is_dir(self) -> bool:
        """Returns True if other names lie below this one."""
        return self._within in self._inside

    def is_file(self) -> bool:
        """Returns True if this is an object."""
        return not self.is_dir()

    def exists(self) -> bool:
        """Returns True: the place was listed."""
        return True

    def is_symlink(self) -> bool:
        """Returns False: a bucket has no links."""
        return False

    def relative_to(self, root: "Tree") -> PurePosixPath:
        """Returns the parts below the folder that was listed."""
        return PurePosixPath(self._within)


def tree(text: str) -> Path:
    """Returns all that is below a folder of a bucket, from one listing, as a `Tree`.

    Raises:
      BadInput: as for `workdir`; or the folder is empty.
    """
    root = str(workdir(text))
    inside: dict[str, set[str]] = collections.defaultdict(set)
    for name in find(root):
        parts = name.split("/")
        for depth, part in enumerate(parts):
            inside["/".join(parts[:depth])].add(part)
    if not inside:
        raise BadInput(f"{text}: there is nothing below that name in the bucket; correct it.")
    return Tree(root, "", dict(inside))  # type: ignore[return-value]


def size_and_version(place: str) -> tuple[int, str]:
    """Returns the bytes of a file, and a value that changes with the content."""
    if is_remote(place):
        with _reaching(place):
            found = _store().info(place)
        return int(found["size"]), str(found["generation"])
    stat = os.stat(place)
    return stat.st_size, str(stat.st_mtime_ns)


def read(place: str, start: int | None = None, end: int | None = None) -> bytes:
    """Returns the bytes of an object, or those from `start` to `end`, with one request."""
    if start is not None and start == end:
        return b""
    with _reaching(place):
        return _store().cat_file(place, start=start, end=end)


def stream(place: str) -> IO[bytes]:
    """Opens an object as a file for reading in sequence, with long reads ahead."""
    with _reaching(place):
        return _store().open(place, "rb", block_size=_READ_AHEAD, cache_type="readahead")


# ---------------------------------------------------------------- the store


@functools.cache
def _store() -> Any:
    """Returns gcsfs without cached listings; it has the credentials and retries failures."""
    import fsspec.config

    fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs errors that it then raises
    return fsspec.filesystem("gcs")


@contextlib.contextmanager
def _reaching(place: str | Path) -> Iterator[None]:
    """Turns errors of gcsfs into file errors, or into `StoreLost` once its retries have failed."""
    try:
        yield
    except FileNotFoundError as e:
        raise FileNotFoundError(errno.ENOENT, "no such object", str(place)) from e
    except Exception as e:  # aiohttp, requests, google.auth and gcsfs raise more than OSError
        said = " ".join(str(e).split())[:300] or type(e).__name__
        denied = isinstance(e, OSError) and said.startswith("Forbidden")
        if denied or getattr(e, "code", None) in (401, 403):
            raise PermissionError(errno.EACCES, said, str(place)) from e
        raise StoreLost(f"{place}: the store does not answer: {said}. Run again.") from e
