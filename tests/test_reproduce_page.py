# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Every command of docs/reproduce.md, in order, with small images, a small model and no network."""

import csv
import hashlib
import io
import json
import re
import shlex
import socket
import subprocess
import tarfile

import archive_files
import pytest
import tiny

import vit_jax
from vit_jax.cli import main
from vit_jax.config import provenance
from vit_jax.data.catalog import downloads, sizes
from vit_jax.data.sources import tfds as tfds_source
from vit_jax.experiments.sweeps import runner as sweep_runner
from vit_jax.models import published, variants
from vit_jax.weights import download

URL = "https://thor.robots.ox.ac.uk/~vgg/data/pets/"
WEIGHTS = "imagenet21k/ViT-B_32.npz"
SMALL = {"width": 32, "depth": 1, "mlp": 48, "heads": 4}
BREED = "Abyssinian"


@pytest.fixture
def place(tmp_path, monkeypatch, root):
    """A folder with the recipes, the published file in the cache, and no network."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "configs").symlink_to(root / "configs")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cfg = variants.config(variant="B/32", classes=21_843, **SMALL)
    file = download.cache_path(str(published.url(WEIGHTS)))
    file.parent.mkdir(parents=True)
    vit_jax.save(file, variants.make(cfg), tiny.params(cfg, 224, 224))

    def refuse(*args, **_):
        raise AssertionError(f"network: {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    return tmp_path


def archives(folder, monkeypatch):
    """Archives as those of the Oxford pets, which TFDS and we take for them."""
    pictures, annotations = {}, {}
    for split, count in (("trainval", 20), ("test", 10)):
        names = [f"{BREED}_{split}{k}" for k in range(count)]
        rows = [f"{name} {1 + k % 37} 1 1" for k, name in enumerate(names)]
        annotations[f"annotations/{split}.txt"] = "\n".join(rows).encode()
        for k, name in enumerate(names):
            pictures[f"images/{name}.jpg"] = archive_files.picture(k)
            annotations[f"annotations/trimaps/{name}.png"] = archive_files.picture(k, "PNG")
    tfds, listed = tfds_source._tfds(), []
    infos = tfds.builder_cls("oxford_iiit_pet").url_infos
    folder.mkdir(parents=True)
    for name, files in (("images.tar.gz", pictures), ("annotations.tar.gz", annotations)):
        data = archive_files.tar(folder / name, files, "w:gz").read_bytes()
        checksum = hashlib.sha256(data).hexdigest()
        info = tfds.core.download.checksums.UrlInfo(len(data), checksum, name)
        monkeypatch.setitem(infos, URL + name, info)
        listed.append(downloads.Download(name, len(data), f"sha256 {checksum}", URL + name))
    monkeypatch.setattr(downloads, "tfds_downloads", lambda _: tuple(listed))
    monkeypatch.setitem(sizes.SIZES, "oxford_iiit_pet", {"train": 20, "test": 10})


def commands(root):
    page = (root / "docs" / "reproduce.md").read_text()
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", page, re.DOTALL)).replace("\\\n", " ")
    return [shlex.split(line) for line in lines.splitlines() if line.strip()]


DONE = """cd $1; r=0.9302; case $1 in *final*) s=test;; *) s=val;; esac
echo '{"step": 1, "'$s'": {"top1": '$r', "examples": 3669}}' > tmp; mv tmp results.json"""


@pytest.mark.integration
def test_every_command_of_the_page_in_order(place, capsys, monkeypatch, root):
    listed = commands(root)
    assert [words[:2] if words[0] == "vit_jax" else words[0] for words in listed] == [
        ["vit_jax", "doctor"], ["vit_jax", "data"], ["vit_jax", "data"], ["vit_jax", "inspect"],
        ["vit_jax", "plan"], ["vit_jax", "sweep"], ["vit_jax", "table"], "tar",
    ]  # fmt: skip
    doctor, check, prepare, inspect, plan, sweep, table, tar = listed
    small = [f"--config.model.{key}={value}" for key, value in SMALL.items()]

    def run(words, *more, code=0):
        capsys.readouterr()
        assert main.main([*words[1:], *more]) == code, words
        return capsys.readouterr().out

    assert "ok" in run(doctor)
    said = run(check, code=2)
    assert "images.tar.gz" in said
    assert "annotations.tar.gz" in said
    assert "put into data/downloads/manual" in said
    archives(place / "data" / "downloads" / "manual", monkeypatch)
    assert "read it as tfds:oxford_iiit_pet" in run(prepare).splitlines()[-1]
    assert "21843" in run(inspect).replace(",", "")
    assert "fits" in run([w.replace("v3-8", "cpu-1") for w in plan], *small,
                         "--config.batch_size=8")  # fmt: skip
    monkeypatch.setattr(sweep_runner.run, "__kwdefaults__", {
        **sweep_runner.run.__kwdefaults__,
        "command": lambda folder: ["/bin/sh", "-c", DONE, "sh", str(folder)],
    })  # fmt: skip
    assert "final :lr=0.001" in run(sweep, *small)
    assert len(list((place / "runs/reproduce/select").glob("*/results.json"))) == 4
    finals = sorted((place / "runs/reproduce/final").glob("*/"))
    assert len(finals) == 3
    rows = list(csv.reader(io.StringIO(run(table))))
    [row] = [row for row in rows if row[:3] == ["ImageNet-21k", "Oxford-IIIT Pets", "ViT-B/32"]]
    assert row[3] == "93.02"
    assert "model.depth: 1, not 0" in row[-1]  # the small model is no B/32
    trained = ["vit_jax", "train", f"--config={finals[0]}/config.yaml", "--workdir=one"]
    run(trained, "--config.length=1 steps", "--config.schedule.warmup=0", "--config.batch_size=8",
        "--config.report.page=false", "--config.report.writers=()")  # fmt: skip
    results = json.loads((place / "one" / "results.json").read_text())
    assert results["test"]["examples"] == 10
    assert provenance.read(place / "one").init_published == WEIGHTS
    subprocess.run(tar, check=True, timeout=60)
    with tarfile.open("reproduce.tar.gz") as archive:
        names = archive.getnames()
    assert sum(name.endswith("results.json") for name in names) == 7


def test_what_the_page_promises_is_what_the_recipe_expects(root):
    page = (root / "docs" / "reproduce.md").read_text()
    spec = commands(root)[5][2].removeprefix("--config=")
    from vit_jax.config import load as config_lib

    expected = config_lib.load(spec).expected
    assert f"{expected.value:.4f} +- {expected.tolerance:.4f} ({expected.source})" in page
    assert "93.02 %" in page
