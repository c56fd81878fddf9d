# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Attention of models: weights against the numpy ViT, on any mesh, and what they cost."""

import dataclasses

import jax
import numpy as np
import pytest
import test_distance
import test_rollout
import tiny
from test_train_step import rules_of
from test_vit import reference

from vit_jax.analysis import maps
from vit_jax.errors import RunFailed
from vit_jax.models import variants, vit

MODELS = {
    "token": tiny.config(),
    "loop": tiny.config(scan=False),
    "registers": tiny.config(registers=3),
    "gap": tiny.config(pool="gap", registers=2, posemb="relative"),
    "map": tiny.config(pool="map", registers=2),
    "hybrid": tiny.hybrid(scan=False),
    "fused": tiny.config(attention="fused", remat="dots"),
}


def of_numpy(cfg, params, images):
    """Attention weights [S, B, N, L, L], and those of a map head or None."""
    seen = []
    reference(cfg, params, images, seen=seen)
    return np.stack(seen[: cfg.depth]), (seen[cfg.depth] if cfg.pool == "map" else None)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"hybrid"}))
def test_weights_are_those_of_the_numpy_vit(name):
    cfg = MODELS[name]
    params, images = tiny.params(cfg), tiny.images_of(cfg, 3)
    with jax.default_matmul_precision("highest"):
        found, pooling = jax.jit(lambda p, x: maps.attention(cfg, p, x))(params, images)
    expected, expected_pooling = of_numpy(cfg, params, images)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.sum(found, axis=-1), 1, rtol=1e-5)
    assert np.std(expected) > 0.02
    assert (pooling is None) == (name != "map")
    if pooling is not None:
        np.testing.assert_allclose(pooling, expected_pooling, rtol=1e-4, atol=1e-5)


def written_out(cfg, params, images):
    """Distance [S, N] and rollout [B, h, w] by loops and whole matrices, from numpy's weights."""
    weights, pooling = of_numpy(cfg, params, images)
    grid = variants.grid(cfg, *images.shape[1:3])
    patches = grid[0] * grid[1]
    far = [
        [[test_distance.by_loops(image, grid, cfg.stride) for image in head] for head in layer]
        for layer in weights.swapaxes(1, 2)
    ]
    shares = []
    for image in range(len(images)):
        rows = test_rollout.written_out(weights[:, image])
        if cfg.pool == "token":
            read = rows[0]
        elif cfg.pool == "gap":
            read = rows[-patches:].mean(axis=0)
        else:
            read = pooling[image].mean(axis=0)[0] @ rows[-patches:]
        shares.append(read[-patches:].reshape(grid))
    return np.mean(far, axis=-1), np.stack(shares)


@pytest.mark.parametrize("name", ["gap", "map", "hybrid"])
def test_numbers_are_those_of_loops_over_the_weights_of_numpy(name):
    cfg = MODELS[name]
    params, images = tiny.params(cfg), tiny.images_of(cfg, 3)
    with jax.default_matmul_precision("highest"):
        found = maps.look(cfg, params, images)
    distance, shares = written_out(cfg, params, images)
    np.testing.assert_allclose(found.distance_SN, distance, rtol=1e-4)
    np.testing.assert_allclose(found.rollout_Bhw, shares, rtol=1e-3, atol=1e-6)
    assert found.rollout_Bhw.shape == (3, 2, 3)
    assert np.ptp(found.distance_SN) > 0.1


def test_a_uniform_map_head_is_the_mean_over_patches():
    cfg = MODELS["map"]
    params = tiny.params(cfg)
    head = params["map_head"]["attn"]["query"]
    head["kernel"], head["bias"] = (np.zeros_like(head[name]) for name in ("kernel", "bias"))
    gap = tiny.config(pool="gap", registers=2)
    images = tiny.images_of(cfg, 2)
    found, expected = maps.look(cfg, params, images), maps.look(gap, params, images)
    np.testing.assert_allclose(found.rollout_Bhw, expected.rollout_Bhw, rtol=1e-3)


@pytest.mark.parametrize("shape, most", [(None, 3), ((1, 2, 2, 2), 2)])
def test_any_batch_size_on_any_mesh_gives_the_same(monkeypatch, shape, most):
    monkeypatch.setattr(maps, "MOST", most)
    cfg = MODELS["token"]
    params, images = tiny.params(cfg), tiny.images_of(cfg, 11)
    done = []
    rules = rules_of(shape) if shape else None
    found = maps.look(cfg, params, images, rules, done.append)
    expected = maps.look(cfg, params, images)
    np.testing.assert_allclose(found.distance_SN, expected.distance_SN, rtol=1e-4)
    np.testing.assert_allclose(found.rollout_Bhw, expected.rollout_Bhw, rtol=1e-3, atol=1e-6)
    assert len(found.rollout_Bhw) == done[-1] == 11
    assert len(done) == {None: 4, (1, 2, 2, 2): 3}[shape]
    alone = maps.look(cfg, params, images[4:5])
    np.testing.assert_allclose(found.rollout_Bhw[4], alone.rollout_Bhw[0], rtol=1e-3, atol=1e-6)


def test_weights_in_memory_are_bounded():
    """H/14 at 378 pixels: one image has more than a GiB of them; B/16 at 224 has 21 MiB."""
    huge, base = (variants.config(variant=name, classes=0) for name in ("H/14", "B/16"))
    assert maps.batch_size(huge, 27 * 27, 128, 8) == 8
    assert maps.batch_size(base, 14 * 14, 128, 1) == 12
    assert maps.batch_size(base, 14 * 14, 5, 4) == 8  # no more than there are
    few = dataclasses.replace(base, depth=1)
    assert maps.batch_size(few, 4, 1000, 1) == maps.MOST


def test_attention_that_is_not_finite_is_said():
    cfg = MODELS["token"]
    params = tiny.params(cfg)
    params["embedding"]["bias"] = np.full(32, np.nan, np.float32)
    with pytest.raises(RunFailed, match="not finite"):
        maps.look(cfg, params, tiny.images_of(cfg, 1))


def program(cfg, params, images, mutable=False):
    model = variants.make(cfg)
    apply = lambda p, x: model.apply({"params": p}, x, mutable=mutable)  # noqa: E731
    return jax.jit(apply).lower(params, images).as_text()


@pytest.mark.parametrize("scan", [True, False])
def test_weights_cost_nothing_unless_asked_for(monkeypatch, scan):
    cfg = tiny.config(scan=scan)
    given = tiny.params(cfg), tiny.images_of(cfg, 2)
    usual, asked = program(cfg, *given), program(cfg, *given, mutable=["intermediates"])
    monkeypatch.setattr(vit.Attention, "sow", lambda *_: False)
    assert program(cfg, *given) == usual
    assert asked != usual
