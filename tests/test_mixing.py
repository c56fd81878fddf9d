# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mixup and CutMix: who is mixed with whom, how, and that a training step does just that."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_train_step import CLASSES, batch, make_step, rules_of, small, small_params, start

from vit_jax.step import losses, mixing

ALPHA = 0.4
KEY = jax.random.key(3)
MIXUP, CUTMIX = {"mixup": ALPHA}, {"cutmix": 1.0}


def test_the_partner_is_the_row_before_and_stays_uint8():
    given = batch(6)
    found = mixing.with_partners(given)
    assert found.keys() == {"image", "labels", "_mask", "partner_image", "partner_labels"}
    for i in range(6):
        for name in ("image", "labels"):
            np.testing.assert_array_equal(found["partner_" + name][i], given[name][i - 1])
    assert found["partner_image"].dtype == jnp.uint8
    np.testing.assert_array_equal(found["image"], given["image"])


@pytest.mark.parametrize("alpha", [0.2, 8.0])
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


def test_mixing_is_linear():
    own, partner = np.float32([[1, 0], [0, 4]]), np.float32([[0, 1], [8, 0]])
    np.testing.assert_array_equal(mixing.mixed(own, partner, 0.75), [[0.75, 0.25], [2, 3]])
    np.testing.assert_array_equal(mixing.mixed(own, partner, 1.0), own)


# --- the box ---


@functools.lru_cache
def boxes(alpha, sides):
    """(own pixels bool [N, H, W], shares [N]) of 1500 keys."""
    keys = jax.random.split(jax.random.key(1), 1500)
    found = jax.jit(jax.vmap(lambda k: mixing.box(k, alpha, sides)))(keys)
    assert found.pixels.shape == (1500, 1, *sides, 1)
    assert found.pixels.dtype == found.share.dtype == jnp.float32
    assert set(np.unique(found.pixels)) == {0, 1}
    return np.asarray(found.pixels)[:, 0, :, :, 0] == 1, np.asarray(found.share)


BOTH = pytest.mark.parametrize("alpha, sides", [(1.0, (16, 16)), (0.4, (9, 14))])


@BOTH
def test_box_is_a_rectangle_of_one_image_and_the_share_counts_pixels(alpha, sides):
    own, shares = boxes(alpha, sides)
    np.testing.assert_allclose(shares, np.maximum(own.mean((1, 2)), 1 - own.mean((1, 2))), 1e-6)
    assert (own.mean(axis=(1, 2)) >= 0.5 - 1e-6).all()  # the row itself is the larger part
    swapped = 0
    for pixels in own:
        assert _is_box(pixels) or _is_box(~pixels)
        swapped += not _is_box(~pixels)
    assert 40 < swapped < 750


def _is_box(pixels):
    rows, columns = pixels.any(axis=1), pixels.any(axis=0)
    whole = all(abs(np.diff(np.pad(line, 1).astype(int))).sum() <= 2 for line in (rows, columns))
    return whole and (pixels == rows[:, None] & columns[None]).all()


@BOTH
def test_boxes_are_those_of_the_paper(alpha, sides):
    """The same distribution as the paper's algorithm, whichever of a pair is called the row."""
    rng, found = np.random.default_rng(0), []
    for _ in range(1500):
        scale = np.sqrt(1 - rng.beta(alpha, alpha))
        area = 1.0
        for side in sides:
            centre, half = rng.integers(side), int(side * scale) // 2
            area *= (min(centre + half, side) - max(centre - half, 0)) / side
        found.append(max(area, 1 - area))
    _, shares = boxes(alpha, sides)
    np.testing.assert_allclose(np.sort(shares)[::50], np.sort(found)[::50], atol=0.05)


def test_box_is_anywhere():
    own, _ = boxes(1.0, (16, 16))
    where = (~own).mean(axis=0)
    assert 0.07 < where.min() < where.max() < 0.5
    np.testing.assert_allclose(where, where[::-1, ::-1], atol=0.12)
    np.testing.assert_allclose(where, where.T, atol=0.12)


@pytest.mark.integration
def test_with_both_each_is_drawn_half_of_the_time():
    keys = jax.random.split(jax.random.key(2), 300)
    both = jax.jit(jax.vmap(lambda k: mixing.draw(k, (8, 8), ALPHA, 1.0)))(keys)
    pixels = np.asarray(both.pixels).reshape(300, -1)
    boxed = np.isin(pixels, (0, 1)).all(axis=1) & (np.ptp(pixels, axis=1) > 0)
    flat = np.ptp(pixels, axis=1) == 0
    assert 100 < boxed.sum() < 180
    np.testing.assert_array_equal(flat, ~boxed | (np.asarray(both.share) == 1))
    mixed = flat & (pixels[:, 0] < 1)
    np.testing.assert_array_equal(np.asarray(both.share)[mixed], pixels[mixed, 0])
    assert mixed.sum() > 100


# --- in a training step ---


