# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What the checksums of a folder notice."""

import errno
import hashlib
import random
import shutil
import subprocess

import pytest

from vit_jax.errors import BadInput
from vit_jax.storage import bucket, checksums
from vit_jax.storage import files as storage

CONTENT = {"a": b"1", "b/c": b"two", "b/d/e": bytes(3000), "empty": b""}


@pytest.fixture
def folder(tmp_path):
    for name, content in CONTENT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    checksums.write(tmp_path)
    return tmp_path


def test_untouched_files_are_good(folder):
    assert checksums.damage(folder) == ""
    (folder / "later").write_text("not known when the checksums were written")
    assert checksums.damage(folder) == ""


def test_sha256sum_agrees(folder):
    if not shutil.which("sha256sum"):
        pytest.skip("no sha256sum here")
    command = ["sha256sum", "--check", "--strict", "--quiet", checksums.FILE]
    assert subprocess.run(command, cwd=folder).returncode == 0


@pytest.mark.parametrize("name", CONTENT)
def test_lost_file_is_named(folder, name):
    (folder / name).unlink()
    assert checksums.damage(folder) == f"{name} is missing"


@pytest.mark.parametrize("name", [*CONTENT, checksums.FILE])
def test_longer_and_shorter_and_other_files_are_named(folder, name):
    content = (folder / name).read_bytes()
    for changed in (content + b"x", content[:-1], content[1:], bytes(len(content)), b""):
        (folder / name).write_bytes(changed)
        assert checksums.damage(folder) == (f"{name} has changed" if changed != content else "")


def test_a_bit_counts_wherever_it_is_also_of_the_checksums(folder):
    for name in ("b/c", checksums.FILE):
        content = (folder / name).read_bytes()
        for bit in range(0, 8 * len(content), 37):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            (folder / name).write_bytes(flipped)
            assert checksums.damage(folder), (name, bit)
        (folder / name).write_bytes(content)
    assert checksums.damage(folder) == ""


def test_a_lost_line_counts(folder):
    lines = (folder / checksums.FILE).read_text().splitlines(keepends=True)
    for i in range(len(lines)):
        (folder / checksums.FILE).write_text("".join(lines[:i] + lines[i + 1 :]))
        assert checksums.damage(folder) == f"{checksums.FILE} has changed"


def test_folder_without_checksums(folder):
    (folder / checksums.FILE).unlink()
    assert checksums.damage(folder) == f"{checksums.FILE} is missing"


def test_more_files_are_counted(folder):
    for name in CONTENT:
        (folder / name).unlink()
    assert checksums.damage(folder) == "a is missing (and 3 more files)"


def test_only_wanted_files_are_read(folder):
    (folder / "a").unlink()
    assert checksums.damage(folder, wanted=lambda name: "/" in name) == ""
    assert checksums.damage(folder, wanted=lambda name: name == "a") == "a is missing"


def test_processes_share_the_files_without_a_gap(folder):
    for name in CONTENT:
        (folder / name).rename(folder / "away")
        found = [checksums.damage(folder, part=(i, 3)) for i in range(3)]
        assert sorted(found) == ["", "", f"{name} is missing"]
        (folder / "away").rename(folder / name)


@pytest.mark.parametrize("size", [0, 2**18 - 1, 2**18, 2**18 + 1, 10**6])
def test_a_small_object_costs_one_request_and_a_large_one_is_read_on(store, monkeypatch, size):
    monkeypatch.setattr(bucket, "_READ_AHEAD", 2**18)
    content = random.Random(0).randbytes(size)
    store.put("bucket", "file", content)
    found = checksums.digest(storage.path("gs://bucket/file"))
    assert found == hashlib.sha256(content).hexdigest()
    if size < 2**18:
        assert store.counted() == {"read": 1}


def test_a_disk_that_fails_is_damage_and_a_right_that_is_missing_is_not(folder, monkeypatch):
    def fail(code):
        def digest(path, **_):
            raise OSError(code, "says the disk")

        monkeypatch.setattr(checksums, "digest", digest)

    fail(errno.EIO)
    assert checksums.damage(folder).startswith("a cannot be read: says the disk")
    fail(errno.EACCES)
    with pytest.raises(BadInput, match=r"cannot be read: says the disk; give .* the right to"):
        checksums.damage(folder)


def test_a_list_that_cannot_be_read_is_damage(folder, monkeypatch):
    def fail(_):
        raise OSError(errno.EIO, "says the disk")

    with monkeypatch.context() as patch:
        patch.setattr(checksums.storage, "read_all", fail)
        assert checksums.damage(folder) == f"{checksums.FILE} cannot be read: says the disk"
    (folder / checksums.FILE).unlink()
    (folder / checksums.FILE).mkdir()
    assert checksums.damage(folder).startswith(f"{checksums.FILE} cannot be read")
