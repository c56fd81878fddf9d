# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Held-out parts that stay where they are, the three standard splits, and slices of them."""

import dataclasses

import numpy as np
import pytest

from vit_jax.data.splits import split as splits
from vit_jax.data.splits.split import Split, Table
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput


def table(names):
    """A table whose image is its row number and whose label is ten times that."""

    def reader():
        return lambda row: (tf.fill([1, 1, 3], tf.cast(row, tf.uint8)), tf.stack([row * 10]))

    return Table(len(names), lambda row: names[row], reader)


def split(count, names=None):
    names = names or [f"class/{i}.png" for i in range(count)]
    return Split(table(names), range(count))


def rows(part):
    return [int(r) for r in part.rows]


def named(part):
    return {part.name(i) for i in range(len(part))}


# ---------------------------------------------------------------- splits


@pytest.mark.parametrize("some", [range(2, 7), np.array([6, 0, 3])])
def test_split_reads_and_names_its_own_rows(some):
    part = Split(split(9).table, some)
    read = part.reader()
    for i, row in enumerate(some):
        image, labels = read(tf.constant(i, tf.int64))
        assert (image.numpy() == row).all()
        assert labels.numpy().tolist() == [10 * row]
        assert part.name(i) == f"class/{row}.png"
    assert len(part) == len(some)


@pytest.mark.parametrize("some", [range(2, 7), np.array([0, 3, 4, 6, 8])])
@pytest.mark.parametrize("indices", [range(1, 4), np.array([0, 2, 4])])
def test_part_of_a_split_is_by_index(some, indices):
    part = Split(split(9).table, some).take_indices(indices)
    assert rows(part) == [some[i] for i in indices]
    assert rows(Split(split(9).table, some).take_range(1, 4)) == list(some[1:4])


@pytest.mark.parametrize("some", [range(3, 8), np.array([3, 4, 6, 7])])
def test_bounds_of_files_in_a_split(some):
    bounds = [0, 3, 4, 7, 9]
    wanted = [sum(r < b for r in some) for b in bounds]
    assert splits.first_at_least(some, bounds).tolist() == wanted


# ---------------------------------------------------------------- holding out


def test_golden_buckets():
    """Changing these numbers moves images from train to test."""
    names = ["test/cat/1.jpg", "val/cat/1.jpg", ""]
    assert [splits.bucket(name) for name in names] == [402, 8161, 9876]


@pytest.mark.parametrize("percent", [1, 10, 50, 90])
def test_hold_out_takes_about_its_share_and_loses_nothing(percent):
    rest, held = splits.hold_out(split(4000), percent, "test")
    assert sorted(rows(rest) + rows(held)) == list(range(4000))
    share, deviation = percent / 100, (percent / 100 * (1 - percent / 100) / 4000) ** 0.5
    assert abs(len(held) / 4000 - share) < 4 * deviation


@pytest.mark.parametrize("percent", [1, 10, 50])
def test_numbered_rows_are_held_out_by_number(percent):
    """Whatever they are called, and however many come after them."""
    table = dataclasses.replace(split(4000).table, name=None, numbered=True)
    rest, held = splits.hold_out(Split(table, range(4000)), percent, "val/")
    assert sorted(rows(rest) + rows(held)) == list(range(4000))
    share, deviation = percent / 100, (percent / 100 * (1 - percent / 100) / 4000) ** 0.5
    assert abs(len(held) / 4000 - share) < 4 * deviation
    fewer = splits.hold_out(Split(table, range(1000)), percent, "val/")[1]
    assert rows(fewer) == [r for r in rows(held) if r < 1000]
    other = splits.hold_out(Split(table, range(4000)), percent, "")[1]
    assert rows(other) != rows(held)


def test_hold_out_stays_when_examples_come_and_go():
    names = [f"class/{i}.png" for i in range(200)]
    held = named(splits.hold_out(split(200, names), 20, "test")[1])
    more = sorted(names + [f"class/new{i}.png" for i in range(100)])
    held_of_more = named(splits.hold_out(split(300, more), 20, "test")[1])
    assert {n for n in held_of_more if "new" not in n} == held
    fewer = names[::-2]
    assert named(splits.hold_out(split(100, fewer), 20, "test")[1]) == held & set(fewer)


def test_test_and_val_are_held_out_independently():
    """Or all of val would come from the images that are next to being held out for test."""
    test = set(rows(splits.hold_out(split(4000), 20, "test")[1]))
    val = set(rows(splits.hold_out(split(4000), 20, "val")[1]))
    assert 100 < len(test & val) < 230  # 160 expected


@pytest.mark.parametrize("hold", [splits.hold_out, splits.hold_out_last])
@pytest.mark.parametrize("percent", [1, 10, 90])
def test_few_examples_leave_some_on_both_sides(hold, percent):
    """Or one image alone might be held out, and a run be told that train is unknown."""
    for start in range(60):
        for count in (0, 1, 2, 3):
            given = Split(split(100).table, np.arange(start, start + count))
            rest, held = hold(given, percent, "")
            assert sorted(rows(rest) + rows(held)) == list(range(start, start + count))
            assert len(rest) >= min(count, 1)
            assert len(held) >= min(max(count - 1, 0), 1)


@pytest.mark.parametrize("percent, held", [(0, 0), (1, 2), (10, 15), (25, 38), (90, 135)])
def test_cut_takes_the_end(percent, held):
    rest, last = splits.hold_out_last(split(150), percent, "val")
    assert rows(rest) == list(range(150 - held))
    assert rows(last) == list(range(150 - held, 150))


# ---------------------------------------------------------------- the standard three


def standard(given, val=10, test=20):
    made, notes = splits.standard(
        given, val_percent=val, test_percent=test, hold=splits.hold_out_last
    )
    return {name: rows(part) for name, part in made.items()}, notes


