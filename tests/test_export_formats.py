# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Exports: each format alone is enough to compute the same."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import exports
import jax
import jax.numpy as jnp
import numpy as np
import peer_libraries
import pytest
import tiny

from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput, RunFailed
from vit_jax.inference.export import (
    formats,
    forward,
    preprocessing_facts,
    saved_model,
    stablehlo,
    weights_file,
    writer,
)
from vit_jax.step.state import normalise
from vit_jax.weights import convert, files, loading
from vit_jax.weights.convert import ORIGINAL
from vit_jax.weights.formats.json_config import Images

# --- formats that are asked for ---


def test_formats_are_those_that_exist():
    assert formats.SUFFIX == convert.SUFFIX
    assert formats.FORMATS == (*convert.NAMES, "stablehlo", "savedmodel")


@pytest.mark.parametrize(
    "name, out, with_preprocess, words",
    [
        ("onnx", "m.onnx", False, "unknown --format 'onnx'.*npz, big_vision, timm, hf, stablehlo"),
        ("savedmodle", "m", False, "Did you mean 'savedmodel'"),
        ("npz", "m.safetensors", False, "to a .npz file; --format=timm or hf to a"),
        ("hf", "m.npz", False, "hf format is written to a .safetensors file"),
        ("npz", "m.npz", True, "--with-preprocess: npz.*--format=stablehlo or savedmodel"),
        ("timm", "m.safetensors", True, "--with-preprocess: timm"),
        ("stablehlo", "folder", False, "folder is a folder, and stablehlo is a file"),
        ("npz", "folder.npz", False, "is a folder, and npz is a file"),
        ("stablehlo", "pipe", False, "pipe is a device or a pipe"),
        ("savedmodel", "pipe", False, "exists and is not a SavedModel"),
        ("savedmodel", "\udcff", False, "is not UTF-8, as the path of a SavedModel must be"),
        ("savedmodel", "folder", False, "exists and is not a SavedModel"),
        ("savedmodel", "file", False, "exists and is not a SavedModel"),
    ],
)
def test_what_cannot_be_right(tmp_path, name, out, with_preprocess, words):
    for folder in ("folder", "folder.npz"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "thesis.tex").touch()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadInput, match=words):
        formats.check(name, tmp_path / out, with_preprocess=with_preprocess)


@pytest.mark.parametrize(
    "name, out",
    [("npz", "new/m.npz"), ("npz", "old.npz"), ("savedmodel", "new/m"), ("savedmodel", "empty"),
     ("savedmodel", "model"), ("stablehlo", "m"), ("timm", "model.safetensors")],
)  # fmt: skip
def test_what_is_new_or_replaced(tmp_path, name, out):
    (tmp_path / "old.npz").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "saved_model.pb").touch()
    formats.check(name, tmp_path / out, with_preprocess=False)


def test_answer_needs_neither_jax_nor_tensorflow():
    program = (
        "import sys; from vit_jax.cli import main; "
        "assert main.main(['export', 'x', '--format=onnx', '--out=x']) == 2; "
        "assert not {'jax', 'tensorflow'} & set(sys.modules)"
    )
    root = Path(__file__).resolve().parents[1]
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, cwd=root)


# --- the exported function ---


def test_function_is_the_model():
    """The formats below do so for every kind of model."""
    model = exports.model()
    made = forward.make(model, None)
    images = tiny.images_of(model.cfg, 2)
    found = made.reference(images)
    np.testing.assert_allclose(found, tiny.logits(model.cfg, model.params, images), atol=1e-6)
    assert (made.output, made.dtype, made.size) == ("logits", "float32", tiny.size(model.cfg))
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(made.params))


def test_training_in_bfloat16_is_exported_in_float32():
    one, two = exports.model(), exports.model(dtype="bfloat16", remat="full", attention="fused")
    assert two.cfg.attention == "xla"  # which has no free batch
    images = tiny.images_of(one.cfg, 2)
    found = [forward.make(model, None).reference(images) for model in (one, two)]
    np.testing.assert_array_equal(*found)
    rounded = tiny.logits(exports.model(dtype="bfloat16").cfg, one.params, images)
    assert np.abs(rounded - found[0]).max() > 1e-3


