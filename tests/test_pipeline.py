# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Batches: every example counted once, shapes that never vary, errors that name the file."""

import dataclasses
import types

import jax
import numpy as np
import pictures
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vit_jax.data.pipeline import pipeline
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options
from vit_jax.data.splits import order, subset
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput


def folder_split(root, count=12, size=6):
    """`count` files in two classes, `a/00.png` ..., and the split of all of them."""
    paths = [f"{'ab'[i % 2]}/{i:02d}.png" for i in range(count)]
    pictures.folder(root, *paths, size=size)
    source = sources.open_source(f"folder:{root}", Options(), val_percent=0, test_percent=0)
    return source.splits["train"]


def message(function):
    """Returns the one line that a user is told."""
    with pytest.raises(BadInput) as caught:
        function()
    said = str(caught.value)
    assert [word for word in ("\n", "Traceback", "in user code") if word in said] == []
    return said


# ---------------------------------------------------------------- end


def read_labels(split):
    table = dataclasses.replace(split.table, labels=None)
    return subset.labels(dataclasses.replace(split, table=table), "a test")


READERS = {
    "training": lambda split: list(pictures.batches(split, image_size=6).train(0, 2)),
    "evaluation": lambda split: list(pictures.batches(split, image_size=6).evaluation()),
    "raw in memory": lambda split: pictures.batches(split, image_size=6).cached("raw"),
    "decoded in memory": lambda split: pictures.batches(split, image_size=6).cached("decoded"),
    "labels": read_labels,
}


@pytest.mark.parametrize("reader", READERS)
def test_no_thread_of_tensorflow_tunes_what_is_fixed(tmp_path, monkeypatch, reader):
    """It can miss the end of an iterator, and whoever drops that waits for it, up to 60 s."""
    tuned, iterate = [], tf.data.Dataset.__iter__

    def noted(dataset):
        tuned.append(dataset.options().autotune.enabled)
        return iterate(dataset)

    monkeypatch.setattr(tf.data.Dataset, "__iter__", noted)
    READERS[reader](folder_split(tmp_path))
    assert {*tuned} == {False}


# ---------------------------------------------------------------- evaluation


