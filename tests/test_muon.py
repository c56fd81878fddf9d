# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Muon: which parameters are matrices, their updates against numpy, and the devices' shares."""

import functools
import math

import jax
import numpy as np
import optax
import pytest
import tiny
from test_optim import OPTIONS, make, run
from test_train_step import batch, rules_of

from vit_jax import sharding, tree
from vit_jax.build import program
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.optim import muon

RATE = 0.01
SETTINGS = {**OPTIONS["muon"], "momentum": 0.95}


@pytest.mark.parametrize("family", tiny.FAMILIES)
@pytest.mark.parametrize("scan", [True, False])
def test_matrices_are_the_kernels_between_hidden_layers(family, scan):
    options = {"scan": scan} if family != "bit" else {}
    shapes = dict(tree.leaves_with_paths(tiny.shapes(tiny.FAMILIES[family](**options))))
    ends = {"embedding/kernel", "head/kernel", "backbone/conv_root/kernel"}
    kernels = {path for path in shapes if path.endswith("/kernel")}
    assert {p for p, x in shapes.items() if muon.is_matrix(p, x.shape)} == kernels - ends


def test_heads_and_parameters_of_the_objective_are_no_matrices():
    for path in ("patch_head/kernel", "head_dist/kernel", "objective/hidden/kernel", "posemb"):
        assert not muon.is_matrix(path, (4, 4)), path
    for path in ("map_head/attn/query/kernel", "pre_logits/kernel"):
        assert muon.is_matrix(path, (4, 4)), path


def test_rows_and_columns_leave_out_layers_and_join_heads():
    assert muon.matrix("blocks/attn/query/kernel", (3, 32, 4, 8)) == (3, 32, 32)
    assert muon.matrix("block_1/attn/query/kernel", (24, 4, 8)) == (1, 24, 32)
    assert muon.matrix("blocks/attn/out/kernel", (3, 4, 8, 24)) == (3, 32, 24)
    assert muon.matrix("blocks/mlp/up/kernel", (3, 32, 48)) == (3, 32, 48)
    assert muon.matrix("backbone/unit/conv2/kernel", (3, 3, 8, 16)) == (1, 72, 16)


def newton_schulz(x):
    """Five iterations of Keller Jordan's Muon, in float64."""
    tall = x.shape[0] > x.shape[1]
    x = (x.T if tall else x) / np.linalg.norm(x)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


# Path of a layer's kernel -> its matrix.
MATRICES = {
    **{f"attn/{name}/kernel": (32, 32) for name in ("query", "key", "value", "out")},
    "mlp/up/kernel": (32, 48),
    "mlp/down/kernel": (48, 32),
}


@functools.lru_cache
def updates(scan: bool, rms: float):
    """Gradients of three steps, and the updates in the layout of a loop."""
    cfg = tiny.config(scan=scan)
    params = tiny.params(cfg)
    grads = [tiny.params(cfg, seed=seed) for seed in (3, 4, 5)]
    found, _ = run(make(params, "muon", rate=RATE, momentum=0.95, rms=rms), params, grads)
    return tree.unstack_blocks(params), grads, [tree.unstack_blocks(u) for _, u in found]


@pytest.mark.parametrize("rms", [0.2, 0.0])
def test_updates_of_every_layer_equal_independent_numpy(rms):
    _, grads, found = updates(True, rms)
    flat = [dict(tree.leaves_with_paths(tree.unstack_blocks(g))) for g in grads]
    for layer in range(3):
        for name, shape in MATRICES.items():
            path, m = f"block_{layer}/{name}", 0.0
            for t, (g, update) in enumerate(zip(flat, found, strict=True), start=1):
                g = g[path].astype(np.float64).reshape(shape)
                m = 0.95 * m + 0.05 * g
                x = newton_schulz(0.95 * m / (1 - 0.95 ** (t + 1)) + 0.05 * g / (1 - 0.95**t))
                scale = rms * math.sqrt(max(shape)) or math.sqrt(max(1, shape[1] / shape[0]))
                update = dict(tree.leaves_with_paths(update))[path].reshape(shape)
                np.testing.assert_allclose(update, -RATE * scale * x, atol=2e-5 * RATE)
            values = np.linalg.svd(x, compute_uv=False)
            assert 0.65 < np.median(values) < values.max() < 1.3
            if rms:
                assert np.sqrt(np.mean(update**2)) == pytest.approx(0.2 * RATE, rel=0.25)


@pytest.mark.integration
def test_the_rest_has_the_updates_of_adam():
    params, grads, found = updates(False, 0.2)
    adam, _ = run(optax.adam(RATE, b1=0.9, b2=0.99, eps=1e-8), params, grads)
    expected = [dict(tree.leaves_with_paths(u)) for _, u in adam]
    seen = 0
    for update, of_adam in zip(found, expected, strict=True):
        for path, leaf in tree.leaves_with_paths(update):
            if not muon.is_matrix(path, leaf.shape):
                seen += 1
                np.testing.assert_allclose(leaf, of_adam[path], rtol=1e-5, atol=1e-9)
    assert seen == 3 * (3 * 10 + 8)


def test_scan_and_loop_have_equal_updates():
    for ours, theirs in zip(updates(True, 0.2)[2], updates(False, 0.2)[2], strict=True):
        for (path, a), (_, b) in zip(*map(tree.leaves_with_paths, (ours, theirs)), strict=True):
            # Their root mean square is 2e-3; the iterations magnify rounding.
            np.testing.assert_allclose(a, b, rtol=0, atol=3e-8, err_msg=path)


