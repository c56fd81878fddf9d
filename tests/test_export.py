# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The command `vit_jax export`, and its page."""

import json
import re
import shlex

import exports
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from test_e2e import blocks, readme_commands

import vit_jax
from vit_jax.cli import main
from vit_jax.inference.export import weights_file
from vit_jax.models import variants
from vit_jax.step.state import normalise

PAGE = ("docs/export.md",)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    return exports.run(tmp_path_factory.mktemp("run"))


def export(*words):
    return main.main(["export", *map(str, words)])


@pytest.mark.integration
def test_commands_and_python_of_the_page(workdir, tmp_path, monkeypatch, capsys):
    """Its commands write what its Python reads; the quickstart has a mean as its pool."""
    quickstart = tmp_path / "quickstart"
    quickstart.mkdir()
    exports.run(quickstart, pool="gap")
    monkeypatch.chdir(tmp_path)
    commands = readme_commands("export", PAGE)
    assert {w for c in commands for w in shlex.split(c) if w.startswith("--format")} == {
        f"--format={name}" for name in ("stablehlo", "savedmodel", "npz", "timm", "hf")
    }
    for command in commands:
        command = command.replace("runs/quickstart", str(quickstart))
        words = shlex.split(command.replace("runs/cifar10 ", f"{workdir} "))
        assert main.main(words[1:]) == 0, command
        said = capsys.readouterr().out
        assert "largest difference of logits" in said
        assert ("note: npz cannot store the shorter" in said) == ("--format=npz" in words)
    for text in blocks("python", PAGE):
        names = {}
        exec(text, names)
        assert np.shape(names["logits"]) == (3, 7)
        assert np.isfinite(names["logits"]).all()


@pytest.mark.integration
def test_configuration_of_timm_is_that_of_the_run(workdir, tmp_path):
    out = tmp_path / "x.safetensors"
    assert export(workdir, "--format=timm", f"--out={out}") == 0
    said = json.loads((tmp_path / "config.json").read_text())
    images = said["pretrained_cfg"]
    assert said["label_names"] == list(exports.NAMES)
    assert (images["mean"], images["std"]) == ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6])
    assert (images["crop_mode"], images["crop_pct"]) == ("center", 0.5)  # 16, then 8 of them
    preprocess = vit_jax.load(out)[2]
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    cut = jnp.asarray(pixels[None, 4:12, 4:12])
    expected = normalise(cut, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    np.testing.assert_allclose(preprocess(pixels), expected, atol=1e-6)
    theirs = vit_jax.load(workdir)[2](pixels)
    np.testing.assert_allclose(theirs, expected, atol=1e-6)


def test_file_at_another_size_with_what_is_not_said(tmp_path, capsys):
    given = tmp_path / "a.npz"
    cfg = tiny.config(depth=2)
    vit_jax.save(given, variants.make(cfg), tiny.params(cfg, 8, 8))
    out = tmp_path / "new" / "b.npz"
    assert export(given, "--format=big_vision", f"--out={out}", "--image_size=16") == 0
    assert capsys.readouterr().out.startswith(f"{out}: big_vision, 0.")
    assert np.load(out)["pos_embedding"].shape == (1, 16, 32)


def test_artefact_that_computes_something_else_is_exit_code_1(tmp_path, monkeypatch, capsys):
    given = tmp_path / "a.npz"
    cfg = tiny.config(depth=2)
    vit_jax.save(given, variants.make(cfg), tiny.params(cfg, 8, 8))
    monkeypatch.setattr(
        weights_file, "read", lambda *_: ("nobody", lambda images: np.zeros((len(images), 7), "f4"))
    )
    assert export(given, "--format=npz", f"--out={tmp_path / 'b.npz'}") == 1
    assert "nobody computes other logits from the npz export" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]


@pytest.mark.parametrize(
    "words, said",
    [
        (["none", "--format=npz", "--out=m.npz"], "'none': .*none does not exist"),
        (["{run}", "--format=npz", "--out=m.npz", "--with-preprocess"], "weights alone"),
        (["{run}", "--format=onnx", "--out=m.onnx"], "stablehlo, savedmodel"),
        (["{run}", "--format=npz", "--out=gs://bucket/m.npz"], "in a bucket"),
        (["{run}", "--format=stablehlo", "--out=file/m"], "cannot be written"),
        (["{run}", "--format=stablehlo", "--out=m", "--image_size=-1"], "--image_size=-1"),
        (
            ["{run}", "--format=stablehlo", "--out=m", "--image_size=10"],
            r"not divisible by the 4 .*use 8 or 12 \(--image_size\)",
        ),
        (["{run}", "--format=savedmodel", "--out=-"], "--out=- is not a path; give one"),
        (["{run}", "--format=stablehlo"], "--out"),
        (["{run}", "--out=m"], "--format"),
        (["{run}", "--format=npz", "--out=m.npz", "--config.seed=1"], "takes no"),
    ],
)
def test_bad_input_is_exit_code_2(workdir, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert export(*(word.replace("{run}", str(workdir)) for word in words)) == 2
    shown = capsys.readouterr().err
    assert re.search(said, shown), shown
    assert "Traceback" not in shown
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
