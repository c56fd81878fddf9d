# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds files by name: a path, a URL, `gs://bucket/object` or a published checkpoint.

A remote file is downloaded once, into `$XDG_CACHE_HOME/vit_jax` (default `~/.cache/vit_jax`). Its
SHA-256 is kept beside it and compared at every use. The module opens no weights. Start from
`local`.
"""

import hashlib
import http.client
import itertools
import logging
import os
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from vit_jax.config import provenance
from vit_jax.errors import BadInput
from vit_jax.models import published
from vit_jax.storage import cache, checksums

log = logging.getLogger("vit_jax")

TIMEOUT_SECS = 30  # for connecting, and for each read
PROGRESS_SECS = 5  # between progress lines of a download
CHUNK_BYTES = 1 << 20


def local(text: str) -> Path:
    """Returns the local path of the file that `text` names, after a download if needed.

    Args:
      text: a path (`~` is expanded; an existing path wins), an http(s) URL, a `gs://bucket/object`,
        a name of `published.url`, or `hf:OWNER/NAME[@REVISION]` (see `hub`).

    Returns:
      The local path. A text that is neither remote nor an existing path is returned as a path all
      the same; the caller says what it expected.

    Raises:
      BadInput: the download failed (the message says where to put the file by hand), the cached
        file does not match its checksum, or the cache folder is not writable.
    """
    path = Path(os.path.expanduser(text))
    if text.startswith("hf:") and not path.exists():
        from vit_jax.weights import hub

        return hub.local(text)
    address = None if os.path.exists(path) else url(text)
    if address is None:
        return path
    cached = cache_path(address)
    try:
        if cached.is_file():
            _verify(cached)
        else:
            _download(address, cached)
    except OSError as e:
        raise BadInput(
            f"{text}: the cache file {cached} cannot be used: {e}. Allow or empty that place, "
            "or set XDG_CACHE_HOME to a folder that can be written."
        ) from e
    return cached


def identity(text: str) -> tuple[str, str]:
    """Returns the SHA-256 of a file, and the published checkpoint that it is.

    The published checkpoints are known by the checksums of those that were downloaded here.

    Args:
      text: as for `local`; the file must exist.

    Returns:
      The checksum, and the published name; `provenance.OTHER` if the file has the name of a
      checkpoint with another checksum; "" if that is not known.
    """
    path = local(text)
    digest = checksums.digest(path)
    known = dict(_downloaded())
    names = [name for name, checksum in known.items() if checksum == digest]
    every = itertools.chain.from_iterable(published.CHECKPOINTS.values())
    alike = [name for name in every if Path(name).name == path.name]
    depth = 1 if len(alike) == 1 else 2  # ViT-B_16.npz lies in several folders
    same = [name for name in alike if name in known]
    same = [name for name in same if path.parts[-depth:] == Path(name).parts[-depth:]]
    return digest, (names or [provenance.OTHER for _ in same] or [""])[0]


def revision(text: str) -> str:
    """Returns the commit of the hub that `local` gives for a name; "" for other texts."""
    if not text.startswith("hf:") or os.path.exists(text):
        return ""
    return local(text).parent.name


def _downloaded() -> Iterator[tuple[str, str]]:
    """Yields the name and the SHA-256 of every published checkpoint that was downloaded here."""
    for name in itertools.chain.from_iterable(published.CHECKPOINTS.values()):
        beside = _checksum_file(cache_path(str(published.url(name))))
        if beside.is_file():
            yield name, beside.read_text(errors="replace", encoding="utf-8").partition(" ")[0]


def beside(text: str, names: tuple[str, ...]) -> None:
    """Fetches the files that may lie beside a remote file, once.

    Logs the names that do not exist.
    """
    address = None if os.path.exists(os.path.expanduser(text)) else url(text)
    for name in names if address else ():
        neighbour = urllib.parse.urljoin(str(address), name)
        if not cache_path(neighbour).is_file():
            try:
                local(neighbour)
            except BadInput as e:
                log.info("without %s: %s", name, e)


def url(text: str) -> str | None:
    """Returns the URL behind `text`, its path quoted; None for a path. See `local`."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return published.url(text)
    if scheme == "gs":
        bucket, _, name = rest.partition("/")
        return f"{published.HOST}/{_quoted(bucket)}/{_quoted(name)}"
    if scheme in ("http", "https"):
        return _quoted(text, safe="%/:?#[]@!$&'()*+,;=~")
    return None


