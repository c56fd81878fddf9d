# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Layers outside the scan: the same function, less to keep, and less to compute in the last."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from vit_jax.analysis import maps
from vit_jax.build import execution, program
from vit_jax.config import load as config_lib
from vit_jax.config import trainable
from vit_jax.models import partial, products, variants
from vit_jax.preflight.bench.our_steps import random_batch


@functools.lru_cache
def compiled(cfg):
    """(value and gradients of a weighted sum of logits, FLOPs by the compiler)."""
    model, params, images = variants.make(cfg), tiny.params(cfg), tiny.images_of(cfg)
    weights = np.random.default_rng(2).normal(size=(len(images), cfg.classes))

    def weighted(params):
        logits = model.apply({"params": params}, images, train=True, key=jax.random.key(3))
        return jnp.sum(jnp.square(logits) * weights)

    step = jax.jit(jax.value_and_grad(weighted)).lower(params).compile()
    return jax.tree.map(np.asarray, step(params)), step.cost_analysis()["flops"]


def unrolled(cfg):
    return dataclasses.replace(cfg, unrolled=True)


def assert_same(cfg):
    (value, grads), _ = compiled(cfg)
    (found, found_grads), _ = compiled(unrolled(cfg))
    assert found == pytest.approx(value, rel=1e-5)
    assert jax.tree.structure(found_grads) == jax.tree.structure(grads)
    largest = max(np.abs(leaf).max() for leaf in jax.tree.leaves(grads))
    for leaf, found_leaf in zip(*map(jax.tree.leaves, (grads, found_grads)), strict=True):
        np.testing.assert_allclose(found_leaf, leaf, rtol=2e-4, atol=1e-5 * largest)


@pytest.mark.integration
@pytest.mark.parametrize(
    "changes",
    [
        {"depth": 2, "pool": "gap", "drop_path": 0.4, "dropout": 0.1, "attention_dropout": 0.1}
        | {"patch_dropout": 0.5},
        {"depth": 2, "dropout": 0.1, "attention_dropout": 0.1, "posemb": "relative"}
        | {"registers": 1},
        {"pool": "map", "posemb_at": "every", "remat": "full", "drop_path": 0.4},
        {"depth": 2, "posemb_at": "shared", "attention": "fused", "remat": "query,mlp_up"},
    ],
    ids=str,
)
def test_value_and_gradients_are_those_of_the_scan(changes):
    assert_same(tiny.config(**changes))


def test_kernels_rounded_before_the_first_layer_change_no_bit(monkeypatch):
    """As on a TPU; a kernel to which a product is added keeps its float32."""
    scanned = tiny.config(depth=2, dtype="bfloat16")
    cfg, params = unrolled(scanned), tiny.params(scanned)
    model, images = variants.make(cfg), tiny.images_of(cfg)

    def step(params):
        def loss(params):
            return jnp.sum(jnp.sin(model.apply({"params": params}, images)))

        return jax.jit(jax.grad(loss)).lower(params)

    before = step(params)
    monkeypatch.setattr(products, "on_tpu", lambda rules: True)
    after = step(params)
    assert [s.as_text().count("reduce_precision") for s in (before, after)] == [0, 2 * 6]
    found, expected = (jax.tree.map(np.asarray, s.compile()(params)) for s in (after, before))
    jax.tree.map(np.testing.assert_array_equal, found, expected)

    what = trainable.parse("lora(rank=2, on=mlp)")
    added = partial.extended(what, params, jax.random.key(1), "this")
    assert step(added).as_text().count("reduce_precision") == 2 * 4


@pytest.mark.integration
def test_mixers_too():
    assert_same(tiny.mixer(drop_path=0.4))


@pytest.mark.integration
def test_forward_derivatives_are_those_of_the_scan():
    cfg = tiny.config()
    params, images = tiny.params(cfg), tiny.images_of(cfg)

    def derivative(cfg):
        apply = functools.partial(variants.make(cfg).apply, {"params": params})
        return jax.jvp(apply, (images,), (jnp.ones_like(images),))[1]

    expected = derivative(cfg)
    np.testing.assert_allclose(derivative(unrolled(cfg)), expected, rtol=1e-4, atol=1e-6)
    assert np.abs(expected).max() > 1e-3


@pytest.mark.integration
def test_initial_parameters_are_the_same():
    cfg = tiny.config()
    images, key = tiny.images(), jax.random.key(0)
    scanned = jax.jit(variants.make(cfg).init)(key, images)
    found = jax.jit(variants.make(unrolled(cfg)).init)(key, images)
    jax.tree.map(np.testing.assert_array_equal, scanned, found)


