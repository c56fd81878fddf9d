# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs of masked patch prediction: what they learn, what continues them, what is made of them."""

import json
import math
import os
import re
import shlex
import subprocess
import sys

import jax
import numpy as np
import pytest
from test_train import QUICKSTART, ROOT, TINY, logged, parameters, run, same_parameters, stop_at

import vit_jax
from vit_jax.build import defaults
from vit_jax.build import run as build
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.hardware import topology
from vit_jax.models import variants
from vit_jax.preflight.plan import compile_for
from vit_jax.weights import loading

RECIPE = str(ROOT / "configs" / "masked.py")
MASKED = (
    "--config.masked.target=mean",
    "--config.optimizer.name=sgd",
    "--config.schedule.lr=1.0",
    "--config.ema.decay=0.0",
)


@pytest.fixture(scope="module")
def sgd_recipe(tmp_path_factory):
    """Quickstart as text: it sets a key of adamw, and another optimizer may be chosen."""
    recipe = tmp_path_factory.mktemp("recipes") / "recipe.py"
    with open(QUICKSTART) as file:
        recipe.write_text(file.read())
    return recipe


@pytest.fixture(scope="module")
def finished(tmp_path_factory, sgd_recipe):
    """A run of 12 steps that was never interrupted."""
    workdir = tmp_path_factory.mktemp("runs") / "masked"
    assert run(workdir, *MASKED, config=sgd_recipe) == 0
    return workdir


@pytest.mark.slow
def test_results_are_those_of_colours(finished):
    results = json.loads((finished / "results.json").read_text())
    for split, examples in (("val", 152), ("test", 365)):
        assert results[split]["examples"] == examples
        assert 0 <= results[split]["top1"] <= results[split]["top5"] <= 1
    rows = logged(finished)
    assert rows[(1, "train/loss")] == pytest.approx(math.log(512), abs=1e-4)  # a head of zeros
    assert rows[(12, "test/loss")] < rows[(1, "train/loss")] - 0.5
    assert rows[(12, "test/loss")] == results["test"]["loss"]


@pytest.mark.slow
def test_interrupted_and_continued_equals_uninterrupted(
    finished, tmp_path, monkeypatch, sgd_recipe
):
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, *MASKED, config=sgd_recipe)
    assert run(tmp_path, *MASKED, config=sgd_recipe) == 0
    assert logged(tmp_path) == logged(finished)
    assert same_parameters(tmp_path, finished)


@pytest.mark.slow
def test_another_mesh_and_micro_batches_leave_the_run(finished, tmp_path, sgd_recipe):
    cube = "--config.mesh.data=2", "--config.mesh.fsdp=2", "--config.mesh.tensor=2"
    args = [*MASKED, *cube, "--config.accumulation=2"]
    assert run(tmp_path, *args, config=sgd_recipe) == 0
    found, expected = (logged(w, ("train/", "val/loss", "test/")) for w in (tmp_path, finished))
    assert found == {k: pytest.approx(v, rel=1e-4, abs=1e-6) for k, v in expected.items()}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["mean", "small", "l2"])
def test_every_target_is_learned_on_digits(tmp_path, target):
    """15 epochs on one device reach top-1 on test of 51, 52 and 45 %.

    In a process of its own: many steps on eight devices of two cores may wait for one another.
    """
    longer = (
        *TINY,
        f"--config.masked.target={target}",
        "--config.length=15 epochs",
        "--config.model.width=64",
        "--config.report.every=50 steps",
        "--config.evals.val.every=0",
        "--config.checkpoint.every=0",
        "--config.schedule.warmup=2 epochs",
    )
    words = ["train", f"--config={QUICKSTART}", f"--workdir={tmp_path}", *longer]
    env = os.environ | {"PYTHONPATH": str(ROOT), "XLA_FLAGS": ""}
    subprocess.run([sys.executable, "-m", "vit_jax", *words], env=env, check=True)
    results = json.loads((tmp_path / "results.json").read_text())
    losses = [v for (_, k), v in logged(tmp_path).items() if k == "train/loss"]
    assert losses[-1] < 0.4 * losses[0]
    assert results["test"]["top1"] > 0.3


# --- fine-tuning and other uses ---


def fates(text):
    """Tensor -> fate, of the table in a log."""
    return dict(re.findall(r"^(\S+) +(loaded|resized|re-initialised|unused)", text, re.MULTILINE))


