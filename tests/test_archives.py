# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Members of archives: read where they lie, refused where they are not safe, never cut short."""

import os
import tarfile
import zipfile
from types import SimpleNamespace

import archive_files
import pytest

from vit_jax.data.formats import archives
from vit_jax.errors import BadInput

FILES = {"a/1.jpg": b"one" * 400, "a/2.jpg": b"", "b/3.jpg": bytes(range(256)) * 9}


def found(origin, scratch=None, opened=lambda _: True):
    scratch = scratch or origin.parent / "scratch"
    return {m.name: m.read() for m in archives.members(origin, scratch, opened)}


def refused(origin):
    with pytest.raises(BadInput) as caught:
        found(origin)
    return str(caught.value)


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_gives_what_was_put_in(tmp_path, mode):
    path = archive_files.tar(tmp_path / "x.tar", FILES, mode)
    assert found(path) == FILES
    assert found(path) == FILES  # the plain form is there already


@pytest.mark.parametrize("mode", ["w:gz", "w:bz2", "w:xz"])
def test_progress_of_a_compressed_tar_is_in_bytes_and_what_is_made_is_kept(tmp_path, mode):
    path = archive_files.tar(tmp_path / "x.tar", {"a/1.jpg": os.urandom(5 << 20)}, mode)
    seen, size = [], path.stat().st_size

    def listed():
        scratch = tmp_path / "scratch"
        progress = lambda *p: seen.append(p)  # noqa: E731
        return list(archives.members(path, scratch, lambda _: True, progress))

    listed()
    assert seen[-1] == (size, size)
    assert len(seen) >= 5
    assert seen == sorted(seen)
    seen.clear()
    listed()
    assert seen == []


@pytest.mark.parametrize("mode, grows", [("w:gz", True), ("w:xz", False)])
def test_a_compressed_tar_asks_for_space_before_it_is_unpacked(tmp_path, monkeypatch, mode, grows):
    path = archive_files.tar(tmp_path / "x.tar", {"a/1.jpg": bytes(1 << 20)}, mode)
    size = (1 << 20) + 10240 - (1 << 20) % 10240 if grows else path.stat().st_size
    free = SimpleNamespace(free=2 * size - 1)
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: free)
    said = refused(path)
    assert f"about {2 * size} bytes" in said
    assert f"where {2 * size - 1} are free" in said
    assert not list(tmp_path.rglob("*plain*"))
    free.free += 1
    if not grows:  # what xz makes of it shows only on the way
        assert f"where {2 * size} are free" in refused(path)
        assert not list(tmp_path.rglob("*plain*"))
        free.free = 3 << 20
    assert found(path)["a/1.jpg"] == bytes(1 << 20)


@pytest.mark.parametrize(
    "size, stated, expected",
    [
        (100, 4000, 4000),
        (5 << 30, 1 << 30, 5 << 30),
        ((5 << 30) + 9999, 1 << 30, 5 << 30),  # images that got larger
        (5 << 30, 3 << 30, 7 << 30),
    ],
)
def test_the_size_in_a_gzip_file_is_modulo_4_gib(tmp_path, size, stated, expected):
    path = tmp_path / "x.gz"
    with path.open("wb") as file:
        file.seek(size - 4)
        file.write(stated.to_bytes(4, "little"))
    assert archives._plain_bytes(path, archives.gzip) == expected


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_gives_what_was_put_in(tmp_path, kind):
    assert found(archive_files.zipped(tmp_path / "x.zip", FILES, kind)) == FILES


def test_a_folder_gives_its_files_and_those_of_its_archives(tmp_path):
    root = archive_files.unpacked(
        tmp_path / "root", FILES | {".hidden/x": b"x", "__MACOSX/y": b"y"}
    )
    archive_files.tar(root / "c.tar", {"./4.jpg": b"four"})
    archive_files.zipped(root / "d.zip", {"5.jpg": b"five"})
    assert found(root) == FILES | {"c/4.jpg": b"four", "d/5.jpg": b"five"}
    names = set(found(root, opened=lambda name: name == "c.tar"))
    assert names == {*FILES, "c/4.jpg", "d.zip"}


def test_tars_in_a_tar_are_read_without_unpacking(tmp_path):
    inner = {
        f"n{k}.tar": archive_files.tar_bytes({f"{k}{i}.jpg": b"%d" % (k * i) for i in range(3)})
        for k in (1, 2)
    }
    path = archive_files.tar(tmp_path / "x.tar", {"big/first.jpg": b"x" * 5000, **inner})
    expected = {f"n{k}/{k}{i}.jpg": b"%d" % (k * i) for k in (1, 2) for i in range(3)}
    assert found(path) == expected | {"big/first.jpg": b"x" * 5000}
    assert os.listdir(tmp_path) == ["x.tar"]


