# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One training and one evaluation step, on a small function."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import sharding
from vit_jax.models import variants
from vit_jax.step import losses, metrics, state, train_step
from vit_jax.step.classification import Classification
from vit_jax.step.objective import Network
from vit_jax.step.state import normalise

HALF = (0.5, 0.5, 0.5)
CLASSES = 6
TABLE = (
    ("act_batch", ("replica", "data", "fsdp")),
    ("act_heads", ("tensor",)),
    ("act_mlp", ("tensor",)),
    ("embed", ("fsdp",)),
    ("heads", ("tensor",)),
    ("mlp", ("tensor",)),
)


def batch(size=16, seed=0, height=2, width=2, classes=CLASSES, mask=None):
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (size, height, width, 3), dtype=np.uint8),
        "labels": rng.integers(0, classes, (size, 1), dtype=np.int32),
        "_mask": np.ones(size, bool) if mask is None else np.asarray(mask, bool),
    }


def small_params(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "hidden": rng.normal(size=(12, 8)).astype(np.float32) / 3,
        "head": rng.normal(size=(8, CLASSES)).astype(np.float32),
    }


def small(params, images, *, train, key):
    """Two layers; in training half of the hidden units are dropped when `params` says so."""
    hidden = jnp.tanh(images.reshape(images.shape[0], -1) @ params["hidden"])
    if train and "dropped" in params:
        hidden = jnp.where(jax.random.bernoulli(key, 0.5, hidden.shape), hidden * 2, 0)
    return hidden @ params["head"]


def make_step(tx=None, apply=small, **options):
    own = {f.name for f in dataclasses.fields(Classification)} & set(options)
    objective = Classification(**{"classes": CLASSES} | {name: options.pop(name) for name in own})
    network = Network(apply, HALF, HALF)
    return train_step.make_train_step(objective, network, tx or optax.sgd(0.1), **options)


def evaluation(loss="softmax"):
    """Jitted (params, batch) -> sums of `small`."""
    objective, network = Classification(CLASSES, loss), Network(small, HALF, HALF)
    return jax.jit(lambda params, batch: objective.eval_sums(network, params, None, batch))


def start(tx=None, params=None, ema=False):
    return state.from_params(
        jax.tree.map(jnp.asarray, params or small_params()), tx or optax.sgd(0.1), ema=ema
    )


KEY = jax.random.key(0)


# --- images and micro-batches ---


def test_normalise_is_the_closed_form_per_channel():
    image = np.arange(256, dtype=np.uint8).reshape(1, 8, 32, 1).repeat(3, axis=3)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    found = normalise(jnp.asarray(image), mean, std)
    assert found.dtype == jnp.float32
    expected = (image / 255.0 - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_normalise_by_halves_is_minus_one_to_one():
    image = np.array([0, 51, 102, 255], np.uint8).reshape(1, 2, 2, 1).repeat(3, axis=3)
    found = normalise(jnp.asarray(image), HALF, HALF)
    np.testing.assert_allclose(found[0, ..., 1].ravel(), [-1, -0.6, -0.2, 1], atol=1e-6)


def test_micro_batches_take_every_nth_row():
    given = {"image": np.arange(24).reshape(12, 2), "_mask": np.arange(12)}
    found = train_step.micro_batches(given, 3)
    assert found["image"].shape == (3, 4, 2)
    np.testing.assert_array_equal(found["_mask"], [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11]])
    np.testing.assert_array_equal(found["image"][1, 2], given["image"][7])


# --- one step ---


def test_step_counts():
    step, current = jax.jit(make_step()), start()
    for expected in (1, 2):
        current, _ = step(current, batch(), KEY)
        assert int(current.step) == expected
        assert current.step.dtype == jnp.int32