def _quoted(text: str, safe: str = "/") -> str:
    """Quotes a text in ASCII, even if it contains lone surrogates."""
    return urllib.parse.quote(text, safe=safe, errors="surrogatepass")


def cache_path(address: str) -> Path:
    """Returns the cache path of a URL: folders for host, path and query, then the file name.

    Raises:
      BadInput: the URL does not end in a file name.
    """
    try:
        parts = urllib.parse.urlsplit(address)
    except ValueError as e:
        raise BadInput(f"{address} is not a URL: {e}; expected https://HOST/PATH/FILE.") from e
    *folders, name = [
        urllib.parse.quote(urllib.parse.unquote_to_bytes(segment), safe="+=,@")
        for segment in parts.path.removeprefix("/").split("/")
    ]
    query = [f"?{urllib.parse.quote(parts.query, safe='=&')}"] if parts.query else []
    segments = [parts.netloc.lower(), *folders, *query, name]
    if {"", ".", ".."} & set(segments):
        raise BadInput(f"{address} does not name a file; expected https://HOST/PATH/FILE.")
    return cache.root().joinpath(*segments)


def _checksum_file(cached: Path) -> Path:
    """Returns the path of the checksum file, which has the format of sha256sum."""
    return cached.with_name(cached.name + ".sha256")


def _verify(cached: Path) -> None:
    """Compares a cached file with its checksum; writes the checksum of a file put there by hand."""
    digest = checksums.digest(cached)
    size, beside = cached.stat().st_size, _checksum_file(cached)
    if not beside.exists():
        log.info("%s was put there by hand: %d bytes, SHA-256 %s", cached, size, digest)
        beside.write_text(f"{digest}  {cached.name}\n", encoding="utf-8")
        return
    stored = beside.read_text(errors="replace", encoding="utf-8").partition(" ")[0]
    if digest != stored:
        raise BadInput(
            f"{cached} has changed since it was stored: it has {size} bytes and SHA-256 {digest}, "
            f"{beside.name} says {stored!r}. Delete both files to fetch it again."
        )
    log.info("using the cached %s: %d bytes, SHA-256 %s", cached, size, stored)


def _download(address: str, cached: Path) -> None:
    """Downloads into a temporary folder beside the final place, and moves the complete file."""
    cached.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(prefix="partial-", dir=cached.parent) as folder:
        partial = Path(folder) / cached.name
        with partial.open("wb") as file:
            for chunk in _body(address, cached):
                digest.update(chunk)
                file.write(chunk)
        partial.replace(cached)
    checksum, size = digest.hexdigest(), cached.stat().st_size
    _checksum_file(cached).write_text(f"{checksum}  {cached.name}\n", encoding="utf-8")
    log.info("downloaded %s to %s: %d bytes, SHA-256 %s", address, cached, size, checksum)


def _body(address: str, cached: Path) -> Iterator[bytes]:
    """Yields the bytes behind a URL; turns every network failure into one kind of error."""
    if not cache.may_download():
        raise BadInput(
            f"{address} is not in the cache, and downloads are forbidden (--offline). Fetch the "
            f"file where there is a network and put it there: {cached}"
        )
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_SECS) as response:
            total = int(response.headers["Content-Length"] or 0)  # 0: the server does not tell
            done, due = 0, time.monotonic() + PROGRESS_SECS
            while chunk := response.read(CHUNK_BYTES):
                done += len(chunk)
                if time.monotonic() >= due and sys.stderr.isatty():
                    due = time.monotonic() + PROGRESS_SECS
                    of = f" of {total >> 20}" if total else ""
                    print(f"{cached.name}: {done >> 20}{of} MiB", file=sys.stderr)
                yield chunk
            if done < total:
                raise ConnectionError(f"the connection ended after {done} of {total} bytes")
    except (OSError, http.client.HTTPException, ValueError) as e:
        reason = e.reason if type(e) is urllib.error.URLError else e
        if isinstance(e, urllib.error.HTTPError):
            e.close()
        raise BadInput(
            f"{address} cannot be downloaded: {reason}. Check the name and the network, or "
            f"fetch the file by other means and put it there: {cached}"
        ) from e
