# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""An export comes to its place when its consumer has read it and found the same."""

import dataclasses
import json
import os

import exports
import numpy as np
import pytest

from vit_jax.errors import BadInput, RunFailed
from vit_jax.inference.export import formats, forward, saved_model, stablehlo, weights_file, writer
from vit_jax.weights import files

ROOT = {"variant": "R+Ti/16", "stages": (), "root_width": 64}


@pytest.fixture(scope="module")
def model():
    return exports.model(names=exports.NAMES, size=(8, 8))


@pytest.fixture
def trusted(monkeypatch):
    """Nothing is computed: the consumer is taken to find the same."""
    monkeypatch.setattr(writer, "_compared", lambda *_: (0.0, 1.0))


def listing(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_stablehlo_and_what_is_to_be_known(model, tmp_path):
    out, parts = tmp_path / "new" / "m.stablehlo", []
    made = writer.write(model, "stablehlo", out, progress=lambda *of: parts.append(of))
    assert listing(tmp_path) == ["new/m.stablehlo", "new/m.stablehlo.json"]
    assert made.size_bytes == sum(p.stat().st_size for p in out.parent.iterdir())
    assert (made.consumer, made.output, made.notes) == ("jax.export", "logits", ())
    assert made.difference < 1e-5 < 0.5 < made.scale
    assert parts == [(0, 3), (1, 3), (2, 3)]
    facts = json.loads((out.parent / "m.stablehlo.json").read_text())
    assert (facts["format"], facts["classes"]) == ("stablehlo", list(exports.NAMES))
    assert facts["normalisation"] == {"mean": exports.OWN["mean"], "std": exports.OWN["std"]}
    assert not facts["normalised_inside"]
    assert facts["calling_convention"] > 0


def test_savedmodel_replaces_one(model, tmp_path, monkeypatch, trusted):
    def write(forward, path):
        path.mkdir()
        (path / "saved_model.pb").write_text(forward.dtype)
        return {}

    monkeypatch.setattr(saved_model, "write", write)
    monkeypatch.setattr(saved_model, "read", lambda path: None)
    out = tmp_path / "m"
    out.mkdir()
    (out / "saved_model.pb").write_text("old")
    (out / "old").touch()
    made = writer.write(model, "savedmodel", out, with_preprocess=True)
    assert made.consumer == "TensorFlow"
    assert listing(tmp_path) == ["m/saved_model.pb", "m/vit_jax.json"]
    assert (out / "saved_model.pb").read_text() == "uint8"
    assert json.loads((out / "vit_jax.json").read_text())["normalised_inside"]


@pytest.fixture
def bent(monkeypatch):
    """bent(change): the consumer finds what `change` makes of the right outputs."""
    right = lambda images: np.float32(images).mean((1, 2)) * 9  # noqa: E731
    monkeypatch.setattr(forward.Forward, "reference", lambda self, images: right(images))

    def by(change):
        call = lambda images: change(right(images))  # noqa: E731
        monkeypatch.setattr(weights_file, "read", lambda *_: ("somebody", call))

    return by


@pytest.mark.parametrize(
    "wrong",
    [lambda found: found + 2e-4 * np.abs(found).max(), lambda found: found * np.nan,
     lambda found: found[:, :1], lambda found: found.astype(np.float64)],
    ids=["other", "not a number", "another shape", "another dtype"],
)  # fmt: skip
def test_consumer_that_finds_something_else(model, tmp_path, bent, wrong):
    out = tmp_path / "m.npz"
    out.write_text("old")
    bent(wrong)
    with pytest.raises(RunFailed, match="somebody computes other logits from the npz export"):
        writer.write(model, "npz", out)
    assert out.read_text() == "old"
    assert listing(tmp_path) == ["m.npz"]


def test_rounding_is_no_difference(model, tmp_path, bent):
    bent(lambda found: found * np.float32(1 + 2e-5))
    made = writer.write(model, "npz", tmp_path / "m.npz")
    assert made.difference / made.scale == pytest.approx(2e-5, rel=0.1)


def test_resnet_has_a_wider_bound_with_timm_alone(tmp_path, bent):
    model = exports.model(form="npz", images={}, size=(64, 64), **ROOT)
    bent(lambda found: found * np.float32(1 + 5e-4))
    writer.write(model, "timm", tmp_path / "model.safetensors")
    with pytest.raises(RunFailed, match="npz export"):
        writer.write(model, "npz", tmp_path / "m.npz")


@pytest.mark.parametrize("name, out", [("stablehlo", "m"), ("savedmodel", "m")])
def test_what_fails_half_way_leaves_nothing(model, tmp_path, monkeypatch, name, out):
    def broken(forward, path):
        (path if name == "stablehlo" else path / "x").parent.mkdir(parents=True, exist_ok=True)
        (path if name == "stablehlo" else path / "x").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(stablehlo if name == "stablehlo" else saved_model, "write", broken)
    with pytest.raises(KeyboardInterrupt):
        writer.write(model, name, tmp_path / out)
    assert list(tmp_path.iterdir()) == []


def test_left_over_of_one_that_was_killed(model, tmp_path, trusted):
    (tmp_path / ".m.npz.partial").mkdir()
    (tmp_path / ".m.npz.partial" / "x").touch()
    writer.write(model, "npz", tmp_path / "m.npz")
    assert listing(tmp_path) == ["m.npz"]


def test_place_that_cannot_be_written_to(model, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match=r"--out=.*cannot be written: .*; give another place"):
        writer.write(model, "npz", tmp_path / "file" / "m.npz")
    if os.geteuid():
        tmp_path.chmod(0o500)
        with pytest.raises(BadInput, match="cannot be written: Permission denied"):
            writer.write(model, "npz", tmp_path / "m.npz")
        tmp_path.chmod(0o700)


def test_full_disk_is_told(model, tmp_path, monkeypatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.files, "write", full)
    with pytest.raises(RunFailed, match="no space left on the disk"):
        writer.write(model, "npz", tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


def test_normalisation_that_nothing_tells(tmp_path, trusted):
    model = exports.model(form="hf", images={}, gelu="erf", size=(8, 8))
    with pytest.raises(BadInput, match="--with-preprocess: no file beside the weights says"):
        writer.write(model, "stablehlo", tmp_path / "m", with_preprocess=True)
    note, labels = writer.write(model, "hf", tmp_path / "model.safetensors").notes
    assert "no file beside the weights says" in note
    assert labels == LABELS


def unaveraged(peer):
    return (
        f"{peer} averages over pixels when shrinking, the preprocessing of these weights does not "
        "(antialias=False): of images larger than the model's, outputs differ"
    )


LABELS = "nothing names the classes, config.json calls them LABEL_0 to LABEL_6"


@pytest.mark.parametrize(
    "images, form, name, notes",
    [
        ({}, "npz", "npz", ()),
        ({}, "npz", "timm", (unaveraged("timm"),)),
        (exports.OWN, "run", "timm", (unaveraged("timm"),)),
        (exports.OWN, "run", "hf", (unaveraged("transformers"), LABELS)),
        (exports.OWN | {"ops": "decode|resize({size}, antialias=True)"}, "run", "timm", ()),
        (exports.OWN | {"ops": "decode"}, "run", "timm", ()),
        ({"interpolation": "bicubic", "crop_mode": "squash", "crop_pct": 1.0, "mean": [0.5] * 3,
          "std": [0.5] * 3}, "timm", "npz",
         ("npz cannot store bicubic resizing; averaging over pixels when shrinking",)),
        (exports.OWN, "run", "npz",
         ("npz cannot store mean 0.1 0.2 0.3 and std 0.4 0.5 0.6",)),
        (exports.OWN | {"ops": "decode|resize_small(9)|central_crop(8)"}, "run", "big_vision",
         ("big_vision cannot store the shorter side resized to 9, then the centre; averaging "
          "over pixels when shrinking; mean 0.1 0.2 0.3 and std 0.4 0.5 0.6",)),
        (exports.OWN | {"ops": "decode|central_crop(8)"}, "run", "timm",
         ("timm cannot say: the chain decode|central_crop(8); it says: resized straight to the "
          "model's size",)),
    ],
)  # fmt: skip
def test_what_the_artefact_cannot_say(tmp_path, trusted, images, form, name, notes):
    model = exports.model(form=form, images=images, size=(8, 8))
    assert writer.write(model, name, tmp_path / f"m{formats.SUFFIX[name]}").notes == notes


@pytest.mark.parametrize("name", ["npz", "big_vision", "timm", "hf"])
def test_loss_is_said_where_another_would_be_taken_for_it(tmp_path, trusted, name):
    """Probabilities of a softmax would be wrong ones."""
    model = exports.model(size=(8, 8), names=exports.NAMES, images=exports.OWN | {"ops": "decode"})
    model = dataclasses.replace(model, sigmoid=True)
    notes = writer.write(model, name, tmp_path / f"m{formats.SUFFIX[name]}").notes
    said = files.read_json(tmp_path / "config.json")
    assert any("the loss, sigmoid: each class is" in note for note in notes) == (name != "hf")
    assert ("problem_type" in said) == (name == "hf")


def test_dtype_and_names_that_it_cannot_say(tmp_path, trusted):
    model = exports.model(size=(8, 8), names=exports.NAMES, form="npz", dtype="bfloat16")
    assert writer.write(model, "npz", tmp_path / "m.npz").notes == (
        "npz cannot store the names of 7 classes",
        "the model was trained in bfloat16, the export computes in float32",
    )
