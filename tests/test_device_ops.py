# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ops on the device, against those in numpy given the same draws, to one grey level."""

import jax
import numpy as np
import pytest
from workdirs import QUICKSTART

from vit_jax.build import program
from vit_jax.build import run as build
from vit_jax.config import load as config_lib
from vit_jax.data.numpy_ops import augment, draws, randaugment, resize
from vit_jax.data.ops import chain
from vit_jax.data.ops.randaugment import COLORS
from vit_jax.errors import BadInput
from vit_jax.step import device_colors, device_ops

SIDES = 40, 28
RNG = np.random.default_rng(0)


def smooth(rows, columns):
    """An image with gradients and noise, so that a shift by a pixel is more than a grey level."""
    y, x = np.mgrid[:rows, :columns]
    waves = [120 + 90 * np.sin(x / 3 + c) * np.cos(y / 4) for c in range(3)]
    noise = RNG.normal(0, 9, (rows, columns, 3))
    return np.clip(np.stack(waves, axis=-1) + noise, 0, 255).astype(np.uint8)


IMAGE = smooth(*SIDES)


def op_of(text):
    (op,) = chain.parse("k", text, 16)
    return op


def change(text, image, drawn):
    op = op_of(text)
    function = device_ops.OPS[type(op).__name__].change
    return np.asarray(jax.jit(lambda *args: function(op, *args))(image, drawn))


def off(found, expected):
    """The largest difference in grey levels."""
    assert found.dtype == expected.dtype == np.uint8
    assert found.shape == expected.shape
    return np.abs(found.astype(int) - expected).max()


def given(monkeypatch, **values):
    """Makes the draws of numpy ops return these values."""
    for name, value in values.items():
        monkeypatch.setattr(draws, name, lambda *args, _value=value, **more: _value)


SHARES = RNG.random((40, 10, 4), np.float32)


class Told:
    """The stream of a seed, with shares in place of words: four for each try."""

    def __init__(self, shares):
        self._aspects, self._shares = iter(shares), None

    def share(self):
        own = next(self._aspects)
        self._shares = iter(own[1:])
        return own[0]

    def below(self, limit):
        return int(next(self._shares) * np.float32(limit))


@pytest.mark.parametrize("areas", [(0.05, 1.0), (0.5, 1.0), (0.05, 0.1)])
def test_boxes_follow_the_rule_of_inception_crop(monkeypatch, areas):
    op = op_of(f"inception_crop(16, {areas[0]}, {areas[1]})")
    # The host draws only what it needs, so the shares after the first are equal.
    told = np.concatenate([SHARES[..., :1], np.repeat(SHARES[..., 1:2], 3, axis=-1)], axis=-1)
    boxes = jax.jit(jax.vmap(lambda shares: device_ops.box(op, SIDES, shares)))(told)
    for shares, found in zip(told, np.asarray(boxes), strict=True):
        monkeypatch.setattr(draws, "_Stream", lambda _, own=shares: Told(own))
        monkeypatch.setattr(draws, "_TRIES", len(shares))
        expected = draws.box((0, 0), *SIDES, areas, (0.75, 1.33))
        assert expected == tuple(found)


@pytest.mark.integration
@pytest.mark.parametrize("size", ["16", "(30, 50)", "(40, 28)", "16, cubic=True", "50, cubic=True"])
def test_inception_crop_is_that_of_the_host(monkeypatch, size):
    op = op_of(f"inception_crop({size})")
    for shares in SHARES[:8]:
        top, left, rows, columns = np.asarray(device_ops.box(op, SIDES, shares))
        cut = IMAGE[top : top + rows, left : left + columns]
        sides = op.size if isinstance(op.size, tuple) else (op.size, op.size)
        expected = resize.resized(cut, *sides, antialias=False, cubic=op.cubic)
        assert off(change(f"inception_crop({size})", IMAGE, shares), expected) <= 1


@pytest.mark.parametrize("begin", [(0, 0), (24, 12), (7, 3)])
def test_random_crop_is_that_of_the_host(monkeypatch, begin):
    given(monkeypatch, integers=(*begin, 0))
    expected = augment.random_crop(op_of("random_crop(16)"), IMAGE, (0, 0))
    found = change("random_crop(16)", IMAGE, np.array(begin, np.int32))
    assert off(found, expected) == 0


@pytest.mark.parametrize("share", [0.0, 0.4999, 0.5, 0.99])
def test_flip_is_that_of_the_host(monkeypatch, share):
    given(monkeypatch, uniform=np.array([share], np.float32))
    expected = augment.flip_lr(op_of("flip_lr"), IMAGE, (0, 0))
    assert off(change("flip_lr", IMAGE, np.float32(share)), expected) == 0


DULL = np.full((9, 9, 3), 77, np.uint8)