@pytest.mark.parametrize("loss, smoothing", [("softmax", 0.0), ("softmax", 0.2), ("sigmoid", 0.1)])
def test_loss_and_gradient_are_means_over_examples_that_count(loss, smoothing):
    mask = np.arange(16) % 5 != 0
    given = batch(mask=mask)
    found, measured = jax.jit(make_step(loss=loss, label_smoothing=smoothing))(start(), given, KEY)

    def mean_loss(params):
        images = jnp.asarray(given["image"][mask] / 127.5 - 1, jnp.float32)
        targets = np.eye(CLASSES)[given["labels"][mask, 0]] * (1 - smoothing) + smoothing / CLASSES
        logits = small(params, images, train=False, key=None)
        return jnp.mean(losses.LOSSES[loss](logits, jnp.asarray(targets, jnp.float32)))

    expected, grads = jax.value_and_grad(mean_loss)(start().params)
    assert float(measured["loss"]) == pytest.approx(float(expected), rel=1e-5)
    for name, before in small_params().items():
        np.testing.assert_allclose(
            found.params[name], before - 0.1 * np.asarray(grads[name]), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_metrics_are_those_before_the_update_but_for_the_norm_of_parameters(platform):
    tx = optax.chain(optax.clip_by_global_norm(0.5), optax.sgd(100.0))
    given = batch()
    step = make_step(tx, platform=platform)
    found, measured = jax.jit(step)(start(tx), given, KEY)
    evaluate = evaluation()
    before = metrics.total([evaluate(start().params, given)])
    assert {name: value.dtype for name, value in measured.items()} == dict.fromkeys(
        ["loss", "top1", "grad_norm", "param_norm", "update_norm"], jnp.float32
    )
    assert float(measured["loss"]) == pytest.approx(before["loss"], rel=1e-5)
    assert float(measured["top1"]) == before["top1"]
    after = metrics.total([evaluate(found.params, given)])
    assert abs(after["loss"] - before["loss"]) > 1
    norm = np.sqrt(sum(np.sum(np.square(x)) for x in found.params.values()))
    assert float(measured["param_norm"]) == pytest.approx(norm, rel=1e-5)
    assert float(measured["grad_norm"]) > 0.5  # before clipping
    assert float(measured["update_norm"]) == pytest.approx(100.0 * 0.5, rel=1e-5)


def test_gradient_norm_is_that_of_the_mean_gradient():
    found, measured = jax.jit(make_step())(start(), batch(), KEY)
    moved = {name: (x - np.asarray(found.params[name])) / 0.1 for name, x in small_params().items()}
    norm = np.sqrt(sum(np.sum(x**2) for x in moved.values()))
    assert float(measured["grad_norm"]) == pytest.approx(norm, rel=1e-4)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_batch_of_padding_only_changes_nothing(accumulation):
    given = batch(mask=np.zeros(16, bool))
    found, measured = jax.jit(make_step(accumulation=accumulation))(start(), given, KEY)
    assert float(measured["loss"]) == 0.0
    for name, before in small_params().items():
        np.testing.assert_array_equal(found.params[name], before)


@pytest.mark.parametrize("pattern", ["all", "ragged", "one micro-batch empty"])
@pytest.mark.parametrize("accumulation", [2, 4])
def test_accumulation_equals_the_whole_batch(accumulation, pattern):
    row = np.arange(16)
    mask = {"all": row >= 0, "ragged": row > 4, "one micro-batch empty": row % 4 != 1}[pattern]
    given = batch(mask=mask)
    whole, expected = jax.jit(make_step())(start(), given, KEY)
    found, measured = jax.jit(make_step(accumulation=accumulation))(start(), given, KEY)
    for name, value in expected.items():
        assert float(measured[name]) == pytest.approx(float(value), rel=1e-6, abs=1e-6), name
    for name, value in whole.params.items():
        np.testing.assert_allclose(found.params[name], value, rtol=1e-6, atol=1e-6)
        assert not np.allclose(value, small_params()[name], atol=1e-4)


def test_average_follows_its_closed_form():
    tx = optax.sgd(0.5)
    step, current = jax.jit(make_step(tx, ema_decay=0.75)), start(tx, ema=True)
    expected = small_params()
    for seed in range(3):
        current, _ = step(current, batch(seed=seed), KEY)
        for name in expected:
            expected[name] = 0.75 * expected[name] + 0.25 * np.asarray(current.params[name])
    for name, value in expected.items():
        np.testing.assert_allclose(current.ema[name], value, rtol=1e-5, atol=1e-6)
        assert not np.allclose(value, current.params[name], atol=1e-3)


def test_a_warmed_up_average_forgets_the_initial_parameters():
    tx, kept = optax.sgd(0.5), []
    for warmup in (False, True):
        step = jax.jit(make_step(tx, ema_decay=0.9999, ema_warmup=warmup))
        current, expected = start(tx, ema=True), small_params()
        for done in range(4):
            current, _ = step(current, batch(seed=done), KEY)
            d = min(0.9999, (1 + done) / (10 + done)) if warmup else 0.9999
            expected = {k: d * v + (1 - d) * current.params[k] for k, v in expected.items()}
        for name, value in expected.items():
            np.testing.assert_allclose(current.ema[name], value, rtol=1e-5, atol=1e-6)
        kept.append(0.9999**4 if not warmup else 1 / 10 * 2 / 11 * 3 / 12 * 4 / 13)
    assert kept[1] < 0.01 < kept[0]


def test_state_without_average_keeps_none():
    found, _ = jax.jit(make_step(ema_decay=0.9))(start(), batch(), KEY)
    assert found.ema is None


# --- randomness ---


def dropped(accumulation=1):
    """Jitted step of a model with dropout, and its state."""
    step = jax.jit(make_step(accumulation=accumulation))
    return step, start(params=small_params() | {"dropped": np.zeros(1, np.float32)})


def test_dropout_is_a_function_of_key_and_step_only():
    step, current = dropped()

    def loss(key, at=0, **changes):
        now = state.TrainState(jnp.int32(at), current.params, current.opt_state, None)
        return float(step(now, batch(**changes), jax.random.key(key))[1]["loss"])

    assert loss(0) == loss(0)
    assert loss(0) != loss(1)
    assert loss(0) != loss(0, at=1)
    assert loss(0, at=7) == loss(0, at=7)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_every_micro_batch_of_every_step_has_its_own_key(accumulation):
    seen = []

    def spy(params, images, *, train, key):
        assert train
        jax.debug.callback(lambda data: seen.append(tuple(data.tolist())), jax.random.key_data(key))
        return small(params, images, train=train, key=key)

    step, current = jax.jit(make_step(apply=spy, accumulation=accumulation)), start()
    for _ in range(2):
        current, _ = step(current, batch(), KEY)
    jax.effects_barrier()
    assert len(set(seen)) == 2 * accumulation


def test_evaluation_drops_nothing():
    evaluate = evaluation()
    _, current = dropped()
    plain = evaluate(start().params, batch())
    assert float(evaluate(current.params, batch())["loss"]) == float(plain["loss"])


# --- evaluation ---


@pytest.mark.parametrize("loss", losses.LOSSES)
def test_evaluation_does_not_depend_on_batches_and_padding(loss):
    evaluate = evaluation(loss)
    params, given = start().params, batch(14)

    def total(size):
        rows = []
        for first in range(0, 14, size):
            part = {name: x[first : first + size] for name, x in given.items()}
            missing = size - len(part["_mask"])
            fill = batch(missing, seed=9, mask=np.zeros(missing, bool))
            rows.append(
                evaluate(params, jax.tree.map(lambda a, b: np.concatenate([a, b]), part, fill))
            )
        return metrics.total(jax.device_get(rows))

    expected = total(14)
    assert expected["examples"] == 14
    assert 0 < expected["top1"] < expected["top5"] < 1
    for size in (4, 5, 16):
        assert total(size) == pytest.approx(expected, rel=1e-6)


def test_evaluation_of_several_labels():
    evaluate = evaluation()
    given = batch(4) | {"labels": np.array([[0, 1], [2, -1], [3, 4], [5, -1]], np.int32)}
    images = (given["image"] / 127.5 - 1).astype(np.float32)
    logits = np.asarray(small(start().params, images, train=False, key=None))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -(log_p[0, [0, 1]].sum() + log_p[1, 2] + log_p[2, [3, 4]].sum() + log_p[3, 5])
    found = evaluate(start().params, given)
    assert float(found["loss"]) == pytest.approx(float(expected), rel=1e-5)
    best = logits.argmax(-1)
    hits = sum(int(b in labels) for b, labels in zip(best, given["labels"], strict=True))
    assert int(found["top1"]) == hits


@pytest.mark.parametrize(
    "rows, name",
    [
        ({"loss": 1.0, "grad_norm": 0.0}, None),
        ({"loss": 1.0, "grad_norm": float("nan")}, "grad_norm"),
        ({"loss": float("inf"), "grad_norm": float("nan")}, "loss"),
        ({"loss": -float("inf")}, "loss"),
        ({"loss": np.float32("nan")}, "loss"),
    ],
)
def test_first_metric_that_is_not_finite_is_named(rows, name):
    assert train_step.non_finite(rows) == name


# --- updates that are not finite ---


def poisoned(where):
    """`small`, with a loss or a gradient that is not a number for batches of white images."""

    def apply(params, images, *, train, key):
        white = jnp.all(images > 0.99)
        logits = small(params, images, train=train, key=key)
        if where == "loss":
            return jnp.where(white, jnp.nan, logits)
        return logits + jnp.sqrt(jnp.where(white, 0.0, 1.0) * params["hidden"][0, 0] ** 2) * 0

    return apply


def white(given):
    return given | {"image": np.full_like(given["image"], 255)}


@pytest.mark.parametrize("where, accumulation", [("loss", 1), ("gradient", 4)])
def test_update_that_is_not_finite_is_skipped_and_counted(where, accumulation):
    """On eight devices: after it all is as if its batch had not been, but for the step."""
    tx = train_step.skipping(optax.adamw(0.1))
    rules = rules_of((1, 8, 1, 1))
    over = rules.sharding(("act_batch",), (32,))
    given = [jax.device_put(b, over) for b in (batch(32), white(batch(32)), batch(32, seed=1))]
    step = jax.jit(make_step(tx, poisoned(where), accumulation=accumulation, ema_decay=0.9))
    once, _ = step(jax.device_put(start(tx, ema=True), rules.replicated), given[0], KEY)
    skipped, measured = step(once, given[1], KEY)
    bad = {name for name in ("loss", "grad_norm") if not np.isfinite(measured[name])}
    assert bad == {"loss" if where == "loss" else "grad_norm"}  # one alone is enough
    assert (int(measured["skipped"]), int(skipped.step)) == (1, 2)
    assert same(skipped.params, once.params)
    norm = float(optax.tree.norm(once.params))
    assert float(measured["param_norm"]) == pytest.approx(norm, rel=1e-6)
    assert same(skipped.opt_state.inner, once.opt_state.inner)
    assert same(skipped.ema, once.ema)
    jumped = dataclasses.replace(once, step=jnp.int32(2))
    expected, _ = step(jumped, given[2], KEY)
    found, measured = step(skipped, given[2], KEY)
    assert int(measured["skipped"]) == 1
    assert same((found.params, found.ema), (expected.params, expected.ema))
    assert not same(found.params, once.params)


def same(a, b):
    return all(map(np.array_equal, jax.tree.leaves(a), jax.tree.leaves(b)))


def test_steps_that_skip_nothing_are_those_of_the_optimizer_alone():
    tx, given = optax.adamw(0.1), batch()
    states = start(tx, ema=True), start(train_step.skipping(tx), ema=True)
    texts = []
    for t, current in zip((tx, train_step.skipping(tx)), states, strict=True):
        texts.append(jax.jit(make_step(t, ema_decay=0.9)).lower(current, given, KEY).as_text())
    assert "is_finite" not in texts[0]  # costs nothing where it was not asked for
    assert "is_finite" in texts[1]
    found = [jax.jit(make_step(tx, ema_decay=0.9))(states[0], given, KEY)]
    found += [jax.jit(make_step(train_step.skipping(tx), ema_decay=0.9))(states[1], given, KEY)]
    assert same(found[0][0].params, found[1][0].params)
    assert found[1][1].keys() - found[0][1].keys() == {"skipped"}


# --- over several devices; models of every family are in test_meshes.py ---


def rules_of(shape: tuple[int, int, int, int]) -> sharding.Rules:
    devices = jax.devices()[: np.prod(shape)]
    mesh = sharding.make_mesh(**dict(zip(sharding.MESH_AXES, shape, strict=True)), devices=devices)
    return sharding.Rules(mesh, TABLE)


def test_accumulation_over_devices_moves_no_images_between_them():
    rules, given = rules_of((1, 8, 1, 1)), batch(32, mask=np.arange(32) % 3 > 0)
    expected, _ = jax.jit(make_step())(start(), given, KEY)
    over = rules.sharding(("act_batch",), (32,))
    given = jax.device_put(given, over)
    current = jax.device_put(start(), rules.replicated)
    step = jax.jit(make_step(accumulation=4)).lower(current, given, KEY).compile()
    moved = re.findall(r"= (\S+) (?:all-gather|all-to-all|collective-permute)", step.as_text())
    assert not [array for array in moved if re.search(r",2,2,3\]|,12\]", array)]
    found, _ = step(current, given, KEY)
    for name, value in expected.params.items():
        np.testing.assert_allclose(found.params[name], value, rtol=1e-6, atol=1e-6)


# --- compiling ---


def step_of_l16(depth: int, scan: bool):
    """The lowered step of L/16 with another number of layers."""
    cfg = variants.config(variant="L/16", depth=depth, scan=scan, classes=9)
    model, tx = variants.make(cfg), optax.adamw(1e-3)
    step = make_step(
        tx,
        lambda p, x, *, train, key: model.apply({"params": p}, x, train=train, key=key),
        classes=9,
    )
    current = jax.eval_shape(
        lambda p: state.from_params(p, tx, ema=False), variants.shapes(cfg, 32, 32)
    )
    return jax.jit(step, donate_argnums=0).lower(current, batch(2, 0, 32, 32, 9), KEY)


@pytest.mark.slow
def test_what_is_compiled_does_not_grow_with_depth_under_scan():
    six, twelve, twenty_four = (step_of_l16(depth, True) for depth in (6, 12, 24))
    lines = six.as_text().count("\n")
    assert lines == twelve.as_text().count("\n") == twenty_four.as_text().count("\n")
    instructions = [lowered.compile().as_text().count(" = ") for lowered in (six, twenty_four)]
    assert instructions[0] == instructions[1]
    four, eight = (step_of_l16(depth, False).as_text().count("\n") for depth in (4, 8))
    assert lines < four < 0.6 * eight  # as it does without
