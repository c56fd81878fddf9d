# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Orders in windows of files: permutations, the same from anywhere, and what they read."""

import os

import numpy as np
import pictures
import pytest
from opening import opened

from vit_jax.data.splits import order, windows
from vit_jax.data.splits.split import Split, Table
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.hardware import host_memory

SIZES = [5, 0, 9, 1, 7, 3, 8, 8]  # examples of each file


def table(sizes=SIZES):
    """Row i has label i."""

    def reader():
        return lambda row: (
            tf.fill([1, 1, 3], tf.cast(row, tf.uint8)),
            tf.cast(row, tf.int32)[None],
        )

    return Table(sum(sizes), str, reader, shards=np.cumsum([0, *sizes]))


ROWS = {
    "all": range(sum(SIZES)),
    "a slice": range(7, 33),
    "a subset": np.flatnonzero(np.random.default_rng(0).random(sum(SIZES)) < 0.6),
}


def rows(split, positions, seed=3):
    at = split.order(seed)
    return [int(split.rows[int(at(tf.constant(p, tf.int64)))]) for p in positions]


@pytest.mark.parametrize("chosen", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("k", [1, 3, 100])
def test_each_epoch_is_a_permutation(chosen, k):
    split = windows.shuffle_in_windows(Split(table(), chosen), k)
    epochs = np.reshape(rows(split, range(3 * len(split))), (3, -1))
    assert (np.sort(epochs, axis=1) == np.asarray(chosen)).all()
    assert len({tuple(epoch) for epoch in epochs}) == 3


@pytest.mark.parametrize("chosen", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("k", [1, 3])
def test_a_window_is_of_so_many_whole_files(chosen, k):
    split = windows.shuffle_in_windows(Split(table(), chosen), k)
    file_of = np.repeat(np.arange(len(SIZES)), SIZES)
    used = set(file_of[np.asarray(chosen)].tolist())
    for epoch in range(3):
        start = epoch * len(split)
        files = [int(file_of[r]) for r in rows(split, range(start, start + len(split)))]
        left = set(used)
        while files:
            now = list(dict.fromkeys(files))[:k]  # the next k files
            taken = sum(f in now for f in files)
            assert set(files[:taken]) == set(now) <= left
            left -= set(now)
            files = files[taken:]
        assert left == set()


@pytest.mark.parametrize("first", [0, 1, 17, 40, 41, 100])
def test_order_is_the_same_from_anywhere(first):
    split = windows.shuffle_in_windows(Split(table(), range(41)), 2)
    assert rows(split, range(first, 150)) == rows(split, range(150))[first:]
    backwards = rows(split, range(149, -1, -1))
    assert backwards[::-1] == rows(split, range(150))


def test_golden_order():
    """Changing these numbers changes the result of runs with windows."""
    split = windows.shuffle_in_windows(Split(table(), range(41)), 2)
    seed = order.stream_seed(0, "order")
    assert rows(split, range(10), seed) == [
        10,
        6,
        0,
        9,
        4,
        11,
        7,
        12,
        2,
        5,
    ]


def test_seeds_have_orders_of_their_own():
    split = windows.shuffle_in_windows(Split(table(), range(41)), 2)
    assert rows(split, range(41), 1) != rows(split, range(41), 2)


def test_part_of_a_windowed_split_is_windowed():
    split = windows.shuffle_in_windows(Split(table(), range(41)), 2)
    for indices in (range(5, 30), np.array([1, 7, 8, 20, 40])):
        part = split.take_indices(indices)
        assert list(part.rows) == list(indices)
        whole = windows.shuffle_in_windows(Split(table(), np.asarray(indices)), 2)
        assert rows(part, range(50)) == rows(whole, range(50))


def test_batches_follow_the_order():
    split = windows.shuffle_in_windows(Split(table(), range(41)), 3)
    pipe = pictures.batches(split, "resize({size})", workers=4)
    got = [label for batch in pipe.train(0, 20) for label in batch["labels"][:, 0].tolist()]
    assert got == rows(split, range(80), order.stream_seed(0, "order"))
    resumed = [label for batch in pipe.train(7, 20) for label in batch["labels"][:, 0].tolist()]
    assert resumed == got[28:]


def test_source_without_files_is_refused():
    with pytest.raises(BadInput, match="expected tfds, records or tar"):
        windows.shuffle_in_windows(opened("digits").splits["train"], 2)


# ---------------------------------------------------------------- what is read


@pytest.fixture
def shards(tmp_path):
    for shard in range(6):
        members = {}
        for i in range(shard * 10, shard * 10 + 10):
            members |= {f"{i}.png": pictures.encode(pictures.noise(4, 4, seed=i))}
            members |= {f"{i}.cls": str(i).encode()}
        pictures.tar(tmp_path / f"x-{shard}.tar", members)
    return opened(f"tar:{tmp_path}").splits["train"]


@pytest.fixture
def reads(monkeypatch):
    """(path, bytes) of what is read from now on."""
    seen, real = [], os.pread

    def pread(descriptor, length, start):
        seen.append((os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")), length))
        return real(descriptor, length, start)

    monkeypatch.setattr(os, "pread", pread)
    return seen


def batches(split, first, last):
    pipe = pictures.batches(split, batch_size=5)
    found = list(pipe.train(first, last))
    for batch in found:
        for image, (label,) in zip(batch["image"], batch["labels"], strict=True):
            assert (image == pictures.noise(4, 4, seed=label)).all()
    return [batch["labels"][:, 0].tolist() for batch in found]


@pytest.mark.parametrize("first", [0, 4, 9, 12, 13])
def test_only_files_of_this_window_and_the_next_are_read(shards, reads, first):
    """A window is 20 positions, 4 batches; each file is read once, whole."""
    split = windows.shuffle_in_windows(shards, 2)
    labels = batches(split, first, first + 1)
    wanted = batches(split, 0, 30)
    reads.clear()
    again = windows.shuffle_in_windows(opened_again(shards), 2)
    assert batches(again, first, first + 1) == labels
    start = first // 4 * 4
    files = {f"x-{k // 10}.tar" for labels in wanted[start : start + 8] for k in labels}
    again.table.files.hold([])
    whole = {os.path.basename(p): os.path.getsize(p) for p in shards.table.files.paths}
    assert {name for name, _ in reads} <= files
    assert all(length == whole[name] for name, length in reads)
    assert len(set(reads)) == len(reads)


def opened_again(split):
    return opened(f"tar:{os.path.dirname(split.table.files.paths[0])}").splits["train"]


def test_whole_epochs_are_read_in_large_reads(shards, reads):
    split = windows.shuffle_in_windows(shards, 2)
    labels = batches(split, 0, 24)
    assert (np.sort(np.reshape(labels, (2, 60)), axis=1) == np.arange(60)).all()
    small = [length for _, length in reads if length < 1000]
    assert len(small) < 60  # a reader that is late reads its range
    assert len(split.table.files.held()) <= 4


def test_threads_at_the_edge_of_two_windows_hold_each_once(shards, monkeypatch):
    """Files that are dropped and held again by turns would be read again and again."""
    split = windows.shuffle_in_windows(shards, 2)
    calls = []
    monkeypatch.setattr(split.table.files, "hold", calls.append)
    rows(split, [18, 20, 19, 21, 18, 22, 39, 40, 38, 41, 60])
    assert [len(files) for files in calls] == [4, 4, 4, 4]
    rows(split, [0])  # another run begins
    assert len(calls) == 5


def test_windows_that_do_not_fit_are_refused(shards, monkeypatch):
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 200_000)
    windows.shuffle_in_windows(shards, 1)
    with pytest.raises(BadInput, match=r"data.window_shards=3 files would take .* of memory"):
        windows.shuffle_in_windows(shards, 3)