def test_a_model_without_matrices_is_bad_input():
    params = {"embedding": {"kernel": np.ones((3, 4))}, "head": {"kernel": np.ones((4, 2))}}
    with pytest.raises(BadInput, match=r"and none is trained; .*name=adamw"):
        make(params, "muon").init(params)


def test_flops_count_the_products_of_an_iteration():
    shapes = {"blocks": {"mlp": {"up": {"kernel": jax.ShapeDtypeStruct((3, 4, 6), "float32")}}}}
    each = 2 * 4 * 4 * 6 + 2 * 4**3 + 2 * 4 * 4 * 6
    assert muon.flops(shapes, 5, rules_of((1, 1, 1, 1))) == 3 * 5 * each
    assert muon.flops(shapes, 5, rules_of((1, 2, 1, 1))) == 2 * 5 * each  # one device has two
    assert muon.flops(shapes, 5, rules_of((1, 8, 1, 1))) == 5 * each
    assert muon.flops(shapes, 5, rules_of((1, 2, 2, 2))) == 2 * 5 * each // 4


@functools.lru_cache
def on_mesh(shape: tuple[int, ...]):
    """Updates of two steps on a mesh, state, placement of parameters, compiled and least FLOPs."""
    rules, cfg = rules_of(shape), tiny.config(depth=8, width=64, mlp=256)
    params = tiny.params(cfg)
    grads = [tiny.params(cfg, seed=seed) for seed in (3, 4)]
    tx = muon.muon(optax.identity(), **SETTINGS, rules=rules)
    abstract = jax.eval_shape(lambda p: {"params": p, "state": tx.init(p)}, params)
    axes = sharding.param_axes(abstract["params"], variants.axes(cfg))
    places = sharding.place(abstract, axes, rules)
    params, *grads = (jax.device_put(x, places["params"]) for x in (params, *grads))
    state = jax.jit(tx.init, out_shardings=places["state"])(params)
    step = jax.jit(tx.update, out_shardings=(places["params"], places["state"]))
    compiled, found = step.lower(grads[0], state, params).compile(), []
    for g in grads:
        update, state = compiled(g, state, params)
        found.append(jax.tree.map(np.asarray, update))
    flops = compiled.cost_analysis()["flops"]
    return found, state, params, flops, muon.flops(params, 5, rules)


@pytest.mark.integration
@pytest.mark.parametrize("shape", [(1, 8, 1, 1), (1, 1, 8, 1), (1, 2, 2, 2)], ids=str)
def test_devices_share_the_iterations_and_find_the_updates_of_one(shape):
    expected, _, _, whole, least = on_mesh((1, 1, 1, 1))
    assert least < whole < 1.15 * least
    found, state, params, flops, least = on_mesh(shape)
    for (path, a), (_, b) in zip(*map(tree.leaves_with_paths, (found, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5, err_msg=path)
    assert least == pytest.approx(whole / 8, rel=0.15)
    assert flops < 1.6 * least
    places = {path: x.sharding for path, x in tree.leaves_with_paths(params)}
    seen = 0
    for path, leaf in tree.leaves_with_paths(state):
        owners = [p for p in places if path.endswith(f"mu/{p}")]
        seen += len(owners)
        assert [leaf.sharding] == [places[p] for p in owners] or not owners, path
    assert seen == len(places)


def losses(shape: tuple[int, ...], **settings):
    """Losses of four steps of a run's program on a mesh, on the same images."""
    overrides = {
        "model.variant": "Ti/4", "model.width": 32, "model.mlp": 64, "model.depth": 3,
        "model.heads": 4, "data.image_size": 8, "batch_size": 16, "schedule.lr": 0.02,
        **dict(zip((f"mesh.{axis}" for axis in sharding.MESH_AXES), shape, strict=True)),
        **settings,
    }  # fmt: skip
    words = [f"--config.{key}={value}" for key, value in overrides.items()]
    config, devices = config_lib.load("configs/base.py", words), jax.devices()[: math.prod(shape)]
    made, found = program.make(config, classes=7, examples=64, devices=devices), []
    params = tiny.params(variants.of(config.model, 7), 8, 8)
    state = made.begin(params)
    state = jax.device_put(state, jax.tree.map(lambda x: x.sharding, made.abstract))
    for _ in range(4):
        given = jax.device_put(batch(16, 0, 8, 8, 7), made.batch_sharding)
        state, measured = made.step(state, given, made.step_key)
        found.append(float(measured["loss"]))
    return np.array(found)


@pytest.mark.parametrize(
    "name, rate",
    [
        # At 0.02 the rounding of some processors grows to 3e-5 in four steps, here to 1e-6.
        pytest.param("muon", 0.005, marks=pytest.mark.integration),
        pytest.param("lion", 2e-3, marks=pytest.mark.slow),
        pytest.param("adamw", 5e-3, marks=pytest.mark.slow),
    ],
)
def test_losses_with_sam_and_mup_are_equal_on_meshes_in_loops_and_with_accumulation(name, rate):
    settings = {
        "optimizer.name": name, "optimizer.sam.rho": 0.05, "schedule.lr": rate,
        "model.mup_base_width": 16,
    }  # fmt: skip
    expected = losses((1, 1, 1, 1), **settings)
    assert expected[0] - expected[-1] > 0.02  # it learns
    others = [
        losses((1, 8, 1, 1), **settings),
        losses((1, 2, 2, 2), **settings | {"accumulation": 2}),
        losses((1, 1, 1, 1), **settings | {"model.scan": False, "accumulation": 4}),
    ]
    for found in others:
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    for off in ({"optimizer.sam.rho": 0.0}, {"model.mup_base_width": 32}):
        assert not np.allclose(losses((1, 1, 1, 1), **settings | off), expected, rtol=1e-3), off
