# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Part of the examples: nested, the same everywhere, even over classes; and what is excluded."""

import hashlib
import itertools

import numpy as np
import pictures
import pytest
from opened_sources import opened

from vit_jax.data.splits import order, subset
from vit_jax.data.splits import split as splits
from vit_jax.data.splits.split import Split, Table
from vit_jax.errors import BadInput


def named(count, start=0, name="class/{}.png".format):
    return Split(Table(start + count, name, None), range(start, start + count))


def numbered(count, labels=None):
    table = Table(count, str, None, labels=labels and (lambda: labels(count)), numbered=True)
    return Split(table, range(count))


def chosen(split, classes=3, **how):
    part, _ = subset.choose(split, classes=classes, **how)
    return [int(r) for r in part.rows]


def told(split, **how):
    with pytest.raises(BadInput) as caught:
        subset.choose(split, classes=3, **how)
    return str(caught.value)


# ---------------------------------------------------------------- by hash


@pytest.mark.parametrize("make", [named, numbered])
def test_smaller_is_in_larger_and_in_the_order_of_the_table(make):
    parts = [chosen(make(5000), examples=n) for n in (1, 10, 100, 1000, 4999)]
    assert [len(p) for p in parts] == [1, 10, 100, 1000, 4999]
    assert all(p == sorted(set(p)) for p in parts)
    assert all(set(a) < set(b) for a, b in itertools.pairwise(parts))


@pytest.mark.parametrize("make", [named, numbered])
def test_fraction_is_so_many_and_nested(make):
    parts = [chosen(make(1001), fraction=f) for f in (0.01, 0.1, 0.3, 0.9)]
    assert [len(p) for p in parts] == [10, 100, 300, 901]
    assert all(set(a) < set(b) for a, b in itertools.pairwise(parts))
    assert parts[1] == chosen(make(1001), examples=100)


def test_those_with_the_smallest_hashes_are_chosen():
    """Recomputed one by one."""

    def of_name(i):
        name = f"class/{i}.png".encode()
        return hashlib.blake2b(name, digest_size=8, person=b"subset").digest()

    assert chosen(named(500), examples=20) == sorted(sorted(range(500), key=of_name)[:20])
    hashes = order.hash_numbers(range(300_000), order.stream_seed(0, "subset"))
    wanted = np.sort(np.argsort(hashes)[:7777])
    assert chosen(numbered(300_000), examples=7777) == wanted.tolist()


def test_golden_subsets():
    """Changing these numbers makes results of subsets incomparable."""
    assert chosen(named(100), examples=5) == [2, 10, 17, 36, 59]
    assert chosen(numbered(100), examples=5) == [14, 33, 48, 74, 83]


def test_names_decide_wherever_they_stand():
    names = [f"{i}.png" for i in range(300)]
    one = Split(Table(300, names.__getitem__, None), range(300))
    other = Split(Table(300, names[::-1].__getitem__, None), range(300))
    parts = [subset.choose(s, examples=30, classes=2)[0] for s in (one, other)]
    found = [{p.name(i) for i in range(30)} for p in parts]
    assert found[0] == found[1]


def test_subset_of_a_split_takes_its_rows():
    table = numbered(1000).table
    for rows in (range(200, 900), np.arange(1, 1000, 3)):
        part, _ = subset.choose(Split(table, rows), examples=100, classes=2)
        assert len(part) == 100
        assert set(map(int, part.rows)) < set(map(int, rows))
        smallest = np.argsort(order.hash_numbers(np.asarray(rows), order.stream_seed(0, "subset")))[
            :100
        ]
        assert part.rows.tolist() == sorted(np.asarray(rows)[smallest].tolist())


def test_choice_is_even_over_the_table():
    counts = np.histogram(chosen(numbered(10**6), examples=90_000), 10)[0]
    assert abs(counts - 9000).max() < 500  # five standard deviations


def test_all_is_the_split_itself():
    split = numbered(10)
    assert subset.choose(split, classes=2) == (split, [])
    assert subset.choose(split, examples=10, classes=2)[0] is split


def test_note_says_how_many():
    _, notes = subset.choose(numbered(5000), fraction=0.5, classes=2)
    assert notes == ["2,500 of 5,000 training images are kept, by hash"]


@pytest.mark.parametrize(
    "how, shown",
    [
        ({"examples": 11}, "data.examples=11 of 10"),
        ({"examples": -1}, "data.examples=-1 of 10"),
        ({"fraction": 1.5}, "data.fraction=1.5 of 10 training images is 15"),
        ({"fraction": 0.01}, "data.fraction=0.01 of 10 training images is 0; give 1 to 10"),
    ],
)
def test_impossible_choice(how, shown):
    assert shown in told(numbered(10), **how)


def test_mixture_and_windows_keep_their_orders(tmp_path):
    source = opened("mix:1*digits,3*synthetic:imagenet")
    part, _ = subset.choose(source.splits["train"], fraction=0.1, classes=1010)
    assert type(part).__name__ == "Mixed"
    assert part.firsts[-1] == len(part) == 128_296


# ---------------------------------------------------------------- balanced


def skewed(count):
    """A tenth of class 0, a third of 1, the rest of 2."""
    return np.digitize(np.arange(count) * 37 % count / count, [0.1, 0.4]).astype(np.int32)[:, None]


@pytest.mark.parametrize(
    "examples, wanted",
    [(3, [1, 1, 1]), (30, [10, 10, 10]), (300, [100, 100, 100]), (600, [100, 250, 250]),
     (900, [100, 300, 500])],
)  # fmt: skip
def test_classes_are_even_as_far_as_they_have_enough(examples, wanted):
    split = numbered(1000, skewed)
    rows = chosen(split, examples=examples, balanced=True)
    assert np.bincount(skewed(1000)[rows, 0]).tolist() == wanted
    assert rows == sorted(set(rows))


