# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Weights by the names of others: written, and read back by those others."""

import dataclasses
import sys
import types

import exports
import numpy as np
import peers
import pytest
import tiny

from vit_jax.errors import BadInput
from vit_jax.inference.export import forward, weights_file
from vit_jax.weights import files
from vit_jax.weights.formats.json_config import Images

SAID = Images((0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "bilinear", 9, exports.NAMES)


def written(path, name, model, said=SAID):
    """Writes; returns who reads it, what they make of images, and what the model makes."""
    cfg = forward.config(model.cfg)
    made = forward.make(model, None)
    files.write(path, *weights_file.expressed(name, cfg, made, said))
    consumer, call = weights_file.read(name, cfg, made, path)
    images = tiny.images(2, *model.size)
    return consumer, call(images), made.reference(images)


@pytest.mark.parametrize("name", ["npz", "big_vision", "timm", "hf"])
def test_ours_reads_it(tmp_path, monkeypatch, name):
    """Nobody else reads a file of such a name, even where their package is installed."""
    if name in weights_file.PEER:
        package = weights_file.PEER[name]
        monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
    model = exports.model(size=(8, 8), gelu="erf" if name in ("timm", "hf") else "tanh")
    suffix = "npz" if name in ("npz", "big_vision") else "safetensors"
    consumer, found, expected = written(tmp_path / f"mine.{suffix}", name, model)
    assert consumer == "vit_jax.load"
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_npz_that_is_not_square(tmp_path):
    model = exports.model("map", registers=0)
    _, found, expected = written(tmp_path / "m.npz", "big_vision", model)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "name, kind, changes",
    [("timm", "token", {}), ("timm", "token", {"gelu": "erf"}), ("timm", "map", {}),
     ("timm", "token", {"classes": 0}), ("hf", "token", {}), ("hf", "token", {"gelu": "erf"}),
     ("hf", "token", {"classes": 0}), ("hf", "token", {"classes": 0, "representation": 32})],
)  # fmt: skip
def test_peer_reads_it(tmp_path, name, kind, changes):
    peer = peers.load({"timm": "timm", "hf": "transformers"}[name])
    model = exports.model(kind, size=(8, 8), **changes)
    consumer, found, expected = written(tmp_path / "model.safetensors", name, model)
    assert consumer == f"{peer.__name__} {peer.__version__}"
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


def test_timm_prepares_images_as_it_is_told(tmp_path):
    timm = peers.load("timm")
    written(tmp_path / "model.safetensors", "timm", exports.model(size=(8, 8)))
    model = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    found = timm.data.resolve_data_config(model=model)
    assert (found["mean"], found["std"]) == (list(SAID.mean), list(SAID.std))
    assert (found["interpolation"], found["crop_mode"], tuple(found["input_size"])) == (
        "bilinear", "center", (3, 8, 8),
    )  # fmt: skip
    assert int(8 / found["crop_pct"]) == 9
    assert model.pretrained_cfg["label_names"] == list(exports.NAMES)


def test_transformers_prepare_images_and_name_classes_as_they_are_told(tmp_path):
    transformers = peers.load("transformers")
    said = dataclasses.replace(SAID, sigmoid=True)
    written(tmp_path / "model.safetensors", "hf", exports.model(size=(8, 8)), said)
    model = transformers.ViTForImageClassification.from_pretrained(tmp_path)
    assert model.config.id2label == dict(enumerate(exports.NAMES))
    assert model.config.problem_type == "multi_label_classification"
    module = peers.load("transformers.models.vit.image_processing_pil_vit")
    processor = module.ViTImageProcessorPil.from_pretrained(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    found = processor(pixels, return_tensors="np")["pixel_values"]
    from vit_jax.weights import preprocessing

    given = files.read_json(tmp_path / "preprocessor_config.json")
    expected = preprocessing.hf_reader(given)(pixels).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found.shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    "name, kind, changes, words",
    [
        ("timm", "gap", {}, "no posemb=learned2d"),
        ("npz", "token", {"registers": 2}, "no name for registers"),
        ("hf", "hybrid", {}, "use timm or npz"),
        ("hf", "token", {"representation": 32}, "write npz or big_vision"),
        ("big_vision", "hybrid", {}, "no name for backbone"),
        ("timm", "bit", {}, "write npz"),
        ("npz", "token", {"gelu": "erf"}, "timm and hf say their GELU"),
    ],
)
def test_what_a_format_cannot_hold_names_those_that_can(name, kind, changes, words):
    model = exports.model(kind, size=(16, 16), **changes)
    made = forward.make(model, None)
    with pytest.raises(BadInput, match=f"{words}.*stablehlo and savedmodel hold every model"):
        weights_file.expressed(name, forward.config(model.cfg), made, SAID)
