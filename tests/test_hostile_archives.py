# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Archives and records of strangers: what is in them, or a message; no more memory."""

import bz2
import io
import struct
import zipfile
from pathlib import Path

import archive_files
import hostile
import numpy as np
import pictures
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vit_jax.data.formats import archives, tar_index
from vit_jax.data.formats import tfrecord as tfrecord_lib
from vit_jax.errors import BadInput

SIZES = st.sampled_from([-1, -512, -1024, -(2**80), 0, 1, 511, 2**20, 2**36, 2**63, 2**80])
NAMES = st.sampled_from(
    [b"a/x.jpg", b"../x.jpg", b"/x.jpg", b"x.json", b"x.cls", b"a.tar", b"\xff"]
)


def header(name: bytes, size: int, kind: bytes) -> bytes:
    """A header with its checksum right, whatever it says."""
    block = bytearray(512)
    block[: len(name)] = name
    block[100:108] = b"0000644\0"
    if 0 <= size < 2**33:
        block[124:136] = b"%011o\0" % size
    else:
        block[124:136] = (size % 2**96).to_bytes(12, "big")
        block[124] |= 0x80
    block[156:157], block[257:265] = kind, b"ustar\x0000"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax(key: bytes, value: bytes) -> bytes:
    body = b" %s=%s\n" % (key, value)
    length = next(n for d in range(9) if len(str(n := len(body) + d)) == d)
    body = b"%d%s" % (length, body)
    return header(b"p", len(body), b"x") + body + bytes(-len(body) % 512)


HEADERS = st.builds(
    header,
    NAMES,
    SIZES,
    st.sampled_from([b"0", b"L", b"K", b"x", b"g", b"S", b"5", b"1", b"2", b"3"]),
)
EXTENDED = st.builds(
    pax,
    st.sampled_from([b"size", b"path", b"GNU.sparse.size", b"GNU.sparse.map", b"GNU.sparse.major",
                     b"GNU.sparse.realsize", b"hdrcharset", b"mtime", b"linkpath"]),
    st.sampled_from([b"-1024", b"abc", b"1", b"99999999999999999999", b"../../x", b"a,b", b"nan"]),
)  # fmt: skip
BLOCKS = st.lists(HEADERS | EXTENDED | st.sampled_from([bytes(512), b"x" * 512]), max_size=6)
IMAGE = header(b"a/x.jpg", 0, b"0")
END = bytes(1024)


def indexed(path: Path) -> list[tuple[str, int]]:
    rows = tar_index._members(str(path))
    size = path.stat().st_size
    assert all(0 <= r["start"] <= r["start"] + r["size"] <= size for r in rows)
    return [(r["name"].decode(errors="surrogateescape"), int(r["size"])) for r in rows]


def listed(path: Path) -> dict[str, bytes]:
    found = archives.members(path, path.parent / "scratch", lambda _: True)
    return {m.name: m.read() for m in found}


def read_everyhow(path: Path) -> None:
    hostile.answer(indexed, path, errors=(ValueError,))
    for name in hostile.answer(listed, path) or ():
        assert not name.startswith("/")
        assert ".." not in name.split("/")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("place") / "inside"


@given(BLOCKS.map(b"".join))
@example(header(b"a/x.jpg", -512, b"0") + END)
@example(IMAGE + header(b"b/y.jpg", -1024, b"0") + END)
@example(header(b"a/x.jpg", 2**80, b"0") + END)
@example(header(b"a/x.jpg", 2**40, b"0") + END)
@example(header(b"a/x.jpg", 2**36, b"L") + END)
@example(header(b"a/x.jpg", 2**70, b"x") + END)
@example(pax(b"size", b"-1024") + IMAGE + END)
@example(pax(b"GNU.sparse.map", b"a,b") + IMAGE + END)
@example(pax(b"a", b"b") * 1500 + IMAGE + END)
@example(pax(b"path", b"a" * 2**20 + b".jpg") + IMAGE + END)
def test_tar_of_strange_headers_is_read_or_refused(place, content):
    place.mkdir(exist_ok=True)
    (place / "x.tar").write_bytes(content)
    read_everyhow(place / "x.tar")
    assert {p.name for p in place.parent.iterdir()} == {"inside"}
    assert {p.name for p in place.iterdir()} <= {"x.tar", "x.zip", "scratch"}


IMAGES = {"a/1.jpg": b"one", "b/2.jpg": b"second" * 30}
TARS = [
    archive_files.tar_bytes(IMAGES),
    archive_files.tar_bytes({"x.jpg": b"one", "x.json": b'{"label": "a"}'}),
]


@given(hostile.changed(TARS))
@example(archive_files.tar_bytes({"x.jpg": b"one", "x.json": b"[" * 100_000}))
@example(archive_files.tar_bytes({"x.jpg": b"one", "x.json": b'{"label": "\\ud800"}'}))
@example(archive_files.tar_bytes({"x.jpg": b"one", "x.cls": b"9" * 5000}))
def test_changed_tar_is_read_or_refused(place, content):
    place.mkdir(exist_ok=True)
    (place / "x.tar").write_bytes(content)
    read_everyhow(place / "x.tar")


