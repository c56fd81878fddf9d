# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which images shots are: by seed and name alone, nested, of every class; and what is refused."""

import numpy as np
import pytest

from vit_jax.data.sources.source import Options, Source
from vit_jax.data.splits.split import Split, Table
from vit_jax.data.tasks import shots
from vit_jax.errors import BadInput


def split_of(labels, prefix="x", numbered=False):
    labels = np.array(labels, np.int32)
    labels = labels if labels.ndim == 2 else labels[:, None]
    table = Table(
        len(labels), lambda row: f"{prefix}/{row}.jpg", lambda: None,
        labels=lambda: labels, numbered=numbered,
    )  # fmt: skip
    return Split(table, range(len(labels)))


def source_of(classes=3, spec="folder:x", **splits):
    return Source(spec, tuple(map(str, range(classes))), splits)


LABELS = np.random.default_rng(0).integers(0, 3, 97)


def made(ks=(1, 5, 10), seeds=3, **splits):
    given = {"train": split_of(LABELS), "test": split_of([0, 1, 2, 1], "t")} | splits
    return shots.make_task(source_of(**given), ks, seeds)


def names(task, key):
    return [task.train.name(int(i)) for i in task.picks[key]]


@pytest.mark.parametrize("k", [1, 5, 10])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_k_images_of_every_class(k, seed):
    task = made()
    labels = task.train_labels[task.picks[k, seed]]
    assert np.bincount(labels).tolist() == [k] * 3
    expected = {f"x/{i}.jpg": label for i, label in enumerate(LABELS)}
    assert [expected[name] for name in names(task, (k, seed))] == labels.tolist()
    assert len(set(names(task, (k, seed)))) == 3 * k


def test_picks_of_a_seed_are_nested_and_those_of_others_differ():
    task = made()
    for seed in range(3):
        assert set(names(task, (1, seed))) < set(names(task, (5, seed)))
        assert set(names(task, (5, seed))) < set(names(task, (10, seed)))
    assert len({tuple(names(task, (5, seed))) for seed in range(3)}) == 3


def test_picks_do_not_depend_on_what_else_is_asked_for():
    for ks, seeds in [((5,), 1), ((25, 5), 7), ((5, shots.ALL), 2)]:
        assert names(made(ks, seeds), (5, 0)) == names(made(), (5, 0))


@pytest.mark.parametrize("numbered", [False, True])
def test_order_of_the_source_does_not_matter_where_images_have_names(numbered):
    other = np.random.default_rng(1).permutation(97)
    table = split_of(LABELS, numbered=numbered).table
    a = made(train=Split(table, np.arange(97)))
    b = made(train=Split(table, other))
    assert set(names(a, (5, 1))) == set(names(b, (5, 1)))


def test_only_picked_images_are_in_the_task():
    task = made((1,), 2)
    assert (
        len(task.train)
        == len(task.train_labels)
        == len(set(names(task, (1, 0))) | set(names(task, (1, 1))))
    )
    assert len(made((shots.ALL,)).train) == 97


def test_all_is_one_pick_of_every_image():
    task = made((shots.ALL, 2), 3)
    assert [key for key in task.picks if key[0] == shots.ALL] == [(shots.ALL, 0)]
    assert task.picks[shots.ALL, 0].tolist() == list(range(97))


def test_classes_with_fewer_images_are_reported():
    task = made((1, 5, 25), train=split_of([0] * 30 + [1] * 7))
    assert task.notes == (
        "1 shots: 1 of 3 classes have fewer images, 1 of them none",
        "5 shots: 1 of 3 classes have fewer images, 1 of them none",
        "25 shots: 2 of 3 classes have fewer images, 1 of them none",
    )
    assert np.bincount(task.train_labels[task.picks[25, 0]]).tolist() == [25, 7]
    assert made((1, 5)).notes == ()


def test_val_is_scored_where_test_is_missing_or_has_no_labels():
    val = split_of([2, 1], "v")
    for task in (
        shots.make_task(source_of(train=split_of(LABELS), val=val), (1,), 1),
        made(test=split_of([-1, -1]), val=val),
    ):
        assert task.test_labels.tolist() == [2, 1]
        assert task.notes == ("scored on val: there is no test split with labels",)
    assert made(val=val).test_labels.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize("spec", ["tfds:imagenet2012", "folder:x"])
def test_shots_of_a_large_source_are_picked_from_a_pool(spec, monkeypatch):
    monkeypatch.setattr(shots, "POOL", 40)
    source = source_of(spec=spec, train=split_of(LABELS), test=split_of([0]))
    task = shots.make_task(source, (2, 97), 1)
    assert task.notes[0] == "shots are picked from 40 images of train"
    pool = {int(name[2:-4]) for name in names(task, (97, 0))}
    assert len(pool) == 40
    assert (pool == set(range(40))) == (spec == "tfds:imagenet2012")
    assert len(shots.make_task(source, (shots.ALL,), 1).train) == 97


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"train": split_of([[0, -1], [1, 2]])}, ["1 of 2 images of train", "x/1.jpg with 2"]),
        ({"train": split_of([0, 1, -1])}, ["train", "x/2.jpg with 0", "one label an image"]),
        ({"test": split_of([0, -1])}, ["1 of 2 images of test"]),
        ({"test": split_of([-1])}, ["of test have no label"]),
    ],
)
def test_images_with_several_labels_or_none_are_refused(changes, expected):
    with pytest.raises(BadInput) as caught:
        made(**changes)
    for text in expected:
        assert text in str(caught.value)


def test_a_label_in_the_second_place_is_a_label():
    assert made(test=split_of([[-1, 2], [1, -1]])).test_labels.tolist() == [2, 1]


@pytest.mark.parametrize(
    "source, expected",
    [
        (source_of(1, train=split_of([0]), test=split_of([0])), "it has one class"),
        (source_of(train=split_of([0])), "no test or val split, only train"),
        (source_of(test=split_of([0])), "no train split, only test"),
    ],
)
def test_sources_that_nothing_can_be_learned_from_are_refused(source, expected):
    with pytest.raises(BadInput, match=expected):
        shots.make_task(source, (1,), 1)


def test_digest_is_of_the_images():
    task = made()
    assert task.digest() == made().digest()
    assert task.digest() != made(test=split_of([0, 1, 2, 1], "u")).digest()
    assert task.digest() != made(seeds=1).digest()


def test_a_source_without_a_test_split_holds_out_a_tenth():
    digits = shots.open_source("digits", Options())
    assert 0.08 < len(digits.splits["test"]) / 1797 < 0.12
    task = shots.make_task(digits, (10,), 3)
    assert len(task.picks[10, 0]) == 100
