# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The code that is sent along, and what it is known by."""

import io
import os
import tarfile

import pytest

from launch import artefact
from vit_jax.errors import BadInput
from vit_jax.runtime import rendezvous


@pytest.fixture
def checkout(tmp_path):
    for name in artefact._FILES:
        (tmp_path / name).write_text(name)
    for name in ("vit_jax/a.py", "vit_jax/paper/t.json", "configs/c.py", "launch/engines/e.py",
                 "vit_jax/__pycache__/a.pyc", "runs/x/results.json"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_the_archive_has_the_code_and_nothing_else(checkout):
    with tarfile.open(fileobj=io.BytesIO(artefact.pack(checkout))) as tar:
        names = tar.getnames()
        assert tar.extractfile("vit_jax/a.py").read() == b"vit_jax/a.py"
    assert sorted(names) == sorted(
        [*artefact._FILES, "vit_jax/a.py", "vit_jax/paper/t.json", "configs/c.py",
         "launch/engines/e.py"]
    )  # fmt: skip


def test_the_same_code_has_the_same_hash_and_other_code_another(checkout):
    first = artefact.digest(artefact.pack(checkout))
    os.utime(checkout / "vit_jax/a.py", (1, 1))
    (checkout / "vit_jax/a.py").chmod(0o700)
    assert artefact.digest(artefact.pack(checkout)) == first
    (checkout / "vit_jax/a.py").write_text("other")
    assert artefact.digest(artefact.pack(checkout)) != first


def test_without_a_checkout_nothing_is_packed(checkout):
    (checkout / "setup.py").unlink()
    with pytest.raises(BadInput, match=r"no setup\.py; launch from a checkout"):
        artefact.pack(checkout)


def test_an_image_is_known_by_its_digest():
    digest = "sha256:" + "0a" * 32
    assert artefact.digest_of_image(f"host.example/x/vit:1@{digest}") == digest


@pytest.mark.parametrize(
    "image", ["", "vit", "vit:latest", "vit@sha256:12", "a b@sha256:" + "0" * 64]
)
def test_an_image_by_tag_is_refused(image):
    with pytest.raises(BadInput, match="by digest"):
        artefact.digest_of_image(image)


def test_the_lock_file_has_what_processes_compare(root):
    """In versions within the bounds of setup.py: those that it was made with."""
    assert artefact.locked(root).keys() == rendezvous.facts().keys() - {"code"}
    for line in (root / artefact.LOCK_FILE).read_text().splitlines():
        assert line.startswith("#") or "==" in line
        assert "://" not in line


def test_a_lock_file_without_them_is_refused(checkout):
    with pytest.raises(BadInput, match="no version of jax"):
        artefact.locked(checkout)
    (checkout / artefact.LOCK_FILE).unlink()
    with pytest.raises(BadInput, match="is missing"):
        artefact.locked(checkout)