@pytest.mark.integration
@pytest.mark.parametrize(
    "recipe", ["finetune.py", pytest.param("transfer.py", marks=pytest.mark.slow)]
)
def test_fine_tuning_takes_the_encoder_and_makes_a_new_head(finished, tmp_path, caplog, recipe):
    spec = {
        "finetune.py": "finetune.py",
        "transfer.py": f"transfer.py:model=auto,dataset=cifar10,init={finished}",
    }[recipe]
    code = main.main([
        "train", f"--config={ROOT / 'configs' / spec}", f"--workdir={tmp_path}",
        f"--config.init={finished}", "--config.data.source=digits",
        "--config.data.val_percent=10", "--config.data.test_percent=10",
        "--config.data.split=train", "--config.evals.val.split=val",
        "--config.data.image_size=8", "--config.length=2 steps", "--config.batch_size=8",
        "--config.schedule.warmup=0", "--config.report.writers=()",
        "--config.report.page=false",
    ])  # fmt: skip
    assert code == 0
    found = fates(caplog.text)
    assert {name for name, fate in found.items() if fate == "unused"} == {
        "mask_token", "patch_head/kernel", "patch_head/bias",
    }  # fmt: skip
    assert {name for name, fate in found.items() if fate == "re-initialised"} == {
        "head/kernel", "head/bias",
    }  # fmt: skip
    assert found["embedding/kernel"] == found["block_1/mlp/up/kernel"] == "loaded"
    _, params, _ = vit_jax.load(tmp_path)
    assert params["head"]["kernel"].shape == (16, 10)
    assert not {"mask_token", "patch_head"} & params.keys()


@pytest.mark.slow
def test_pre_training_goes_on_from_any_encoder(finished, tmp_path, caplog, sgd_recipe):
    two = ("--config.length=1 steps", "--config.schedule.warmup=0", "--config.masked.target=small")
    start = f"--config.init={finished}"
    assert run(tmp_path, *MASKED, *two, start, config=sgd_recipe) == 0
    found = fates(caplog.text)
    assert found["mask_token"] == found["patch_head/kernel"] == "re-initialised"
    assert found["embedding/kernel"] == "loaded"


@pytest.mark.integration
def test_load_and_save_take_the_encoder(finished, tmp_path):
    model, params, preprocess = vit_jax.load(finished)
    given = preprocess(np.zeros((1, 8, 8, 3), np.uint8))
    found = model.apply({"params": params}, given)
    assert found.shape == (1, 16)
    vit_jax.save(tmp_path / "encoder.npz", model, params)
    again, same, _ = vit_jax.load(tmp_path / "encoder.npz", heads=2)
    np.testing.assert_allclose(again.apply({"params": same}, given), found, rtol=1e-5, atol=1e-6)
    assert len(jax.tree.leaves(same)) == len(parameters(finished)) - 3


@pytest.mark.integration
def test_classes_of_its_data_are_not_those_of_the_model(finished, tmp_path, capsys):
    assert len(json.loads((finished / "classes.json").read_text())["classes"]) == 10
    assert main.main(["export", str(finished), "--format=npz", f"--out={tmp_path}/m.npz"]) == 0
    assert "10 classes" not in capsys.readouterr().out
    assert main.main(["evaluate", str(finished), f"--out={tmp_path}"]) == 2
    assert "these weights have no head" in capsys.readouterr().err


