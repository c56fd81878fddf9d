# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Exports of runs whose objective has a head: the artefact finds what `Segmenter` finds."""

import dataclasses
import functools
import io
import json
import tarfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from jax import export
from PIL import Image

from vit_jax.build import objectives, program
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.cli import main
from vit_jax.config import images as images_lib
from vit_jax.config import load as config_lib
from vit_jax.data.numpy_ops import resize
from vit_jax.data.tensorflow import tf
from vit_jax.inference import dense_run, detector, segmenter
from vit_jax.inference.export import forward, writer
from vit_jax.models import variants
from vit_jax.step import state
from vit_jax.step.segmentation import Segmentation

SIDES = (32, 48)
CLASSES = 5
NAMES = tuple("abcde")
CHANGES = (
    "--config.model.width=32", "--config.model.depth=2", "--config.model.mlp=48",
    "--config.model.heads=4", "--config.model.dtype=bfloat16", "--config.data.mean=(0.4,0.5,0.6)",
)  # fmt: skip


def parameters(objective, cfg, height, width):
    """Random parameters of a model with feature maps, and of a head."""
    shape = jax.ShapeDtypeStruct((1, height, width, 3), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    maps, _ = jax.eval_shape(variants.make(cfg).init_with_output, key, shape)
    head = jax.eval_shape(lambda: objective.parameters(jax.random.key(0), maps))
    return tiny.params(cfg, height, width) | {program.PARAMETERS: tiny.randomised(head)}


@pytest.fixture(scope="module")
def workdir(root, tmp_path_factory):
    """A run of `configs/segment.py` with random parameters, trained in bfloat16."""
    recipe = f"{root}/configs/segment.py:size={SIDES[0]}x{SIDES[1]},backbone=full,model=Ti/8"
    return saved(tmp_path_factory.mktemp("run"), recipe, CHANGES)


def saved(folder, recipe, changes):
    config = config_lib.load(recipe, changes)
    text = config_lib.to_yaml(config)
    (folder / "config.yaml").write_text(text)
    (folder / "classes.json").write_text(json.dumps({"classes": NAMES}))
    cfg = variants.of(config.model, CLASSES)
    objective = objectives.make(config, cfg)
    cfg = objective.model(cfg)
    objective = objective.in_run(cfg, lambda _: 0)
    params = jax.tree.map(jnp.asarray, parameters(objective, cfg, *SIDES))
    checkpoints = Checkpoints(folder)
    checkpoints.save(3, state.from_params(params, optax.identity(), ema=False), text, {})
    checkpoints.close()
    return folder


@pytest.fixture(scope="module")
def street_scenes(data_dir):
    """Three pictures of streets in the size of a window."""
    path = data_dir / "camvid.tar"
    if not path.exists():
        pytest.skip("no camvid.tar among the real images")
    with tarfile.open(path) as tar:
        names = [n for n in tar.getnames() if "/test/images/" in n][:3]
        files = [tar.extractfile(name).read() for name in names]
    pictures = [np.asarray(Image.open(io.BytesIO(content))) for content in files]
    return np.stack([resize.resized(x, *SIDES, antialias=True) for x in pictures])


@pytest.fixture(scope="module")
def found(workdir, street_scenes):
    """The classes that the run itself finds, with the precision of an export."""
    run = dense_run.open_run(str(workdir), None)
    network = program.network(variants.make(forward.plain(run.cfg)), run.images)
    step = jax.jit(segmenter.step_of(run.objective, network))
    model = dataclasses.replace(segmenter.open_run(str(workdir), whole=True), step=step)
    classes = np.stack(list(model.of_images(street_scenes)))
    assert len(np.unique(classes)) > 2
    return classes


def check(outputs, classes):
    assert outputs["classes"].dtype == np.int32
    assert outputs["logits"].shape == (3, 4, 6, CLASSES)
    assert (np.asarray(outputs["classes"]) == classes).mean() > 0.9995  # others are ties


@pytest.mark.parametrize("more", [[], ["--merge"], ["--format=timm"]])
def test_save_says_what_writes_a_run_with_a_head(workdir, tmp_path, capsys, more):
    out = tmp_path / ("x.safetensors" if "--format=timm" in more else "x.npz")
    assert main.main(["save", str(workdir), str(out), *more]) == 2
    assert f"`vit_jax export {workdir} --format=stablehlo --out=FILE`" in capsys.readouterr().err
    assert not out.exists()


def test_stablehlo_finds_the_classes_of_real_pictures(
    workdir, street_scenes, found, tmp_path, capsys
):
    out = tmp_path / "seg.stablehlo"
    assert main.main(["export", str(workdir), "--format=stablehlo", f"--out={out}"]) == 0
    said = capsys.readouterr().out
    assert "read back by jax.export: largest difference of classes and logits" in said
    assert "note: the model was trained in bfloat16, the export computes in float32" in said
    model = export.deserialize(bytearray(out.read_bytes()))
    check(model.call(street_scenes), found)
    facts = json.loads((tmp_path / "seg.stablehlo.json").read_text())
    assert facts["input"] == {"name": "images", "shape": ["B", *SIDES, 3], "dtype": "uint8"}
    assert facts["outputs"] == [
        {"name": "classes", "shape": ["B", *SIDES], "dtype": "int32"},
        {"name": "logits", "shape": ["B", 4, 6, CLASSES], "dtype": "float32"},
    ]
    assert (facts["classes"], facts["normalised_inside"]) == (list(NAMES), True)
    assert facts["normalisation"]["mean"] == [0.4, 0.5, 0.6]


def test_savedmodel_finds_the_classes_of_real_pictures(workdir, street_scenes, found, tmp_path):
    out = tmp_path / "seg"
    words = ["export", str(workdir), "--format=savedmodel", f"--out={out}", "--with-preprocess"]
    assert main.main(words) == 0
    serve = tf.saved_model.load(str(out)).signatures["serving_default"]
    assert serve.structured_outputs["classes"].shape.as_list() == [None, *SIDES]
    outputs = serve(images=tf.constant(street_scenes))
    check({name: value.numpy() for name, value in outputs.items()}, found)


@pytest.mark.parametrize(
    "words, said",
    [
        (["--format=npz", "--out=x.npz"], "--format=npz holds the weights of a model of classes"),
        (["--format=stablehlo", "--out=x", "--heads=2"], "--heads has no use"),
        (["--format=stablehlo", "--out=x", "--patch=4"], "--patch has no use"),
        (["--format=stablehlo", "--out=x", "--image_size=30"], r"not divisible by the 8"),
    ],
)  # fmt: skip
def test_arguments_without_use_are_refused(workdir, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main.main(["export", str(workdir), *words]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.integration
@pytest.mark.parametrize(
    "head, levels, changes",
    [
        ("linear", 2, {"variant": "Ti/8", "posemb": "learned2d", "pool": "gap"} | tiny.ENCODER),
        ("mask_transformer", 1, {"variant": "Ti/8"} | tiny.ENCODER),
        ("upsampling", 1, {"variant": "Ti/8"} | tiny.ENCODER),
        ("linear", 2, {"variant": "BiT-custom", "classes": 7} | tiny.RESNET),
        ("linear", 1, {"variant": "Mixer-custom/8", "width": 32, "depth": 3, "mlp": 48,
                       "token_mlp": 20, "classes": 7}),
    ],
    ids=["linear", "mask_transformer", "upsampling", "bit", "mixer"],
)  # fmt: skip
def test_every_head_and_family_is_exported_for_any_batch(head, levels, changes):
    objective = Segmentation(head, levels=levels, layers=2, classes=CLASSES)
    cfg = objective.model(variants.config(**changes))
    images = images_lib.Images(SIDES, 3, (0.5,) * 3, (0.5,) * 3)
    network = program.network(variants.make(cfg), images)
    params = parameters(objective, cfg, *SIDES)
    made = forward.of_objective(objective, network, params, images.shape)
    program_of = forward.exported(made, weights_inside=False)
    pixels = np.random.default_rng(0).integers(0, 256, (3, *SIDES, 3), np.uint8)
    options = {"train": False, "key": None}
    logits = jax.jit(lambda x: objective.logits(network, params, x, **options))(pixels)
    grid = jax.jit(lambda x: objective.grid(network, params, x, **options))(pixels)
    for count in (1, 3):
        outputs = program_of.call(params, pixels[:count])
        assert (outputs["classes"] == logits[:count].argmax(-1)).mean() > 0.999
        bound = 1e-4 * np.abs(grid).max()
        np.testing.assert_allclose(outputs["logits"], grid[:count], atol=bound)


def test_a_few_classes_may_differ_and_no_more():
    """They follow from logits that are as good as equal."""
    made = forward.Forward(lambda *_: None, {}, SIDES, "uint8", "")
    right = {"classes": np.zeros((3, 40, 50), np.int32), "logits": np.ones((3, 2, 2, 5), "f4")}
    object.__setattr__(made, "reference", lambda images: right)
    for others, bound in ((2, 0.0), (3, np.inf)):  # of 2,000
        classes = right["classes"].copy()
        classes[:, 0, :others] = 1
        outputs = right | {"classes": classes}
        call = lambda images, all=outputs: {k: x[: len(images)] for k, x in all.items()}  # noqa: E731
        assert writer._compared(made, call, writer.Images()) == (bound, 1.0, "classes and logits")


# ---------------------------------------------------------------- detection


@pytest.fixture(scope="module")
def finder(root, tmp_path_factory):
    """A run of `configs/detect.py` with random parameters, trained in bfloat16."""
    recipe = f"{root}/configs/detect.py:size={SIDES[0]}x{SIDES[1]},backbone=full,model=Ti/8"
    objective = "--config.objective=detection(width=16, depth=1, strides=(4, 8, 16))"
    return saved(tmp_path_factory.mktemp("finder"), recipe, [*CHANGES, objective])


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["stablehlo", "savedmodel"])
def test_exports_find_the_boxes_of_a_detector(finder, tmp_path, kind):
    out = tmp_path / "det"
    assert main.main(["export", str(finder), f"--format={kind}", f"--out={out}"]) == 0
    pixels = np.random.default_rng(1).integers(0, 256, (3, *SIDES, 3), np.uint8)
    if kind == "stablehlo":
        outputs = export.deserialize(bytearray(out.read_bytes())).call(pixels)
        facts = json.loads((tmp_path / "det.json").read_text())
    else:
        serve = tf.saved_model.load(str(out)).signatures["serving_default"]
        outputs = {key: x.numpy() for key, x in serve(images=tf.constant(pixels)).items()}
        facts = json.loads((out / "vit_jax.json").read_text())
    assert facts["input"] == {"name": "images", "shape": ["B", *SIDES, 3], "dtype": "uint8"}
    assert {x["name"]: (x["shape"], x["dtype"]) for x in facts["outputs"]} == {
        "boxes": (["B", 100, 4], "float32"),
        "scores": (["B", 100], "float32"),
        "classes": (["B", 100], "int32"),
    }
    run = dense_run.open_run(str(finder), None)
    network = program.network(variants.make(forward.plain(run.cfg)), run.images)
    step = jax.jit(functools.partial(run.objective.detect, network))
    model = dataclasses.replace(detector.open_run(str(finder)), step=step)
    for number, wanted in enumerate(model.of_images(pixels)):
        boxes, scores, classes = (
            np.asarray(outputs[k])[number] for k in ("boxes", "scores", "classes")
        )
        there = (scores > 0) & (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        assert there.sum() == len(wanted.scores) > 3
        np.testing.assert_allclose(boxes[there], wanted.boxes, atol=1e-2)
        np.testing.assert_allclose(scores[there], wanted.scores, atol=1e-5)
        np.testing.assert_array_equal(classes[there], wanted.classes)
