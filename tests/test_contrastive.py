# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The contrastive objective: its views, its own parameters, and all pairs of a batch."""

import functools
import re
import shlex
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_train_step import HALF, rules_of

from vit_jax.build import run as build_run
from vit_jax.cli.main import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.step import state, train_step
from vit_jax.step.contrastive import Contrastive
from vit_jax.step.objective import Network
from vit_jax.weights import loading

ROOT = Path(__file__).parent.parent
KEY = jax.random.key(0)
SIZES = {"hidden": 5, "embedding": 3, "temperature": 0.3}


def apply(params, images, *, train, key):
    """A representation of width 4; with `dropped`, half of it is dropped in training."""
    x = jnp.tanh(images.reshape(images.shape[0], -1) @ params["weights"])
    if train and "dropped" in params:
        x = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), 2 * x, 0)
    return x


NETWORK = Network(apply, HALF, HALF)


def parameters(objective, **more):
    rng = np.random.default_rng(0)
    own = objective.parameters(jax.random.key(3), jax.ShapeDtypeStruct((1, 4), jnp.float32))
    return {"weights": jnp.asarray(rng.normal(size=(12, 4)), jnp.float32), "objective": own, **more}


def batch(size=16, mask=None):
    rng = np.random.default_rng(1)
    base = rng.integers(0, 256, (size, 1, 2, 2, 3))
    views = np.clip(base + rng.integers(-40, 40, (size, 2, 2, 2, 3)), 0, 255)
    labels = rng.integers(0, 4, (size, 2)) * np.array([1, 0]) - np.array([0, 1])
    return {
        "view": views.astype(np.uint8),
        "labels": labels.astype(np.int32),
        "_mask": np.ones(size, bool) if mask is None else np.asarray(mask, bool),
    }


def in_numpy(objective, params, given):
    """The loss and the hits of the papers' formulas, view by view."""
    views = [(i, v) for i in np.flatnonzero(given["_mask"]) for v in (0, 1)]
    pixels = np.stack([given["view"][i, v].ravel() / 127.5 - 1 for i, v in views])
    head = jax.tree.map(lambda x: np.asarray(x, np.float64), params["objective"])
    x = np.tanh(pixels @ np.asarray(params["weights"], np.float64))
    x = np.maximum(x @ head["hidden"]["kernel"] + head["hidden"]["bias"], 0)
    x = x @ head["projection"]["kernel"]
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    losses, hits = [], []
    for a, (i, _) in enumerate(views):
        others = [b for b in range(len(views)) if b != a]
        scores = np.array([x[a] @ x[b] / objective.temperature for b in others])
        log_p = scores - np.log(np.exp(scores).sum())
        good = np.array([
            views[b][0] == i
            or (objective.supervised and given["labels"][i, 0] == given["labels"][views[b][0], 0])
            for b in others
        ])  # fmt: skip
        losses.append(-log_p[good].mean())
        hits.append(good[scores.argmax()])
    return np.sum(losses) / 2, np.sum(hits) / 2


def test_images_of_one_class_are_positives_only_with_labels():
    assert Contrastive(supervised=True).for_classes(1) == Contrastive(supervised=True)
    assert Contrastive().for_classes(0) == Contrastive()
    with pytest.raises(BadInput, match=r"supervised=True\).* no labels; leave the argument out"):
        Contrastive(supervised=True).for_classes(0)


@pytest.mark.parametrize("supervised", [False, True])
def test_loss_and_hits_are_those_of_the_papers_formula(supervised):
    objective = Contrastive(**SIZES, supervised=supervised)
    params, given = parameters(objective), batch(mask=np.arange(16) % 5 != 2)
    sums = jax.jit(functools.partial(objective.eval_sums, NETWORK))(params, None, given)
    loss, hits = in_numpy(objective, params, given)
    assert float(sums["loss"]) == pytest.approx(loss, rel=1e-5)
    assert (float(sums["top1"]), int(sums["examples"])) == (hits, 13)
    assert 0 < hits < 13


def steps(accumulation=1, devices=1, **more):
    objective, tx = Contrastive(**SIZES, supervised=True), optax.sgd(0.5)
    rules = rules_of((1, devices, 1, 1))
    params = jax.device_put(parameters(objective, **more), rules.replicated)
    given = jax.device_put(batch(), rules.sharding(("act_batch",), (16,)))
    step = jax.jit(train_step.make_train_step(objective, NETWORK, tx, accumulation=accumulation))
    current, measured = state.from_params(params, tx, ema=False), []
    for _ in range(3):
        current, found = step(current, given, KEY)
        measured.append([float(found[name]) for name in ("loss", "top1", "grad_norm")])
    return np.array(measured), jax.device_get(current.params)


@pytest.mark.parametrize("accumulation, devices", [(1, 8), (4, 1), (2, 8)])
def test_negatives_come_from_the_global_batch(accumulation, devices):
    expected, params = steps()
    found, again = steps(accumulation, devices)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), again, params)
    assert expected[2, 0] < expected[0, 0] - 0.1  # it learns