@pytest.mark.parametrize("magnitude", [0, 10, 22.5])
@pytest.mark.parametrize("name", COLORS)
def test_colour_op_is_that_of_the_host(name, magnitude):
    assert tuple(device_colors.OPS) == COLORS
    host = dict(zip(COLORS, randaugment._COLORS, strict=True))[name]
    number = COLORS.index(name)
    device = jax.jit(lambda image: device_colors.changed(image, number, magnitude / 10))
    for image in (IMAGE, DULL, IMAGE // 3 + 90):
        expected = host(image, magnitude / 10, np.zeros(3, np.float32))
        assert off(np.asarray(device(image)), expected) <= 1


def test_layers_choose_the_op_of_the_host(monkeypatch):
    op, shares = op_of("randaug(2, 10, colors=True)"), np.array([0.75, 0.25], np.float32)
    layers = iter([np.full(4, share, np.float32) for share in shares])
    monkeypatch.setattr(draws, "uniform", lambda *_: next(layers))
    expected = randaugment.randaug(op, IMAGE, (0, 0))
    assert off(change("randaug(2, 10, colors=True)", IMAGE, shares), expected) <= 1
    assert off(expected, IMAGE) > 20


@pytest.mark.parametrize("text", ["random_erasing(1.0, fill=9)", "random_erasing(0.5, 0.3, 0.9)"])
def test_erasing_is_that_of_the_host(monkeypatch, text):
    op, erased = op_of(text), 0
    for number in range(8):
        shares = np.random.default_rng(number).random(23, np.float32)
        key = jax.random.key(number)
        noise = np.asarray(jax.random.bits(key, IMAGE.shape, np.uint8))
        given(monkeypatch, uniform=shares, noise=np.uint8(0))
        expected = augment.random_erasing(op, IMAGE, (0, 0))
        if op.fill < 0:
            box = (expected == 0).all(axis=-1) & (IMAGE > 0).any(axis=-1)
            expected = np.where(box[..., None], noise, IMAGE)
        erased += (expected != IMAGE).any()
        assert off(change(text, IMAGE, (shares, key)), expected) == 0
    assert erased


CHAIN = "inception_crop({size})|flip_lr|randaug(1, 10, colors=True)|random_erasing(0.9)"


@pytest.mark.integration
def test_rows_draw_for_themselves_and_for_their_step():
    ops = device_ops.parse(CHAIN, SIDES, (16, 16), 3)
    images = np.stack([IMAGE] * 4)
    run = jax.jit(lambda images, key: device_ops.apply(ops, images, key))
    first = np.asarray(run(images, jax.random.key(1)))
    assert len(np.unique(first.reshape(4, -1), axis=0)) == 4
    np.testing.assert_array_equal(first, run(images, jax.random.key(1)))
    assert (first != run(images, jax.random.key(2))).any(axis=(1, 2, 3)).all()
    np.testing.assert_array_equal(first[:2], run(images[:2], jax.random.key(1)))


@pytest.mark.integration
@pytest.mark.parametrize("shape", [(8,), (2, 2, 2)])
def test_draws_are_those_of_any_mesh(shape):
    """Rows over all devices, or over the first two axes of a mesh of three."""
    axes = ("data", "fsdp", "tensor")[: len(shape)]
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(shape), axes)
    over = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(axes[:2]))
    ops = device_ops.parse(CHAIN, SIDES, (16, 16), 3)
    run = jax.jit(lambda images, key: device_ops.apply(ops, images, key))
    images, key = np.stack([IMAGE] * 8), jax.random.key(3)
    spread = run(jax.device_put(images, over), key)
    assert spread.sharding.is_equivalent_to(over, 4)  # no image has moved
    np.testing.assert_array_equal(run(images, key), spread)


@pytest.mark.parametrize(
    "text, before, said",
    [
        ("flip", (16, 16), "unknown op in data.device_ops"),
        ("affine(10)", (16, 16), "Affine has no form on a device; give inception_crop"),
        ("randaug(2, 10)", (16, 16), "randaug(..., colors=True)"),
        ("random_crop({size})", (12, 16), "make larger images in data.train_ops"),
        ("inception_crop(8)", (16, 16), "makes images of (8, 8), and the model takes (16, 16)"),
        ("flip_lr", (20, 16), "makes images of (20, 16)"),
    ],
)
def test_chain_that_a_device_cannot_apply_is_refused(text, before, said):
    with pytest.raises(BadInput) as refused:
        device_ops.parse(text, before, (16, 16), 3)
    assert said in str(refused.value)


def config(*overrides):
    more = [f"--config.{text}" for text in overrides]
    return config_lib.load(QUICKSTART, ["--config.data.train_ops=resize(12)", *more])


def test_host_makes_what_the_step_takes():
    made = program.make(config(f"data.device_ops={CHAIN}"), classes=10, examples=64)
    assert made.batch()["image"].shape == (32, 12, 12, 3)
    assert made.images.shape == (8, 8, 3)
    _, metrics = jax.eval_shape(made.step, made.abstract, made.batch(), made.step_key)
    assert metrics["loss"].shape == ()


@pytest.mark.parametrize(
    "overrides, said",
    [
        (("data.device_ops=flip_lr",), "makes images of (12, 12), and the model takes (8, 8)"),
        (
            ("data.device_ops=random_crop(8)", "data.views=image: resize(8)"),
            "data.views makes several images of one; leave it out",
        ),
        (
            ("data.train_ops=flip_lr|resize_small(12)", "data.device_ops=random_crop(8)"),
            "data.train_ops=flip_lr|resize_small(12) makes images of several sizes",
        ),
    ],
)
def test_config_that_a_device_cannot_apply_is_refused(overrides, said):
    with pytest.raises(BadInput) as refused:
        build.check(config(*overrides))
    assert said in str(refused.value)