def test_long_names_and_headers_of_other_writers_are_read(tmp_path):
    names = {f"{'d' * 90}/{'f' * 150}-{i}é.jpg": b"%d" % i for i in range(3)}
    for style in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "x.tar", "w", format=style) as archive:
            for folder in {n.split("/")[0] for n in names}:
                (tmp_path / folder).mkdir(exist_ok=True)
            for name, content in names.items():
                (tmp_path / name).write_bytes(content)
                archive.add(tmp_path / name, name)
        assert found(tmp_path / "x.tar") == names


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../out.jpg"},
        {"name": "a/../../out.jpg"},
        {"name": "/etc/out.jpg"},
        {"name": "..\\out.jpg"},
        {"name": "C:/out.jpg"},
        {"name": "../out", "type": tarfile.DIRTYPE},
        {"name": "a.jpg", "type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
        {"name": "a.jpg", "type": tarfile.LNKTYPE, "linkname": "b.jpg"},
        {"name": "a.jpg", "type": tarfile.CHRTYPE},
        {"name": "a.jpg", "type": tarfile.FIFOTYPE},
    ],
    ids=lambda f: f"{f['name']}-{f.get('type', b'0').decode()}",
)
def test_a_tar_with_an_unsafe_member_is_refused(tmp_path, fields):
    path = archive_files.tar_of(tmp_path / "x.tar", **fields)
    assert repr(fields["name"]) in refused(path)
    outer = archive_files.tar(tmp_path / "outer.tar", {"x.tar": path.read_bytes()})
    assert repr(fields["name"]) in refused(outer)


@pytest.mark.parametrize("name", ["../out.jpg", "a/../../out.jpg", "/etc/out.jpg", "C:/out.jpg"])
def test_a_zip_with_an_unsafe_member_is_refused(tmp_path, name):
    assert repr(name) in refused(
        archive_files.zipped(tmp_path / "x.zip", {"a.jpg": b"a", name: b"b"})
    )


def test_a_zip_with_a_link_is_refused(tmp_path):
    entry = zipfile.ZipInfo("a.jpg")
    entry.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(entry, "/etc/passwd")
    assert "'a.jpg' is a link" in refused(tmp_path / "x.zip")


def patched(path, old, new):
    """Every place: a zip states a size twice."""
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


@pytest.mark.parametrize("stated", [1_000, 200_000])
def test_a_zip_member_of_another_size_than_stated_is_refused(tmp_path, stated):
    path = archive_files.zipped(tmp_path / "x.zip", {"a.jpg": bytes(100_000)})
    patched(path, (100_000).to_bytes(4, "little"), stated.to_bytes(4, "little"))
    assert "stated size" in refused(path)


def test_a_zip_member_that_claims_too_much_is_refused_unread(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "LARGEST_BYTES", 99_999)
    path = archive_files.zipped(tmp_path / "x.zip", {"a.jpg": bytes(100_000)})
    assert "a.jpg claims 100000 bytes" in refused(path)


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_changed_byte_in_a_zip_is_found(tmp_path, kind):
    content = os.urandom(2000)  # deflate keeps it as it is
    path = archive_files.zipped(tmp_path / "x.zip", {"a.jpg": content}, kind)
    patched(path, content[100:110], b"0123456789")
    assert "checksum" in refused(path)


def test_an_encrypted_zip_is_refused(tmp_path):
    path = archive_files.zipped(tmp_path / "x.zip", {"a.jpg": b"a"}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    assert "a.jpg is encrypted" in refused(path)


def test_a_tar_cut_anywhere_is_refused(tmp_path):
    whole = archive_files.tar_bytes({f"{i}.jpg": bytes([i]) * 700 for i in range(3)})
    end = 3 * (512 + 1024)
    for cut in range(100, end + 1, 100):
        (tmp_path / "x.tar").write_bytes(whole[:cut])
        refused(tmp_path / "x.tar")
    (tmp_path / "x.tar").write_bytes(whole[: end + 512])
    assert len(found(tmp_path / "x.tar")) == 3


def test_a_damaged_header_in_the_middle_is_not_the_end(tmp_path):
    data = bytearray(archive_files.tar_bytes({f"{i}.jpg": b"x" * 700 for i in range(3)}))
    data[1536 + 3] ^= 1
    (tmp_path / "x.tar").write_bytes(data)
    assert "byte 1536" in refused(tmp_path / "x.tar")


def test_a_cut_gz_is_refused(tmp_path):
    path = archive_files.tar(tmp_path / "x.tar.gz", {"a.jpg": os.urandom(9000)}, "w:gz")
    path.write_bytes(path.read_bytes()[:5000])
    assert "x.tar.gz is damaged" in refused(path)
    assert list((tmp_path / "scratch").glob("*.plain")) == []


@pytest.mark.parametrize(
    "start, command", [(b"Rar!\x1a\x07", "unrar x"), (b"7z\xbc\xaf\x27\x1c", "7z x")]
)
def test_what_needs_another_program_says_which(tmp_path, start, command):
    (tmp_path / "x.rar").write_bytes(start + bytes(600))
    assert command in refused(tmp_path / "x.rar")


@pytest.mark.parametrize("content", [b"", b"<html>404</html>", bytes(300)])
def test_what_is_no_archive_is_refused(tmp_path, content):
    (tmp_path / "x.tar").write_bytes(content)
    assert "neither a tar nor a zip" in refused(tmp_path / "x.tar")


def test_nothing_there_is_bad_input(tmp_path):
    assert str(tmp_path / "none") in refused(tmp_path / "none")


def test_linked_folders_are_followed_but_not_in_circles(tmp_path):
    archive_files.unpacked(tmp_path / "far", {"1.jpg": b"1"})
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a").symlink_to(tmp_path / "far")
    assert found(tmp_path / "root") == {"a/1.jpg": b"1"}
    (tmp_path / "far" / "up").symlink_to(tmp_path / "far")
    assert "folder above it" in refused(tmp_path / "root")
