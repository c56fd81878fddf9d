# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mixtures: their pattern, their orders, classes, splits and images."""

import collections

import numpy as np
import pictures
import pytest
from opened_sources import examples, labels, message, names, opened
from PIL import Image

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.sources import mixture
from vit_jax.data.splits import subset
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput


@pytest.fixture
def pair(tmp_path):
    """6 images of cats and dogs, and 4 of dogs and owls, each with its own test images."""
    pictures.folder(
        tmp_path / "a", *(f"train/{c}/{i}.png" for c in ("cat", "dog") for i in range(3))
    )
    pictures.folder(tmp_path / "a", "test/cat/t.png")
    pictures.folder(
        tmp_path / "b", *(f"train/{c}/{i}.png" for c in ("owl", "dog") for i in range(2))
    )
    pictures.folder(tmp_path / "b", "test/owl/t.png", "val/dog/v.png")
    return f"folder:{tmp_path}/a", f"folder:{tmp_path}/b"


def order_of(split, positions, seed=5):
    at = split.order(seed)
    return [int(at(tf.constant(p, tf.int64))) for p in positions]


@pytest.mark.parametrize(
    "weights, wanted",
    [
        ([1, 1], "AB"),
        ([3, 1], "AABA"),
        ([1, 3], "BABB"),
        ([2, 2], "ABAB"),
        ([2, 1, 1], "ABCA"),
        ([5, 2], "ABAAABA"),
    ],
)
def test_pattern_is_even(weights, wanted):
    assert "".join("ABC"[i] for i in mixture.block_pattern(weights)) == wanted


@pytest.mark.parametrize("weights", [[7, 3], [10, 1, 1], [13, 29, 5]])
def test_pattern_has_as_many_as_the_weights_at_each_point(weights):
    pattern = mixture.block_pattern(weights)
    assert [pattern.count(i) for i in range(len(weights))] == weights
    for n in range(len(pattern)):
        for i, weight in enumerate(weights):
            assert abs(pattern[:n].count(i) - n * weight / sum(weights)) <= 1


