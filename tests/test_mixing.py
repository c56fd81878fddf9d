# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mixup: who is mixed with whom, by how much, and that a training step does just that."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_train_step import CLASSES, batch, make_step, rules_of, small, small_params, start

from vit_jax import losses, mixing

ALPHA = 0.4
KEY = jax.random.key(3)


def test_the_partner_is_the_row_before_and_stays_uint8():
    given = batch(6)
    found = mixing.with_partners(given)
    assert found.keys() == {"image", "labels", "mask", "partner_image", "partner_labels"}
    for i in range(6):
        for name in ("image", "labels"):
            np.testing.assert_array_equal(found["partner_" + name][i], given[name][i - 1])
    assert found["partner_image"].dtype == jnp.uint8
    np.testing.assert_array_equal(found["image"], given["image"])


@pytest.mark.parametrize("alpha", [0.1, 0.4, 1.0, 8.0])
def test_share_is_the_larger_part_of_a_beta_draw(alpha):
    keys = jax.random.split(jax.random.key(0), 4000)
    found = np.asarray(jax.jit(jax.vmap(lambda k: mixing.share(k, alpha)))(keys))
    assert found.dtype == np.float32
    assert 0.5 <= found.min() <= found.max() <= 1.0
    # The variance of Beta(a, a) about its mean of 1/2 is that of either of the two parts.
    assert np.mean((found - 0.5) ** 2) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.06)
    drawn = np.random.default_rng(0).beta(alpha, alpha, 4000)
    drawn = np.sort(np.maximum(drawn, 1 - drawn))
    np.testing.assert_allclose(np.sort(found)[::50], drawn[::50], atol=0.04)


def test_mixup_is_linear():
    own, partner = np.float32([[1, 0], [0, 4]]), np.float32([[0, 1], [8, 0]])
    np.testing.assert_array_equal(mixing.mixup(own, partner, 0.75), [[0.75, 0.25], [2, 3]])
    np.testing.assert_array_equal(mixing.mixup(own, partner, 1.0), own)


# --- in a training step ---


@pytest.mark.parametrize("loss, smoothing", [("softmax", 0.0), ("softmax", 0.2), ("sigmoid", 0.0)])
def test_step_is_that_of_mixed_images_and_targets(loss, smoothing):
    given, current = batch(8), start()
    options = {"loss": loss, "label_smoothing": smoothing}
    found, measured = jax.jit(make_step(mixup_alpha=ALPHA, **options))(current, given, KEY)
    share = float(mixing.share(jax.random.fold_in(jax.random.fold_in(KEY, 0), 2**31), ALPHA))
    assert 0.5 < share < 0.99
    images = (given["image"] / 127.5 - 1).astype(np.float32)
    targets = np.eye(CLASSES)[given["labels"][:, 0]] * (1 - smoothing) + smoothing / CLASSES
    images, targets = (share * x + (1 - share) * np.roll(x, 1, axis=0) for x in (images, targets))

    def mean_loss(params):
        logits = small(params, jnp.asarray(images, jnp.float32), train=False, key=None)
        return jnp.mean(losses.LOSSES[loss](logits, jnp.asarray(targets, jnp.float32))), logits

    (expected, logits), grads = jax.value_and_grad(mean_loss, has_aux=True)(current.params)
    assert float(measured["loss"]) == pytest.approx(float(expected), rel=1e-5)
    right = np.asarray(logits).argmax(axis=-1) == given["labels"][:, 0]
    assert float(measured["top1"]) == right.mean()
    for name, before in small_params().items():
        expected = before - 0.1 * np.asarray(grads[name])
        np.testing.assert_allclose(found.params[name], expected, rtol=1e-5, atol=1e-6)


def test_every_step_draws_anew_and_no_alpha_mixes_nothing():
    step = jax.jit(make_step(optax.sgd(0.0), mixup_alpha=ALPHA))
    current, seen = start(optax.sgd(0.0)), []
    for _ in range(4):
        current, measured = step(current, batch(8), KEY)
        seen.append(float(measured["loss"]))
    assert len(set(seen)) == 4
    plain = jax.jit(make_step(optax.sgd(0.0)))
    assert "partner" not in str(jax.make_jaxpr(plain)(current, batch(8), KEY))
    assert float(plain(current, batch(8), KEY)[1]["loss"]) not in seen


@pytest.mark.parametrize(
    "accumulation, shape",
    [(1, (1, 8, 1, 1)), (2, (1, 1, 1, 1)), (2, (2, 2, 2, 1)), (4, (1, 1, 4, 2))],
    ids=str,
)
def test_results_depend_on_neither_mesh_nor_accumulation(accumulation, shape):
    tx, rules = optax.sgd(0.1, momentum=0.9), rules_of(shape)
    expected, found = start(tx), jax.device_put(start(tx), rules.replicated)
    whole = jax.jit(make_step(tx, mixup_alpha=ALPHA))
    split = jax.jit(make_step(tx, mixup_alpha=ALPHA, accumulation=accumulation))
    for seed in range(3):
        given = batch(32, seed)
        expected, one = whole(expected, given, KEY)
        over = jax.device_put(given, rules.sharding(("act_batch",), (32,)))
        found, other = split(found, over, KEY)
        for name, value in one.items():
            assert float(other[name]) == pytest.approx(float(value), rel=1e-5), name
    for name, value in expected.params.items():
        np.testing.assert_allclose(found.params[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("accumulation", [1, 4])
def test_one_image_of_each_device_crosses_to_another_as_uint8(accumulation):
    rules = rules_of((1, 2, 4, 1))
    given = jax.device_put(batch(32), rules.sharding(("act_batch",), (32,)))
    step = jax.jit(make_step(mixup_alpha=ALPHA, accumulation=accumulation))
    text = step.lower(jax.device_put(start(), rules.replicated), given, KEY).compile().as_text()
    moved = re.findall(r"= (.*?) (all-gather|all-to-all|collective-permute)(?:-start)?\(", text)
    images = [(array, kind) for array, kind in moved if re.search(r"2,2,3\]|,12\]", array)]
    assert [kind for _, kind in images] == ["collective-permute"]
    assert images[0][0].startswith("u8[1,2,2,3]")
