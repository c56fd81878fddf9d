# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads records of TFRecord files by number: builds an index of offsets once, then reads ranges.

A TFRecord file is a sequence of: length (uint64), its checksum (4 bytes), data, checksum of the
data (4 bytes). The checksums of the lengths are verified when the index is built. The checksums of
the data are not: a damaged image either fails to decode or shows the damage. Start from
`RecordFiles`.
"""

import concurrent.futures
import itertools
import logging
import struct
from collections.abc import Iterator, Sequence

import numpy as np

from vit_jax.data.formats import byte_ranges

log = logging.getLogger("vit_jax")

_HEADER, _FOOTER = 12, 4
_INDEXERS = 32  # files indexed at the same time; most of the time is spent waiting for the disk
_MANY = 16  # number of files from which on the log reports the indexing


def offsets(path: str) -> np.ndarray:
    """Returns int64 [records + 1]: the start of each record's data and of a record after the last.

    Reads 12 bytes of each record, once: see `byte_ranges.indexed`.

    Raises:
      ValueError: the file is truncated, damaged, compressed or not a TFRecord file.
    """
    return byte_ranges.indexed(path, "offsets", _offsets)


def places(path: str) -> Iterator[tuple[int, int]]:
    """Yields where the data of each record begins and ends; raises ValueError, see `offsets`."""
    for start, after in itertools.pairwise(offsets(path).tolist()):
        yield start, after - _HEADER - _FOOTER


def _offsets(path: str) -> np.ndarray:
    starts, position = [], 0
    headers, due = bytearray(), 2**16
    file = byte_ranges.open_parts(path)
    try:
        size = file.size
        while position + _HEADER <= size:
            header = file.read(_HEADER, position)
            headers += header
            starts.append(position + _HEADER)
            position += _HEADER + _FOOTER + struct.unpack_from("<Q", header)[0]
            if len(headers) >= due:  # a file of zeros would give a record every 16 bytes
                _check_lengths(path, headers)
                due *= 2
    finally:
        file.close()
    _check_lengths(path, headers)
    if position != size:
        raise ValueError(f"{path} is truncated or not a TFRecord file: {size} bytes.")
    return np.array([*starts, position + _HEADER], np.int64)


def _check_lengths(path: str, headers: bytearray) -> None:
    """Raises ValueError unless the length in every header matches its checksum."""
    fields = np.frombuffer(bytes(headers), np.dtype([("length", "<u8"), ("crc", "<u4")]))
    wrong = np.flatnonzero(_masked_crc(fields["length"]) != fields["crc"])
    if len(wrong) and wrong[0] == 0:
        if headers[:2] in (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda"):  # gzip, zlib
            raise ValueError(
                f"{path} is compressed, so single records cannot be read; decompress it "
                "(gunzip) or write it again without compression."
            )
        raise ValueError(f"{path} is not a TFRecord file: the checksum of its start is wrong.")
    if len(wrong):
        raise ValueError(f"{path} is damaged: wrong checksum of the length of record {wrong[0]}.")


def _crc_table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(0x82F63B78), np.uint32(0))
    return table


def _masked_crc(numbers: np.ndarray) -> np.ndarray:
    """Returns uint32 [n]: CRC-32C (RFC 3720) of uint64 [n], masked as in TFRecord files."""
    table, crc = _crc_table(), np.full(len(numbers), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(numbers, "<u8").view(np.uint8).reshape(-1, 8).T:
        crc = table[(crc ^ column) & 255] ^ (crc >> 8)
    crc = ~crc
    return ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)


class RecordFiles:
    """Records 0 to n - 1 of several files, in file order.

    Attributes:
      files: gives access to the bytes of the files.
      shards: the first record of each file and, last, the number of records; int64 [files + 1].

    Raises:
      ValueError: see `offsets`.
    """

    def __init__(self, paths: Sequence[str]):
        if len(paths) >= _MANY:
            log.info("data: indexing %d record files, where that is not done yet", len(paths))
        with concurrent.futures.ThreadPoolExecutor(_INDEXERS) as pool:
            self._offsets = list(pool.map(offsets, paths))
        self.files = byte_ranges.Files(paths)
        self.shards = np.cumsum([0, *(len(o) - 1 for o in self._offsets)])

    def __len__(self) -> int:
        return int(self.shards[-1])

    def __getitem__(self, index: int) -> bytes:
        """Returns the data of record `index` by one range read. Safe in several threads."""
        number, start, end = self.place(index)
        return self.files.read(number, start, end - start)

    def place(self, index: int) -> tuple[int, int, int]:
        """Returns the number of the record's file, and where its data begins and ends there."""
        number, row = self.locate(index)
        start, after = self._offsets[number][row : row + 2].tolist()
        return number, start, after - _HEADER - _FOOTER

    def locate(self, index: int) -> tuple[int, int]:
        """Returns the number of the record's file, and the number of the record in that file."""
        number = int(np.searchsorted(self.shards, index, side="right")) - 1
        return number, index - int(self.shards[number])
