# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads tf.train.Example without TensorFlow, and without reading the images inside.

An Example is a message of Protocol Buffers (protobuf.dev, "Encoding"). Field 1 of an Example holds
Features, field 1 of Features an entry of a map: a name (1) and a Feature (2), which is a list of
bytes (1), of floats (2) or of integers (3). Each list holds its values in field 1. Start from
`features`.
"""

import dataclasses
import struct
from collections.abc import Callable, Iterator

_PIECE = 1024  # bytes that are read at a time, unless a value is longer
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # types on the wire
_KINDS = ("", "bytes", "float", "int64")  # by the number of the field in a Feature


class NotExample(ValueError):
    """The bytes are not a tf.train.Example."""

    def __init__(self) -> None:
        super().__init__("it is not a tf.train.Example")


class Span:
    """Some bytes of a file, read in pieces when they are needed.

    Attributes:
      start: where they begin in the file.
      end: where they end.
    """

    def __init__(self, read: Callable[[int, int], bytes], start: int, end: int, piece: int = 0):
        """Takes a function (length, start) -> bytes, and the number of bytes to read at a time."""
        self.start, self.end = start, end
        self._read, self._piece = read, piece or _PIECE
        self._held, self._at = b"", start

    def bytes(self, start: int, end: int) -> bytes:
        """Returns the bytes from `start` to `end`."""
        if not self.start <= start <= end <= self.end:
            raise NotExample
        if not (self._at <= start and end <= self._at + len(self._held)):
            length = min(max(self._piece, end - start), self.end - start)
            self._held, self._at = self._read(length, start), start
            if len(self._held) < end - start:
                raise NotExample
        return self._held[start - self._at : end - self._at]

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """Returns the number at a place, and where it ends; it has at most 10 bytes."""
        data = self.bytes(at, min(at + 10, end))
        value = 0
        for index, byte in enumerate(data):
            value |= (byte & 127) << 7 * index
            if byte < 128:
                return value, at + index + 1
        raise NotExample


@dataclasses.dataclass(frozen=True)
class Feature:
    """A feature whose values are still encoded.

    Attributes:
      kind: `bytes`, `float` or `int64`; "" for a feature without a list.
      lists: where its lists begin and end; those of several are one.
    """

    kind: str
    lists: tuple[tuple[int, int], ...]


def of_bytes(record: bytes) -> Span:
    """Returns bytes in memory as a span."""
    return Span(lambda length, start: record[start : start + length], 0, len(record))


def features(span: Span) -> dict[str, Feature]:
    """Returns the features of an Example by name.

    Raises:
      NotExample: the bytes are not an Example.
    """
    found = {}
    for place in _messages(span, span.start, span.end):
        for entry in _messages(span, *place):
            name, feature = _entry(span, *entry)
            found[name] = feature  # the last of a name counts
    return found


def ranges(span: Span, feature: Feature) -> list[tuple[int, int]]:
    """Returns where each value of a list of bytes begins and ends."""
    return [place for one in feature.lists for place in _messages(span, *one)]


def values(span: Span, feature: Feature) -> list[bytes] | list[float] | list[int]:
    """Returns the values of a feature; numbers may be packed into one field or stand alone.

    Raises:
      NotExample: a value is damaged.
    """
    if feature.kind in ("", "bytes"):
        return [span.bytes(*one) for one in ranges(span, feature)]
    numbers: list = []
    for one in feature.lists:
        for number, kind, start, end in _fields(span, *one):
            if number != 1:
                continue
            if feature.kind == "float" and kind in (_FIXED32, _BYTES):
                if (end - start) % 4:
                    raise NotExample
                data = span.bytes(start, end)
                numbers += struct.unpack(f"<{len(data) // 4}f", data)
            elif feature.kind == "int64" and kind in (_VARINT, _BYTES):
                while start < end:
                    value, start = span.varint(start, end)
                    numbers.append((value & 2**64 - 1 ^ 2**63) - 2**63)  # two's complement
    return numbers


def _fields(span: Span, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields number and wire type of each field of a message, and where its value is."""
    while start < end:
        tag, start = span.varint(start, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            after = span.varint(start, end)[1]
        elif kind == _BYTES:
            length, start = span.varint(start, end)
            after = start + length
        elif kind in (_FIXED64, _FIXED32):
            after = start + (8 if kind == _FIXED64 else 4)
        else:  # groups, which no writer of Examples uses
            raise NotExample
        if not number or after > end:
            raise NotExample
        yield number, kind, start, after
        start = after


def _messages(span: Span, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields where each message or bytes in field 1 of a message begins and ends."""
    for number, kind, begin, stop in _fields(span, start, end):
        if (number, kind) == (1, _BYTES):
            yield begin, stop


def _entry(span: Span, start: int, end: int) -> tuple[str, Feature]:
    """Returns the name and the feature of an entry of the map."""
    name, kind, lists = b"", "", list[tuple[int, int]]()
    for number, wire, begin, stop in _fields(span, start, end):
        if (number, wire) == (1, _BYTES):
            name = span.bytes(begin, stop)
        elif (number, wire) == (2, _BYTES):
            for inner, inner_wire, *place in _fields(span, begin, stop):
                if 1 <= inner < len(_KINDS) and inner_wire == _BYTES:
                    lists = lists if kind == _KINDS[inner] else []  # the last kind counts
                    kind = _KINDS[inner]
                    lists.append((place[0], place[1]))
    try:
        return name.decode(), Feature(kind, tuple(lists))
    except UnicodeDecodeError as e:
        raise NotExample from e
