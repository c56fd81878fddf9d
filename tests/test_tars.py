# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tar files: headers, the index of their members, and the source."""

import io
import logging
import tarfile

import archive_files
import pictures
import pytest
from opened_sources import examples, labels, message, names, opened

from vit_jax.data.formats import tar_index
from vit_jax.data.formats.tar_headers import LONGEST_NAME, Tar

# --- headers ---


FILES = {"a/1.jpg": b"one", "b/2.jpg": b"second" * 100}


def test_members_are_those_of_tarfile_wherever_the_tar_begins():
    content = archive_files.tar_bytes(FILES)
    tar = Tar(io.BytesIO(b"x" * 77 + content + b"y" * 9), 77, len(content))
    found = {m.name: content[m.offset_data : m.offset_data + m.size] for m in tar}
    assert found == FILES
    assert content[: tar.end].rstrip(b"\0").endswith(b"second")
    assert tar.rest(10**6) == content[tar.end :]
    assert not tar.rest(10**6).strip(b"\0")


def test_what_is_no_tar_ends_nowhere():
    tar = Tar(io.BytesIO(b"<html>" * 200), 0, 1200)
    with pytest.raises(tarfile.ReadError):
        list(tar)
    assert tar.end == 0


def test_a_member_that_is_not_there_in_full_is_an_error():
    content = archive_files.tar_bytes(FILES)
    tar = Tar(io.BytesIO(content), 0, 1024 + 512 + 599)
    with pytest.raises(tarfile.ReadError, match=r"'b/2\.jpg' claims 600 bytes"):
        list(tar)


@pytest.mark.parametrize("length", [LONGEST_NAME, LONGEST_NAME + 1])
def test_names_are_as_long_as_paths_can_be(length):
    tar = Tar(io.BytesIO(archive_files.tar_bytes({"a" * length: b""})), 0, 10**6)
    if length > LONGEST_NAME:
        with pytest.raises(tarfile.ReadError, match="4097 characters"):
            list(tar)
    else:
        assert len(next(iter(tar)).name) == length


# --- the index ---