def assert_step(found, measured, params, given, images, targets, loss):
    """A step of SGD at rate 0.1 was one on these images and targets."""

    def mean_loss(params):
        logits = small(params, jnp.asarray(images, jnp.float32), train=False, key=None)
        return jnp.mean(losses.LOSSES[loss](logits, jnp.asarray(targets, jnp.float32))), logits

    (expected, logits), grads = jax.value_and_grad(mean_loss, has_aux=True)(params)
    assert float(measured["loss"]) == pytest.approx(float(expected), rel=1e-5)
    right = np.asarray(logits).argmax(axis=-1) == given["labels"][:, 0]
    assert float(measured["top1"]) == right.mean()
    for name, before in params.items():
        expected = before - 0.1 * np.asarray(grads[name])
        np.testing.assert_allclose(found.params[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("loss, smoothing", [("softmax", 0.2), ("sigmoid", 0.0)])
def test_step_is_that_of_mixed_images_and_targets(loss, smoothing):
    given, current = batch(8), start()
    options = {"loss": loss, "label_smoothing": smoothing}
    found, measured = jax.jit(make_step(mixup=ALPHA, **options))(current, given, KEY)
    share = float(mixing.share(jax.random.fold_in(jax.random.fold_in(KEY, 0), 2**31), ALPHA))
    assert 0.5 < share < 0.99
    images = (given["image"] / 127.5 - 1).astype(np.float32)
    targets = np.eye(CLASSES)[given["labels"][:, 0]] * (1 - smoothing) + smoothing / CLASSES
    images, targets = (share * x + (1 - share) * np.roll(x, 1, axis=0) for x in (images, targets))
    assert_step(found, measured, small_params(), given, images, targets, loss)


def wide_params():
    """Returns parameters for images of 8 x 6, where there is room for boxes."""
    hidden = np.random.default_rng(0).normal(size=(144, 8)).astype(np.float32) / 9
    return small_params() | {"hidden": hidden}


@pytest.mark.integration
def test_step_is_that_of_images_with_a_box_of_the_partner():
    given, current = batch(8, height=8, width=6), start(params=wide_params())
    step = jax.jit(make_step(cutmix=1.0, loss="softmax", label_smoothing=0.1))
    found, measured = step(current, given, KEY)
    key = jax.random.fold_in(jax.random.fold_in(KEY, 0), 2**31)
    mix = mixing.draw(key, (8, 6), 0.0, 1.0)
    own, share = np.asarray(mix.pixels) == 1, float(mix.share)
    assert 0.5 <= share < 1
    pixels = np.where(own, given["image"], np.roll(given["image"], 1, axis=0))
    targets = np.eye(CLASSES)[given["labels"][:, 0]] * 0.9 + 0.1 / CLASSES
    targets = share * targets + (1 - share) * np.roll(targets, 1, axis=0)
    assert_step(found, measured, current.params, given, pixels / 127.5 - 1, targets, "softmax")


def test_every_step_draws_anew_and_no_alpha_mixes_nothing():
    step = jax.jit(make_step(optax.sgd(0.0), mixup=ALPHA))
    current, seen = start(optax.sgd(0.0)), []
    for _ in range(4):
        current, measured = step(current, batch(8), KEY)
        seen.append(float(measured["loss"]))
    assert len(set(seen)) == 4
    plain = jax.jit(make_step(optax.sgd(0.0)))
    assert "partner" not in str(jax.make_jaxpr(plain)(current, batch(8), KEY))
    assert float(plain(current, batch(8), KEY)[1]["loss"]) not in seen


@pytest.mark.parametrize(
    "how, accumulation, shape",
    [
        pytest.param(MIXUP, 1, (1, 8, 1, 1), marks=pytest.mark.slow),
        pytest.param(MIXUP, 2, (1, 1, 1, 1), marks=pytest.mark.slow),
        (MIXUP, 4, (1, 1, 4, 2)),
        pytest.param(CUTMIX, 4, (1, 1, 4, 2), marks=pytest.mark.slow),
        pytest.param(MIXUP | CUTMIX, 2, (2, 2, 2, 1), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_results_depend_on_neither_mesh_nor_accumulation(how, accumulation, shape):
    tx, rules = optax.sgd(0.1, momentum=0.9), rules_of(shape)
    expected = start(tx, wide_params())
    found = jax.device_put(start(tx, wide_params()), rules.replicated)
    whole = jax.jit(make_step(tx, **how))
    split = jax.jit(make_step(tx, **how, accumulation=accumulation))
    for seed in range(3):
        given = batch(32, seed, 8, 6)
        expected, one = whole(expected, given, KEY)
        over = jax.device_put(given, rules.sharding(("act_batch",), (32,)))
        found, other = split(found, over, KEY)
        for name, value in one.items():
            assert float(other[name]) == pytest.approx(float(value), rel=1e-5), name
    for name, value in expected.params.items():
        np.testing.assert_allclose(found.params[name], value, rtol=1e-5, atol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize("how, accumulation", [(MIXUP, 1), (MIXUP | CUTMIX, 4)], ids=str)
def test_one_image_of_each_device_crosses_to_another_as_uint8(how, accumulation):
    rules = rules_of((1, 2, 4, 1))
    given = jax.device_put(batch(32, 0, 8, 6), rules.sharding(("act_batch",), (32,)))
    step = jax.jit(make_step(**how, accumulation=accumulation))
    current = jax.device_put(start(params=wide_params()), rules.replicated)
    text = step.lower(current, given, KEY).compile().as_text()
    moved = re.findall(r"= (.*?) (all-gather|all-to-all|collective-permute)(?:-start)?\(", text)
    images = [(array, kind) for array, kind in moved if re.search(r"8,6,3\]|,144\]", array)]
    assert [kind for _, kind in images] == ["collective-permute"]
    assert images[0][0].startswith("u8[1,8,6,3]")
