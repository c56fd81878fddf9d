# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""TFRecord files: records, byte ranges and shards."""

import concurrent.futures
import os
import resource
from pathlib import Path

import numpy as np
import pytest

from vit_jax.data.formats import byte_ranges, shards, tfrecord
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

# --- records ---


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
    monkeypatch.setattr(Path, "exists", _denied)
    monkeypatch.setattr(Path, "mkdir", _denied)
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


# --- byte ranges ---


@pytest.fixture
def contents(tmp_path):
    return [np.random.default_rng(i).bytes(1000 + i) for i in range(5)]


@pytest.fixture
def written_files(tmp_path, contents):
    for i, content in enumerate(contents):
        (tmp_path / str(i)).write_bytes(content)
    return byte_ranges.Files([str(tmp_path / str(i)) for i in range(5)])


@pytest.mark.parametrize("held", [[], [0, 3], [4, 1, 2]])
def test_ranges_are_those_of_the_file(written_files, contents, held):
    written_files.hold(held)
    assert written_files.held() == set(held)
    for i, content in enumerate(contents):
        assert written_files.read(i, 10, 300) == content[10:310]
        assert written_files.read(i, 900, 300) == content[900:]


def test_held_files_are_read_once_and_whole(written_files, contents, monkeypatch):
    read, real = [], os.pread

    def counted(descriptor, length, start):
        read.append((length, start))
        return real(descriptor, length, start)

    monkeypatch.setattr(os, "pread", counted)
    written_files.hold([1, 2])
    for i in (1, 2, 1, 2):
        assert written_files.read(i, 5, 5) == contents[i][5:10]
    written_files.hold([2])
    assert written_files.read(2, 7, 5) == contents[2][7:12]
    assert sorted(read) == [(1001, 0), (1002, 0)]
    written_files.read(1, 3, 4)
    assert read[-1] == (4, 3)


def test_threads_that_hold_and_read_get_what_the_files_hold(written_files, contents):
    def task(i):
        if i % 7 == 0:
            written_files.hold([i % 5, (i + 1) % 5])
        return written_files.read(i % 5, i, 50) == contents[i % 5][i : i + 50]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(task, range(500)))


def test_long_range_is_read_in_parts(written_files, contents, monkeypatch):
    """As Linux does above 2 GiB."""
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda f, length, start: real(f, min(length, 64), start))
    assert written_files.read(0, 1, 600) == contents[0][1:601]
    assert written_files.read(0, 1, 6000) == contents[0][1:]