@pytest.mark.parametrize(
    "batch_size, ways",
    [(1, 1), (4, 2), (50, 2), (101, 1), (128, 4)],
)
def test_evaluation_counts_every_example_once(batch_size, ways):
    """101 is prime: no batch size but itself divides it."""
    pipe = pictures.batches(pictures.split(101), batch_size=batch_size)
    each = batch_size // ways
    counted, labels, steps = 0, [], set()
    for start in range(0, batch_size, each):
        batches = list(pipe.evaluation(range(start, start + each)))
        steps.add(len(batches))
        for batch in batches:
            assert {len(x) for x in batch.values()} == {each}
            counted += int(batch["_mask"].sum())
            labels += batch["labels"][batch["_mask"], 0].tolist()
    assert counted == 101
    assert sorted(labels) == list(range(101))
    assert steps == {-(-101 // batch_size)}


def test_evaluation_is_in_order_and_pads_only_the_end():
    pipe = pictures.batches(pictures.split(11), batch_size=4)
    batches = list(pipe.evaluation())
    masks = np.concatenate([b["_mask"] for b in batches])
    assert masks.tolist() == [True] * 11 + [False]
    labels = np.concatenate([b["labels"][:, 0] for b in batches])
    assert labels[:11].tolist() == list(range(11))
    images = np.concatenate([b["image"] for b in batches])
    assert all((images[i] == pictures.noise(4, 4, seed=i)).all() for i in range(11))


def test_evaluation_twice_is_the_same_whatever_the_seed():
    one = pictures.batches(pictures.split(7), seed=1)
    two = pictures.batches(pictures.split(7), seed=2)
    assert pictures.same(one.evaluation(), two.evaluation())
    assert pictures.same(one.evaluation(), one.evaluation())


def test_images_and_labels_of_a_batch_belong_together():
    for batch in pictures.batches(pictures.split(9), batch_size=6).train(0, 5):
        for image, label in zip(batch["image"], batch["labels"][:, 0], strict=True):
            assert (image == pictures.noise(4, 4, seed=int(label))).all()


@pytest.mark.parametrize("train", [True, False])
def test_batches_are_uint8_images_int32_labels_and_a_bool_mask(tmp_path, train):
    pipe = pictures.batches(folder_split(tmp_path, 10), "decode|resize({size})|flip_lr")
    batches = list(pipe.train(0, 4) if train else pipe.evaluation())
    assert len(batches) == (4 if train else 3)
    for batch in batches:
        kinds = {key: (x.dtype.name, x.shape) for key, x in batch.items()}
        assert kinds == {
            "image": ("uint8", (4, 4, 4, 3)),
            "labels": ("int32", (4, 1)),
            "_mask": ("bool", (4,)),
        }
        assert batch["_mask"].all() or not train


def test_no_steps_are_no_batches():
    assert list(pictures.batches(pictures.split(5)).train(3, 3)) == []


# ---------------------------------------------------------------- what cannot be read

DAMAGE = {
    "not an image": lambda path: path.write_bytes(b"<html>not found</html>"),
    "empty": lambda path: path.write_bytes(b""),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:60]),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("method", ["train", "evaluation"])
def test_file_that_cannot_be_read_is_named(tmp_path, damage, method):
    split = folder_split(tmp_path)
    damage(tmp_path / "b" / "07.png")
    pipe = pictures.batches(split, "decode|resize({size})", workers=3, prefetch=2)
    batches = pipe.train(0, 3) if method == "train" else pipe.evaluation()
    said = message(lambda: list(batches))
    assert "b/07.png" in said
    assert "00.png" not in said


def test_batches_before_the_unreadable_file_are_good(tmp_path):
    split = folder_split(tmp_path)
    DAMAGE["empty"](tmp_path / "b" / "11.png")  # the last in the order of evaluation
    batches = pictures.batches(split, "decode|resize({size})").evaluation()
    assert next(batches)["_mask"].all()
    assert next(batches)["_mask"].all()
    assert "b/11.png" in message(lambda: next(batches))


@pytest.mark.parametrize("chain", ["decode|central_crop(8)", "decode|random_crop(8)|resize(4)"])
def test_image_that_is_too_small_for_a_crop_is_named(tmp_path, chain):
    split = folder_split(tmp_path, size=9)
    (tmp_path / "b" / "07.png").write_bytes(pictures.encode(pictures.noise(5, 9)))
    pipe = pictures.batches(split, chain, image_size=8 if "central" in chain else 4)
    assert "b/07.png" in message(lambda: list(pipe.evaluation()))


# ---------------------------------------------------------------- chains that do not fit

METHODS = {
    "train": lambda pipe: list(pipe.train(0, 1)),
    "evaluation": lambda pipe: list(pipe.evaluation()),
}


@pytest.mark.parametrize(
    "chain",
    [
        "resize({size})",
        "resize_small({size})",
        "central_crop({size})",
        "random_crop({size})",
        "inception_crop({size})",
        "flip_lr",
        "shift(1)",
        "affine(10)",
        "flip_lr|decode|resize({size})",
    ],
)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_files_without_decode_are_told_to_decode(tmp_path, chain, method):
    pipe = pictures.batches(folder_split(tmp_path), chain)
    assert "decode" in message(lambda: method(pipe))


@pytest.mark.parametrize(
    "chain",
    ["decode|resize(9)", "decode", "decode|resize_small({size})", "decode|resize(4)|resize(5)"],
)
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_chain_that_gives_another_size_is_bad_input(tmp_path, chain, method):
    split = folder_split(tmp_path)
    for path in tmp_path.rglob("*.png"):
        path.write_bytes(pictures.encode(pictures.noise(7, 9)))
    said = message(lambda: method(pictures.batches(split, chain, image_size=4)))
    assert "4" in said
    assert "Remove or replace" not in said, "the files are good, the chain is wrong"


@pytest.mark.parametrize(
    "chain, size",
    [
        ("decode|resize({size})", 4),  # one file is no image
        ("decode|central_crop({size})", 8),  # larger than the images
        ("decode|random_crop({size})", 8),
        ("resize_small({size})", 4),
        ("affine(10)", 4),
    ],
)
def test_messages_leave_out_the_innards_of_tensorflow(tmp_path, chain, size):
    split = folder_split(tmp_path)
    (tmp_path / "b" / "07.png").write_bytes(b"x")
    said = message(lambda: list(pictures.batches(split, chain, image_size=size).evaluation()))
    innards = ("{{", "function_node", "[Op:", "tf.Tensor", "Summarized data")
    assert [word for word in innards if word in said] == []


# ---------------------------------------------------------------- devices


def eight_ways(*shape):
    names = ("data", "model")[: len(shape)]
    return Mesh(np.array(jax.devices()[:8]).reshape(shape), names)


@pytest.mark.parametrize("spec", [PartitionSpec("data"), PartitionSpec()])
@pytest.mark.parametrize("shape", [(8,), (4, 2)])
def test_one_process_holds_all_rows(spec, shape):
    rows = pipeline.local_rows(NamedSharding(eight_ways(*shape), spec), 16)
    assert rows == range(16)


def held(*slices):
    """A sharding of which this process holds these slices of the rows."""
    return types.SimpleNamespace(
        addressable_devices_indices_map=lambda shape: {i: (s,) for i, s in enumerate(slices)}
    )


@pytest.mark.parametrize(
    "slices, rows",
    [
        ([slice(4, 6), slice(6, 8)], range(4, 8)),
        ([slice(6, 8), slice(4, 6)], range(4, 8)),
        ([slice(4, 6), slice(4, 6), slice(6, 8)], range(4, 8)),  # copies, over a tensor axis
        ([slice(None)], range(16)),
        ([slice(0, 2)], range(2)),
    ],
)
def test_rows_are_those_of_the_devices_here(slices, rows):
    assert pipeline.local_rows(held(*slices), 16) == rows


def test_rows_that_do_not_lie_together_are_an_error():
    with pytest.raises(ValueError, match="not contiguous"):
        pipeline.local_rows(held(slice(0, 2), slice(4, 6)), 16)


@pytest.mark.parametrize("evaluation", [False, True])
@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_shards_of_processes_are_disjoint_and_cover_the_batch(processes, evaluation):
    sharding = NamedSharding(eight_ways(8), PartitionSpec("data"))
    placed = [slices[0] for slices in sharding.devices_indices_map((16,)).values()]
    each = 8 // processes
    shares = [
        pipeline.local_rows(held(*placed[p * each : (p + 1) * each]), 16) for p in range(processes)
    ]
    assert sorted(row for rows in shares for row in rows) == list(range(16))
    pipe = pictures.batches(pictures.split(40), batch_size=16)

    def read(rows=None):
        return list(pipe.evaluation(rows) if evaluation else pipe.train(2, 5, rows))

    parts = [read(rows) for rows in shares]
    joined = [
        {key: np.concatenate([part[i][key] for part in parts]) for key in batch}
        for i, batch in enumerate(parts[0])
    ]
    assert len(joined) == 3
    assert pictures.same(joined, read())
    if evaluation:
        assert sum(batch["_mask"].sum() for batch in joined) == 40


@pytest.mark.parametrize("ahead", [0, 1, 9])
@pytest.mark.parametrize("shape", [(8,), (4, 2)])
def test_global_arrays_hold_the_rows_in_their_order(ahead, shape):
    sharding = NamedSharding(eight_ways(*shape), PartitionSpec("data"))
    pipe = pictures.batches(pictures.split(20), batch_size=16)
    rows = pipeline.local_rows(sharding, 16)
    made = list(pipeline.to_devices(pipe.train(0, 4, rows), sharding, 16, ahead))
    assert pictures.same([jax.device_get(batch) for batch in made], pipe.train(0, 4))
    for batch, wanted in zip(made, pipe.train(0, 4), strict=True):
        for key, array in batch.items():
            assert array.shape == wanted[key].shape
            assert array.dtype == wanted[key].dtype
            assert array.sharding.is_equivalent_to(sharding, array.ndim)
            for shard in array.addressable_shards:
                assert (np.asarray(shard.data) == wanted[key][shard.index[0]]).all()
        assert len({s.device for s in batch["image"].addressable_shards}) == 8


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_batches_are_made_that_many_steps_early(ahead):
    taken = []

    def endless():
        while True:
            taken.append(len(taken))
            yield {"_mask": np.full(8, len(taken) % 2 == 0)}

    sharding = NamedSharding(eight_ways(8), PartitionSpec("data"))
    made = pipeline.to_devices(endless(), sharding, 8, ahead)
    for step in range(1, 4):
        assert bool(next(made)["_mask"][0]) == (step % 2 == 0)
        assert len(taken) == step + ahead


def test_errors_of_reading_reach_the_loop(tmp_path):
    split = folder_split(tmp_path)
    (tmp_path / "a" / "00.png").write_bytes(b"x")
    sharding = NamedSharding(eight_ways(8), PartitionSpec("data"))
    pipe = pictures.batches(split, "decode|resize({size})", batch_size=8)
    batches = pipeline.to_devices(pipe.evaluation(), sharding, 8, 2)
    assert "a/00.png" in message(lambda: next(batches))


def test_order_of_training_is_that_of_its_seed():
    """Not, by mistake, that of the augmentation."""
    assert order.stream_seed(0, "order") != order.stream_seed(0, "augment")
    pipe = pictures.batches(pictures.split(12), batch_size=12)
    labels = [batch["labels"][:, 0].tolist() for batch in pipe.train(0, 3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in labels)
    assert len({tuple(epoch) for epoch in labels}) == 3
