# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Records of TFRecord files by number: an index of offsets, built once, then range reads.

A TFRecord file is a sequence of: length (uint64), its checksum (4 bytes), data, checksum of the
data (4 bytes). The checksums of lengths are verified when the index is built, those of data are
not: an image that is damaged fails to decode, or shows it. Start from `RecordFiles`.
"""

import concurrent.futures
import logging
import struct
from collections.abc import Sequence

import numpy as np

from vit_jax.data.formats import byte_ranges

log = logging.getLogger("vit_jax")

_HEADER, _FOOTER = 12, 4
_INDEXERS = 32  # files that are indexed at once: most of the time is waiting for the disk
_MANY = 16  # files, from which on the log says that they are indexed


def offsets(path: str) -> np.ndarray:
    """Start of the data of each record and, last, where the next would start; int64 [records + 1].

    Reads 12 bytes of each record, once: see `byte_ranges.indexed`.

    Raises:
      ValueError: the file is truncated, damaged, compressed or no TFRecord file.
    """
    return byte_ranges.indexed(path, "offsets", _offsets)


def _offsets(path: str) -> np.ndarray:
    starts, position = [], 0
    headers, due = bytearray(), 2**16
    file = byte_ranges.open_file(path, in_sequence=True)
    try:
        size = file.size
        while position + _HEADER <= size:
            header = file.read(_HEADER, position)
            headers += header
            starts.append(position + _HEADER)
            position += _HEADER + _FOOTER + struct.unpack_from("<Q", header)[0]
            if len(headers) >= due:  # zeros make a record every 16 bytes, of a file of any size
                _check_lengths(path, headers)
                due *= 2
    finally:
        file.close()
    _check_lengths(path, headers)
    if position != size:
        raise ValueError(f"{path} is truncated or not a TFRecord file: {size} bytes.")
    return np.array([*starts, position + _HEADER], np.int64)


def _check_lengths(path: str, headers: bytearray) -> None:
    """Raises ValueError unless the length in every header has its checksum."""
    fields = np.frombuffer(bytes(headers), np.dtype([("length", "<u8"), ("crc", "<u4")]))
    wrong = np.flatnonzero(_masked_crc(fields["length"]) != fields["crc"])
    if len(wrong) and wrong[0] == 0:
        if headers[:2] in (b"\x1f\x8b", b"\x78\x01", b"\x78\x9c", b"\x78\xda"):  # gzip, zlib
            raise ValueError(
                f"{path} is compressed, so that no record can be read by itself; decompress it "
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
    """uint32 [n]: CRC-32C (RFC 3720) of uint64 [n], masked as in TFRecord files."""
    table, crc = _crc_table(), np.full(len(numbers), 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(numbers, "<u8").view(np.uint8).reshape(-1, 8).T:
        crc = table[(crc ^ column) & 255] ^ (crc >> 8)
    crc = ~crc
    return ((crc >> 15) | (crc << 17)) + np.uint32(0xA282EAD8)


class RecordFiles:
    """Records 0 to n - 1 of several files, in file order.

    Attributes:
      files: their bytes.
      shards: the first record of each file and, last, their number; int64 [files + 1].

    Raises:
      ValueError: as `offsets`.
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
        """The data of record `index`: one range read. Safe in several threads."""
        number, row = self.locate(index)
        start, end = self._offsets[number][row : row + 2].tolist()
        return self.files.read(number, start, end - _HEADER - _FOOTER - start)

    def locate(self, index: int) -> tuple[int, int]:
        """The number of its file, and the number of the record in that."""
        number = int(np.searchsorted(self.shards, index, side="right")) - 1
        return number, index - int(self.shards[number])