def parts(**sizes):
    """Splits one after another in one table."""
    whole, start, made = split(sum(sizes.values())), 0, {}
    for name, size in sizes.items():
        made[name] = Split(whole.table, range(start, start + size))
        start += size
    return made


def test_all_is_divided_into_three():
    made, notes = standard(parts(all=100))
    assert made == {
        "train": list(range(72)),
        "val": list(range(72, 80)),
        "test": list(range(80, 100)),
    }
    assert notes == ["test: 20 % held out of train", "val: 10 % held out of train"]


def test_splits_that_are_there_stay_as_they_are():
    given = parts(train=50, val=20, test=30)
    made, notes = standard(given)
    assert made == {name: rows(part) for name, part in given.items()}
    assert notes == []


@pytest.mark.parametrize("name", ["val", "validation", "valid"])
def test_without_test_the_validation_split_is_test(name):
    """A split that models are selected on is never the one that is reported."""
    made, notes = standard(parts(train=100, **{name: 30}))
    assert made["train"] == list(range(90))
    assert made["val"] == list(range(90, 100))
    assert made["test"] == list(range(100, 130))
    assert notes[0].startswith("test: the validation split")
    assert notes[1:] == ["val: 10 % held out of train"]


@pytest.mark.parametrize("name", ["validation", "valid"])
def test_validation_is_val_by_another_name(name):
    made, notes = standard(parts(train=50, test=10, **{name: 20}))
    assert made["val"] == list(range(60, 80))
    assert made["train"] == list(range(50))
    assert notes == []


def test_val_is_held_out_of_train_alone():
    made, _ = standard(parts(train=100, test=50))
    assert made["train"] == list(range(90))
    assert made["val"] == list(range(90, 100))
    assert made["test"] == list(range(100, 150))


def test_nothing_is_held_out_at_0_percent():
    made, notes = standard(parts(all=100), val=0, test=0)
    assert made == {"train": list(range(100))}
    assert notes == []


def test_splits_without_train_stay_as_they_are():
    made, notes = standard(parts(test=30, unlabelled=10))
    assert list(made) == ["test", "unlabelled"]
    assert notes == []


# ---------------------------------------------------------------- slices


@pytest.mark.parametrize(
    "expression, start, stop",
    [
        ("train", 0, 200),
        (" train ", 0, 200),
        ("train[:]", 0, 200),
        ("train[:10%]", 0, 20),
        ("train[90%:]", 180, 200),
        ("train[10%:20%]", 20, 40),
        ("train[:50]", 0, 50),
        ("train[50:]", 50, 200),
        ("train[50:60]", 50, 60),
        ("train[50:50%]", 50, 100),
        ("train[:1000]", 0, 200),
        ("train[:200%]", 0, 200),
        ("odd_name-2[:1]", 200, 201),
    ],
)
def test_slices(expression, start, stop):
    part = splits.select(parts(**{"train": 200, "odd_name-2": 9}), expression, "digits")
    assert rows(part) == list(range(start, stop))


@pytest.mark.parametrize("percent", [1, 33, 50, 98, 99])
def test_two_percent_slices_make_the_whole(percent):
    given = parts(train=157)
    head = splits.select(given, f"train[:{percent}%]", "x")
    tail = splits.select(given, f"train[{percent}%:]", "x")
    assert rows(head) + rows(tail) == list(range(157))
    assert len(head) == round(157 * percent / 100)


def test_a_split_that_too_few_images_left_out_says_so():
    split = Split(Table(2, lambda row: f"{row}", lambda: None), np.arange(2))
    made = {"train": split.take_range(0, 1), "test": split.take_range(1, 2)}
    said = "no split 'val', and too few images to hold some out.* add images, or take one of train"
    with pytest.raises(BadInput, match=said):
        splits.select(made, "val", "coco:x")


def test_slice_of_held_out_rows():
    made, _ = splits.standard({"all": split(300)}, val_percent=10, test_percent=20)
    part = splits.select(made, "test[:5]", "x")
    assert rows(part) == rows(made["test"])[:5]


@pytest.mark.parametrize(
    "expression, shown",
    [
        ("trian", ["unknown split of digits 'trian'", "'train'", "test"]),
        ("", ["''", "train[:98%]"]),
        ("train[", ["'train['", "train[:98%]"]),
        ("train[5]", ["'train[5]'", "train[:98%]"]),
        ("train[:-5]", ["'train[:-5]'", "train[:98%]"]),
        ("train[:1.5%]", ["'train[:1.5%]'", "train[:98%]"]),
        ("train[:5]+test", ["train[:98%]"]),
        ("train[5:5]", ["is empty", "train has 200"]),
        ("train[60:50]", ["is empty", "train has 200"]),
        ("train[200:]", ["is empty", "train has 200"]),
        ("train[:0%]", ["is empty"]),
        ("test[:1%]", ["is empty", "test has 9", "take a larger part, or add images"]),
        ("val", ["'val'", "data.val_percent above 0", "Known: train, test"]),
    ],
)
def test_wrong_slice_says_what_there_is(expression, shown):
    with pytest.raises(BadInput) as caught:
        splits.select(parts(train=200, test=9), expression, "digits")
    assert [s for s in shown if s not in str(caught.value)] == []


def test_digest_sees_number_names_and_order():
    plain = split(5).digest()
    assert split(5).digest() == plain
    assert split(6).digest() != plain
    assert Split(split(5).table, np.array([1, 0, 2, 3, 4])).digest() != plain
    assert split(50).digest(most=3) != split(51).digest(most=3)
    assert len({split(1).digest(), Split(split(5).table, range(1, 2)).digest()}) == 2
