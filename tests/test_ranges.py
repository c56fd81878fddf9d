# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ranges of files, from the disk or from memory, and indices that are kept."""

import concurrent.futures
import os
import resource

import numpy as np
import pytest

from vit_jax.data.formats import byte_ranges


@pytest.fixture
def contents(tmp_path):
    return [np.random.default_rng(i).bytes(1000 + i) for i in range(5)]


@pytest.fixture
def files(tmp_path, contents):
    for i, content in enumerate(contents):
        (tmp_path / str(i)).write_bytes(content)
    return byte_ranges.Files([str(tmp_path / str(i)) for i in range(5)])


@pytest.mark.parametrize("held", [[], [0, 3], [4, 1, 2]])
def test_ranges_are_those_of_the_file(files, contents, held):
    files.hold(held)
    assert files.held() == set(held)
    for i, content in enumerate(contents):
        assert files.read(i, 10, 300) == content[10:310]
        assert files.read(i, 900, 300) == content[900:]


def test_held_files_are_read_once_and_whole(files, contents, monkeypatch):
    read, real = [], os.pread

    def counted(descriptor, length, start):
        read.append((length, start))
        return real(descriptor, length, start)

    monkeypatch.setattr(os, "pread", counted)
    files.hold([1, 2])
    for i in (1, 2, 1, 2):
        assert files.read(i, 5, 5) == contents[i][5:10]
    files.hold([2])
    assert files.read(2, 7, 5) == contents[2][7:12]
    assert sorted(read) == [(1001, 0), (1002, 0)]
    files.read(1, 3, 4)
    assert read[-1] == (4, 3)


def test_threads_that_hold_and_read_get_what_the_files_hold(files, contents):
    def task(i):
        if i % 7 == 0:
            files.hold([i % 5, (i + 1) % 5])
        return files.read(i % 5, i, 50) == contents[i % 5][i : i + 50]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(task, range(500)))


def test_long_range_is_read_in_parts(files, contents, monkeypatch):
    """As Linux does above 2 GiB."""
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda f, length, start: real(f, min(length, 64), start))
    assert files.read(0, 1, 600) == contents[0][1:601]
    assert files.read(0, 1, 6000) == contents[0][1:]


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
