# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The reader of tf.train.Example finds in it what TensorFlow wrote."""

import struct

import numpy as np
import pictures
import pytest

from vit_jax.data.formats import tf_example
from vit_jax.data.tensorflow import tf


def parsed(record):
    span = tf_example.of_bytes(record)
    return {
        name: (one.kind, tf_example.values(span, one))
        for name, one in tf_example.features(span).items()
    }


def by_tensorflow(record):
    """The same, read by the classes of protobuf."""
    found = {}
    for name, one in tf.train.Example.FromString(record).features.feature.items():
        kind = (one.WhichOneof("kind") or "").removesuffix("_list")
        found[name] = (kind, list(getattr(one, f"{kind}_list").value) if kind else [])
    return found


def field(number, content):
    """A field of bytes on the wire, shorter than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content


def of(kind, *values):
    """An Example of one feature x, with these encoded lists."""
    lists = b"".join(field(kind, one) for one in values)
    return field(1, field(1, field(1, b"x") + field(2, lists)))


WRITTEN = [
    pictures.record(a=b"\xff" * 200_000, b=[b"", b"x"], c=[1.5, -0.1], d=[-1, 0, 2**63 - 1, 300]),
    pictures.record(**{f"key{k}": [k] * k for k in range(300)}),
    pictures.record(Käse=[-(2**63)], empty=[]),
    b"",
    of(3, b"\x08\x05", b"\x0a\x02\x06\x07", b"\x08\x08"),  # alone, packed, and in three lists
    of(2, b"\x0d" + struct.pack("<f", 1.25), field(1, struct.pack("<ff", 2, 3))),
    of(1, b"\x0a\x01a", b"\x0a\x01b"),
    field(1, field(1, field(2, field(3, b"\x08\x01") + field(1, b"\x0a\x01z")) + field(1, b"x"))),
    of(1, b"\x0a\x01a") + of(1, b"\x0a\x01b"),  # the last x counts
    b"\x10\x07\x19ABCDEFGH\x25ABCD" + field(9, b"other") + of(3, b"\x10\x05\x08\x04"),
    field(1, field(1, field(1, b"x") + field(2, b""))),
    field(1, field(1, field(1, b"x"))),
]


@pytest.mark.parametrize("record", WRITTEN, ids=range(len(WRITTEN)))
def test_features_are_those_of_protobuf(record):
    assert parsed(record) == by_tensorflow(record)


CUT = [WRITTEN[4], pictures.record(a=b"abc", b=[1.5], c=[7, 8])]


@pytest.mark.parametrize("record", CUT, ids=["lists", "kinds"])
def test_a_shortened_record_is_refused_where_protobuf_refuses_it(record):
    for end in range(len(record)):
        try:
            expected = by_tensorflow(record[:end])
        except Exception:
            with pytest.raises(tf_example.NotExample, match=r"not a tf\.train\.Example"):
                parsed(record[:end])
        else:
            assert parsed(record[:end]) == expected


def test_any_damage_is_an_example_or_refused():
    whole, rng = pictures.record(image=b"abc" * 9, label=[3, 4], name="x"), np.random.default_rng(0)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        try:
            parsed(bytes(damaged))
        except tf_example.NotExample:
            refused += 1
    assert 200 < refused < 1800


def test_images_are_not_read():
    record = pictures.record(image=bytes(10**6), label=[3])
    lengths = []

    def read(length, start):
        lengths.append(length)
        return record[start : start + length]

    span = tf_example.Span(read, 0, len(record))
    features = tf_example.features(span)
    assert tf_example.values(span, features["label"]) == [3]
    [(start, end)] = tf_example.ranges(span, features["image"])
    assert record[start:end] == bytes(10**6)
    assert sum(lengths) < 5000
