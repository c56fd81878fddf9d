# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One's own images in every form that people have them in come to the same index."""

import os

import archive_files
import pytest

from vit_jax.data.prepare import layouts
from vit_jax.errors import BadInput

PLAIN = {f"{c}/{i}.jpg": f"{c}{i}".encode() for c in ("cat", "dog") for i in range(3)}
DIVIDED = {
    f"{s}/{c}/{i}.jpg": f"{s}{c}{i}".encode()
    for s in ("train", "test")
    for c in ("a", "b")
    for i in range(2)
}


def seen(index):
    return {
        split: {(e.name, index.classes[e.label], e.member.read()) for e in examples}
        for split, examples in index.splits.items()
    }


def own(origin):
    index = layouts.index_images(origin, origin.parent / "scratch")
    layouts.check_unique(index, origin)
    return index


PLAIN_SEEN = {"train": {(n, n[:3], c) for n, c in PLAIN.items()}}
DIVIDED_SEEN = {
    s: {(n.partition("/")[2], n.split("/")[1], c) for n, c in DIVIDED.items() if n.startswith(s)}
    for s in ("train", "test")
}


def pack(kind, path, files):
    if kind == "folder":
        return archive_files.unpacked(path, files)
    if kind == "zip":
        return archive_files.zipped(path.with_suffix(".zip"), files)
    return archive_files.tar(path.with_suffix(f".{kind}"), files, "w:gz" if kind == "tgz" else "w")


@pytest.mark.parametrize("kind", ["folder", "zip", "tar", "tgz"])
@pytest.mark.parametrize("above", ["", "set/", "set/images/"])
@pytest.mark.parametrize("files, expected", [(PLAIN, PLAIN_SEEN), (DIVIDED, DIVIDED_SEEN)])
def test_class_folders_are_the_same_however_they_are_packed(tmp_path, kind, above, files, expected):
    origin = pack(kind, tmp_path / "x", {above + name: content for name, content in files.items()})
    index = own(origin)
    assert seen(index) == expected
    assert list(index.classes) == sorted(index.classes)
    assert index.notes == ()


@pytest.mark.parametrize("name", ["val", "valid", "validation"])
def test_a_validation_folder_has_the_name_that_tfds_gives_it(tmp_path, name):
    files = {k.replace("test/", f"{name}/"): v for k, v in DIVIDED.items()}
    assert set(own(archive_files.unpacked(tmp_path / "x", files)).splits) == {"train", "validation"}


def test_folders_of_splits_may_have_capitals(tmp_path):
    files = {k.capitalize(): v for k, v in DIVIDED.items()}
    assert seen(own(archive_files.unpacked(tmp_path / "x", files))) == DIVIDED_SEEN
    alone = {k: v for k, v in files.items() if k.startswith("Train")}
    assert set(own(archive_files.unpacked(tmp_path / "y", alone)).splits) == {"train"}


def test_only_a_train_folder_is_a_split_and_no_class(tmp_path):
    files = {k: v for k, v in DIVIDED.items() if k.startswith("train")}
    index = own(archive_files.unpacked(tmp_path / "x", files))
    assert seen(index) == {"train": DIVIDED_SEEN["train"]}


def test_a_csv_gives_labels_and_splits(tmp_path):
    archive_files.unpacked(tmp_path, {"i/1.jpg": b"1", "i/2.jpg": b"2", "3.jpg": b"3"})
    (tmp_path / "x.csv").write_text(
        "path,label,split\ni/1.jpg,dog,train\ni/2.jpg,cat,train\n3.jpg,dog,val\n"
    )
    index = own(tmp_path / "x.csv")
    assert seen(index) == {
        "train": {("i/1.jpg", "dog", b"1"), ("i/2.jpg", "cat", b"2")},
        "validation": {("3.jpg", "dog", b"3")},
    }
    (tmp_path / "x.csv").write_text("i/1.jpg,dog\ni/2.jpg,cat\n")
    assert set(own(tmp_path / "x.csv").splits) == {"train"}