FORMATS = {"gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT, "ustar": tarfile.USTAR_FORMAT}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def found(path):
    """(content, name, label, numeric, split) of each image."""
    data = path.read_bytes()
    return [
        (data[m["start"] : m["start"] + m["size"]], m["name"].decode(), m["label"].decode(),
         bool(m["numeric"]), m["split"].decode())
        for m in tar_index.members(str(path))
    ]  # fmt: skip


def said(path, members):
    with pytest.raises(ValueError, match=str(path)) as caught:
        tar_index.members(str(pictures.tar(path, members)))
    return str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
def test_images_lie_where_tarfile_finds_them(tmp_path, kind):
    """With names that need GNU's or POSIX' long form."""
    long = "d" * (80 if kind == "ustar" else 180)
    members = {f"{long}/{i}.jpg": bytes([i]) * (i * 300) for i in range(5)}
    if kind != "ustar":
        members["Käse/weiß.png"] = b"x" * 700
    path = pictures.tar(tmp_path / "x.tar", members, format=FORMATS[kind])
    with tarfile.open(path) as tar:
        wanted = [(tar.extractfile(m).read(), m.name) for m in tar]
    assert [one[:2] for one in found(path)] == wanted


@pytest.mark.parametrize(
    "suffix, content, label, numeric",
    [
        ("cls", b"7", "7", True),
        ("cls", b" 07\n", "7", True),
        ("cls", b"tench", "tench", False),
        ("txt", b"red fox\n", "red fox", False),
        ("json", b'{"label": 3, "other": [1]}', "3", True),
        ("json", b'{"cls": "dog"}', "dog", False),
        ("json", b'{"class": 0}', "0", True),
    ],
)
def test_labels_of_webdataset(tmp_path, suffix, content, label, numeric):
    path = pictures.tar(tmp_path / "x.tar", {f"a.b/s.{suffix}": content, "a.b/s.JPG": b"image"})
    assert found(path) == [(b"image", "a.b/s.JPG", label, numeric, "")]


def test_first_kind_of_label_is_taken(tmp_path):
    members = {"s.txt": b"a", "s.jpg": b"1", "s.json": b'{"label": "b"}', "s.cls": b"c"}
    assert found(pictures.tar(tmp_path / "x.tar", members))[0][2] == "c"
    del members["s.cls"]
    assert found(pictures.tar(tmp_path / "y.tar", members))[0][2] == "b"
    members["s.json"] = b'{"width": 3}'
    assert found(pictures.tar(tmp_path / "z.tar", members))[0][2] == "a"


def test_class_folders_and_their_splits(tmp_path):
    members = {
        "./train/cat/1.jpg": b"1",
        "train/cat/1.b.jpg": b"2",
        "root/val/dog/x.png": b"3",
        "owl/7.webp": b"4",
        "train/8.gif": b"5",
    }
    last = members.popitem()
    assert [one[1:] for one in found(pictures.tar(tmp_path / "x.tar", members))] == [
        ("train/cat/1.jpg", "cat", False, "train"),
        ("train/cat/1.b.jpg", "cat", False, "train"),
        ("root/val/dog/x.png", "dog", False, "val"),
        ("owl/7.webp", "owl", False, ""),
    ]
    assert "train/8.gif has no label" in said(tmp_path / "y.tar", [*members.items(), last])


def test_tar_may_be_named_by_its_class(tmp_path):
    path = pictures.tar(tmp_path / "n01440764.tar", {"n01440764_10.JPEG": b"1", "2.JPEG": b"2"})
    assert [one[2] for one in found(path)] == ["n01440764"] * 2
    for name in ("train-000000.tar", "train.tar", "x-01.tar"):
        assert "a.jpg has no label" in said(tmp_path / name, {"a.jpg": b"1"})


def test_folder_of_a_webdataset_may_be_its_split(tmp_path):
    members = {"val/1.jpg": b"1", "val/1.cls": b"3"}
    assert found(pictures.tar(tmp_path / "x.tar", members))[0][4] == "val"


def test_other_members_are_left_out_and_told(tmp_path, caplog):
    members = {"a/1.jpg": b"1", "README": b"2", "a/1.xml": b"3", "a/._1.jpg": b"4", "a/.x": b"5"}
    with caplog.at_level(logging.INFO, "vit_jax"):
        assert len(found(pictures.tar(tmp_path / "x.tar", members))) == 1
    assert "2 members are left out" in caplog.text


def test_index_is_built_once(tmp_path, monkeypatch):
    path = pictures.tar(tmp_path / "x.tar", {"a/1.jpg": b"1", "b/2.jpg": b"2"})
    first = found(path)
    monkeypatch.setattr(tarfile, "open", None)
    assert found(path) == first


def test_tar_without_images(tmp_path):
    assert found(pictures.tar(tmp_path / "x.tar", {"a.txt": b"1"})) == []
    assert found(pictures.tar(tmp_path / "y.tar", {})) == []


# ---------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    "members, shown",
    [
        ([("a.jpg", b"1"), ("a.cls", b"1"), ("b.jpg", b"2")], "b.jpg has no label"),
        ([("a.jpg", b"1"), ("a.cls", b"1"), ("a.png", b"2")], "two images called a;"),
        ([("c/a.jpg", b"1"), ("c/a.jpg", b"2")], "two images called c/a.jpg"),
        ([("a.jpg", b"1"), ("a.cls", b"-1")], "a.cls is '-1'"),
        ([("a.jpg", b"1"), ("a.txt", b"two\nlines")], "expected one label"),
        ([("a.jpg", b"1"), ("a.cls", b"\xff")], "a.cls cannot be read"),
        ([("a.jpg", b"1"), ("a.json", b"{")], "a.json cannot be read"),
        ([("a.jpg", b"1"), ("a.json", b'{"label": [1, 2]}')], "[1, 2] is neither"),
        ([("a.jpg", b"1"), ("a.json", b'{"label": true}')], "True is neither"),
        ([("a.jpg", b"1"), ("a.json", b'{"label": 1.5}')], "1.5 is neither"),
    ],
)
def test_wrong_members_are_named(tmp_path, members, shown):
    assert shown in said(tmp_path / "x-00.tar", members)


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_compressed_tar_is_refused_with_what_to_do(tmp_path, mode):
    with pytest.raises(ValueError, match="is compressed"):
        tar_index.members(str(pictures.tar(tmp_path / "x.tar", {"a/1.jpg": b"1"}, mode=mode)))


@pytest.mark.parametrize("kept", [0, 100, 512, 700, 1024, 1536, 2000, 2048])
def test_truncated_tar_is_an_error(tmp_path, kept):
    """Also where it ends with a whole member."""
    path = pictures.tar(tmp_path / "x.tar", {"a/1.jpg": b"1" * 512, "a/2.jpg": b"2" * 512})
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match="truncated"):
        tar_index.members(str(path))


