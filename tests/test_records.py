# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Records of TFRecord files by number: the same bytes as reading from the start."""

import concurrent.futures
import os

import numpy as np
import pytest

from vit_jax.data.formats import byte_ranges, tfrecord
from vit_jax.data.tensorflow import tf

SIZES = [[5, 0, 1000, 1], [70_000], [], [3, 3, 17]]  # bytes of the records of each file


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def cached(tmp_path):
    return sorted((tmp_path / "cache").rglob("*.npy"))


def write(path, contents):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in contents:
            writer.write(content)
    return str(path)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    contents = [[rng.bytes(n) for n in sizes] for sizes in SIZES]
    return [write(tmp_path / f"{i}.tfrecord", c) for i, c in enumerate(contents)]


def sequential(paths):
    return [record.numpy() for path in paths for record in tf.data.TFRecordDataset(path)]


def test_random_access_is_sequential_reading(files):
    wanted = sequential(files)
    opened = tfrecord.RecordFiles(files)
    assert len(opened) == len(wanted) == 8
    assert [opened[i] for i in range(8)] == wanted
    for i in np.random.default_rng(1).permutation(8):
        assert opened[int(i)] == wanted[i]


def test_records_are_read_by_several_threads_at_once(files):
    wanted = sequential(files)
    opened = tfrecord.RecordFiles(files)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        got = list(pool.map(opened.__getitem__, list(range(8)) * 50))
    assert got == wanted * 50


def test_no_records(tmp_path):
    assert len(tfrecord.RecordFiles([])) == 0
    assert len(tfrecord.RecordFiles([write(tmp_path / "empty", [])])) == 0


def test_offsets_are_where_data_starts(tmp_path):
    """Length and its checksum, 12 bytes, come before the data, a checksum of 4 after it."""
    path = write(tmp_path / "x", [b"a" * 5, b"", b"b"])
    assert tfrecord.offsets(path).tolist() == [12, 12 + 5 + 16, 12 + 5 + 32, 12 + 5 + 1 + 48]


@pytest.mark.parametrize("kept", [1, 7, 11, 20, 26, 1019, 1020])
def test_truncated_file_is_an_error(tmp_path, kept):
    path = tmp_path / "x"
    write(path, [b"abcde", b"f" * 990])
    data = path.read_bytes()
    assert len(data) == 1027
    path.write_bytes(data[:kept])
    with pytest.raises(ValueError, match=f"{path} is truncated"):
        tfrecord.offsets(str(path))


@pytest.mark.parametrize("content", [b"this is a text and no TFRecord file", b"\xff" * 100])
def test_other_file_is_an_error(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match="not a TFRecord file"):
        tfrecord.offsets(str(tmp_path / "x"))


@pytest.mark.parametrize("at", range(12))
@pytest.mark.parametrize("number", [0, 2])
def test_flipped_bit_in_a_length_or_its_checksum_is_an_error(tmp_path, at, number):
    """Also where what follows still looks like a whole number of records."""
    path = tmp_path / "x"
    write(path, [b"a" * 16] * 5)
    data = bytearray(path.read_bytes())
    data[number * 32 + at] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=str(path)) as caught:
        tfrecord.offsets(str(path))
    shown = f"length of record {number}" if number else "not a TFRecord file"
    assert shown in str(caught.value)


def test_checksums_are_those_of_tensorflow(tmp_path):
    sizes = [0, 1, 255, 256, 70_000]
    for i, size in enumerate(sizes):
        write(tmp_path / str(i), [bytes(size)])
    data = b"".join((tmp_path / str(i)).read_bytes()[:12] for i in range(len(sizes)))
    wanted = np.frombuffer(data, [("length", "<u8"), ("crc", "<u4")])
    assert wanted["length"].tolist() == sizes
    assert (tfrecord._masked_crc(wanted["length"]) == wanted["crc"]).all()


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
def test_compressed_file_is_refused_with_what_to_do(tmp_path, kind):
    with tf.io.TFRecordWriter(str(tmp_path / "x"), kind) as writer:
        writer.write(b"a" * 100)
    with pytest.raises(ValueError, match=r"is compressed.*without compression"):
        tfrecord.offsets(str(tmp_path / "x"))


def test_shards_are_the_first_records_of_the_files(files):
    opened = tfrecord.RecordFiles(files)
    assert opened.shards.tolist() == [0, 4, 5, 5, 8]
    assert [opened.locate(i) for i in (0, 3, 4, 5, 7)] == [(0, 0), (0, 3), (1, 0), (3, 0), (3, 2)]


def test_records_of_held_files_are_the_same(files):
    opened = tfrecord.RecordFiles(files)
    opened.files.hold([0, 3])
    assert [opened[i] for i in range(8)] == sequential(files)


# ---------------------------------------------------------------- the index that is kept


def test_index_is_built_once(files, tmp_path, monkeypatch):
    wanted = [tfrecord.offsets(path) for path in files]
    assert len(cached(tmp_path)) == len(files)

    def refuse(*_):
        raise AssertionError("the file was read again")

    monkeypatch.setattr(os, "pread", refuse)
    again = [tfrecord.offsets(path) for path in files]
    assert all(np.array_equal(a, b) for a, b in zip(wanted, again, strict=True))


def test_index_is_built_again_when_the_file_changes(tmp_path):
    path = write(tmp_path / "x", [b"a" * 8])
    assert tfrecord.RecordFiles([path])[0] == b"a" * 8
    write(path, [b"b" * 100, b"c"])
    os.utime(path, ns=(1, 1))
    opened = tfrecord.RecordFiles([path])
    assert [opened[0], opened[1]] == [b"b" * 100, b"c"]
    write(path, [b"d", b"e" * 100])  # as large as before
    os.utime(path, ns=(2, 2))
    opened = tfrecord.RecordFiles([path])
    assert [opened[0], opened[1]] == [b"d", b"e" * 100]


def test_index_is_of_a_path_wherever_it_is_read_from(files, tmp_path, monkeypatch):
    tfrecord.offsets(files[0])
    monkeypatch.chdir(tmp_path)
    tfrecord.offsets("0.tfrecord")
    assert len(cached(tmp_path)) == 1


def test_index_reads_only_lengths_and_their_checksums(tmp_path, monkeypatch):
    path = write(tmp_path / "x", [b"a" * 10_000] * 20)
    read, real = [], os.pread

    def counted(*args):
        read.append(len(data := real(*args)))
        return data

    monkeypatch.setattr(os, "pread", counted)
    tfrecord.offsets(path)
    assert read == [12] * 20


def test_cache_that_cannot_be_written_is_done_without(files, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    opened = tfrecord.RecordFiles(files)
    assert [opened[i] for i in range(8)] == sequential(files)
    assert cached(tmp_path) == []


def test_cache_that_cannot_be_read_is_done_without(files, tmp_path, monkeypatch):
    """A shared home whose cache folder belongs to somebody else; root may read everything."""
    monkeypatch.setattr(byte_ranges.Path, "exists", _denied)
    monkeypatch.setattr(byte_ranges.Path, "mkdir", _denied)
    opened = tfrecord.RecordFiles(files)
    assert [opened[i] for i in range(8)] == sequential(files)


def _denied(path, *_, **__):
    raise PermissionError(13, "Permission denied", str(path))


def test_damaged_index_is_built_again(files, tmp_path):
    """As a full disk leaves it."""
    wanted = tfrecord.offsets(files[0])
    (path,) = cached(tmp_path)
    path.write_bytes(path.read_bytes()[:20])
    assert np.array_equal(tfrecord.offsets(files[0]), wanted)