@pytest.mark.integration
@pytest.mark.parametrize("pool, posemb", [("token", "relative"), ("gap", "none")])
def test_only_a_class_token_saves_flops_of_the_last_block(pool, posemb):
    cfg = variants.config(
        variant="Ti/8", width=256, depth=2, mlp=768, heads=4, pool=pool, posemb=posemb, classes=50
    )
    looped = dataclasses.replace(cfg, scan=False, unrolled=True)  # which then says nothing
    image = jax.ShapeDtypeStruct((1, 32, 32, 3), np.float32)
    counted = {}
    for one in (looped, unrolled(cfg)):
        forward = jax.jit(lambda p, x, one=one: variants.make(one).apply({"params": p}, x))
        lowered = forward.lower(variants.shapes(one, 32, 32), image)
        counted[one] = lowered.compile().cost_analysis()["flops"]
        # norms, softmax, GELU and what is taken for offsets are not in ours
        assert 1.0 <= counted[one] / variants.forward_flops(one, 32, 32) < 1.05
    saved = 1 - counted[unrolled(cfg)] / counted[looped]
    assert 0.3 < saved < 0.5 if pool == "token" else abs(saved) < 0.01


@pytest.mark.integration
def test_attention_maps_are_of_all_tokens():
    cfg = tiny.config()
    params, images = tiny.params(cfg), tiny.images()
    expected, _ = maps.attention(cfg, params, images)
    found, _ = maps.attention(unrolled(cfg), params, images)
    np.testing.assert_array_equal(found, expected)


def losses(long, monkeypatch, **changes):
    """Returns those of three steps on four devices in micro-batches, and if layers are unrolled."""
    monkeypatch.setitem(execution._UNROLLED_ABOVE, "cpu", 0 if long else float("inf"))
    given = {
        "model.variant": "Ti/8", "model.width": 32, "model.heads": 4, "model.mlp": 64,
        "model.depth": 2, "data.image_size": 16, "batch_size": 16, "accumulation": 2,
        "mesh.replica": 1, "mesh.fsdp": 2, "mesh.tensor": 2, "mesh.data": 1, "ema.decay": 0.9,
    } | changes  # fmt: skip
    config = config_lib.load("configs/base.py", [f"--config.{k}={v}" for k, v in given.items()])
    made = program.make(config, classes=10, examples=1000, devices=jax.devices()[:4])
    state, batch, found = made.init(), random_batch(made), []
    batch["labels"] = batch["labels"] % 10
    for _ in range(3):
        state, metrics = made.step(state, batch, made.step_key)
        found.append([float(metrics["loss"]), float(metrics["grad_norm"])])
    return np.array(found), made.model.cfg.unrolled


@pytest.mark.integration
def test_losses_on_a_mesh_are_those_of_the_scan(monkeypatch):
    expected, unrolled = losses(False, monkeypatch)
    assert not unrolled
    found, unrolled = losses(True, monkeypatch)
    assert unrolled
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.ptp(expected[:, 0]) > 1e-4  # it learns


@pytest.mark.integration
def test_tokens_split_over_devices_keep_the_scan(monkeypatch):
    """Eight tokens, so that their axis can be split, of which the last block would compute one."""
    table = (("act_batch", ("data", "fsdp")), ("act_tokens", ("tensor",)))
    changes = {"mesh.rules": table, "model.registers": 3, "model.posemb": "none"}
    found, unrolled = losses(True, monkeypatch, **changes)
    assert not unrolled
    assert np.isfinite(found).all()


# --- which runs ---


def layers_unrolled(*, variant="S/16", steps=100, **changes):
    """Says so for a run; 100 steps of S/16 with 16 images are 4e13 FLOPs."""
    given = {"model.variant": variant, "batch_size": 16, "length": f"{steps} steps"} | changes
    config = config_lib.load(
        "configs/base.py", [f"--config.{key}={value}" for key, value in given.items()]
    )
    made = program.make(config, classes=10, examples=1000, devices=jax.devices()[:1])
    return made.model.cfg.unrolled


@pytest.mark.parametrize("variant", ["R26+S/32", "Mixer-S/16"])
def test_long_runs_on_cpus_unroll_all_layers(variant):
    assert layers_unrolled(variant=variant)
    assert not layers_unrolled(variant=variant, steps=20)


def test_layers_that_are_not_stacked_are_not_unrolled():
    assert layers_unrolled()
    assert not layers_unrolled(**{"model.scan": False})


@pytest.mark.integration
def test_remat_saves_memory_in_long_runs_too(monkeypatch):
    monkeypatch.setitem(execution._UNROLLED_ABOVE, "cpu", 0)
    kept = {}
    for remat in ("none", "full"):
        given = {
            "model.variant": "Ti/16", "model.depth": 6, "batch_size": 16, "data.image_size": 160,
            "model.remat": remat,
        }  # fmt: skip
        config = config_lib.load("configs/base.py", [f"--config.{k}={v}" for k, v in given.items()])
        made = program.make(config, classes=10, examples=1000, devices=jax.devices()[:1])
        kept[remat] = made.lower_step().compile().memory_analysis().temp_size_in_bytes
    assert kept["full"] < 0.5 * kept["none"]