def test_both_passes_of_a_micro_batch_drop_the_same():
    """The loss is that of the dropped representation, and so is its gradient."""
    objective, given = Contrastive(**SIZES), jax.tree.map(jnp.asarray, batch())
    params = parameters(objective, dropped=jnp.zeros(1))
    micro, keys = train_step.micro_batches(given, 2), jax.random.split(KEY, 2)

    def whole(params):
        parts = [
            objective._embed(NETWORK, params, micro["view"][a], train=True, key=keys[a])
            for a in (0, 1)
        ]
        rows = micro["labels"].reshape(16, 2), micro["_mask"].reshape(16)
        return objective._compared(jnp.concatenate(parts), *rows)[0].sum() / 16

    def sums(params, part, key):
        return objective.sums(NETWORK, params, None, part, None, key)

    def gradients(params):
        related = objective.relate(NETWORK, params, None, micro, keys)
        return train_step.mean_gradients(sums, params, related, keys, jnp.float32(16))

    found, total = jax.jit(gradients)(params)
    loss, expected = jax.jit(jax.value_and_grad(whole))(params)
    assert float(total["loss"]) / 16 == pytest.approx(float(loss), rel=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), found, expected
    )


def test_batch_of_padding_only_changes_nothing():
    objective, tx = Contrastive(**SIZES), optax.sgd(0.5)
    step = jax.jit(train_step.make_train_step(objective, NETWORK, tx))
    params = parameters(objective)
    current, _ = step(state.from_params(params, tx, ema=False), batch(mask=np.zeros(16)), KEY)
    jax.tree.map(np.testing.assert_array_equal, current.params, params)


# --- runs ---

TINY = (
    "--config.data.source=digits", "--config.batch_size=16", "--config.length=6 steps",
    "--config.model.variant=Ti/4", "--config.model.width=32", "--config.model.depth=1",
    "--config.model.mlp=32", "--config.model.heads=2", "--config.data.image_size=8",
    "--config.data.views=view*2: decode|shift(2)", "--config.checkpoint.every=3 steps",
    "--config.data.examples=64", "--config.report.writers=()",
    "--config.report.every=1 steps",
)  # fmt: skip
RECIPE = str(ROOT / "configs" / "contrastive.py")


def run(workdir, *args):
    return main(["train", f"--config={RECIPE}", f"--workdir={workdir}", *TINY, *args])


@pytest.mark.integration
def test_run_is_measured_and_branched_bit_for_bit(tmp_path, capsys):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run(whole, "--config.evals.val.batch_size=32", "--config.ema.decay=0.9") == 0
    text = capsys.readouterr()
    assert "val" in text.out + text.err
    results = (whole / "results.json").read_text()
    assert re.search(r'"val": {[^}]*"top1": [\d.]+', results)
    assert "report.html" in {path.name for path in whole.iterdir()}
    weights = loading.read_weights(f"{whole}@3")
    assert {n.partition("/")[0] for n in weights.flat} >= {"embedding", "objective"}
    # The state of step 3, continued, is that of step 6 bit for bit.
    assert run(cut, "--config.evals.val.batch_size=32", "--config.ema.decay=0.9",
               f"--branch={whole}@3") == 0  # fmt: skip
    a, b = (loading.read_weights(f"{w}@6").flat for w in (whole, cut))
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name])


@pytest.mark.parametrize("model", ["S/16", "R50+B/16", "BiT-R50x1", "Mixer-B/16", "Flexi-Ti/16",
                                   "AxialResNet50"])  # fmt: skip
def test_recipe_takes_a_model_of_every_family(model):
    build_run.check(config_lib.load(f"{RECIPE}:model={model},size=240"))


@pytest.mark.integration
def test_commands_of_the_page_run_one_after_the_other(tmp_path, monkeypatch, image_folder):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "contrastive.md").read_text()
    commands = re.findall(r"^vit_jax (.*)$", text, re.MULTILINE)
    assert [c.split()[0] for c in commands] == ["train", "fewshot", "train"]
    short = ["--config.length=1 steps", "--config.batch_size=8", "--config.schedule.warmup=0"]
    short += ["--config.report.writers=()", "--config.report.page=false"]
    for command in commands:
        command = command.replace("/path/to/images", str(image_folder))
        words = shlex.split(command.replace("configs/", f"{ROOT}/configs/"))
        assert main([*words, *(short if words[0] == "train" else [])]) == 0, command
    assert "head" in {n.partition("/")[0] for n in loading.read_weights("runs/tuned").flat}


@pytest.mark.parametrize(
    "args, parts",
    [
        (["objective=contrastve"], ["objective 'contrastve'", "contrastive(...)"]),
        (["objective=contrastive(temperature=0)"], ["temperature=0", "above 0"]),
        (["objective=contrastive(temperatur=1)"], ["temperatur", "temperature: float"]),
        (["objective=vit_jax.step.losses:find(name='softmax')"], ["objective=", "Objective"]),
        (["loss.name=sigmoid"], ["loss.name='sigmoid'", "no use with contrastive("]),
        (["mixup.alpha=0.2"], ["mixup.alpha=0.2", "no use"]),
        (["data.views="], ["takes view [2, 8, 8, 3]", "--config.data.views='view*2: decode"]),
        (["data.views=view*3: decode"], ["view [3, 8, 8, 3]", "takes view [2, 8, 8, 3]"]),
        (["objective=auto"], ["makes view", "takes image [8, 8, 3]", "leave data.views empty"]),
        (["checkpoint.keep_best=val/top5"], ["val/top5", "val/top1"]),
        (["evals.val.source=folder:x/{corruption}/{severity}"], ["evals.val.source", "none"]),
        (["evals.val.evaluator=a:b"], ["evals.val.evaluator", "contrastive"]),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path, capsys, args, parts):
    workdir = tmp_path / "run"
    assert run(workdir, *(f"--config.{arg}" for arg in args)) == 2
    said = capsys.readouterr().err
    assert [part for part in parts if part not in said] == []
    assert "Traceback" not in said
    assert not workdir.exists()