def test_tars_put_together_by_cat_are_an_error(tmp_path):
    """Or all but the first would be left out."""
    path = pictures.tar(tmp_path / "x.tar", {"a/1.jpg": b"1" * 512})
    path.write_bytes(2 * path.read_bytes())
    with pytest.raises(ValueError, match="several tars in one file"):
        tar_index.members(str(path))


def test_damaged_header_is_an_error(tmp_path):
    """Which tarfile takes for the end."""
    path = pictures.tar(tmp_path / "x.tar", {f"a/{i}.jpg": b"1" * 512 for i in range(3)})
    data = bytearray(path.read_bytes())
    data[1024 + 130] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged at byte 1024"):
        tar_index.members(str(path))


def test_file_that_is_no_tar(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"x" * 2000)
    with pytest.raises(ValueError, match="not a tar file"):
        tar_index.members(str(tmp_path / "x.tar"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_link_in_place_of_an_image(tmp_path, kind):
    with tarfile.open(tmp_path / "x.tar", "w") as tar:
        member = tarfile.TarInfo("a/1.jpg")
        tar.addfile(member, io.BytesIO())
        link = tarfile.TarInfo("a/2.jpg")
        link.type, link.linkname = kind, "a/1.jpg"
        tar.addfile(link)
    with pytest.raises(ValueError, match=r"a/2.jpg is a link"):
        tar_index.members(str(tmp_path / "x.tar"))


# --- the source ---


def image(i):
    return pictures.encode(pictures.noise(4, 5, seed=i))


def shard(path, numbers, label=str):
    """A WebDataset of images, with the label that `label` gives."""
    members = {}
    for i in numbers:
        members |= {f"{i:04d}.png": image(i), f"{i:04d}.cls": label(i % 3).encode()}
    return pictures.tar(path, members)


def test_webdataset_shards_of_two_splits(tmp_path):
    shard(tmp_path / "x-train-0.tar", range(3))
    shard(tmp_path / "x-train-1.tar", range(3, 7))
    shard(tmp_path / "x-val-0.tar", range(7, 9))
    source = opened(f"tar:{tmp_path}/x-*.tar")
    assert source.classes == ("0", "1", "2")
    assert examples(source.splits["train"]) == [(image(i), [i % 3]) for i in range(7)]
    assert examples(source.splits["test"]) == [(image(i), [i % 3]) for i in (7, 8)]
    assert names(source)["train"][2:4] == ["x-train-0.tar/0002.png", "x-train-1.tar/0003.png"]
    table = source.splits["train"].table
    assert table.shards.tolist() == [0, 3, 7, 9]
    assert table.labels()[:, 0].tolist() == [i % 3 for i in range(9)]
    assert source.splits["train"].rows == range(7)


def test_plain_tar_of_class_folders(tmp_path):
    members = {f"train/{c}/{i}.png": image(i) for i in range(3) for c in ("dog", "cat")}
    members |= {"val/cat/9.png": image(9), "val/dog/8.png": image(8)}
    pictures.tar(tmp_path / "pets.tar", members)
    source = opened(f"tar:{tmp_path}")
    assert source.classes == ("cat", "dog")
    assert examples(source.splits["train"]) == [(image(i), [c]) for i in range(3) for c in (1, 0)]
    assert examples(source.splits["test"]) == [(image(9), [0]), (image(8), [1])]
    (tmp_path / "\udcff").mkdir()  # a path may be any bytes
    (tmp_path / "pets.tar").rename(tmp_path / "\udcff" / "pets.tar")
    assert opened(f"tar:{tmp_path}/\udcff").fingerprint() == source.fingerprint()


def test_tars_named_by_class(tmp_path):
    """As the tars inside ILSVRC2012_img_train.tar."""
    for wnid in ("n02", "n01", "n10"):
        pictures.tar(tmp_path / f"{wnid}.tar", {f"{wnid}_{i}.JPEG": image(i) for i in range(4)})
    source = opened(f"tar:{tmp_path}", test=30)
    assert source.classes == ("n01", "n02", "n10")
    every = [name for part in names(source).values() for name in part]
    wnids = ("01", "02", "10")
    assert sorted(every) == [f"n{n}.tar/n{n}_{i}.JPEG" for n in wnids for i in range(4)]
    assert len(source.splits["test"]) > 0


def test_classes_of_a_list(tmp_path):
    """They may be more than there are images of, and in another order."""
    shard(tmp_path / "a" / "0.tar", range(3))
    (tmp_path / "a" / "labels.txt").write_text("zero\none\ntwo\nthree\n")
    assert opened(f"tar:{tmp_path}/a").classes == ("zero", "one", "two", "three")
    shard(tmp_path / "b" / "0.tar", range(3), "zyx".__getitem__)
    (tmp_path / "list").write_text("y\nx\nz\nw\n")
    source = opened(f"tar:{tmp_path}/b", label_names=str(tmp_path / "list"))
    assert source.classes == ("y", "x", "z", "w")
    assert labels(source.splits["train"]) == [[2], [0], [1]]


def test_largest_number_says_how_many_classes(tmp_path):
    shard(tmp_path / "0.tar", range(3), lambda k: str(10 * k))
    assert len(opened(f"tar:{tmp_path}").classes) == 21


def test_numbers_as_folders_are_in_their_order(tmp_path):
    pictures.tar(tmp_path / "x.tar", {f"{k}/1.png": image(k) for k in (10, 9, 100)})
    source = opened(f"tar:{tmp_path}")
    assert source.classes == ("9", "10", "100")
    assert labels(source.splits["train"]) == [[1], [0], [2]]


def test_real_photographs_are_the_members(data_dir, tmp_path):
    with tarfile.open(data_dir / "imagenet_sample200.tar") as tar:
        found = [m for m in tar if "/train_sample/n" in m.name and m.isfile()]
        photos = {"/".join(m.name.split("/")[-2:]): tar.extractfile(m).read() for m in found}
    source = opened(f"tar:{pictures.tar(tmp_path / 'some.tar', photos)}")
    split = source.splits["train"]
    assert len(split) == 150
    for (name, data), (image, (label,)) in zip(photos.items(), examples(split), strict=True):
        assert image == data
        assert source.classes[label] == name.split("/")[0]
    pipe = pictures.batches(split, "decode|resize(4)", batch_size=50)
    assert sum(batch["_mask"].sum() for batch in pipe.evaluation()) == 150


def test_only_some_images_with_a_class_are_refused(data_dir):
    """Its validation images lie in no folder of a class."""
    assert "val/ILSVRC2012_val" in message(f"tar:{data_dir / 'imagenet_sample200.tar'}")


def test_damaged_photograph_is_named(tmp_path):
    pictures.tar(tmp_path / "x.tar", {"a/1.png": image(1), "b/2.png": b"no image"})
    pipe = pictures.batches(opened(f"tar:{tmp_path}").splits["train"], "decode|resize(4)")
    with pytest.raises(ValueError, match=r"x.tar/b/2.png cannot be decoded"):
        list(pipe.evaluation())


# ---------------------------------------------------------------- what is wrong


def test_labels_of_two_kinds(tmp_path):
    shard(tmp_path / "0.tar", range(3))
    shard(tmp_path / "1.tar", range(3), "abc".__getitem__)
    said = message(f"tar:{tmp_path}")
    assert "numbers in 0.tar and names in 1.tar" in said


@pytest.mark.parametrize("label, shown", [(str, "'2'"), ("abc".__getitem__, "'a'")])
def test_label_that_is_not_in_the_list(tmp_path, label, shown):
    shard(tmp_path / "0.tar", range(3), label)
    (tmp_path / "labels.txt").write_text("b\nc\n")
    assert f"label {shown} is not one of 2 classes" in message(f"tar:{tmp_path}")


def test_a_number_is_not_taken_for_billions_of_classes(tmp_path):
    shard(tmp_path / "0.tar", range(3), lambda k: str(10**k * 99999))
    assert "label 9999900 makes more than 1,000,000 classes" in message(f"tar:{tmp_path}")


def test_one_class_is_none(tmp_path):
    pictures.tar(tmp_path / "x.tar", {"a/1.png": image(1)})
    assert "found only 1 classes" in message(f"tar:{tmp_path}")


def test_some_images_in_folders_of_splits(tmp_path):
    pictures.tar(tmp_path / "x.tar", {"train/a/1.png": image(1), "b/2.png": image(2)})
    said = message(f"tar:{tmp_path}")
    assert "x.tar/b/2.png is not in a folder of a split" in said


def test_source_without_images(tmp_path):
    """Such as a tar of tars."""
    pictures.tar(tmp_path / "x.tar", {"n01.tar": b"x"})
    assert "vit_jax data prepare" in message(f"tar:{tmp_path}")


@pytest.mark.parametrize("name, mode", [("x.tar.gz", "w:gz"), ("x.tgz", "w:gz")])
def test_compressed_tar(tmp_path, name, mode):
    pictures.tar(tmp_path / name, {"a/1.png": b"1"}, mode=mode)
    assert f"{name} is compressed" in message(f"tar:{tmp_path}")
