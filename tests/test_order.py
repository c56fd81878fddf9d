# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The order of examples: by arithmetic, or in windows where only sequential reading is fast."""

import os

import numpy as np
import pictures
import pytest
from opened_sources import opened

from vit_jax.data.formats import tfrecord
from vit_jax.data.splits import order, windows
from vit_jax.data.splits.split import Split, Table
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.hardware import host_memory

# --- by arithmetic ---


AUGMENTED = "shift(1)|flip_lr|affine(20, 0.1, 1)|inception_crop({size})"


def indices(positions, examples, seed):
    at = tf.function(lambda p: order.example_at(p, examples=examples, seed=seed))
    return [int(at(tf.constant(p, tf.int64))) for p in positions]


# ---------------------------------------------------------------- the order


def test_golden_order():
    """Changing these numbers changes the result of every run."""
    seed = order.stream_seed(0, "order")
    assert indices(range(10), 50, seed) == [25, 39, 12, 20, 37, 1, 24, 49, 0, 21]
    assert indices(range(50, 60), 50, seed) == [36, 13, 43, 47, 37, 44, 40, 11, 17, 38]
    imagenet = [84119, 764106, 411695, 10245, 416893, 446277, 1211915, 434232, 436413, 710963]
    assert indices(range(10), 1_281_167, seed) == imagenet


def test_golden_stream_seeds():
    purposes = [(0, "order"), (0, "augment"), (1, "order"), (-1, "order")]
    expected = [1375796200, 1061763552, 89249256, 856645599]
    assert [order.stream_seed(*p) for p in purposes] == expected


@pytest.mark.parametrize("examples", [1, 2, 3, 17, 64, 97])
def test_each_epoch_is_a_permutation(examples):
    epochs = np.reshape(indices(range(3 * examples), examples, 5), (3, examples))
    assert (np.sort(epochs, axis=1) == np.arange(examples)).all()


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {
        (seed, epoch): tuple(indices(range(epoch * 60, epoch * 60 + 60), 60, seed))
        for seed in (0, 1, 2)
        for epoch in (0, 1, 2)
    }
    assert len(set(orders.values())) == 9
    agreeing = [sum(map(int.__eq__, orders[0, 0], other)) for other in orders.values()]
    assert sorted(agreeing)[-2] < 15  # 1 of 60 expected; the largest is an order with itself


def test_no_order_comes_again_in_hundreds_of_seeds_and_epochs():
    """TensorFlow's own shuffle has 256 of either."""

    @tf.function
    def first(seed, epoch):
        positions = epoch * 1000 + tf.range(6, dtype=tf.int64)
        return tf.stack(
            [order.example_at(p, examples=1000, seed=seed) for p in tf.unstack(positions)]
        )

    def begin(seed, epoch):
        return tuple(first(tf.constant(seed, tf.int64), tf.constant(epoch, tf.int64)).numpy())

    assert len({begin(seed, 0) for seed in range(400)}) == 400
    assert len({begin(3, epoch) for epoch in range(400)}) == 400


@pytest.mark.parametrize("examples", [1000, 60_000])
def test_neighbours_of_an_order_are_not_related(examples):
    """The distance between the first two examples: chi-squared over 19 bins, 18 expected."""
    pair = tf.function(
        lambda start: [order.example_at(start + k, examples=examples, seed=9) for k in (0, 1)]
    )
    counts = np.zeros(19)
    for epoch in range(400):
        a, b = (int(x) for x in pair(tf.constant(epoch * examples, tf.int64)))
        counts[(b - a) % examples * 19 // examples] += 1
    expected = counts.sum() / 19
    assert ((counts - expected) ** 2 / expected).sum() < 50


def test_position_may_be_beyond_32_bits():
    start = 7_000_000_000 * 50
    assert sorted(indices(range(start, start + 50), 50, 3)) == list(range(50))


def test_stream_seeds_are_31_bits_and_differ_by_seed_and_purpose():
    seeds = {order.stream_seed(s, p) for s in range(-50, 50) for p in ("order", "augment")}
    assert len(seeds) == 200
    assert 0 <= min(seeds) <= max(seeds) < 2**31


def test_each_position_has_randomness_of_its_own():
    """Also the same example in another epoch."""
    seeds = {tuple(order.example_seed(tf.constant(p), seed=3).numpy()) for p in range(100)}
    others = {tuple(order.example_seed(tf.constant(p), seed=4).numpy()) for p in range(100)}
    assert len(seeds | others) == 200


# ---------------------------------------------------------------- hashes of numbers


def test_hashes_are_those_of_splitmix64():
    """Its published first outputs from the start 0."""
    wanted = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert order.hash_numbers(range(3)).tolist() == wanted
    assert order.hash_numbers(np.array([2, 0])).tolist() == [wanted[2], wanted[0]]


def test_golden_hashes():
    """Changing these numbers changes subsets and windows."""
    assert (order.hash_numbers(range(2), 7, 1) >> np.uint64(48)).tolist() == [64458, 42071]


def test_hashes_differ_by_number_and_keys():
    keys = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (-1,)]
    assert len({int(h) for one in keys for h in order.hash_numbers(range(1000), *one)}) == 7000
    ranks = [np.argsort(order.hash_numbers(range(1000), *one)) for one in keys]
    for i, one in enumerate(ranks):
        for other in ranks[:i]:
            assert abs(np.corrcoef(one, other)[0, 1]) < 0.15  # 0.03 expected


