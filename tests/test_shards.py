# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sets of files: found, complete, of one split each; and the list of their classes."""

import os

import pytest

from vit_jax.data.formats import shards
from vit_jax.errors import BadInput


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