def test_uint8_is_normalised_inside():
    model = exports.model()
    said = Images(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    pixels = np.random.default_rng(0).integers(0, 256, (2, *tiny.size(model.cfg), 3), np.uint8)
    made = forward.make(model, said)
    assert made.dtype == "uint8"
    normalised = np.asarray(normalise(jax.numpy.asarray(pixels), said.mean, said.std))
    expected = forward.make(model, None).reference(normalised)
    np.testing.assert_allclose(made.reference(pixels), expected, atol=1e-5)


def test_without_a_head_it_is_the_representation():
    model = exports.model(classes=0)
    made = forward.make(model, None)
    assert made.output == "representation"
    assert made.reference(tiny.images_of(model.cfg, 2)).shape == (2, 32)
    assert forward.facts(made, None, forward.about_model(model))["output"] == {
        "name": "representation", "shape": ["B", 32], "dtype": "float32",
    }  # fmt: skip


def test_facts_say_what_goes_in_and_what_comes_out():
    model = exports.model(names=exports.NAMES)
    said = Images(mean=(0.1, 0.2, 0.3))
    about = forward.about_model(model)
    found = forward.facts(forward.make(model, said), said, about)
    assert found["input"] == {"name": "images", "shape": ["B", 8, 12, 3], "dtype": "uint8"}
    assert found["output"] == {"name": "logits", "shape": ["B", 7], "dtype": "float32"}
    assert found["normalisation"] == {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5)}
    assert found["normalised_inside"]
    assert found["chain"] == "decode|resize({size})"
    assert found["classes"] == list(exports.NAMES)
    assert found["probabilities"] == "softmax"
    assert found["model"]["variant"] == "Ti/4"
    assert found["jax"] == jax.__version__
    assert forward.facts(forward.make(model, None), None, about)["normalisation"] is None


# --- facts of the preprocessing ---


SIZE = (32, 32)


def found(form, images, size=SIZE):
    return preprocessing_facts.describe(exports.weights(form=form, images=images), size)


@pytest.mark.parametrize(
    "chain, shorter, antialias",
    [
        ("decode", 0, None),
        ("decode(exif=True)|resize({size})", 0, False),
        ("resize(32, antialias=True)", 0, True),
        ("decode|bv_resize(32)", 0, False),
        ("decode|resize_small({size*8//7})|central_crop({size})", 36, True),
        ("decode|resize_small(40, antialias=False)|central_crop({size})", 40, False),
        ("decode|bv_resize_small(40)|central_crop(32)", 40, True),
        ("decode|resize({size}, cubic=True)", 0, True),
        ("decode|resize_small(40, cubic=True)|central_crop(32)", 40, True),
        ("decode|central_crop({size})", None, None),
        ("decode|resize(40, cubic=True)|central_crop({size})", None, None),
        ("decode|resize_small(40)", None, None),
        ("decode|resize(40)|central_crop(32)", None, None),
        ("decode|resize({size})|flip_lr", None, None),
    ],
)
def test_chain_of_a_run(chain, shorter, antialias):
    said, words = found("run", exports.OWN | {"ops": chain})
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    kind = "bicubic" if "cubic" in chain else "bilinear"
    assert said == Images(mean, std, kind, shorter or 0, antialias=antialias)
    assert words == (f"the chain {chain}" if shorter is None else "")


@pytest.mark.parametrize("form", ["npz", "big_vision"])
def test_original_files(form):
    assert found(form, {}) == (ORIGINAL, "")


