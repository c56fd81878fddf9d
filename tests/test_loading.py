# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""FILE_OR_RUN: what is meant by it, `vit_jax.load` and `vit_jax.save`."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import exports
import foreign
import jax
import jax.numpy as jnp
import model_commands
import numpy as np
import optax
import pytest
from numpy_vit import forward

import vit_jax
from vit_jax import tree
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import variants, vit
from vit_jax.step import state
from vit_jax.weights import fitting, loading, preprocessing

ROOT = Path(__file__).resolve().parent.parent
BASE = str(ROOT / "configs" / "base.py")
SCORES = {2: 0.5, 4: 0.9, 6: 0.7}  # step -> val/top1
SETTINGS = (
    "--config.model.variant=custom/4",
    "--config.model.width=32",
    "--config.model.depth=2",
    "--config.model.mlp=48",
    "--config.model.heads=4",
    "--config.model.pool=gap",
    "--config.model.posemb=learned2d",
    "--config.model.gelu=erf",
    "--config.data.image_size=12",
    "--config.data.mean=(0.1,0.2,0.3)",
    "--config.checkpoint.keep_best=val/top1",
)
CFG = foreign.vit(pool="gap", posemb="learned2d", gelu="erf")


def parameters(seed):
    return tree.stack_blocks(foreign.random(CFG, 12, 12, seed))


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run of three steps; the seed of its parameters is the step, of their average 10 more."""
    folder = tmp_path_factory.mktemp("run")
    text = config_lib.to_yaml(config_lib.load(BASE, SETTINGS))
    (folder / "config.yaml").write_text(text)
    checkpoints = Checkpoints(folder, keep_last=3, keep_best="val/top1")
    for step, score in SCORES.items():
        made = state.from_params(
            jax.tree.map(jnp.asarray, parameters(step)), optax.identity(), ema=True
        )
        made.ema = jax.tree.map(jnp.asarray, parameters(step + 10))
        checkpoints.save(step, made, text, {"val/top1": score})
    checkpoints.close()
    return folder


def run_without_average(folder, step=7):
    settings = [s for s in SETTINGS if "keep_best" not in s]
    text = config_lib.to_yaml(config_lib.load(BASE, settings))
    (folder / "config.yaml").write_text(text)
    checkpoints = Checkpoints(folder)
    params = jax.tree.map(jnp.asarray, parameters(step))
    checkpoints.save(step, state.from_params(params, optax.identity(), ema=False), text, {})
    checkpoints.close()
    return folder


def message(text):
    with pytest.raises(BadInput) as caught:
        loading.find_run(str(text))
    return str(caught.value)


# --- which step of which run ---


@pytest.mark.parametrize("which, step", [("", 6), ("@best", 4), ("@2", 2), ("@4", 4), ("@6", 6)])
def test_step_of_a_run(workdir, which, step):
    assert loading.find_run(f"{workdir}{which}") == loading.Run(workdir, step)


def test_run_in_home_and_by_relative_path(workdir, monkeypatch):
    monkeypatch.setenv("HOME", str(workdir.parent))
    assert loading.find_run(f"~/{workdir.name}@2") == loading.Run(workdir, 2)
    monkeypatch.chdir(workdir.parent)
    found = loading.find_run(f"{workdir.name}@best")
    assert (found.step, found.workdir.resolve()) == (4, workdir)


def test_path_of_a_run_may_hold_an_at_sign(workdir, tmp_path):
    (tmp_path / "me@host").mkdir()
    moved = tmp_path / "me@host" / "run"
    moved.symlink_to(workdir)
    assert loading.find_run(f"{moved}@2") == loading.Run(moved, 2)
    assert loading.find_run(str(moved)) == loading.Run(moved, 6)


def test_file_is_no_run(tmp_path):
    (tmp_path / "B_16@224.npz").write_bytes(b"x")
    assert loading.find_run(str(tmp_path / "B_16@224.npz")) is None


@pytest.mark.parametrize("which", ["", "@best", "@3"])
def test_missing_path_says_what_may_be_given(tmp_path, which):
    said = message(f"{tmp_path}/none{which}")
    parts = (f"{tmp_path}/none does not exist", ".npz", "WORKDIR@best", "WORKDIR@STEP")
    assert [p for p in parts if p not in said] == []


def test_folder_without_checkpoints_says_so(tmp_path):
    assert f"{tmp_path} holds no checkpoints" in message(tmp_path)


def test_run_that_was_stopped_before_its_first_checkpoint_says_so(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    assert "has no checkpoint yet" in message(tmp_path)


@pytest.mark.parametrize("which", ["@3", "@5000", "@-2", "@bset", "@2.0", "@²"])
def test_unknown_step_lists_the_steps(workdir, which):
    said = message(f"{workdir}{which}")
    assert "no such checkpoint" in said
    assert "its steps are [2, 4, 6]" in said


def test_best_of_a_run_that_does_not_keep_it(tmp_path):
    said = message(f"{run_without_average(tmp_path)}@best")
    assert "its steps are [7]" in said


def test_a_library_that_cannot_be_imported_is_not_tried_again(workdir, monkeypatch):
    tried = []

    def broken(folder):
        tried.append(folder)
        raise ImportError("No module named 'orbax'")

    monkeypatch.setattr(loading, "_checkpoints", broken)
    with pytest.raises(ImportError, match="orbax"):
        loading.read_weights(f"{workdir}@2")
    assert len(tried) == 1


def test_looking_into_a_run_changes_nothing(workdir):
    before = {p: p.stat().st_mtime_ns for p in workdir.rglob("*")}
    loading.find_run(str(workdir))
    loading.read_weights(f"{workdir}@2")
    vit_jax.load(workdir)
    assert {p: p.stat().st_mtime_ns for p in workdir.rglob("*")} == before


# --- weights of a run ---


def test_weights_of_a_run_without_an_average_are_its_parameters(tmp_path):
    weights = loading.read_weights(str(run_without_average(tmp_path)))
    foreign.assert_same(weights.flat, foreign.flat(foreign.random(CFG, 12, 12, 7)))


@pytest.mark.parametrize("shapes_only", [False, True])
def test_architecture_of_a_run_is_what_it_was_trained_as(workdir, shapes_only):
    weights = loading.read_weights(str(workdir), shapes_only=shapes_only)
    assert (weights.format, weights.classes, weights.image_size) == ("run", 7, (12, 12))
    assert weights.config == CFG
    assert weights.images == {
        "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.5, 0.5],
        "ops": config_lib.load(BASE).data.eval_ops,
        "fewshot_ops": config_lib.load(BASE).fewshot.ops, "reader": "tf",
    }  # fmt: skip
    stored = {p: (x.shape, "float32") for p, x in tree.leaves_with_paths(parameters(0))}
    assert weights.tensors == stored
    shapes = {n: a.shape for n, a in foreign.flat(foreign.random(CFG, 12, 12)).items()}
    assert {n: a.shape for n, a in weights.flat.items()} == shapes
    assert shapes_only == (not any(a.any() for a in weights.flat.values()))


@pytest.mark.parametrize("which, step", [("", 6), ("@best", 4), ("@2", 2)])
def test_run_is_loaded_as_a_model(workdir, which, step):
    model, params, preprocess = vit_jax.load(f"{workdir}{which}")
    assert model.cfg == CFG
    foreign.assert_same(jax.tree.map(np.asarray, params), parameters(step + 10))
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
    expected = (pixels[None] / 255 - np.array([0.1, 0.2, 0.3])) / 0.5
    np.testing.assert_allclose(preprocess(pixels), expected, atol=1e-5)


def test_run_at_another_image_size(workdir):
    model, params, preprocess = vit_jax.load(workdir, image_size=20)
    assert params["posemb_x"].shape == (1, 5, 16)
    assert preprocess(np.zeros((9, 12, 3), np.uint8)).shape == (1, 20, 20, 3)
    logits = foreign.logits(model.cfg, params, foreign.images(20, 20))
    assert np.isfinite(logits).all()
    wide = vit_jax.load(workdir, image_size=(12, 20))
    assert wide[2](np.zeros((9, 12, 3), np.uint8)).shape == (1, 12, 20, 3)
    assert [wide[1][f"posemb_{axis}"].shape[1] for axis in "yx"] == [3, 5]


# --- loading a file ---

VIT = foreign.random(foreign.vit(), 12, 12)


@pytest.fixture
def file(tmp_path):
    return foreign.npz(tmp_path / "x.npz", foreign.original_vit(VIT))


def test_the_package_has_both_functions():
    assert vit_jax.load is loading.load
    assert vit_jax.save is loading.save
    with pytest.raises(AttributeError, match="restore"):
        vit_jax.restore  # noqa: B018


def test_file_is_loaded_as_a_model_that_computes(file):
    model, params, preprocess = vit_jax.load(file)
    assert isinstance(model, vit.ViT)
    assert model.cfg == foreign.vit()
    leaves = jax.tree.leaves(params)
    assert {(type(x), x.dtype) for x in leaves} == {(type(jnp.zeros(1)), jnp.dtype("float32"))}
    assert type(params) is dict
    foreign.assert_same(jax.tree.map(np.asarray, params), tree.stack_blocks(VIT))
    x = preprocess(np.random.default_rng(0).integers(0, 256, (2, 20, 30, 3), np.uint8))
    assert (x.shape, x.dtype) == ((2, 12, 12, 3), np.float32)
    logits = model_commands.logits(model, params, x)
    expected = forward(VIT, x, patch=4, pool="token")
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_path_may_be_text_or_in_home(file, monkeypatch):
    monkeypatch.setenv("HOME", str(file.parent))
    for text in (str(file), file, "~/x.npz"):
        assert vit_jax.load(text)[0].cfg == foreign.vit()


def test_loading_leaves_the_file_as_it_is(file):
    before = file.read_bytes()
    _, params, _ = vit_jax.load(file)
    params["cls"] = params["cls"].at[:].set(0)
    assert file.read_bytes() == before
    foreign.assert_same(jax.tree.map(np.asarray, vit_jax.load(file)[1]), tree.stack_blocks(VIT))


@pytest.mark.parametrize("size", [20, (20, 20), (16, 8)])
def test_other_image_size(file, size):
    height, width = (size, size) if isinstance(size, int) else size
    model, params, preprocess = vit_jax.load(file, image_size=size)
    target = variants.shapes(model.cfg, height, width)
    expected = fitting.fit(
        foreign.flat(VIT), target, old=(3, 3), new=(height // 4, width // 4), fresh_head=False
    ).params
    foreign.assert_same(jax.tree.map(np.asarray, params), expected)
    assert preprocess(np.zeros((9, 7, 3), np.uint8)).shape == (1, height, width, 3)


@pytest.mark.parametrize("size", [13, (12, 10), 4, (4, 16)])
def test_image_size_that_the_model_cannot_take(file, size):
    with pytest.raises(BadInput, match=r"image size \d+"):
        vit_jax.load(file, image_size=size)


def test_image_size_that_the_file_does_not_say(tmp_path):
    weights = foreign.random(foreign.vit(), 8, 12)
    path = foreign.npz(tmp_path / "x.npz", foreign.original_vit(weights))
    with pytest.raises(BadInput, match="give image_size="):
        vit_jax.load(path)
    _, params, _ = vit_jax.load(path, image_size=(8, 12))
    foreign.assert_same(jax.tree.map(np.asarray, params), tree.stack_blocks(weights))
    with pytest.raises(BadInput, match=r"wrong shape +posemb"):
        vit_jax.load(path, image_size=(12, 12))
    free = foreign.random(foreign.vit(pool="map", posemb="sincos2d"), 12, 12)
    path = foreign.npz(tmp_path / "y.npz", foreign.big_vision_vit(free))
    with pytest.raises(BadInput, match="give image_size="):
        vit_jax.load(path)
    assert vit_jax.load(path, image_size=20)[0].cfg.posemb == "sincos2d"


def test_mixer_fits_one_size(tmp_path):
    weights = foreign.random(foreign.mixer(), 12, 12)
    path = foreign.npz(tmp_path / "x.npz", foreign.original_mixer(weights))
    foreign.assert_same(vit_jax.load(path)[1], tree.stack_blocks(weights))
    with pytest.raises(BadInput, match="A Mixer fits one image size"):
        vit_jax.load(path, image_size=16)


def test_images_that_were_not_square_are_asked_for(tmp_path):
    one = exports.model(size=(8, 12))
    path = tmp_path / "m.npz"
    vit_jax.save(path, variants.make(one.cfg), one.params)
    with pytest.raises(BadInput, match=r"vit_jax.load takes image_size=\(rows, columns\)"):
        vit_jax.load(path, image_size=8)
    assert vit_jax.load(path, image_size=(8, 12))[2](PIXELS).shape == (3, 8, 12, 3)


@pytest.mark.parametrize("name", ["none.npz", "x.txt", "x.pth", "folder", "folder.npz"])
def test_what_is_neither_a_file_of_weights_nor_a_run(tmp_path, name):
    (tmp_path / "x.txt").write_text("x")
    (tmp_path / "x.pth").write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(BadInput, match=name):
        vit_jax.load(tmp_path / name)


# --- preprocessing ---

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 30, 40, 3), np.uint8)


def with_beside(folder, write, **beside):
    for name, said in beside.items():
        (folder / f"{name}.json").write_text(json.dumps(said))
    return foreign.safetensors(folder / "x.safetensors", write(VIT))


@pytest.mark.parametrize("size", [0, 16, (8, 20)])
def test_images_of_original_files_are_prepared_as_by_the_original_code(file, size):
    wanted = {0: (12, 12), 16: (16, 16)}.get(size, size)
    found = vit_jax.load(file, image_size=size)[2](PIXELS)
    np.testing.assert_array_equal(found, preprocessing.original_reader(*wanted)(PIXELS))


@pytest.mark.parametrize("size", [0, 16, (8, 20)])
def test_images_of_timm_are_prepared_as_its_configuration_says(tmp_path, size):
    said = {"input_size": [3, 12, 12], "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.6, 0.7]}
    said |= {"interpolation": "nearest", "crop_pct": 0.9, "crop_mode": "border"}
    given = {"model_args": {"num_heads": 4}, "pretrained_cfg": said}
    path = with_beside(tmp_path, foreign.timm_vit, config=given)
    wanted = {0: (12, 12), 16: (16, 16)}.get(size, size)
    found = vit_jax.load(path, image_size=size)[2](PIXELS)
    np.testing.assert_array_equal(
        found, preprocessing.timm_reader(said | {"input_size": [3, *wanted]})(PIXELS)
    )


def test_images_of_timm_have_the_size_of_the_model(tmp_path):
    """Whatever its preprocessing has as default."""
    given = {"model_args": {"num_heads": 4, "img_size": 12}, "pretrained_cfg": {"crop_pct": 1.0}}
    path = with_beside(tmp_path, foreign.timm_vit, config=given)
    assert vit_jax.load(path)[2](PIXELS).shape == (3, 12, 12, 3)


@pytest.mark.parametrize("size", [0, 16, (8, 20)])
def test_images_of_transformers_are_prepared_as_their_configuration_says(tmp_path, size):
    said = {"size": {"height": 12, "width": 12}, "image_mean": [0.1, 0.2, 0.3], "resample": 3}
    given = {"num_attention_heads": 4, "image_size": 12}
    path = with_beside(tmp_path, foreign.hf_vit, config=given, preprocessor_config=said)
    height, width = {0: (12, 12), 16: (16, 16)}.get(size, size)
    found = vit_jax.load(path, image_size=size)[2](PIXELS)
    wanted = said | {"size": {"height": height, "width": width}}
    np.testing.assert_array_equal(found, preprocessing.hf_reader(wanted)(PIXELS))


@pytest.mark.parametrize("kind, words", [("token", "have 4 heads"), ("mixer", "have no attention")])
def test_heads_are_not_given_where_weights_have_others(tmp_path, kind, words):
    one = exports.model(kind, size=(8, 8))
    vit_jax.save(tmp_path / "m.npz", variants.make(one.cfg), one.params)
    with pytest.raises(BadInput, match=rf"heads=3 \(--heads\), but these weights {words}; leave"):
        vit_jax.load(tmp_path / "m.npz", heads=3)


@pytest.mark.parametrize("write", [foreign.timm_vit, foreign.hf_vit])
def test_images_that_nothing_speaks_of_are_not_guessed(tmp_path, write):
    path = with_beside(tmp_path, write)
    model, params, preprocess = vit_jax.load(path, heads=4)
    assert np.isfinite(foreign.logits(model.cfg, params, foreign.images(12, 12))).all()
    with pytest.raises(BadInput, match="no configuration beside the weights"):
        preprocess(PIXELS)


@pytest.mark.parametrize("name", ["timm", "hf"])
def test_images_of_an_export_are_prepared_as_those_of_the_original(tmp_path, file, name):
    """From -1 to 1; Pillow resizes otherwise, so here is nothing to resize."""
    model, params, preprocess = vit_jax.load(file)
    vit_jax.save(tmp_path / "x.safetensors", model, params, name)
    pixels = np.random.default_rng(0).integers(0, 256, (12, 12, 3), np.uint8)
    found = vit_jax.load(tmp_path / "x.safetensors")[2](pixels)
    np.testing.assert_allclose(found, preprocess(pixels), atol=1e-6)


# --- saving ---


def test_npz_is_the_default_and_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    vit_jax.save("~/new/x.npz", variants.make(foreign.vit()), VIT)
    with np.load(tmp_path / "new" / "x.npz") as found:
        foreign.assert_same(dict(found), foreign.original_vit(VIT))


@pytest.mark.parametrize("kind", ["vit", "hybrid", "bit", "mixer"])
@pytest.mark.parametrize("name", ["npz", "big_vision", "timm", "hf"])
def test_saved_file_loads_as_the_same_model(tmp_path, kind, name):
    """Or is refused, where the other side has no such model."""
    cfg, side = {
        "vit": (foreign.vit(gelu="erf" if name in ("timm", "hf") else "tanh"), 12),
        "hybrid": (foreign.hybrid(variant="R+custom/16", stages=(), root_width=64), 64),
        "bit": (foreign.bit(), 32),
        "mixer": (foreign.mixer(), 12),
    }[kind]
    weights = foreign.random(cfg, side, side)
    if name == "big_vision" and "cls" in weights:
        weights["posemb"][:, 0] = 0
    suffix = ".npz" if name in ("npz", "big_vision") else ".safetensors"
    path = tmp_path / f"model{suffix}"
    exists = {"npz": True, "big_vision": kind != "hybrid", "timm": kind in ("vit", "hybrid")}
    params = jax.tree.map(jnp.asarray, tree.stack_blocks(weights))
    if not exists.get(name, kind == "vit"):
        with pytest.raises(BadInput):
            vit_jax.save(path, variants.make(cfg), params, name)
        assert not list(tmp_path.iterdir())
        return
    vit_jax.save(path, variants.make(cfg), params, name)
    model, found, _ = vit_jax.load(path, image_size=side)
    assert model.cfg == cfg
    foreign.assert_same(tree.unstack_blocks(jax.tree.map(np.asarray, found)), weights)


def test_failed_saving_leaves_what_was_there(tmp_path):
    path = tmp_path / "model.safetensors"
    cfg = foreign.vit(gelu="erf")
    vit_jax.save(path, variants.make(cfg), VIT, "timm")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    for other in (foreign.vit(representation=9), foreign.vit(posemb="sincos2d")):
        with pytest.raises(BadInput):
            vit_jax.save(path, variants.make(other), foreign.zeros(other, 12, 12), "timm")
    with pytest.raises(BadInput):
        vit_jax.save(tmp_path / "model.safetensors" / "x.npz", variants.make(foreign.vit()), VIT)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


# --- at full size ---

I21K = {"classes": 21_843}
FULL = {
    "ViT-B/16": ("B/16", I21K | {"representation": 768}, foreign.original_vit),
    "R50+ViT-B/16": ("R50+B/16", {"classes": 1000}, foreign.original_vit),
    "BiT-R50x1": ("BiT-R50x1", I21K, foreign.bit_of_tensorflow),
    "Mixer-B/16": ("Mixer-B/16", {"classes": 1000}, foreign.original_mixer),
}


def quickly_random(cfg, seed=0):
    rng = np.random.default_rng(seed)
    zeros = foreign.zeros(cfg, 224, 224)
    return jax.tree.map(lambda a: rng.standard_normal(a.shape, dtype=np.float32), zeros)


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL)
def test_full_size_import_and_export_are_inverse_bit_for_bit(tmp_path, name):
    variant, settings, write = FULL[name]
    cfg = variants.config(variant=variant, **settings)
    file = write(quickly_random(cfg))
    model, params, _ = vit_jax.load(foreign.npz(tmp_path / "x.npz", file))
    assert model.cfg == cfg
    vit_jax.save(tmp_path / "y.npz", model, params)
    with np.load(tmp_path / "y.npz") as found:
        assert sorted(found.files) == sorted(file)
        for member, array in file.items():
            assert np.array_equal(found[member], array), member
    again, back, _ = vit_jax.load(tmp_path / "y.npz")
    assert again.cfg == cfg
    assert jax.tree.all(jax.tree.map(np.array_equal, back, params))


# Not ru_maxrss, which a process inherits from the one that started it.
MEASURE = """
import re, sys, time
import jax, jax.numpy as jnp
import vit_jax
from vit_jax.weights import loading