def test_what_is_left_out_is_counted(tmp_path):
    more = {"readme.txt": b"", "cat/notes.txt": b"", "dog/deeper/1.jpg": b"", "beside.png": b""}
    index = own(archive_files.unpacked(tmp_path / "x", PLAIN | more))
    assert seen(index) == PLAIN_SEEN
    assert index.notes[0].startswith("4 files left out")


@pytest.mark.parametrize(
    "files, said",
    [
        ({"a/1.jpg": b""}, "two classes or more, found one: a;"),
        ({"1.jpg": b"", "2.jpg": b""}, "0 class folders"),
        ({}, "found nothing"),
        ({"a/1.txt": b"", "b/2.txt": b""}, "a/1.txt"),
        ({k: v for k, v in DIVIDED.items() if k.startswith("test")}, "0 class folders"),
        (DIVIDED | {"test/c/1.jpg": b""}, "classes ['c'] are not in train/"),
        ({"images.tar.gz": b"x"}, "Unpack images.tar.gz first"),
    ],
)  # fmt: skip
def test_another_layout_is_bad_input_that_says_what_was_found(tmp_path, files, said):
    (tmp_path / "x").mkdir()
    with pytest.raises(BadInput) as caught:
        own(archive_files.unpacked(tmp_path / "x", files))
    assert said in str(caught.value)
    assert "train/CLASS/*.jpg" in str(caught.value)


def test_the_same_name_twice_is_bad_input(tmp_path):
    data = archive_files.tar_bytes(PLAIN)
    first = data[:1024]  # header and content
    (tmp_path / "x.tar").write_bytes(first + data)
    with pytest.raises(BadInput, match=r"cat/0\.jpg of train is there twice"):
        own(tmp_path / "x.tar")


@pytest.mark.parametrize("kind", ["folder", "tar", "zip"])
@pytest.mark.parametrize("name", ["a\nb", "a\rb", " a", "a ", "a\u2028b"])
def test_the_name_of_a_class_must_be_one_line(tmp_path, kind, name):
    files = {f"{name}/1.jpg": b"1", "fine name/2.jpg": b"2"}
    origin = pack(kind, tmp_path / "x", files)
    with pytest.raises(BadInput, match="line breaks, or blanks at its ends; rename") as caught:
        own(origin)
    assert f"the class {name!r}" in str(caught.value)


@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_the_name_of_a_class_must_be_utf_8(tmp_path, kind):
    (tmp_path / "x").mkdir()
    files = {f"{os.fsdecode(b'caf' + bytes([0xE9]))}/1.jpg": b"1", "b/2.jpg": b"2"}
    with pytest.raises(BadInput, match=r"the class 'caf\\udce9' is not UTF-8; rename"):
        own(pack(kind, tmp_path / "x", files))


def test_the_name_of_a_class_in_a_csv_must_be_one_line(tmp_path):
    archive_files.unpacked(tmp_path, {"1.jpg": b"1", "2.jpg": b"2"})
    (tmp_path / "x.csv").write_text('1.jpg,"a\nb"\n2.jpg,c\n')
    with pytest.raises(BadInput, match="has line breaks"):
        own(tmp_path / "x.csv")


@pytest.mark.parametrize("split", ["tr-ain", "../x", "1st", "a b", "tést", "train[:5]"])
def test_the_name_of_a_split_in_a_csv_must_be_one_of_tfds(tmp_path, split):
    archive_files.unpacked(tmp_path, {"1.jpg": b"1", "2.jpg": b"2"})
    (tmp_path / "x.csv").write_text(f"1.jpg,a,{split}\n2.jpg,b,Fold_2\n")
    with pytest.raises(BadInput, match="must have a name of letters, digits and _") as caught:
        own(tmp_path / "x.csv")
    assert repr(split) in str(caught.value)
    (tmp_path / "x.csv").write_text("1.jpg,a,train\n2.jpg,b,Fold_2\n")
    assert set(own(tmp_path / "x.csv").splits) == {"train", "Fold_2"}