def test_one_long_label_does_not_widen_the_rows_of_all(tmp_path):
    files = {f"{i}.{kind}": b"a" for i in range(200) for kind in ("jpg", "cls")}
    path = archive_files.tar(tmp_path / "x.tar", files | {"0.cls": b"a" * 2**20})
    with pytest.raises(ValueError, match=r"0\.cls is .*; expected one label"):
        indexed(path)
    assert hostile.peak_mib(indexed, path) < 16


def test_headers_allocate_no_more_than_there_is(tmp_path):
    for kind in (b"0", b"L", b"x"):
        (tmp_path / "x.tar").write_bytes(header(b"a/x.jpg", 2**36, kind) + END)
        assert hostile.peak_mib(indexed, tmp_path / "x.tar") < 8
        assert hostile.peak_mib(listed, tmp_path / "x.tar") < 8


def test_tars_inside_tars_without_end_are_refused(tmp_path):
    content = archive_files.tar_bytes({"x.jpg": b"one"})
    for _ in range(1100):
        content = header(b"a.tar", len(content), b"0") + content + bytes(-len(content) % 512) + END
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(BadInput):
        listed(tmp_path / "x.tar")


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
@given(data=st.data())
def test_changed_compressed_tar_is_read_or_refused_and_leaves_nothing(place, kind, data):
    place.mkdir(exist_ok=True)
    path = place / "x.tar"
    path.write_bytes(data.draw(hostile.changed([archive_files.tar_bytes(IMAGES, f"w:{kind}")])))
    if hostile.answer(listed, path) is None:
        assert not list(place.glob("scratch/*.partial"))
    for left in place.glob("scratch/*"):
        left.unlink()


def test_damaged_bz2_is_refused(tmp_path):
    content = bytearray(bz2.compress(np.random.default_rng(0).bytes(5000)))
    content[60] ^= 0xFF
    (tmp_path / "x.tar.bz2").write_bytes(content)
    with pytest.raises(BadInput, match="is damaged"):
        listed(tmp_path / "x.tar.bz2")


# --- zip ---


def zipped(kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as archive:
        for name, content in IMAGES.items():
            archive.writestr(zipfile.ZipInfo(name), content, kind)  # whose date is always the same
    return out.getvalue()


# Offset in an entry of the directory, bytes: flags, CRC, sizes, lengths, attributes, offset, name.
FIELDS = [(8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (38, 4), (42, 4), (46, 2)]
# The same at the end of the directory: entries, size, offset.
LAST = [(10, 2), (12, 4), (16, 4)]


@st.composite
def zips(draw):
    content = bytearray(zipped(draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))))
    for _ in range(draw(st.integers(1, 3))):
        magic, fields = draw(st.sampled_from([(b"PK\1\2", FIELDS), (b"PK\5\6", LAST)]))
        offset, width = draw(st.sampled_from(fields))
        at = content.find(magic)
        value = draw(st.sampled_from([0, 1, 0x800, 0xFFFF, 0xFFFFFFF0, 0xFFFFFFFF, 0x7FFFFFFF]))
        if at >= 0:
            content[at + offset : at + offset + width] = value.to_bytes(8, "little")[:width]
    return bytes(content)


@given(zips() | hostile.changed([zipped()]))
def test_changed_zip_gives_what_was_put_in_or_is_refused(place, content):
    place.mkdir(exist_ok=True)
    (place / "x.zip").write_bytes(content)
    found = hostile.answer(listed, place / "x.zip")
    assert found is None or set(found.values()) <= {*IMAGES.values(), b"", content}


def test_zip_that_claims_more_than_there_is_is_refused_unread(tmp_path):
    content = bytearray(zipped(zipfile.ZIP_STORED))
    struct.pack_into("<II", content, content.index(b"PK\1\2") + 20, 0xFFFFFFF0, 0xFFFFFFF0)
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(BadInput, match="claims 4294967280 bytes"):
        next(archives.members(tmp_path / "x.zip", tmp_path, lambda _: True))


def test_zip_entry_without_a_name_is_refused(tmp_path):
    content = bytearray(zipped(zipfile.ZIP_STORED))
    at = content.index(b"PK\1\2")
    struct.pack_into("<HHH", content, at + 28, 0, 0, 7)  # its seven bytes are a comment
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(BadInput, match="an entry without a name"):
        list(archives.members(tmp_path / "x.zip", tmp_path, lambda _: True))


# --- records ---


@pytest.fixture(scope="module")
def tfrecord(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "x.tfrecord"
    return pictures.records(path, [b"a" * 20, b"", b"b" * 50]).read_bytes()


@given(data=st.data())
def test_changed_records_are_ranges_of_the_file_or_refused(place, tfrecord, data):
    place.mkdir(exist_ok=True)
    path = place.parent / "x.tfrecord"
    path.write_bytes(data.draw(hostile.changed([tfrecord])))
    starts = hostile.answer(tfrecord_lib._offsets, str(path), errors=(ValueError,))
    if starts is not None:
        assert (np.diff(starts) >= 16).all()
        assert starts[-1] - 12 == path.stat().st_size
    path.unlink()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("before", [0, 1])
def test_a_file_of_zeros_is_refused_at_its_start(tmp_path, tfrecord, before):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(tfrecord * before)
    with path.open("rb+") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(ValueError, match="checksum"):
        tfrecord_lib._offsets(str(path))