def peak():
    return 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])

jnp.zeros(1).block_until_ready()
before, start = peak(), time.perf_counter()
model, params, _ = vit_jax.load(sys.argv[1])
jax.block_until_ready(params)
print(time.perf_counter() - start, before, peak())
"""
LARGE = {
    "npz": ("npz", foreign.original_vit),
    "big_vision": ("npz", lambda weights: foreign.scanned(foreign.big_vision_vit(weights))),
    "timm": ("safetensors", foreign.timm_vit),
}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read there")
@pytest.mark.parametrize("kind", LARGE)
def test_loading_vit_l_takes_little_time_and_memory(tmp_path, kind, capsys):
    """Below 10 s and, the process and its libraries included, below twice the file."""
    suffix, write = LARGE[kind]
    cfg = variants.config(variant="L/16", classes=1000)
    store = foreign.npz if suffix == "npz" else foreign.safetensors
    path = store(tmp_path / f"x.{suffix}", write(quickly_random(cfg)))
    env = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", MEASURE, str(path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    seconds, before, peak = map(float, done.stdout.split())
    size = path.stat().st_size
    with capsys.disabled():
        print(
            f"\n{kind}: {size / 1e9:.2f} GB in {seconds:.1f} s; peak {peak / size:.2f} times the "
            f"file, {(peak - before) / size:.2f} without the {before / 1e9:.2f} GB before it"
        )
    assert seconds < 10
    assert peak < 2 * size


@pytest.mark.parametrize("kind", LARGE)
def test_arrays_go_to_the_device_one_by_one(tmp_path, kind, monkeypatch):
    """No more than one is there twice: each is complete before the next begins."""
    suffix, write = LARGE[kind]
    store = foreign.npz if suffix == "npz" else foreign.safetensors
    path = store(tmp_path / f"x.{suffix}", write(VIT))
    under_way, put = [], jax.device_put

    @dataclasses.dataclass
    class Pending:
        array: jax.Array

        def block_until_ready(self):
            under_way.remove(self)
            return self.array

    def counted(array):
        assert not under_way
        under_way.append(Pending(put(array)))
        return under_way[-1]

    monkeypatch.setattr(jax, "device_put", counted)
    vit_jax.load(path, heads=4)
    assert not under_way


def test_run_whose_checkpoints_are_replaced_is_read_at_the_next_one(monkeypatch, tmp_path):
    found = iter([loading.Run(tmp_path, step) for step in (2, 4, 6)])
    monkeypatch.setattr(loading, "find_run", lambda text: next(found))
    monkeypatch.setattr(loading, "PAUSE_SECS", 0.0)

    def read(run, *, shapes_only):
        if run.step < 6:
            raise FileNotFoundError(f"step {run.step} is gone")
        return run.step

    monkeypatch.setattr(loading, "_read_run", read)
    assert loading.read_weights(str(tmp_path)) == 6


def test_damaged_checkpoint_is_one_message(monkeypatch, tmp_path):
    monkeypatch.setattr(loading, "find_run", lambda text: loading.Run(tmp_path, 2))
    monkeypatch.setattr(loading, "PAUSE_SECS", 0.0)
    monkeypatch.setattr(loading, "_read_run", lambda run, shapes_only: {}["lost"])
    with pytest.raises(BadInput, match=r"checkpoints/2 cannot be read: KeyError.*another step"):
        loading.read_weights(str(tmp_path))


@pytest.mark.parametrize("image_size", [-4, (8, 0), (0, 8), (-8, -8)])
def test_image_size_that_is_none(tmp_path, image_size):
    cfg = variants.config(variant="custom/4", classes=2, width=8, depth=1, mlp=8, heads=2)
    file = tmp_path / "x.npz"
    shapes = variants.shapes(cfg, 8, 8)
    params = jax.tree.map(lambda x: np.zeros(x.shape, np.float32), shapes)
    vit_jax.save(file, variants.make(cfg), params)
    with pytest.raises(BadInput, match="image_size="):
        vit_jax.load(file, image_size=image_size)
    _, params, prepare = vit_jax.load(file, image_size=np.int64(16))
    assert params["posemb"].shape == (1, 17, 8)
    assert prepare(np.zeros((5, 7, 3), np.uint8)).shape == (1, 16, 16, 3)
