# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""With --offline nothing is tried; prepared data are read without a network in any case."""

import os
import socket

import archive_files
import pytest

from vit_jax.data.prepare import layouts, writer
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.sources.source import Options
from vit_jax.errors import BadInput
from vit_jax.storage import cache
from vit_jax.weights import download


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop("VIT_JAX_OFFLINE", None)


@pytest.fixture
def tries(monkeypatch):
    """Every use of a socket, refused and noted."""
    seen = []

    def refuse(*args, **_):
        seen.append(args)
        raise OSError("no network in this test")

    for name in ("getaddrinfo", "create_connection", "gethostbyname"):
        monkeypatch.setattr(socket, name, refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    return seen


@pytest.mark.parametrize("value, allowed", [("", True), ("0", True), ("1", False)])
def test_the_variable_forbids_too(value, allowed):
    os.environ["VIT_JAX_OFFLINE"] = value
    assert cache.may_download() is allowed


def test_forbid_holds_for_this_process_and_its_children():
    assert cache.may_download()
    cache.forbid_downloads()
    assert not cache.may_download()
    assert os.environ["VIT_JAX_OFFLINE"] == "1"


def test_weights_are_not_downloaded(tries, tmp_path):
    os.environ["XDG_CACHE_HOME"] = str(tmp_path)
    cache.forbid_downloads()
    with pytest.raises(BadInput, match=r"https://h/a/w\.npz is not in the cache.*--offline") as e:
        download.local("https://h/a/w.npz")
    assert str(download.cache_path("https://h/a/w.npz")) in str(e.value)
    assert tries == []


def opened(name, data_dir):
    options = Options(str(data_dir))
    return sources.open_source(f"tfds:{name}", options, val_percent=0, test_percent=0)


@pytest.mark.parametrize(
    "name", ["mnist", "cifar10:3.0.2", "eurosat/rgb", "food101", "no_such_set"]
)
def test_what_is_not_prepared_is_said_without_trying(tries, tmp_path, name):
    cache.forbid_downloads()
    with pytest.raises(BadInput) as caught:
        opened(name, tmp_path)
    assert tries == []
    assert f"tfds:{name}" in str(caught.value)
    if name == "eurosat/rgb":
        assert "EuroSAT.zip  94280567 bytes" in str(caught.value)
        assert "vit_jax data prepare eurosat/rgb --from=" in str(caught.value)


def test_a_first_try_that_fails_is_the_last(tries, tmp_path):
    """TFDS alone tries eleven times, with pauses of minutes."""
    with pytest.raises(BadInput, match=r"http\S+mnist\S+: no network in this test"):
        opened("mnist", tmp_path)
    assert len(tries) <= 2


def test_what_we_prepared_is_read_without_a_network(tries, tmp_path):
    files = {f"{c}/{i}.png": archive_files.picture(i) for c in "ab" for i in range(3)}
    images = archive_files.unpacked(tmp_path / "images", files)
    target = writer.Target("mine", "", "1.0.0", tmp_path / "data")
    with writer.held(target) as hidden:
        writer.write(layouts.index_images(images, hidden), target, 1, lambda done, total: None)
    assert len(archive_files.pairs(opened("mine", tmp_path / "data").splits["train"])) == 6
    assert tries == []


@pytest.mark.parametrize("name", ["mnist", "mnist:3.0.1", "cifar10"])
def test_what_tfds_prepared_is_read_without_a_network(tries, tmp_path, monkeypatch, name):
    """Datasets whose code TFDS has, prepared with a generator of ours."""
    tfds = tfds_source._tfds()
    tfds.disable_progress_bar()
    size = {"m": (28, 28, 1), "c": (32, 32, 3)}[name[0]]

    def generate():
        import numpy as np

        for i in range(4):
            example = {"image": np.full(size, i, np.uint8), "label": i}
            yield str(i), example | ({} if name[0] == "m" else {"id": str(i)})

    cls = tfds.builder_cls(name.partition(":")[0])
    with monkeypatch.context() as patch:
        patch.setattr(cls, "_split_generators", lambda self, _: {"train": generate()})
        tfds.builder(name, data_dir=str(tmp_path)).download_and_prepare()
    before = len(tries)
    assert len(archive_files.pairs(opened(name, tmp_path).splits["train"])) == 4
    assert len(tries) == before
