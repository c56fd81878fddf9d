# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads files inside folders, tar and zip archives, and tars inside tars, in place.

Nothing is unpacked: a member is a range of bytes of a file on disk. An archive is refused if a
member would land outside the target folder or is not a plain file. Start from `members`.
"""

import bz2
import dataclasses
import functools
import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from vit_jax.data.formats.tar_headers import Tar
from vit_jax.errors import BadInput

ARCHIVE = re.compile(r"(?i)\.(tar|tgz|tbz2?|txz|zip|tar\.(gz|bz2|xz))$")
LARGEST_BYTES = 1 << 30  # the largest compressed member; no image is larger
_STREAMS: dict[bytes, Any] = {b"\x1f\x8b": gzip, b"BZh": bz2, b"\xfd7zXZ": lzma}
_FOREIGN = {b"Rar!": ("RAR", "unrar x"), b"7z\xbc\xaf": ("7-Zip", "7z x")}


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A plain file.

    Attributes:
      name: relative to the starting folder; an archive counts as a folder named by its stem.
      size: the size of the file in bytes.
      container: the file on disk that holds it: an archive, or the file itself.
      offset: the position of its data in `container`.
      deflated: the size of its compressed form in a zip, in bytes; None if it is not compressed.
      checksum: CRC-32 of the content, in a zip; else None.
    """

    name: str
    size: int
    container: str
    offset: int = 0
    deflated: int | None = None
    checksum: int | None = None

    def read(self) -> bytes:
        """Returns the content. Safe in several threads.

        Raises:
          BadInput: the content is incomplete, or differs from what the archive states.
        """
        stored = self.size if self.deflated is None else self.deflated
        descriptor = os.open(self.container, os.O_RDONLY)
        try:
            data = os.pread(descriptor, stored, self.offset)
        finally:
            os.close(descriptor)
        if len(data) != stored:
            raise _damaged(self.container, f"{self.name} has {len(data)} of {stored} bytes")
        whole = True
        if self.deflated is not None:
            try:
                inflate = zlib.decompressobj(-zlib.MAX_WBITS)
                data = inflate.decompress(data, self.size + 1)  # a bomb does not grow further
            except zlib.error as e:
                raise _damaged(self.container, f"{self.name}: {e}") from e
            whole = len(data) == self.size and inflate.eof
        if not whole or self.checksum not in (None, zlib.crc32(data)):
            raise _damaged(self.container, f"{self.name} differs from its stated size or checksum")
        return data


def _damaged(container: str, damage: str) -> BadInput:
    return BadInput(f"{container} is damaged: {damage}. Download or copy it again.")


Progress = Callable[[int, int], None]  # (bytes done, total bytes)
_Plain = Callable[[Path, Any], Path]  # (compressed file, module for it) -> its plain form


def no_progress(done: int, total: int) -> None:
    """Ignores the progress."""


def members(
    origin: Path, scratch: Path, opened: Callable[[str], bool], unpacked: Progress = no_progress
) -> Iterator[Member]:
    """Yields every plain file of a folder (sorted) or of an archive (in stored order).

    Args:
      origin: the folder or archive.
      scratch: folder for decompressed tars, since compressed ones allow no random access.
      opened: returns True for the name of an archive in `origin` that is to be opened; any other
        archive counts as a file.
      unpacked: called during decompression, with bytes of the compressed file.

    Raises:
      BadInput: nothing is there, or an archive is damaged, of an unsupported kind, unsafe, or too
        large.
    """
    plain = functools.partial(_plain, scratch=scratch, progress=unpacked)
    try:
        if origin.is_dir():
            yield from _folder(origin, plain, opened)
        elif origin.is_file():
            yield from _archive(origin, "", plain, opened)
        else:
            raise BadInput(f"--from={origin}: there is no such file or folder.")
    except RecursionError:
        raise BadInput(
            f"--from={origin} holds hundreds of tars or folders inside one another; give the one "
            "that holds the images."
        ) from None


def _folder(
    origin: Path, plain: _Plain, opened: Callable[[str], bool], prefix: str = ""
) -> Iterator[Member]:
    for entry in sorted(os.scandir(origin), key=lambda e: e.name):
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        if entry.is_dir():
            if entry.is_symlink() and origin.resolve().is_relative_to(Path(entry.path).resolve()):
                raise BadInput(f"{entry.path} is a link to a folder above it; remove the link.")
            yield from _folder(Path(entry.path), plain, opened, f"{prefix}{entry.name}/")
        elif entry.is_file():
            if ARCHIVE.search(entry.name) and opened(entry.name):
                stem = ARCHIVE.sub("", entry.name)
                yield from _archive(Path(entry.path), f"{prefix}{stem}/", plain, opened)
            else:
                yield Member(prefix + entry.name, entry.stat().st_size, entry.path)


def _archive(
    path: Path, prefix: str, plain: _Plain, opened: Callable[[str], bool]
) -> Iterator[Member]:
    with path.open("rb") as file:
        start = file.read(512)
    for magic, (kind, command) in _FOREIGN.items():
        if start.startswith(magic):
            raise BadInput(
                f"{path} is a {kind} archive, which cannot be read here. Unpack it "
                f"({command} {path.name}) and give the folder: --from=FOLDER."
            )
    if zipfile.is_zipfile(path):
        yield from _zip(path, prefix)
        return
    for magic, module in _STREAMS.items():
        if start.startswith(magic):
            path = plain(path, module)
    with path.open("rb") as file:
        yield from _tar(file, str(path), prefix, 0, path.stat().st_size, opened)