def test_positions_follow_the_pattern_and_each_source_its_own_epochs(pair):
    split = opened(f"mix:3*{pair[0]},1*{pair[1]}").splits["train"]
    found = order_of(split, range(120))
    sources = ["A" if i < 6 else "B" for i in found]
    assert "".join(sources) == "AABA" * 30
    for source, size, first in (("A", 6, 0), ("B", 4, 6)):
        own = [i for i, s in zip(found, sources, strict=True) if s == source]
        epochs = [own[k : k + size] for k in range(0, len(own) // size * size, size)]
        assert [sorted(epoch) for epoch in epochs] == [list(range(first, first + size))] * len(
            epochs
        )
        assert len(set(map(tuple, epochs))) > 3


def test_sources_of_one_size_have_orders_of_their_own(pair):
    split = opened(f"mix:1*{pair[0]},1*{pair[0]}").splits["train"]
    found = order_of(split, range(60))
    assert found[::2] != [i - 6 for i in found[1::2]]


def test_resuming_is_counting_from_elsewhere(pair):
    split = opened(f"mix:2*{pair[0]},1*{pair[1]}").splits["train"]
    pipe = pictures.batches(split, "decode|resize({size})|flip_lr")
    whole = list(pipe.train(0, 9))
    assert pictures.same(pipe.train(5, 9), whole[5:])
    halves = [list(pipe.train(5, 9, rows)) for rows in (range(2), range(2, 4))]
    joined = [{k: np.concatenate([a[k], b[k]]) for k in a} for a, b in zip(*halves, strict=True)]
    assert pictures.same(joined, whole[5:])


def test_classes_of_the_same_name_are_one(pair):
    source = opened(f"mix:3*{pair[0]},1*{pair[1]}")
    assert source.classes == ("cat", "dog", "owl")
    assert labels(source.splits["train"]) == [[0]] * 3 + [[1]] * 3 + [[1]] * 2 + [[2]] * 2
    assert source.splits["train"].table.labels().tolist() == labels(source.splits["train"])


def test_other_splits_are_those_of_all(pair):
    source = opened(f"mix:3*{pair[0]},1*{pair[1]}")
    assert names(source) == {
        "train": names(opened(pair[0]))["train"] + names(opened(pair[1]))["train"],
        "test": ["test/cat/t.png", "test/owl/t.png"],
        "val": ["val/dog/v.png"],
    }
    assert len(source.splits["train"]) == 10


def test_notes_say_whose_classes_are_which(pair):
    notes = opened(f"mix:3*{pair[0]},1*{pair[1]},1*digits").notes
    assert f"{pair[0]}: 2 classes, 1 of them also those of other sources: dog" in notes
    assert f"{pair[1]}: 2 classes, 1 of them also those of other sources: dog" in notes
    assert "digits: 10 classes" in notes


@pytest.mark.parametrize("how", [{"fraction": 0.5}, {"exclude": "list"}], ids=["part", "without"])
def test_shares_are_those_of_what_is_trained_on(pair, tmp_path, how):
    split = opened(f"mix:3*{pair[0]},1*{pair[1]}").splits["train"]
    if "exclude" in how:
        (tmp_path / "list").write_text("train/cat/0.png\ntrain/cat/1.png\n")
        how = {"exclude": str(tmp_path / "list")}
    part, notes = subset.choose(split, **how, classes=3)
    of_each = [part.firsts[1], len(part) - part.firsts[1]]
    for note, size, weight in zip(notes[-2:], of_each, (3, 1), strict=True):
        times = len(part) * weight / 4 / size
        assert f"in an epoch of {len(part)} each of its {size} is seen {times:.2f} times" in note
    assert len(notes) == 3


def test_notes_say_the_share_of_each(pair):
    _, notes = subset.choose(opened(f"mix:3*{pair[0]},1*{pair[1]}").splits["train"], classes=3)
    assert notes[0].startswith(f"3 of 4 training examples (75.0%) are from {pair[0]}: in an epoch")
    assert notes[0].endswith("of 10 each of its 6 is seen 1.25 times")
    assert notes[1].endswith("of 10 each of its 4 is seen 0.62 times")


def test_pixels_and_files_are_mixed_as_files(pair):
    digits = opened("digits").splits["train"]
    split = opened(f"mix:1*{pair[0]},1*digits").splits["train"]
    part = examples(split.take_indices(np.array([0, 6, 7])))
    decode = preprocess.Decode()
    assert part[0] == examples(opened(pair[0]).splits["train"])[0]
    for i in (1, 2):
        wanted, (label,) = examples(digits.take_indices(range(i - 1, i)))[0]
        assert (decode(tf.constant(part[i][0]), None).numpy() == wanted).all()
        assert part[i][1] == [label + 2]


def test_pixels_of_several_sizes():
    split = opened("mix:1*digits,1*synthetic:imagenet").splits["train"]
    assert [one[0].shape for one in examples(split.take_indices(np.array([0, 2000])))] == [
        (8, 8, 3), (256, 256, 3),
    ]  # fmt: skip


def test_labels_are_padded_to_the_most(pair, tmp_path):
    image = pictures.encode(pictures.noise(3, 3))
    record = pictures.record(image=image, label=[1, 0])
    pictures.records(tmp_path / "r" / "a.tfrecord", [record])
    (tmp_path / "r" / "labels.txt").write_text("owl\ncat\n")
    source = opened(f"mix:1*{pair[0]},1*records:{tmp_path}/r", max_labels=3)
    assert source.classes == ("cat", "dog", "owl")
    found = labels(source.splits["train"])
    assert found[0] == [0, -1, -1]
    assert found[-1] == [0, 2, -1]


def test_part_of_a_mixture_keeps_its_pattern(pair):
    split = (
        opened(f"mix:3*{pair[0]},1*{pair[1]}")
        .splits["train"]
        .take_indices(np.array([1, 4, 5, 7, 8]))
    )
    found = order_of(split, range(40))
    assert [i < 3 for i in found] == [True, True, False, True] * 10
    assert set(found) == set(range(5))
    assert collections.Counter(found)[3] == 5
    with pytest.raises(BadInput, match="leave one of its sources without any"):
        split.take_indices(np.array([0, 1]))


def test_slice_of_a_mixture_is_refused(pair):
    source = opened(f"mix:3*{pair[0]},1*{pair[1]}")
    with pytest.raises(BadInput, match="one after another"):
        source.split("train[:50%]")
    assert len(source.split("train")) == 10


def test_source_may_have_commas(tmp_path):
    pictures.folder(tmp_path / "a,b", "x/1.png", "y/1.png")
    spec = f"folder:{tmp_path}/a,b"
    assert mixture.parse(f"1*{spec}, 2*digits") == ([1, 2], [spec, "digits"])
    assert len(opened(f"mix:1*{spec},2*digits").splits["train"]) == 1799


@pytest.mark.parametrize(
    "rest, shown",
    [
        ("digits,digits", "expected at least two sources"),
        ("2*digits", "expected at least two sources"),
        ("0*digits,1*digits", "expected at least two sources"),
        ("900*digits,200*digits", "at most 1000"),
        ("x,1*digits", "expected at least two sources"),
        ("1.5*digits,1*digits", "expected"),
        ("1*digits,1*mix:1*digits,1*digits", "cannot hold a mixture"),
        ("1*digits,1*digit", "unknown data.source 'digit'"),
        ("1*digits,1*folder:/no/such", "/no/such does not exist"),
    ],
)
def test_wrong_mixture(rest, shown):
    assert shown in message(f"mix:{rest}")


def test_source_without_training_examples(pair, tmp_path):
    path = tmp_path / "x.csv"
    pictures.folder(tmp_path, "a.png", "b.png")
    path.write_text("a.png,x,test\nb.png,y,test\n")
    assert "no split train" in message(f"mix:1*{pair[0]},1*csv:{path}")


def test_two_classes_of_one_name(pair, tmp_path):
    pictures.tar(tmp_path / "t" / "x.tar", {"1.png": b"1", "1.cls": b"0"})
    (tmp_path / "t" / "labels.txt").write_text("crane\ncrane\n")
    assert "two classes of the same name" in message(f"mix:1*{pair[0]},1*tar:{tmp_path}/t")


def test_masks_have_the_numbers_of_the_mixture(tmp_path):
    """Both readers; the class `road` is one, and the second source counts from it."""
    for name, classes in (("a", "road\nsky\ncar"), ("b", "tree\nroad\nvoid")):
        for kind, ending in (("images", "jpg"), ("masks", "png")):
            folder = tmp_path / name / "train" / kind
            folder.mkdir(parents=True)
            Image.fromarray(np.array([[0, 1, 2, 255]], np.uint8)).save(folder / f"x.{ending}")
        (tmp_path / name / "classes.txt").write_text(classes)
    source = opened(f"mix:1*masks:{tmp_path}/a,1*masks:{tmp_path}/b")
    assert source.classes == ("road", "sky", "car", "tree")
    split, wanted = source.splits["train"], [[[0, 1, 2, -1]], [[3, 0, -1, -1]]]
    stored = [split.numpy_reader()(row)["mask"] for row in range(2)]
    assert [one.read().tolist() for one in stored] == wanted
    assert stored[1].path.endswith("b/train/masks/x.png")
    read = tf.function(split.fields_reader())
    found = [read(tf.constant(row, tf.int64))["mask"].numpy().tolist() for row in range(2)]
    assert found == wanted
