# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published weights are known by their SHA-256, which a run records and a table reads."""

import hashlib
import json
import shutil
from pathlib import Path

import paper_runs
import pytest

from vit_jax.config import load as config_lib
from vit_jax.config import provenance
from vit_jax.experiments.tables import lineage, run_results
from vit_jax.models import published
from vit_jax.training import workdir
from vit_jax.weights import download

NAME = "imagenet21k/ViT-B_32.npz"


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The published file as a download leaves it, with its checksum beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    place = download.cache_path(str(published.url(NAME)))
    place.parent.mkdir(parents=True)
    place.write_bytes(b"the published weights")
    download.local(NAME)  # writes the checksum
    return place


def test_a_published_file_is_known_by_its_content_under_any_name(cached, tmp_path):
    digest = hashlib.sha256(b"the published weights").hexdigest()
    shutil.copy(cached, tmp_path / "mine.npz")
    assert download.identity(NAME) == (digest, NAME)
    assert download.identity(str(tmp_path / "mine.npz")) == (digest, NAME)


def test_a_file_with_the_name_alone_is_not_the_published_one(cached, tmp_path):
    other = tmp_path / NAME
    other.parent.mkdir()
    other.write_bytes(b"others")
    digest = hashlib.sha256(b"others").hexdigest()
    assert download.identity(str(other)) == (digest, provenance.OTHER)
    download._checksum_file(cached).unlink()  # as if it had never been downloaded
    assert download.identity(str(other)) == (digest, "")


def test_a_name_that_is_published_once_needs_no_folder(cached, tmp_path, monkeypatch):
    augreg = next(n for files in published.CHECKPOINTS.values() for n in files if "augreg/" in n)
    for name in ("BiT-M-R50x1.npz", augreg):
        monkeypatch.setattr(download, "_downloaded", lambda name=name: [(name, "sum of the real")])
        other = tmp_path / "mine" / Path(name).name
        other.parent.mkdir(exist_ok=True)
        other.write_bytes(b"others")
        assert download.identity(str(other))[1] == provenance.OTHER


def recorded(folder: Path, init: str) -> provenance.Origin:
    config = config_lib.load("configs/quickstart.py", [f"--config.init={init}"])
    workdir.prepare(folder, config, ["a", "b"])
    return provenance.read(folder)


def test_a_run_records_the_weights_that_it_began_with(cached, tmp_path, monkeypatch):
    mine = tmp_path / "mine.npz"
    shutil.copy(cached, mine)
    first = recorded(tmp_path / "run", str(mine))
    assert first.init_published == NAME
    with monkeypatch.context() as patch:
        patch.setattr(workdir, "has_checkpoint", lambda _: True)
        mine.unlink()
        assert recorded(tmp_path / "run", str(mine)) == first
    assert recorded(tmp_path / "scratch", "").init_sha256 == ""
    assert recorded(tmp_path / "after", str(tmp_path / "run")).init_sha256 == ""  # a run


def test_a_table_takes_the_recorded_name_before_that_of_the_file(tmp_path):
    def origin(init: str, **recorded: str) -> lineage.Origin:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        paper_runs.transfer(folder, 98.8, "model=B/32,dataset=cifar10", init=init)
        (folder / provenance.FILE).write_text(json.dumps(recorded))
        return lineage.Ancestry(tmp_path, []).origin(run_results.open_run(folder))

    file = "ViT-B_32.npz"
    of_paper = lineage.Origin("imagenet21k", "paper", 90, (), (f"weights {file}",), file)
    assert origin("/my/file.npz", init_published=NAME) == of_paper
    assert origin(NAME) == of_paper  # by name alone, as for runs that recorded nothing
    other = origin(NAME, init_published=provenance.OTHER)
    assert "another SHA-256" in other.dataset
    assert not other.recipe