def _plain(path: Path, module: Any, scratch: Path, progress: Progress) -> Path:
    """Returns the decompressed form of a file, which is made once and found by later starts.

    Raises:
      BadInput: the file is damaged, or the disk lacks space for the decompressed form and a dataset
        of its size.
    """
    size = path.stat().st_size
    plain = scratch / f"{path.name}.{size}.plain"
    if not plain.exists():
        scratch.mkdir(parents=True, exist_ok=True)
        needed, free = 2 * _plain_bytes(path, module), shutil.disk_usage(scratch).free
        if needed > free:
            raise _no_room(path, scratch, needed, free)
        partial = plain.with_name(plain.name + ".partial")
        try:
            with (
                path.open("rb") as file,
                module.open(file, "rb") as source,
                partial.open("wb") as target,
            ):
                while block := source.read(1 << 20):
                    if 2 * target.tell() > free:  # the size that the file states may be wrong
                        raise _no_room(path, scratch, 2 * target.tell(), free)
                    target.write(block)
                    progress(file.tell(), size)
                os.fsync(target.fileno())
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as e:
            raise _damaged(str(path), str(e)) from e
        except OSError as e:
            if e.errno is None:  # bz2 raises this for damaged data
                raise _damaged(str(path), str(e)) from e
            raise
        else:
            partial.replace(plain)
        finally:
            partial.unlink(missing_ok=True)
    return plain


def _no_room(path: Path, scratch: Path, needed: int, free: int) -> BadInput:
    return BadInput(
        f"{path} is compressed: its plain form and the dataset need about {needed} bytes "
        f"beside {scratch.parent}, where {free} are free. Free some space, prepare it "
        "elsewhere (--data_dir=DIR), or unpack it yourself and give --from=FOLDER."
    )


def _plain_bytes(path: Path, module: Any) -> int:
    """Estimates the decompressed size, at least about that of the compressed file.

    Images hardly compress. A gzip file ends with the size of its content, modulo 2^32.
    """
    size = path.stat().st_size
    if module is not gzip or size < 4:
        return size
    with path.open("rb") as file:
        file.seek(-4, os.SEEK_END)
        stated = int.from_bytes(file.read(4), "little")
    lacking = max(0, size - size // 100 - stated)  # compressed images may be slightly larger
    return stated + -(-lacking // 2**32) * 2**32


def _tar(
    file: IO[bytes], path: str, prefix: str, start: int, size: int, opened: Callable[[str], bool]
) -> Iterator[Member]:
    """Yields members of the tar that is bytes `start` to `start + size` of the file at `path`."""
    tar = Tar(file, start, size)
    try:
        for entry in tar:
            if not (entry.isdir() or entry.isreg()) or entry.issparse():
                raise _unsafe(path, entry.name, "a link or device")
            name = _checked(path, entry.name)
            if entry.isdir():
                continue
            at = start + entry.offset_data
            if name.lower().endswith(".tar") and opened(name.rpartition("/")[2]):
                yield from _tar(file, path, f"{prefix}{name[:-4]}/", at, entry.size, opened)
            else:
                yield Member(prefix + name, entry.size, path, at)
    except tarfile.ReadError as e:
        if tar.end:
            raise _damaged(path, str(e)) from e
        raise BadInput(f"{path} is neither a tar nor a zip archive, or it is damaged: {e}.") from e
    if tar.rest(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):  # tarfile stops at a bad header
        raise _damaged(path, f"no header and no end of the archive at byte {start + tar.end}")


def _zip(path: Path, prefix: str) -> Iterator[Member]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except Exception as e:  # zipfile trusts a damaged index
        raise _damaged(str(path), str(e)) from e
    size = path.stat().st_size
    with path.open("rb") as file:
        for entry in entries:
            if not entry.filename:
                raise _damaged(str(path), "an entry without a name")
            kind = stat.S_IFMT(entry.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _unsafe(str(path), entry.filename, "a link or device")
            name = _checked(str(path), entry.filename)
            if entry.is_dir():
                continue
            packed = entry.compress_type == zipfile.ZIP_DEFLATED
            if entry.flag_bits & 1 or not (packed or entry.compress_type == zipfile.ZIP_STORED):
                raise BadInput(
                    f"{path}: {entry.filename} is encrypted or packed by a method that cannot be "
                    "read here. Unpack the archive and give the folder: --from=FOLDER."
                )
            if packed and entry.file_size > LARGEST_BYTES:
                raise BadInput(
                    f"{path}: {entry.filename} claims {entry.file_size} bytes; no image has more "
                    f"than {LARGEST_BYTES}. Check where the archive comes from."
                )
            start, stored = entry.header_offset, entry.compress_size if packed else entry.file_size
            if not 0 <= start <= size - 30 - stored:
                raise _damaged(str(path), f"{entry.filename} claims {stored} bytes from {start} on")
            file.seek(start + 26)  # lengths here may differ from the index
            lengths = file.read(4)
            at = start + 30 + sum(int.from_bytes(lengths[i : i + 2], "little") for i in (0, 2))
            deflated = entry.compress_size if packed else None
            yield Member(prefix + name, entry.file_size, str(path), at, deflated, entry.CRC)


def _checked(path: str, name: str) -> str:
    """Returns the name of a member without `./`; raises BadInput if the name is unsafe."""
    parts = [p for p in name.replace("\\", "/").split("/") if p not in ("", ".")]
    if name.startswith(("/", "\\")) or ".." in parts or re.match("[A-Za-z]:", name):
        raise _unsafe(path, name, "outside the folder that the archive is unpacked into")
    return "/".join(parts)


def _unsafe(path: str, name: str, reason: str) -> BadInput:
    return BadInput(
        f"{path}: member {name!r} is {reason}; expected plain files and folders. Check where the "
        "archive comes from, or unpack it yourself and give the folder: --from=FOLDER."
    )