# ---------------------------------------------------------------- the batches that follow it


def test_batches_hold_the_examples_of_their_positions():
    pipe = pictures.batches(pictures.split(10), seed=3)
    seed = order.stream_seed(3, "order")
    labels = [batch["labels"][:, 0].tolist() for batch in pipe.train(0, 6)]
    assert labels == np.reshape(indices(range(24), 10, seed), (6, 4)).tolist()


@pytest.mark.parametrize("chain", ["decode", AUGMENTED])
@pytest.mark.parametrize("ways", [1, 2, 4])
def test_rows_of_all_processes_make_the_batch_of_one(chain, ways):
    pipe = pictures.batches(pictures.split(11), chain, batch_size=8)
    each = 8 // ways
    parts = [pipe.train(2, 5, range(i, i + each)) for i in range(0, 8, each)]
    joined = [
        {key: np.concatenate([part[key] for part in rows]) for key in rows[0]}
        for rows in zip(*parts, strict=True)
    ]
    assert pictures.same(joined, pipe.train(2, 5))


@pytest.mark.parametrize("first", [1, 3, 7])
def test_resuming_gives_the_batches_of_the_uninterrupted_run(first):
    pipe = pictures.batches(pictures.split(10), AUGMENTED)
    whole = list(pipe.train(0, 9))
    assert pictures.same(pipe.train(first, 9), whole[first:])
    assert not pictures.same(pipe.train(0, 9 - first), whole[first:])


def test_number_of_workers_and_prefetch_change_nothing():
    few = pictures.batches(pictures.split(10), AUGMENTED, workers=1, prefetch=0)
    many = pictures.batches(pictures.split(10), AUGMENTED, workers=8, prefetch=4)
    assert pictures.same(few.train(0, 6), many.train(0, 6))


def test_seed_changes_order_and_augmentation():
    one = pictures.batches(pictures.split(1), AUGMENTED, seed=0, batch_size=1)
    two = pictures.batches(pictures.split(1), AUGMENTED, seed=1, batch_size=1)
    images = [b["image"].tobytes() for pipe in (one, two) for b in pipe.train(0, 4)]
    assert len(set(images)) == 8


def test_same_example_is_augmented_anew_in_each_epoch():
    pipe = pictures.batches(pictures.split(4), AUGMENTED)
    seen = {}
    for batch in pipe.train(0, 4):
        for image, label in zip(batch["image"], batch["labels"][:, 0], strict=True):
            seen.setdefault(int(label), set()).add(image.tobytes())
    assert [len(versions) for versions in seen.values()] == [4, 4, 4, 4]


def test_resuming_late_in_an_epoch_reads_little(tmp_path, monkeypatch):
    """Less than 5 % of the bytes of an epoch, to get to the batch at 90 % of it."""
    count, size = 1000, 16
    path = str(tmp_path / "data.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for i in range(count):
            writer.write(pictures.noise(size, size, seed=i).tobytes())
    tfrecord.RecordFiles([path])  # the index of offsets is built once, by the first run

    read = []
    real = os.pread

    def counted(*args):
        data = real(*args)
        read.append(len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    files = tfrecord.RecordFiles([path])

    def reader():
        def one(row):
            data = tf.numpy_function(lambda i: files[int(i)], [row], tf.string, stateful=False)
            return tf.reshape(tf.io.decode_raw(data, tf.uint8), [size, size, 3]), row[None]

        return one

    split = Split(Table(count, str, reader), range(count))
    pipe = pictures.batches(split, image_size=size)
    batch = next(pipe.train(225, 250))
    assert batch["labels"][:, 0].tolist() == indices(
        range(900, 904), count, order.stream_seed(0, "order")
    )
    assert 4 * size * size * 3 <= sum(read) < 0.05 * count * size * size * 3
    assert max(read) == size * size * 3  # one range read for each example


# --- windows ---


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
def test_each_epoch_in_windows_is_a_permutation(chosen, k):
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


def test_golden_order_in_windows():
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
    """A window is 20 positions, 4 batches; each file is read once, whole.

    Reading goes on for up to three batches more, and may so enter the next window.
    """
    split = windows.shuffle_in_windows(shards, 2)
    labels = batches(split, first, first + 1)
    wanted = batches(split, 0, 30)
    reads.clear()
    again = windows.shuffle_in_windows(opened_again(shards), 2)
    assert batches(again, first, first + 1) == labels
    start, last = first // 4 * 4, (first + 3) // 4 * 4
    files = {f"x-{k // 10}.tar" for labels in wanted[start : last + 8] for k in labels}
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