@pytest.mark.parametrize(
    "given, expected, unsaid",
    [
        ({"crop_pct": 1.0, "crop_mode": "squash", "interpolation": "bilinear", "mean": [0.5] * 3,
          "std": [0.5] * 3}, Images(antialias=True), False),
        ({"mean": None, "crop_pct": 0.9},
         Images((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 35, (), True), False),
        ({"crop_mode": "border"},
         Images((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 0, (), True), True),
        ({"crop_mode": "squash", "crop_pct": 0.9},
         Images((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 0, (), True), True),
    ],
)  # fmt: skip
def test_configuration_of_timm(given, expected, unsaid):
    said, words = found("timm", given)
    assert said == expected
    assert bool(words) == unsaid


@pytest.mark.parametrize(
    "given, shorter, kind, unsaid",
    [
        ({"size": {"height": 32, "width": 32}}, 0, "bilinear", False),
        ({"size": {"shortest_edge": 40}, "do_center_crop": True, "resample": 3,
          "crop_size": {"height": 32, "width": 32}}, 40, "bicubic", False),
        ({"size": {"height": 40, "width": 40}, "do_center_crop": True,
          "crop_size": {"height": 32, "width": 32}}, 0, "bilinear", True),
        ({"do_resize": False}, 0, "bilinear", True),
        ({"do_resize": False, "do_rescale": False, "image_mean": [100, 110, 120],
          "image_std": [50, 60, 70]}, 0, "bilinear", True),
        ({"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]},
         0, "bilinear", False),
        ({"do_normalize": False}, 0, "bilinear", False),
        ({"image_mean": None, "image_std": None, "resample": None}, 0, "bilinear", False),
        ({"image_processor_type": "DeiTImageProcessor", "crop_size": 32,
          "size": {"shortest_edge": 36}}, 36, "bicubic", False),
    ],
)  # fmt: skip
def test_configuration_of_transformers(given, shorter, kind, unsaid):
    said, words = found("hf", given)
    assert (said.shorter_side, said.interpolation, bool(words)) == (shorter, kind, unsaid)
    assert said.antialias


@pytest.mark.parametrize(
    "form, given",
    [
        ("run", exports.OWN),
        ("npz", {}),
        ("timm", {"crop_pct": 1.0, "mean": [0.1, 0.2, 0.3]}),
        ("hf", {"image_mean": [0.3, 0.2, 0.1]}),
        ("hf", {"do_rescale": False, "image_mean": [100, 110, 120], "image_std": [50, 60, 70]}),
        ("hf", {"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]}),
        ("hf", {"do_normalize": False}),
    ],
)
def test_normalisation_is_that_of_the_reader(form, given):
    """On images of the model's size, where resizing does nothing."""
    weights = exports.weights(form=form, images=given)
    said, _ = preprocessing_facts.describe(weights, SIZE)
    pixels = np.random.default_rng(0).integers(0, 256, (1, *SIZE, 3), np.uint8)
    expected = loading.reader(weights, SIZE)(pixels)
    normalised = normalise(jnp.asarray(pixels), said.mean, said.std)
    np.testing.assert_allclose(normalised, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["timm", "hf"])
def test_what_nothing_speaks_of_is_not_guessed(form):
    assert found(form, {}) == (None, "no file beside the weights says how to prepare images")


def test_damaged_configuration_is_refused():
    with pytest.raises(BadInput, match="crop_pct='much'"):
        found("timm", {"crop_pct": "much"})


# --- savedModel ---


READ = """
import os
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import tensorflow as tf
for kind in {kinds}:
    serve = tf.saved_model.load(kind).signatures["serving_default"]
    compare(kind, lambda images: serve(images=tf.constant(images))["logits"].numpy())
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    "kinds",
    [("token", "bit"), pytest.param(("gap", "map", "hybrid", "mixer"), marks=pytest.mark.slow)],
)
def test_tensorflow_alone_reads_every_family_at_any_batch(tmp_path, kinds):
    exports.artefacts(tmp_path, saved_model.write, kinds)
    program = exports.COMPARE + READ.format(kinds=kinds)
    shown = exports.clean(program, tmp_path, without=("vit_jax", "flax", "jax", "jaxlib"))
    assert shown.count("\n") == 2 * len(kinds)


def test_signature(tmp_path):
    saved_model.write(forward.make(exports.model(), None), tmp_path / "token")
    serve = tf.saved_model.load(str(tmp_path / "token")).signatures["serving_default"]
    (images,) = serve.structured_input_signature[1].values()
    assert (images.name, images.shape.as_list(), images.dtype) == (
        "images", [None, 8, 12, 3], tf.float32,
    )  # fmt: skip
    assert serve.structured_outputs["logits"].dtype == tf.float32
    # jax writes the version of a few weeks ago, which TensorFlow may not know yet.
    assert b"StableHLO_v1.15.0" in (tmp_path / "token" / "saved_model.pb").read_bytes()


def test_representation_of_uint8(tmp_path):
    model = exports.model(classes=0)
    made = forward.make(model, Images(mean=(0.1, 0.2, 0.3)))
    saved_model.write(made, tmp_path / "m")
    pixels = np.random.default_rng(0).integers(0, 256, (2, *tiny.size(model.cfg), 3), np.uint8)
    found = saved_model.read(tmp_path / "m")(pixels)
    np.testing.assert_allclose(found, made.reference(pixels), atol=1e-5)
    serve = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    assert list(serve.structured_outputs) == ["representation"]


# --- stableHLO ---


READ_STABLEHLO = """
import jax
from jax import export
for kind in {kinds}:
    with open(kind, "rb") as file:
        exported = export.deserialize(bytearray(file.read()))
    assert exported.platforms == ("cpu", "cuda", "tpu")
    compare(kind, lambda images: np.asarray(exported.call(images)))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return exports.artefacts(tmp_path_factory.mktemp("stablehlo"), stablehlo.write)


@pytest.mark.integration
def test_jax_alone_reads_every_family_at_any_batch(folder):
    program = exports.COMPARE + READ_STABLEHLO.format(kinds=list(exports.KINDS))
    shown = exports.clean(program, folder, without=("vit_jax", "flax", "tensorflow"))
    assert shown.count("\n") == 2 * len(exports.KINDS)


@pytest.mark.integration
def test_what_is_read_here(folder):
    with np.load(folder / "token.npz") as file:
        found = stablehlo.read(folder / "token")(file["images"])
        np.testing.assert_allclose(found, file["expected"], atol=1e-5)


def test_uint8_and_another_shape(tmp_path):
    model = exports.model()
    made = forward.make(model, Images(mean=(0.1, 0.2, 0.3)))
    assert stablehlo.write(made, tmp_path / "m") == {
        "calling_convention": jax.config.jax_export_calling_convention_version
    }
    call = stablehlo.read(tmp_path / "m")
    pixels = np.random.default_rng(0).integers(0, 256, (2, *tiny.size(model.cfg), 3), np.uint8)
    np.testing.assert_allclose(call(pixels), made.reference(pixels), atol=1e-5)
    with pytest.raises(ValueError, match="Dtype mismatch"):
        call(pixels.astype(np.float32))
    with pytest.raises(ValueError, match="Shape mismatch"):
        call(pixels[:, :4])


def test_more_weights_than_a_file_holds():
    huge = np.broadcast_to(np.float32(0), (1 << 29,))
    made = forward.Forward(lambda params, images: images, {"a": huge}, (8, 8), "float32", "logits")
    with pytest.raises(BadInput, match=r"2\.1 GB.*--format=savedmodel"):
        stablehlo.check(made)
    stablehlo.check(forward.make(exports.model(), None))


# --- weight files ---


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
    peer = peer_libraries.load({"timm": "timm", "hf": "transformers"}[name])
    model = exports.model(kind, size=(8, 8), **changes)
    consumer, found, expected = written(tmp_path / "model.safetensors", name, model)
    assert consumer == f"{peer.__name__} {peer.__version__}"
    np.testing.assert_allclose(found, expected, atol=2e-5 * np.abs(expected).max())


def test_timm_prepares_images_as_it_is_told(tmp_path):
    timm = peer_libraries.load("timm")
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
    transformers = peer_libraries.load("transformers")
    said = dataclasses.replace(SAID, sigmoid=True)
    written(tmp_path / "model.safetensors", "hf", exports.model(size=(8, 8)), said)
    model = transformers.ViTForImageClassification.from_pretrained(tmp_path)
    assert model.config.id2label == dict(enumerate(exports.NAMES))
    assert model.config.problem_type == "multi_label_classification"
    module = peer_libraries.load("transformers.models.vit.image_processing_pil_vit")
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
    with pytest.raises(BadInput, match=f"{words}.*stablehlo or savedmodel holds every model"):
        weights_file.expressed(name, forward.config(model.cfg), made, SAID)


@pytest.mark.parametrize(
    "name, kind, changes, words",
    [
        ("npz", "token", {"layer_scale": 1e-5}, "--format=timm holds it"),
        ("npz", "token", {"gelu": "erf"}, "--format=timm or hf holds it"),
        ("hf", "hybrid", {}, "--format=npz holds it"),
    ],
)
def test_a_refusal_names_the_formats_of_weights_that_hold_the_model(name, kind, changes, words):
    model = exports.model(kind, size=(16, 16), **changes)
    made = forward.make(model, None)
    with pytest.raises(BadInput, match=words):
        weights_file.expressed(name, forward.config(model.cfg), made, SAID)


# --- the writer ---


ROOT = {"variant": "R+Ti/16", "stages": (), "root_width": 64}


@pytest.fixture(scope="module")
def model():
    return exports.model(names=exports.NAMES, size=(8, 8))


@pytest.fixture
def trusted(monkeypatch):
    """Nothing is computed: the consumer is taken to find the same."""
    monkeypatch.setattr(writer, "_compared", lambda *_: (0.0, 1.0, "logits"))


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
    model = exports.model(form="npz", images={}, size=(8, 8), names=exports.NAMES, dtype="bfloat16")
    assert writer.write(model, "npz", tmp_path / "m.npz").notes == (
        "npz cannot store the names of 7 classes",
        "the model was trained in bfloat16, the export computes in float32",
    )


# --- images of any aspect ratio ---


def siglip2(ops):
    """A model with a table of 3 x 3 positions, for at most 4 x 4 patches of 4 pixels."""
    return exports.model(
        "map", images=exports.OWN | {"ops": ops}, size=(16, 16), naflex=3, classes=0, registers=0,
        biases="all", gelu="tanh",
    )  # fmt: skip


@pytest.mark.parametrize(
    "ops, said",
    [
        ("decode|naflex({size}, 4)", ""), ("decode|resize({size})", "decode.resize"),
        ("decode|naflex({size}, 4, enlarge=False)", "enlarge=False.*to the largest grid"),
    ],
)  # fmt: skip
def test_the_budget_of_a_run_is_written(tmp_path, ops, said):
    """Not the side of its table; and transformers' ViT, which is another model, is not asked."""
    path = tmp_path / "model.safetensors"
    (*notes,) = writer.write(siglip2(ops), "hf", path).notes
    assert len(notes) == bool(said)
    assert not said or re.search(said, notes[0])
    prepared = files.read_json(tmp_path / "preprocessor_config.json")
    assert (prepared["max_num_patches"], prepared["patch_size"]) == (16, 4)
    config = files.read_json(tmp_path / "config.json")
    assert config["num_patches"] == 9
    assert "image_size" not in config
    assert convert.read(path).image_size == (16, 16)


def test_the_budget_of_a_run_is_written_for_timm(tmp_path):
    path = tmp_path / "model.safetensors"
    assert not writer.write(siglip2("decode|naflex({size}, 4)"), "timm", path).notes
    config = files.read_json(tmp_path / "config.json")
    assert config["pretrained_cfg"]["input_size"] == [3, 16, 16]
    assert config["model_args"]["pos_embed_grid_size"] == [3, 3]
    weights = convert.read(path)
    assert (weights.image_size, weights.config.naflex) == ((16, 16), 3)
    assert weights.config.naflex_filter == "bilinear"
