# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Headers are read one after another; see test_hostile_archives for what they may claim."""

import io
import tarfile

import packs
import pytest

from vit_jax.data.formats.tar_headers import LONGEST_NAME, Tar

FILES = {"a/1.jpg": b"one", "b/2.jpg": b"second" * 100}


def test_members_are_those_of_tarfile_wherever_the_tar_begins():
    content = packs.tar_bytes(FILES)
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
    content = packs.tar_bytes(FILES)
    tar = Tar(io.BytesIO(content), 0, 1024 + 512 + 599)
    with pytest.raises(tarfile.ReadError, match=r"'b/2\.jpg' claims 600 bytes"):
        list(tar)


@pytest.mark.parametrize("length", [LONGEST_NAME, LONGEST_NAME + 1])
def test_names_are_as_long_as_paths_can_be(length):
    tar = Tar(io.BytesIO(packs.tar_bytes({"a" * length: b""})), 0, 10**6)
    if length > LONGEST_NAME:
        with pytest.raises(tarfile.ReadError, match="4097 characters"):
            list(tar)
    else:
        assert len(next(iter(tar)).name) == length