def test_more_files_than_may_be_open_raise_that_limit(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = 200
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
        byte_ranges.Files(["x"] * 300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_index_is_kept_by_file_and_by_what_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "x").write_bytes(b"x")
    built = []

    def build(path):
        built.append(path)
        return np.arange(len(built) * 10)

    path = str(tmp_path / "x")
    assert len(byte_ranges.indexed(path, "a", build)) == 10
    again = byte_ranges.indexed(path, "a", build)
    assert len(again) == 10
    assert isinstance(again, np.memmap)
    assert len(byte_ranges.indexed(path, "b", build)) == 20
    os.utime(path, ns=(1, 1))
    assert len(byte_ranges.indexed(path, "a", build)) == 30
    assert len(built) == 3


# --- shards ---


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")


def said(function, *args):
    with pytest.raises(BadInput) as caught:
        function("records:X", *args)
    return str(caught.value)


@pytest.mark.parametrize(
    "name, split",
    [
        ("x-train-00000-of-00064.tfrecord", "train"),
        ("train-00001-of-01024", "train"),
        ("imagenet-val-000.tar", "val"),
        ("imagenet2012-validation.tfrecord-00000-of-00016", "validation"),
        ("my_test_3.tar", "test"),
        ("Train.tar", "train"),
        ("trained-0.tar", ""),
        ("constrain-00000-of-00001", ""),
        ("n01440764.tar", ""),
    ],
)
def test_split_is_a_part_of_the_name(name, split):
    assert shards.split_of(name) == split


def test_name_of_two_splits_is_refused():
    with pytest.raises(BadInput, match="test and train"):
        shards.split_of("train-test-0.tar")


def test_files_of_a_pattern_or_of_a_folder(tmp_path, monkeypatch):
    touch(tmp_path / "d", "b.tar", "a.tar", "a.txt", "sub/c.tar")
    monkeypatch.setenv("HOME", str(tmp_path))
    both = [str(tmp_path / "d" / n) for n in ("a.tar", "b.tar")]
    assert shards.find("x", f"{tmp_path}/d/*.tar", ("*.none",)) == (both, [])
    assert shards.find("x", f"{tmp_path}/d", ("*.tar",)) == (both, [])
    assert shards.find("x", "~/d", ("*.tar", "a*.tar")) == (both, [])
    assert shards.find("x", "~/d/a.tar", ()) == (both[:1], [])


def test_folder_whose_name_is_like_a_pattern(tmp_path):
    touch(tmp_path / "d[1]", "a.tar")
    assert shards.find("x", str(tmp_path / "d[1]"), ("*.tar",))[0] == [str(tmp_path / "d[1]/a.tar")]


def test_nothing_found_shows_what_is_there(tmp_path):
    touch(tmp_path, "a.txt", "b.txt")
    text = said(shards.find, str(tmp_path), ("*.tar",))
    assert [s for s in ("records:X", "*.tar", "a.txt, b.txt") if s not in text] == []
    assert "no such folder" in said(shards.find, str(tmp_path / "no" / "*.tar"), ())


SET = [f"x-train-{i:05d}-of-00004.tfrecord" for i in range(4)]


def test_what_is_no_file_is_left_out_and_told(tmp_path):
    (tmp_path / "b.tar").write_bytes(b"x")
    os.mkfifo(tmp_path / "a.tar")
    found = shards.find("tar:x", f"{tmp_path}/*.tar", ["*.tar"])
    note = f"1 pipes, sockets or devices left out; first {tmp_path}/a.tar"
    assert found == ([f"{tmp_path}/b.tar"], [note])


def test_missing_file_of_a_set_is_named(tmp_path):
    touch(tmp_path, *SET[:2], SET[3])
    text = said(shards.find, f"{tmp_path}/*", ())
    assert f"1 of 4 files are missing: {SET[2]};" in text
    assert str(tmp_path) in text


def test_part_of_a_set_may_be_asked_for_and_is_told(tmp_path):
    touch(tmp_path, *SET)
    paths, notes = shards.find("x", f"{tmp_path}/*-0000[01]-of-*", ())
    assert len(paths) == 2
    assert notes == [f"2 of the 4 files such as {SET[0]} are read"]


def test_files_by_split():
    paths = ["d/x-train-0.tar", "d/x-train-1.tar", "d/x-val-0.tar"]
    assert shards.by_split("x", paths) == {"train": paths[:2], "val": paths[2:]}
    assert shards.by_split("x", ["train/a.tar", "train/b.tar"]) == {
        "all": ["train/a.tar", "train/b.tar"]
    }
    assert "b.tar does not" in said(shards.by_split, ["a-train.tar", "b.tar"])


def test_class_names_beside_the_data_or_where_the_key_says(tmp_path):
    assert shards.class_names("x", "", str(tmp_path)) == []
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    (tmp_path / "other").write_text("\ufeffKäse weiß \nb\nc")
    assert shards.class_names("x", "", str(tmp_path)) == ["cat", "dog"]
    assert shards.class_names("x", str(tmp_path / "other"), "") == ["Käse weiß", "b", "c"]


@pytest.mark.parametrize(
    "content, shown",
    [
        (b"a\n\nb\n", "line 2 is empty"),
        (b"a\n", "1 names"),
        (b"", "0 names"),
        (b"\xff\xfe\xff", "label_names=FILE"),
    ],
)
def test_wrong_list_of_classes(tmp_path, content, shown):
    (tmp_path / "labels.txt").write_bytes(content)
    assert shown in said(shards.class_names, "", str(tmp_path))
    assert "no.txt" in said(shards.class_names, str(tmp_path / "no.txt"), str(tmp_path))
