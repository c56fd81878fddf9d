# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The images of tar files: where they lie and their labels, and what wrong files are told."""

import io
import logging
import tarfile

import pictures
import pytest

from vit_jax.data.formats import tar_index

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
