# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Masked patch prediction: corruption, targets, the model and one step.

Whole runs are in test_self_supervision.py. Images are replaced patch by patch in numpy, which is
what corruption means without its code.
"""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from test_train_step import HALF, rules_of

from vit_jax import sharding, tree
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.step import masked_patches, state, train_step
from vit_jax.step.objective import Network

ROWS, COLUMNS, SIDE = 4, 6, 2
PATCHES = ROWS * COLUMNS
TARGETS = ("mean", "small", "l2")
EIGHT, CUBE, SLOW = (1, 8, 1, 1), (1, 2, 2, 2), pytest.mark.slow


def objective(target="mean", rate=0.5, patches=PATCHES, side=SIDE):
    cfg = variants.config(variant=f"Ti/{side}", classes=0)
    return masked_patches.make(cfg, "Ti", side, side * patches, target=target, rate=rate)


def images(batch=4, side=SIDE, seed=0, rows=ROWS, columns=COLUMNS):
    """uint8 [B, rows * side, columns * side, 3], patches of all brightnesses."""
    rng = np.random.default_rng(seed)
    base = rng.integers(0, 256, (batch, rows, 1, columns, 1, 3))
    noise = rng.integers(-40, 40, (batch, rows, side, columns, side, 3))
    shape = (batch, rows * side, columns * side, 3)
    return np.clip(base + noise, 0, 255).reshape(shape).astype(np.uint8)


def patch(image, place, side=SIDE, columns=COLUMNS):
    """A view of one patch of an image."""
    y, x = divmod(place, columns)
    return image[y * side : (y + 1) * side, x * side : (x + 1) * side]


# --- corruption ---


def drawn(made, seed, batch):
    """`Corruption` of a batch in numpy."""
    return map(np.asarray, jax.jit(made.corruption)(jax.random.split(jax.random.key(seed), batch)))


@pytest.mark.parametrize(
    "patches, rate, corrupted, counts",
    [
        (196, 0.5, 98, (78, 10, 10)), (196, 0.15, 29, (23, 3, 3)), (576, 0.5, 288, (230, 29, 29)),
        (225, 0.5, 113, (91, 11, 11)), (16, 0.5, 8, (6, 1, 1)), (4, 0.5, 2, (2, 0, 0)),
        (10, 1.0, 10, (8, 1, 1)), (10, 0.45, 5, (3, 1, 1)),
    ],
)  # fmt: skip
def test_counts_are_rounded_as_promised(patches, rate, corrupted, counts):
    made = objective(rate=rate, patches=patches)
    assert (made.corrupted, made.counts) == (corrupted, counts)


@pytest.mark.parametrize("patches, rate", [(196, 0.5), (196, 0.15), (225, 0.5), (16, 0.5)])
def test_every_image_has_exactly_these_counts(patches, rate):
    made = objective(rate=rate, patches=patches)
    source, corrupted = map(
        np.asarray, jax.jit(made.corruption)(jax.random.split(jax.random.key(1), 300))
    )
    own = np.arange(patches)[None]
    found = [
        (source == -1).sum(1),
        ((source >= 0) & (source != own)).sum(1),
        (corrupted & (source == own)).sum(1),
    ]
    for number, expected in zip(found, made.counts, strict=True):
        np.testing.assert_array_equal(number, expected)
    assert np.all(source[~corrupted] == np.broadcast_to(own, source.shape)[~corrupted])
    np.testing.assert_array_equal(corrupted.sum(1), made.corrupted)
    assert (source.dtype, corrupted.dtype) == (np.int32, bool)


def test_every_patch_is_corrupted_as_often_and_lends_as_often():
    made = objective(patches=16)
    source, corrupted = map(
        np.asarray, jax.jit(made.corruption)(jax.random.split(jax.random.key(2), 4000))
    )
    assert np.ptp(corrupted.mean(0)) < 0.06  # 0.5 each, standard error 0.008
    assert np.ptp((source == -1).mean(0)) < 0.06
    taken, places = source - np.arange(16)[None], (source >= 0) & (source != np.arange(16)[None])
    away = np.bincount((taken % 16)[places], minlength=16)
    assert away[0] == 0
    assert away[1:].min() > 0.6 * 4000 / 15


@pytest.mark.parametrize("rate, patches", [(0.0, 16), (0.02, 16)])
def test_a_rate_that_corrupts_nothing_is_refused(rate, patches):
    with pytest.raises(BadInput, match=r"masked\.rate.*0\.04 up to 1"):
        objective(rate=rate, patches=patches)
    assert objective(rate=0.04, patches=16).corrupted == 1


def test_keys_of_images_follow_their_pixels_alone():
    given = images(8)
    keys = jax.random.key_data(masked_patches.image_keys(jnp.asarray(given)))
    order = np.array([3, 0, 5])
    again = jax.random.key_data(masked_patches.image_keys(jnp.asarray(given[order])))
    np.testing.assert_array_equal(keys[order], again)
    other = given.copy()
    other[:, 3, 5, 1] ^= 1
    changed = jax.random.key_data(masked_patches.image_keys(jnp.asarray(other)))
    assert len(np.unique(np.concatenate([keys, changed]), axis=0)) == 16


# --- targets ---

colours = jax.jit(masked_patches.colours, static_argnums=(1, 2))


def colours_by_hand(image, side, cells):
    """Means over cells of repeated pixels in float64, patch by patch."""
    rows, columns = image.shape[0] // side, image.shape[1] // side
    found = []
    for place in range(rows * columns):
        big = np.kron(patch(image, place, side, columns), np.ones((cells, cells, 1)))
        means = big.reshape(cells, side, cells, side, 3).mean((1, 3)).reshape(-1, 3)
        found.append(np.floor(means / 32 + 1e-9) @ [64, 8, 1])
    return np.array(found)


@pytest.mark.parametrize("cells", [1, 4])
@pytest.mark.parametrize("side", [1, 2, 3, 4, 14, 16])
def test_colours_are_those_of_the_means(side, cells):
    given = images(3, side)
    found = colours(given, side, cells)
    assert found.dtype == jnp.int32
    expected = np.stack([colours_by_hand(image, side, cells) for image in given])
    np.testing.assert_array_equal(found, expected)
    if cells == 4 and side > 2:
        assert len(np.unique(expected[0, 0])) > 1  # the noise shows


def test_every_one_of_the_512_colours_is_a_target_of_its_own():
    levels = np.stack(np.unravel_index(np.arange(512), (8, 8, 8)), -1).reshape(16, 32, 3)
    low = (32 * levels).astype(np.uint8).repeat(2, 0).repeat(2, 1)
    for image in (low, low + 31):
        found = colours(image[None], 2, 1)
        np.testing.assert_array_equal(found[0, :, 0], np.arange(512))


@pytest.mark.parametrize("dark, level", [(0, 1), (1, 0), (100, 0)])
def test_a_mean_of_31_99_is_below_32(dark, level):
    patch = np.full((1, 10, 10, 3), 32, np.uint8)
    patch.reshape(-1, 3)[:dark] = 31
    assert int(colours(patch, 10, 1)[0, 0, 0]) == 73 * level


def test_pixels_of_a_patch_go_row_by_row():
    given = images(2)
    found = np.asarray(masked_patches.pixels(jnp.asarray(given), SIDE))
    for place in range(PATCHES):
        np.testing.assert_array_equal(found[1, place], patch(given[1], place).reshape(-1))


# --- loss ---


def predictions(made, batch=4):
    shape = (batch, made.patches, made.outputs)
    return jnp.asarray(np.random.default_rng(5).normal(size=shape), jnp.float32)


def sums(made, predicted, given, corrupted, mask=None):
    mask = np.ones(len(given), bool) if mask is None else mask
    return jax.jit(made.compared)(predicted, given, corrupted, mask)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_are_those_of_corrupted_patches_of_images_that_count(target):
    made, given, mask = objective(target), images(), np.array([True, False, True, True])
    predicted = np.asarray(predictions(made))
    _, corrupted = drawn(made, 3, 4)
    found = sums(made, predicted, given, corrupted, mask)
    loss, top1, top5 = [], [], []
    for image, said, places, counts in zip(given, predicted, corrupted, mask, strict=True):
        for place in np.flatnonzero(places) if counts else ():
            if target == "l2":
                truth = patch(image, place).reshape(-1) / 255
                loss.append(np.mean((said[place] - truth) ** 2))
                continue
            logits = said[place].astype(np.float64).reshape(-1, 512)
            truth = colours_by_hand(image, SIDE, 4 if target == "small" else 1)[place].astype(int)
            log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            loss.append(-np.mean(log_p[np.arange(len(truth)), truth]))
            ranks = (logits > logits[np.arange(len(truth)), truth][:, None]).sum(1)
            top1.append(np.mean(ranks < 1))
            top5.append(np.mean(ranks < 5))
    assert len(loss) == 3 * made.corrupted
    assert int(found["examples"]) == 3
    assert float(found["loss"]) / 3 == pytest.approx(np.mean(loss), rel=1e-5)
    if target != "l2":
        assert float(found["top5"]) / 3 == pytest.approx(np.mean(top5), abs=1e-6)
        assert float(found["top1"]) / 3 == pytest.approx(np.mean(top1), abs=1e-6)


def test_right_predictions_are_counted_and_l2_is_read_as_the_nearest_colour():
    given = images()
    corrupted = np.arange(PATCHES)[None] % 2 == np.zeros((4, 1))
    pixels = masked_patches.pixels(jnp.asarray(given), SIDE) / 255
    exact = sums(objective("l2"), pixels, given, corrupted)
    assert (float(exact["loss"]), float(exact["top1"])) == (0.0, 4.0)
    off = sums(objective("l2"), pixels + 33 / 255, given, corrupted)
    assert float(off["top1"]) < 0.2
    assert float(off["loss"]) / 4 == pytest.approx((33 / 255) ** 2, rel=1e-4)
    hot = jax.nn.one_hot(colours(given, SIDE, 1)[..., 0], 512)
    assert float(sums(objective("mean"), hot, given, corrupted)["top1"]) == 4.0


@pytest.mark.parametrize("target", TARGETS)
def test_targets_of_patches_that_are_not_corrupted_do_not_matter(target):
    made, given = objective(target), images()
    predicted = predictions(made)
    _, corrupted = drawn(made, 3, 4)
    before = sums(made, predicted, given, corrupted)
    for which, same in ((~corrupted, True), (corrupted, False)):
        other = given.copy()
        for image, places in zip(other, which, strict=True):
            for place in np.flatnonzero(places):
                patch(image, place)[...] = 255 - patch(image, place)
        after = sums(made, predicted, other, corrupted)
        assert (float(after["loss"]) == float(before["loss"])) == same


# --- model ---


def predicting(cfg, target="mean"):
    """The model for images of `tiny.size`, and its objective."""
    rows, columns = variants.grid(cfg, *tiny.size(cfg))
    made = objective(target, patches=rows * columns, side=cfg.stride)
    return dataclasses.replace(cfg, classes=0, patch_outputs=made.outputs), made


MODELS = {
    "token": {},
    "gap in a loop": {"pool": "gap", "scan": False},
    "registers": {"registers": 2, "posemb": "relative"},
    "learned2d": {"posemb": "learned2d", "posemb_at": "every"},
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_corrupted_patch_is_as_if_its_pixels_were_others(kind):
    cfg, _ = predicting(tiny.config(depth=2, **MODELS[kind]))
    params = tiny.params(cfg)
    params["mask_token"] = params["embedding"]["bias"][None, None]  # that of a patch of zeros
    given = tiny.images_of(cfg, 2)
    source = np.array([[0, -1, 2, 0, 4, 3], [5, 1, -1, -1, 4, 0]], np.int32)
    replaced = given.copy()
    for image, whole, places in zip(replaced, given, source, strict=True):
        for place, taken in enumerate(places):
            content = 0 if taken < 0 else patch(whole, taken, tiny.PATCH, 3)
            patch(image, place, tiny.PATCH, 3)[...] = content
    model = variants.make(cfg)

    @jax.jit
    def predict(images, source):
        return model.apply({"params": params}, images, source_BL=source)

    own = np.tile(np.arange(6, dtype=np.int32), (2, 1))
    with jax.default_matmul_precision("highest"):
        found = predict(given, source)
        expected, untouched = predict(replaced, own), predict(given, own)
    assert found.shape == (2, 6, 512)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert np.abs(np.asarray(found - untouched)).max() > 0.1


@pytest.mark.parametrize("kind", ["vit", "hybrid"])
def test_mask_token_and_its_head_are_there_only_for_the_objective(kind):
    plain = tiny.FAMILIES[kind]()
    cfg, _ = predicting(plain)
    given = dict(tree.leaves_with_paths(tiny.shapes(cfg)))
    before = dict(tree.leaves_with_paths(tiny.shapes(plain)))
    width = plain.width
    assert {path: given[path].shape for path in given.keys() - before.keys()} == {
        "mask_token": (1, 1, width),
        "patch_head/kernel": (width, 512),
        "patch_head/bias": (512,),
    }
    assert before.keys() - given.keys() == {"head/kernel", "head/bias"}
    rows, columns = variants.grid(cfg, *tiny.size(cfg))
    more = 2 * width * (512 * rows * columns - plain.classes)
    size = tiny.size(cfg)
    assert variants.forward_flops(cfg, *size) - variants.forward_flops(plain, *size) == more


# --- a step ---


def linear(made):
    """A model of one product: (params, apply)."""
    rng, size = np.random.default_rng(0), 3 * made.side**2
    params = {
        "token": rng.normal(size=(1, 1, size)).astype(np.float32),
        "head": rng.normal(size=(size, made.outputs)).astype(np.float32) / size,
    }

    def apply(params, images, *, train, key, source_BL):
        content = masked_patches.pixels(images, made.side)
        taken = jnp.take_along_axis(content, jnp.maximum(source_BL, 0)[..., None], axis=1)
        return jnp.where(source_BL[..., None] < 0, params["token"], taken) @ params["head"]

    return jax.tree.map(jnp.asarray, params), apply


def batch_of(size, side=SIDE, rows=ROWS, columns=COLUMNS):
    """Images, a few of them padding, and labels that nobody looks at."""
    given = images(size, side, rows=rows, columns=columns)
    mask = np.arange(size) % 5 != 1
    return {"image": given, "labels": np.full((size, 1), -1, np.int32), "_mask": mask}


def linear_steps(target, accumulation=1, lr=0.2, devices=1):
    """Metrics of three steps with the batch split over devices, and the parameters after them."""
    made, tx, rules = objective(target), optax.sgd(lr), rules_of((1, devices, 1, 1))
    params, apply = linear(made)
    params = jax.device_put(params, rules.replicated)
    batch = jax.device_put(batch_of(16), rules.sharding(("act_batch",), (16,)))
    network = Network(apply, HALF, HALF)
    step = jax.jit(train_step.make_train_step(made, network, tx, accumulation=accumulation))
    current, found = state.from_params(params, tx, ema=False), []
    for _ in range(3):
        current, measured = step(current, batch, jax.random.key(0))
        found.append([float(measured[name]) for name in ("loss", "top1", "grad_norm")])
    return np.array(found), current.params


@pytest.mark.integration
@pytest.mark.parametrize(
    "target, accumulation, devices",
    [
        ("l2", 2, 8),
        pytest.param("mean", 4, 1, marks=SLOW),
        pytest.param("mean", 1, 8, marks=SLOW),
        pytest.param("small", 4, 4, marks=SLOW),
    ],
)
def test_accumulation_and_devices_leave_draws_and_step(target, accumulation, devices):
    expected, params = linear_steps(target)
    found, again = linear_steps(target, accumulation, devices=devices)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    for name, value in params.items():
        np.testing.assert_allclose(again[name], value, rtol=1e-5, atol=1e-6)
        assert not np.allclose(value, linear(objective(target))[0][name], atol=1e-5)


def test_every_step_draws_anew():
    assert len(set(linear_steps("mean", lr=0.0)[0][:, 0])) == 3


@pytest.mark.integration
def test_evaluation_does_not_depend_on_batches_and_padding():
    made = objective()
    params, apply = linear(made)
    evaluate = jax.jit(
        lambda params, batch: made.eval_sums(Network(apply, HALF, HALF), params, None, batch)
    )
    given = images(10)

    def total(size):
        found = {}
        for first in range(0, 10, size):
            part = given[first : first + size]
            fill = images(size - len(part), seed=7)
            mask = np.arange(size) < len(part)
            batch = {"image": np.concatenate([part, fill]), "_mask": mask}
            for name, value in evaluate(params, batch).items():
                found[name] = found.get(name, 0) + float(value)
        return found

    expected = total(10)
    assert expected["examples"] == 10
    for size in (4, 16):
        assert total(size) == pytest.approx(expected, rel=1e-6)


@functools.lru_cache
def vit_steps(kind="vit", shape=(1, 1, 1, 1), remat="none"):
    """Loss, share of hits and gradient norm of three steps; the HLO and the last parameters."""
    rules = rules_of(shape)
    cfg, made = predicting(tiny.FAMILIES[kind](remat=remat, depth=2))
    model, tx = variants.make(cfg, rules), optax.sgd(0.2)
    network = Network(lambda p, x, **given: model.apply({"params": p}, x, **given), HALF, HALF)
    step = train_step.make_train_step(made, network, tx)
    params = tiny.params(cfg)
    abstract = jax.eval_shape(lambda p: state.from_params(p, tx, ema=False), params)
    axes = sharding.param_axes(abstract.params, variants.axes(cfg))
    places = sharding.place(abstract, axes, rules)
    begin = jax.jit(lambda p: state.from_params(p, tx, ema=False), out_shardings=places)
    rows, columns = variants.grid(cfg, *tiny.size(cfg))
    over = rules.sharding(("act_batch",), (16,))
    batch = jax.device_put(batch_of(16, cfg.stride, rows, columns), over)
    current, key, found = begin(params), jax.random.key(0), []
    jitted = jax.jit(step, out_shardings=(places, rules.replicated))
    compiled = jitted.lower(current, batch, key).compile()
    for _ in range(3):
        current, measured = compiled(current, batch, key)
        found.append([float(measured[name]) for name in ("loss", "top1", "grad_norm")])
    return np.array(found), compiled.as_text(), jax.device_get(current.params)


@pytest.mark.integration
@pytest.mark.parametrize(
    "kind, shape",
    [
        pytest.param("vit", EIGHT, marks=SLOW), ("vit", CUBE),
        pytest.param("hybrid", EIGHT, marks=SLOW), pytest.param("hybrid", CUBE, marks=SLOW),
    ],
)  # fmt: skip
def test_sharded_step_equals_that_of_one_device(kind, shape):
    expected, _, _ = vit_steps(kind)
    found, text, _ = vit_steps(kind, shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert np.ptp(expected[:, 0]) > 1e-3
    if shape == EIGHT:  # patches stay on the device that has their image
        moved = re.findall(r"= (\S+) (?:all-gather|all-to-all|collective-permute)", text)
        assert not [array for array in moved if re.match(r"\w+\[16,", array)], moved


def test_gradients_reach_mask_token_head_and_encoder():
    cfg, _ = predicting(tiny.config(depth=2))
    before, after = dict(tree.leaves_with_paths(tiny.params(cfg))), vit_steps()[2]
    for path, leaf in tree.leaves_with_paths(after):
        if not path.endswith("key/bias"):  # softmax does not see it
            assert not np.array_equal(leaf, before[path]), path


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit", "hybrid"])
def test_remat_leaves_the_step_as_it_is(kind):
    found, _, _ = vit_steps(kind, remat="full")
    np.testing.assert_allclose(found, vit_steps(kind)[0], rtol=1e-5)