@pytest.mark.integration
def test_inspect_shows_mask_token_and_its_head(finished, capsys):
    assert main.main(["inspect", str(finished), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["tensors"]["mask_token"]["shape"] == [1, 1, 16]
    assert said["tensors"]["patch_head/kernel"]["shape"] == [16, 512]
    assert said["architecture"]["classes"] == 0


@pytest.mark.integration
def test_a_supervised_run_has_no_use_for_the_parts_of_this_one(finished):
    weights = loading.read_weights(str(finished))
    cfg = variants.config(**weights.settings, classes=10)
    with pytest.raises(BadInput, match=r"missing +head/kernel"):
        loading.fit(weights, cfg, (8, 8), fresh_head=False)


# --- configuration ---


BAD = {
    "target": (["--config.masked.target=colour"], ["masked.target", "mean, small, l2"]),
    "rate": (["--config.masked.rate=0.01"], ["masked.rate=0.01", "16 patches", "0.04"]),
    "rate 0": (["--config.masked.rate=0.0"], ["masked.rate=0.0"]),
    "map": (["--config.model.pool=map"], ["pool=map", "token or gap"]),
    "mixup": (["--config.mixup.alpha=0.2"], ["mixup.alpha=0.2", "leave it out"]),
    "loss": (["--config.loss.name=sigmoid"], ["loss.name", "leave it out"]),
    "smoothing": (["--config.loss.label_smoothing=0.1"], ["label_smoothing", "leave it out"]),
    "tanh": (["--config.model.representation=8"], ["model.representation=8", "leave it out"]),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, capsys, case):
    args, expected = BAD[case]
    assert run(tmp_path / "run", "--config.masked.target=mean", *args) == 2
    message = capsys.readouterr().err
    assert "Traceback" not in message
    for text in expected:
        assert text in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("model", ["BiT-R50x1", "Mixer-B/16"])
def test_models_without_patch_representations_are_refused(model):
    with pytest.raises(BadInput, match=f"hybrids.*not for {model}"):
        build.check(defaults.settle(config_lib.load(f"{RECIPE}:model={model}")))


@pytest.mark.parametrize(
    "model, target, dataset",
    [
        ("B/16", "mean", "jft"), ("L/16", "small", "imagenet21k"), ("H/14", "l2", "imagenet"),
        ("R50+B/16", "mean", "imagenet"), ("R50+L/32", "small", "jft"),
    ],
)  # fmt: skip
def test_recipe_is_valid(model, target, dataset):
    spec = f"{RECIPE}:model={model},target={target},dataset={dataset},rate=0.15,standin=true"
    config = config_lib.load(spec)
    build.check(defaults.settle(config))
    assert (config.masked.target, config.masked.rate) == (target, 0.15)
    assert config.data.source.startswith("synthetic:")
    assert config.optimizer.clip == (1.0 if dataset == "imagenet" else 0.0)


def test_recipe_is_that_of_the_paper():
    config = config_lib.load(RECIPE)
    assert (config.model.variant, config.data.source) == ("B/16", "synthetic:jft300m")
    assert (config.length, config.batch_size) == ("1000000 steps", 4096)
    assert (config.schedule.name, config.schedule.lr) == ("cosine", 2e-4)
    assert config.schedule.warmup == "10000 steps"
    assert (config.optimizer.name, config.optimizer.weight_decay) == ("adamw", 0.1)
    assert (config.masked.target, config.masked.rate) == ("mean", 0.5)
    assert (config.recipe.name, config.recipe.protocol) == ("masked", "paper")


def test_recipe_refuses_unknown_words(capsys):
    for args, word in (("dataset=cifar10", "imagenet21k"), ("goal=mean", "target")):
        with pytest.raises(BadInput, match=word):
            config_lib.load(f"{RECIPE}:{args}")


@pytest.mark.slow
def test_plan_counts_the_head_of_patches(tmp_path):
    accelerator, flops = topology.find("h100-8"), {}
    for target in ("none", "mean", "small"):
        config = defaults.settle(config_lib.load(RECIPE, ["--config.model.depth=1"]))
        config = config_lib.changed(config, {"masked.target": target})
        file = tmp_path / f"{target}.yaml"
        file.write_text(config_lib.to_yaml(config))
        flops[target] = compile_for.measure(str(file), accelerator, 1, {}).flops
    head = 3 * 2 * 196 * 768 * 512 * 4096 / 8
    assert flops["small"] - flops["mean"] == pytest.approx(15 * head, rel=1e-6)
    classes = 3 * 2 * 768 * 18_291 * 4096 / 8
    assert flops["mean"] - flops["none"] == pytest.approx(head - classes, rel=1e-6)


@pytest.mark.slow
def test_commands_of_the_page_run_one_after_the_other(tmp_path, monkeypatch, image_folder, caplog):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "masked.md").read_text()
    commands = re.findall(r"^vit_jax (.*)$", text, re.MULTILINE)
    assert len(commands) == 2
    short = ["--config.length=1 steps", "--config.batch_size=8", "--config.schedule.warmup=0"]
    short += ["--config.report.writers=()", "--config.report.page=false"]
    small = ["--config.data.image_size=32", "--config.model.depth=1", "--config.evals.val.every=0"]
    for number, command in enumerate(commands):
        command = command.replace("/path/to/images", str(image_folder))
        words = shlex.split(command.replace("configs/", f"{ROOT}/configs/"))
        assert main.main([*words, *short, *([] if number else small)]) == 0, command
    assert fates(caplog.text)["patch_head/kernel"] == "unused"
