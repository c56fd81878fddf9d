# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""TFDS's own builders, fed from a folder: the real code of EuroSAT, with an archive made here."""

import hashlib
import logging
import os
import socket

import packs
import pictures
import pytest

from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.prepare import upstream
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.data.sources.source import Options
from vit_jax.errors import BadInput

URL = "http://madm.dfki.de/files/sentinel/EuroSAT.zip"
CLASSES = ["AnnualCrop", "Forest"]
IMAGES = {
    f"2750/{c}/{c}_{i}.jpg": pictures.encode(pictures.noise(64, 64, seed=i + 9 * (c > "B")), "JPEG")
    for c in CLASSES
    for i in range(3)
}


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    logging.getLogger("absl").setLevel(logging.ERROR)
    tfds_source._tfds().disable_progress_bar()


@pytest.fixture
def origin(tmp_path, monkeypatch):
    """A folder with EuroSAT.zip; TFDS and we expect its size and checksum; no network."""
    tfds = tfds_source._tfds()
    (tmp_path / "from").mkdir()
    path = packs.zipped(tmp_path / "from" / "EuroSAT.zip", IMAGES)
    data = path.read_bytes()
    checksum = hashlib.sha256(data).hexdigest()
    info = tfds.core.download.checksums.UrlInfo(len(data), checksum, path.name)
    monkeypatch.setitem(tfds.builder_cls("eurosat").url_infos, URL, info)
    listed = (downloads.Download(path.name, len(data), f"sha256 {checksum}", URL),)
    monkeypatch.setattr(downloads, "tfds_downloads", lambda _: listed)

    def refuse(*args, **_):
        raise AssertionError(f"network: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return path.parent


def need(tmp_path):
    [found] = downloads.needs("vtab/eurosat", str(tmp_path / "data"))
    return found


def build(origin, tmp_path):
    return upstream.build(need(tmp_path), origin, tmp_path / "data")


def message(origin, tmp_path):
    with pytest.raises(BadInput) as caught:
        build(origin, tmp_path)
    assert prepared.find("eurosat", str(tmp_path / "data")) is None
    return str(caught.value)


def test_an_archive_becomes_the_dataset_of_tfds(origin, tmp_path):
    folder = build(origin, tmp_path)
    assert folder == tmp_path / "data" / "eurosat" / "rgb" / "2.0.0"
    assert os.listdir(origin) == ["EuroSAT.zip"]
    options = Options(str(tmp_path / "data"))
    source = sources.open_source("tfds:eurosat/rgb", options, val_percent=0, test_percent=0)
    expected = {(c, source.classes.index(n.split("/")[1])) for n, c in IMAGES.items()}
    assert set(packs.pairs(source.splits["train"])) == expected
    assert prepared.check(folder).splits["train"].recorded
    assert need(tmp_path).state == "ready"


def test_missing_archives_are_listed_with_size_checksum_and_folder(origin, tmp_path):
    (origin / "EuroSAT.zip").unlink()
    said = message(origin, tmp_path)
    [download] = need(tmp_path).downloads
    for part in (str(origin), "EuroSAT.zip", f"{download.bytes} bytes", download.checksum, URL):
        assert part in said
    assert not (tmp_path / "data").exists()


def test_an_archive_of_another_size_is_said_with_both_sizes(origin, tmp_path):
    (origin / "EuroSAT.zip").write_bytes(b"<html>404</html>")
    said = message(origin, tmp_path)
    assert "has 16 bytes (a web page" in said
    assert f"{need(tmp_path).downloads[0].bytes} bytes" in said


def test_an_archive_with_another_checksum_is_refused(origin, tmp_path):
    path = origin / "EuroSAT.zip"
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    assert "wrong checksum" in message(origin, tmp_path)


def test_an_archive_with_other_content_says_why(origin, tmp_path, monkeypatch):
    cls = tfds_source._tfds().builder_cls("eurosat")

    def fail(*_, **__):
        raise KeyError("what the code of a dataset raises")

    monkeypatch.setattr(cls, "_generate_examples", fail)
    assert "KeyError: 'what the code" in message(origin, tmp_path)


def test_nothing_else_is_downloaded(origin, tmp_path, monkeypatch):
    """A file that our list lacks."""
    cls = tfds_source._tfds().builder_cls("eurosat")
    other = "https://host.invalid/labels.csv"
    monkeypatch.setattr(cls, "_split_generators", lambda self, manager: manager.download(other))
    assert f"TFDS needs {other}" in message(origin, tmp_path)


def test_names_of_tfds_are_known_without_a_network(origin):
    assert upstream.knows("cifar10")
    assert upstream.knows("food101")
    assert not upstream.knows("my_cats")