def test_balanced_choices_are_nested_and_by_hash():
    split = numbered(1000, skewed)
    parts = [set(chosen(split, examples=n, balanced=True)) for n in range(1, 1000, 37)]
    assert all(a < b for a, b in itertools.pairwise(parts))
    hashes = order.hash_numbers(range(1000), order.stream_seed(0, "subset"))
    rows = chosen(split, examples=30, balanced=True)
    for k in range(3):
        own = np.flatnonzero(skewed(1000)[:, 0] == k)
        smallest = own[np.argsort(hashes[own])[:10]]
        assert sorted(smallest.tolist()) == [r for r in rows if r in set(own.tolist())]


def test_number_that_does_not_divide_differs_by_one():
    rows = chosen(numbered(1000, skewed), examples=31, balanced=True)
    assert sorted(np.bincount(skewed(1000)[rows, 0]).tolist()) == [10, 10, 11]


def test_note_says_which_classes_are_short():
    _, notes = subset.choose(numbered(1000, skewed), examples=600, balanced=True, classes=4)
    assert notes[0].endswith("evenly from each class; 2 of 4 classes have fewer than 150")


def test_labels_that_are_not_listed_are_read(tmp_path):
    image = pictures.encode(pictures.noise(3, 3))
    made = [pictures.record(image=image, label=[int(i > 4), 0]) for i in range(40)]
    pictures.records(tmp_path / "a.tfrecord", made)
    (tmp_path / "labels.txt").write_text("x\ny\n")
    split = opened(f"records:{tmp_path}", max_labels=2).splits["train"]
    rows = chosen(split, examples=10, balanced=True)
    assert [r for r in rows if r < 5] == [0, 1, 2, 3, 4]
    assert len(rows) == 10


def test_balanced_digits():
    split = opened("digits").splits["train"]
    part, _ = subset.choose(split, examples=50, balanced=True, classes=10)
    labels = splits.take_rows(split.table.labels(), part.rows)
    assert np.bincount(labels[:, 0]).tolist() == [5] * 10


# ---------------------------------------------------------------- excluded


@pytest.fixture
def photos(tmp_path):
    paths = [f"{c}/{c}_{i}.png" for c in ("cat", "dog") for i in range(3)]
    return opened(f"folder:{pictures.folder(tmp_path / 'photos', *paths)}").splits["train"]


def listed(tmp_path, *names):
    (tmp_path / "list").write_bytes(b"\r\n".join(n.encode() for n in names))
    return str(tmp_path / "list")


def left(split, path):
    part, notes = subset.choose(split, exclude=path, classes=2)
    return [part.name(i) for i in range(len(part))], notes


def test_names_their_last_parts_and_stems_are_excluded(photos, tmp_path):
    path = listed(tmp_path, "cat/cat_0.png", " dog_1.png ", "", "dog_2", "cat_9", "bird")
    names, notes = left(photos, path)
    assert names == ["cat/cat_1.png", "cat/cat_2.png", "dog/dog_0.png"]
    assert notes == [
        f"3 training images are excluded by {path}; 2 of its 5 names are not images here, "
        "first bird"
    ]


def test_images_are_excluded_before_they_are_chosen(photos, tmp_path):
    path = listed(tmp_path, "cat_0")
    part, notes = subset.choose(photos, exclude=path, examples=3, classes=2)
    assert "cat/cat_0.png" not in {part.name(i) for i in range(3)}
    assert len(notes) == 2
    assert "3 of 5 training images" in notes[1]
    assert len(subset.choose(photos, exclude=path, fraction=0.4, classes=2)[0]) == 2


def test_records_are_excluded_by_their_names_or_numbers(tmp_path):
    image = pictures.encode(pictures.noise(3, 3))
    made = [
        pictures.record(image=image, label=0, image__filename=f"n01/n01_{i}.JPEG") for i in range(6)
    ]
    pictures.records(tmp_path / "a.tfrecord", made)
    (tmp_path / "labels.txt").write_text("x\ny\n")
    split = opened(f"records:{tmp_path}").splits["train"]
    path = listed(tmp_path, "n01_3", "n01_0.JPEG", "n01/n01_1.JPEG", "a.tfrecord/5", "4", "a")
    names, notes = left(split, path)
    assert names == ["a.tfrecord/2", "a.tfrecord/4"]
    assert "4 training images" in notes[0]
    assert "2 of its 6 names are not images here, first 4" in notes[0]


def test_records_in_a_mixture_are_excluded_too(tmp_path):
    record = pictures.record(image=pictures.encode(pictures.noise(3, 3)), label=0, name="me")
    pictures.records(tmp_path / "a.tfrecord", [record] * 2)
    (tmp_path / "labels.txt").write_text("x\ny\n")
    split = opened(f"mix:1*records:{tmp_path},1*digits").splits["train"]
    part, _ = subset.choose(split, exclude=listed(tmp_path, "digits/0003"), classes=2)
    assert len(part) == len(split) - 1
    assert "leave one of its sources without any" in told(split, exclude=listed(tmp_path, "me"))


def test_wrong_lists(photos, tmp_path):
    assert "has no names" in told(photos, exclude=listed(tmp_path, "", " "))
    said = told(photos, exclude=listed(tmp_path, "zebra", "bird"))
    assert "none of its 2 names, such as bird, is a training image here, such as cat/" in said
    assert "cannot be read" in told(photos, exclude=str(tmp_path / "no"))
    assert "cannot be read" in told(photos, exclude=str(tmp_path))
    every = [f"{c}_{i}" for c in ("cat", "dog") for i in range(3)]
    assert "all 6 training images" in told(photos, exclude=listed(tmp_path, *every))
