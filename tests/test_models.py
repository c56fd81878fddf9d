# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax models`: what is listed is true."""

import re
import subprocess
import sys

import pytest

from vit_jax.cli import main
from vit_jax.models import published, variants


def columns(text):
    """variant -> columns of the table."""
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: row[1:] for row in rows if row and row[0] in variants.NAMED}


@pytest.fixture(scope="module")
def shown(without_devices):
    """What is printed, without TensorFlow or a device."""
    command = [sys.executable, "-c", without_devices, "models"]
    return subprocess.run(
        command, check=True, timeout=300, stdout=subprocess.PIPE, text=True
    ).stdout


@pytest.mark.integration
def test_sizes_parameters_and_cost_are_the_published_ones(shown):
    rows = columns(shown)
    assert list(rows) == list(variants.NAMED)
    assert rows["B/16"][:5] == ["12", "768", "12", "86,567,656", "35.1"]
    assert rows["R50+L/32"][:4] == ["24", "1024", "16", "328,994,856"]
    assert rows["BiT-R152x4"][:4] == ["152", "256", "-", "936,533,224"]
    assert rows["Mixer-L/16"][:4] == ["24", "1024", "-", "208,196,168"]
    assert rows["AxialViT-B/16"][:5] == ["12", "768", "12", "171,620,584", "67.0"]
    assert rows["AxialResNet50"][:5] == ["50", "64", "8", "19,373,640", "8.1"]
    assert rows["So400m/14"][3] == "428,833,704"  # with the MAP head it was published with


def test_cost_follows_the_image_size_and_what_does_not_fit_is_left_open(capsys, monkeypatch):
    monkeypatch.setattr(variants, "NAMED", ("B/16", "H/14"))
    assert main.main(["models", "--image-size=384"]) == 0
    rows = columns(capsys.readouterr().out)
    assert rows["B/16"][4] == "111.0"
    assert rows["H/14"][3:5] == ["-", "-"]


@pytest.mark.parametrize("damaged", [None, "{", "[1]", '{"a": "b"}'])
def test_parameters_are_counted_once(capsys, monkeypatch, tmp_path, damaged):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(variants, "NAMED", ("S/32",))
    if damaged:
        (tmp_path / "vit_jax").mkdir()
        (tmp_path / "vit_jax" / "parameters.json").write_text(damaged)
    assert main.main(["models"]) == 0
    monkeypatch.delattr(variants, "shapes")
    assert main.main(["models"]) == 0
    first, second = capsys.readouterr().out.split("parameters with")[1:]
    assert first == second
    assert columns(first)["S/32"][3] == "22,878,952"


def test_a_cache_that_cannot_be_written_changes_nothing(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(variants, "NAMED", ("S/32",))
    assert main.main(["models"]) == 0
    assert columns(capsys.readouterr().out)["S/32"][3] == "22,878,952"


@pytest.mark.integration
def test_published_weights_stand_beside_their_variant(shown):
    for name, files in published.CHECKPOINTS.items():
        assert name in variants.NAMED
        for file in files:
            assert file in shown
    assert re.search(r"^B/16 .* imagenet21k/ViT-B_16\.npz$", shown, re.MULTILINE)


@pytest.mark.parametrize("arguments", [["--image-size=0"], ["--image-size=x"], ["--config.seed=1"]])
def test_wrong_usage_is_exit_code_2(capsys, arguments):
    assert main.main(["models", *arguments]) == 2
    assert capsys.readouterr().err
