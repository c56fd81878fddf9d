# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Objects in a Google Cloud Storage bucket, with the methods of `pathlib.Path`.

An object is written as a whole or not at all. It is never appended to or locked, and folders are
only prefixes of names. Only this module uses gcsfs. No listing is cached, because other hosts write
too. `files` imports this module when it meets the first name in a bucket. Start from `BucketPath`.
"""

import collections
import contextlib
import errno
import functools
import logging
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from etils.epath import gpath

from vit_jax.errors import BadInput, StoreLost

_READ_AHEAD = 16 * 2**20  # bytes, for an object that is read in sequence


@functools.cache
def store() -> Any:
    """Returns gcsfs without cached listings; it has the credentials and retries failures."""
    import fsspec.config

    fsspec.config.conf.setdefault("gcs", {})["use_listings_cache"] = False
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it logs errors that it then raises
    return fsspec.filesystem("gcs")


@contextlib.contextmanager
def _reaching(place: object) -> Iterator[None]:
    """Turns errors of gcsfs into file errors, or into `StoreLost` once its retries have failed."""
    try:
        yield
    except FileNotFoundError as e:
        raise FileNotFoundError(errno.ENOENT, "no such object", str(place)) from e
    except Exception as e:  # aiohttp, requests, google.auth and gcsfs raise more than OSError
        text = " ".join(str(e).split())[:300] or type(e).__name__
        denied = isinstance(e, OSError) and text.startswith("Forbidden")
        if denied or getattr(e, "code", None) in (401, 403):
            raise PermissionError(errno.EACCES, text, str(place)) from e
        raise StoreLost(f"{place}: the store does not answer: {text}. Run again.") from e


class BucketPath(gpath.PosixGPath):
    """A path below gs://.

    epath does the arithmetic on names; the methods here send the requests. epath's own requests
    report a store that fails as a missing file, and cannot create an object only if it is absent.
    """

    def _info(self) -> dict[str, Any] | None:
        """Returns the store's information on a name; None if the name does not exist."""
        with _reaching(self):
            try:
                return store().info(str(self))
            except FileNotFoundError:
                return None

    def exists(self) -> bool:
        return self._info() is not None

    def is_dir(self) -> bool:
        info = self._info()
        return info is not None and info["type"] == "directory"

    def is_file(self) -> bool:
        info = self._info()
        return info is not None and info["type"] != "directory"

    def stat(self) -> Any:
        """Returns `st_size`, `st_mtime` and the generation, which changes with the content."""
        with _reaching(self):
            info = store().info(str(self))
        return types.SimpleNamespace(
            st_size=int(info["size"]),
            st_mtime=info["mtime"].timestamp(),
            generation=info["generation"],
        )

    def iterdir(self) -> "Iterator[BucketPath]":
        with _reaching(self):
            names = store().ls(str(self), detail=False)
        for name in {name.rstrip("/").rpartition("/")[2] for name in names} - {self.name}:
            yield self / name

    def walk(self, **_: Any) -> "Iterator[tuple[BucketPath, list[str], list[str]]]":
        with _reaching(self):
            for folder, inside, names in store().walk(str(self), on_error="raise"):
                yield BucketPath(f"gs://{folder}"), inside, names

    def find(self) -> list[str]:
        """Returns the names of all objects below this folder, relative to it; one listing."""
        root = str(self).rstrip("/").removeprefix("gs://") + "/"
        with _reaching(self):
            names = store().find(root)
        return sorted(n.removeprefix(root) for n in names if n.startswith(root) and n[-1] != "/")

    def stream(self, mode: str = "rb") -> IO[Any]:
        """Opens the object for reading in sequence, with long reads ahead."""
        with _reaching(self):
            return store().open(str(self), mode, block_size=_READ_AHEAD, cache_type="readahead")

    @contextlib.contextmanager
    def open(self, mode: str = "r", **_: Any) -> Iterator[Any]:
        """Yields the object for reading; a store that fails inside the block raises StoreLost."""
        with _reaching(self), self.stream(mode) as file:
            yield file

    def read_bytes(self) -> bytes:
        return self.read_range(None, None)

    def read_range(self, start: int | None, end: int | None) -> bytes:
        """Returns the bytes from `start` to `end` with one request; None stands for either edge."""
        if start is not None and start == end:
            return b""
        with _reaching(self):
            try:
                return store().cat_file(str(self), start=start, end=end)
            except Exception as e:
                if getattr(e, "code", None) == 416:  # the object ends before `start`
                    return b""
                raise

    def pieces(self) -> Iterator[bytes]:
        """Yields the content in sequence; an object of less than 16 MiB costs one request."""
        first = self.read_range(0, _READ_AHEAD)
        yield first
        if len(first) == _READ_AHEAD:
            with self.open("rb") as file:
                file.seek(len(first))
                while piece := file.read(2**20):
                    yield piece

    def write_bytes(self, data: bytes) -> int:
        with _reaching(self):
            store().pipe_file(str(self), data)
        return len(data)

    def create(self, data: bytes) -> bool:
        """Writes the object unless it exists; the store lets exactly one of several writers win."""
        with _reaching(self):
            try:
                store().pipe_file(str(self), data, mode="create")
            except FileExistsError:
                return False
        return True

    def rename(self, target: Any) -> "BucketPath":
        """Moves one object, or the objects below this folder one after the other."""
        with _reaching(self):
            store().mv(str(self), str(target), recursive=True)
        return BucketPath(target)

    def rmtree(self, missing_ok: bool = False) -> None:
        with _reaching(self):
            try:
                store().rm(str(self), recursive=True)
            except FileNotFoundError:
                if not missing_ok:
                    raise

    def is_symlink(self) -> bool:
        return False

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Does nothing: a bucket has no folders."""

    def resolve(self, strict: bool = False) -> "BucketPath":
        return self

    def check_access(self) -> None:
        """Lists one name with one request.

        Raises:
          BadInput: the bucket does not exist, or access is denied.
          StoreLost: the store does not answer.
        """
        bucket, _, name = str(self).removeprefix("gs://").partition("/")
        query = {"prefix": f"{name.rstrip('/')}/", "maxResults": 1}
        try:
            with _reaching(self):
                store().call("GET", "b/{}/o", bucket, json_out=True, **query)
        except FileNotFoundError as e:
            raise BadInput(f"{self}: there is no bucket {bucket}; make it, or correct it.") from e
        except PermissionError as e:
            raise BadInput(
                f"{self}: no access ({e.strerror}); log in with `gcloud auth application-default "
                "login`, or give the account of this machine the role Storage Object Admin."
            ) from e


def read_all(places: Sequence[Path]) -> list[bytes]:
    """Returns the contents of several objects, read in parallel."""
    names = [str(place).removeprefix("gs://") for place in places]
    with _reaching(places[0].parent):
        contents = store().cat(names)
    return [contents[name] for name in names]


def glob(pattern: str) -> list[str]:
    """Returns the objects that match a pattern with wildcards such as *."""
    with _reaching(pattern):
        return [f"gs://{name}" for name in store().glob(pattern)]


def tree(folder: BucketPath) -> BucketPath:
    """Returns a folder whose methods answer from one listing of all that is below it now.

    Raises:
      BadInput: the folder is empty.
    """
    inside: dict[str, set[str]] = collections.defaultdict(set)
    for name in folder.find():
        *folders, last = name.split("/")
        for depth, part in enumerate([*folders, last]):
            inside["/".join([str(folder), *folders[:depth]])].add(part)
    if not inside:
        raise BadInput(f"{folder}: there is nothing below that name in the bucket; correct it.")
    inside.default_factory = None

    class Listed(BucketPath):
        def iterdir(self) -> Iterator[BucketPath]:
            return (self / name for name in inside[str(self)])

        def is_dir(self) -> bool:
            return str(self) in inside

        def is_file(self) -> bool:
            return not self.is_dir()

    return Listed(folder)
