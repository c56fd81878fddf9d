# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The chain from gradients to updates: closed forms, and stacked blocks equal to loop blocks."""

import functools
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
import tiny

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.optim import optimizers, schedules
from vit_jax.runtime import compile_ahead

LR = 0.5
OPTIONS = {
    "adamw": {"b1": 0.9, "b2": 0.99, "eps": 1e-8, "mu_dtype": "float32"},
    "sgd": {"momentum": 0.9, "nesterov": False, "accumulator_dtype": "float32"},
    "adafactor": {
        "momentum": 0.9,
        "beta2_cap": 0.999,
        "min_factored": 32,
        "accumulator_dtype": "float32",
    },
    "lamb": {"b1": 0.9, "b2": 0.99, "eps": 1e-6},
}


def make(params, name, *, rate=LR, **changes):
    return optimizers.make_optimizer(params, lambda _: rate, name=name, **OPTIONS[name] | changes)


def run(tx, params, gradients):
    """Parameters and updates after each of a sequence of gradients (or functions of params)."""

    @jax.jit
    def step(params, state, grads):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, updates

    state, found = jax.jit(tx.init)(params), []
    for grads in gradients:
        grads = grads(params) if callable(grads) else grads
        params, state, updates = step(params, state, grads)
        found.append(jax.tree.map(np.asarray, (params, updates)))
    return found, state


def normal(shapes: dict[str, tuple[int, ...]], seed=0):
    """Nested dict of float32 values from path -> shape."""
    rng = np.random.default_rng(seed)
    made: dict = {}
    for path, shape in shapes.items():
        *parents, last = path.split("/")
        node = functools.reduce(lambda n, p: n.setdefault(p, {}), parents, made)
        node[last] = rng.normal(size=shape).astype(np.float32)
    return made


def assert_close(found, expected, rtol=1e-5, atol=1e-7):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for (path, a), (_, b) in zip(
        tree.leaves_with_paths(found), tree.leaves_with_paths(expected), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=path)


# --- the chain ---


@pytest.mark.parametrize("mask", ["kernels", "all"])
def test_zero_gradients_leave_only_decay(mask):
    params = tiny.params(tiny.config())
    tx = make(params, "adamw", rate=0.25, weight_decay=0.125, decay_mask=mask)
    found, _ = run(tx, params, [jax.tree.map(np.zeros_like, params)])
    for (path, before), (_, after) in zip(
        tree.leaves_with_paths(params), tree.leaves_with_paths(found[0][0]), strict=True
    ):
        decays = mask == "all" or path.endswith("/kernel")
        factor = np.float32(1 - 0.25 * 0.125) if decays else np.float32(1)
        np.testing.assert_allclose(after, before * factor, rtol=2e-7, atol=0, err_msg=path)
        assert decays or np.array_equal(after, before)


def test_chain_of_sgd_is_clip_decay_momentum_factor_rate():
    params = normal({"a/kernel": (3, 4), "a/bias": (4,), "head/kernel": (4, 2)})
    tx = make(params, "sgd", clip=1.5, weight_decay=0.3, lr_mults=[("head/.*", 4.0)], momentum=0.75)
    curvature = {"a/kernel": 2.0, "a/bias": 5.0, "head/kernel": 0.5}

    def gradients(params):
        return tree.map_with_path(lambda path, p: np.asarray(p) * curvature[path], params)

    found, _ = run(tx, params, [gradients] * 3)
    p = {path: leaf.astype(np.float64) for path, leaf in tree.leaves_with_paths(params)}
    m = {path: 0.0 for path in p}
    for after, _ in found:
        g = {path: curvature[path] * p[path] for path in p}
        norm = np.sqrt(sum(np.sum(x**2) for x in g.values()))
        assert norm > 1.5  # so that clipping acts
        for path in p:
            clipped = g[path] * 1.5 / norm
            decay = 0.3 * p[path] if path.endswith("kernel") else 0.0
            m[path] = 0.75 * m[path] + clipped + decay
            p[path] = p[path] - LR * (4.0 if path.startswith("head") else 1.0) * m[path]
        for path, leaf in tree.leaves_with_paths(after):
            np.testing.assert_allclose(leaf, p[path], rtol=1e-5, atol=1e-6, err_msg=path)


def test_gradients_within_the_norm_are_not_clipped():
    params = normal({"a/kernel": (2, 2)})
    grads = jax.tree.map(lambda x: np.full_like(x, 0.5), params)  # norm 1
    found, _ = run(make(params, "sgd", clip=1.01), params, [grads])
    assert_close(found[0][1], jax.tree.map(lambda g: -LR * g, grads))


def test_neither_gradients_nor_a_rate_of_zero_divide_by_it():
    params = normal({"a": (2, 3)})
    zeros = jax.tree.map(np.zeros_like, params)
    for rate, grads in ((LR, zeros), (0.0, params)):
        ((found, updates),), _ = run(make(params, "adamw", rate=rate, clip=1.0), params, [grads])
        np.testing.assert_array_equal(updates["a"], 0.0)
        np.testing.assert_array_equal(found["a"], params["a"])


@pytest.mark.parametrize("name", ["cosine", "linear", "rsqrt", "step"])
def test_an_update_on_a_cpu_writes_moments_updates_and_parameters_and_no_more(name):
    params = normal({"a": (256, 384), "b": (384,)})
    schedule = schedules.make_schedule(name=name, lr=0.1, warmup=2, cooldown=0, total_steps=9)
    settings = OPTIONS["adamw"] | {"clip": 1.0, "weight_decay": 0.1}
    tx = optimizers.make_optimizer(params, schedule, name="adamw", **settings)

    @functools.partial(
        jax.jit, donate_argnums=(0, 1), compiler_options=compile_ahead.options("cpu")
    )
    def step(params, state, grads):
        updates, state = tx.update(grads, state, params)
        norms = optax.tree.norm(grads), optax.tree.norm(updates)
        return optax.apply_updates(params, updates), state, norms

    compiled = step.lower(params, tx.init(params), params).compile().as_text()
    entry = compiled[compiled.index("ENTRY") :]
    written = re.findall(r"%(\S+) = f32\[256,384\]\S* (?!parameter)", entry)
    assert len(written) == 4, written


def test_rate_follows_the_count_of_updates_done():
    params = normal({"a/kernel": (2, 2)})
    tx = optimizers.make_optimizer(params, lambda t: 0.1 * t, name="sgd", **OPTIONS["sgd"])
    grads = jax.tree.map(np.ones_like, params)
    found, _ = run(tx, params, [grads, grads])
    assert not np.any(found[0][1]["a"]["kernel"])  # the first rate is that at 0
    np.testing.assert_allclose(found[1][1]["a"]["kernel"], -0.1 * 1.9, rtol=1e-6)


@pytest.mark.parametrize("key", ["clip", "weight_decay", "layer_decay"])
def test_negative_numbers_are_bad_input(key):
    params = normal({"a/kernel": (2, 2)})
    with pytest.raises(BadInput, match=rf"optimizer\.{key}=-0\.5 is negative"):
        make(params, "adamw", **{key: -0.5})


def test_unknown_mask_is_bad_input():
    with pytest.raises(BadInput, match="'kernel'; known: kernels, all"):
        make(normal({"a/kernel": (2, 2)}), "adamw", decay_mask="kernel")


# --- each direction ---


def test_adamw_equals_that_of_optax():
    params = tiny.params(tiny.config(depth=2))
    grads = [tiny.randomised(tiny.shapes(tiny.config(depth=2)), seed) for seed in (3, 4, 5)]
    mask = tree.map_with_path(lambda path, _: path.endswith("/kernel"), params)
    theirs = optax.adamw(LR, b1=0.9, b2=0.99, eps=1e-8, weight_decay=0.1, mask=mask)
    ours = make(params, "adamw", weight_decay=0.1)
    assert_close(run(ours, params, grads)[0], run(theirs, params, grads)[0])


def test_adamw_keeps_its_first_moment_in_the_dtype_given():
    params = normal({"a/kernel": (3, 2)})
    _, state = run(make(params, "adamw", mu_dtype="bfloat16"), params, [params])
    dtypes = {path: leaf.dtype for path, leaf in tree.leaves_with_paths(state)}
    assert {d for p, d in dtypes.items() if "/mu/" in p} == {jnp.dtype("bfloat16")}
    assert {d for p, d in dtypes.items() if "/nu/" in p} == {jnp.dtype("float32")}


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_keeps_momentum_in_bfloat16(nesterov):
    params = normal({"a/kernel": (30, 20)})
    tx = make(params, "sgd", nesterov=nesterov, accumulator_dtype="bfloat16")
    state = tx.init(params)
    decay = np.float32(ml_dtypes.bfloat16(0.9))  # the product takes place in bfloat16
    for seed in (1, 2, 3):
        grads = normal({"a/kernel": (30, 20)}, seed)
        before = momentum_of(state)
        updates, state = jax.jit(tx.update)(grads, state, params)
        expected = grads["a"]["kernel"] + decay * before.astype(np.float32)
        rounding = 2.0**-9 * np.abs(before.astype(np.float32)) + 1e-6
        kept = momentum_of(state)
        assert kept.dtype == ml_dtypes.bfloat16
        assert np.all(
            np.abs(kept.astype(np.float32) - expected) <= 2.0**-8 * np.abs(expected) + rounding
        )
        if nesterov:
            expected, rounding = grads["a"]["kernel"] + 0.9 * expected, rounding * 0.9
        assert np.all(np.abs(updates["a"]["kernel"] / -LR - expected) <= rounding)


def momentum_of(state):
    (trace,) = [leaf for path, leaf in tree.leaves_with_paths(state) if "kernel" in path]
    return np.asarray(trace)


def numpy_adafactor(values, gradients, *, weight_decay):
    """Zhai et al., section 3.4, for one tensor; one matrix of the two largest axes at a time."""
    p = values.astype(np.float64)
    sides = np.argsort(p.shape)[-2:]
    factored = p.ndim > 1 and p.shape[sides[0]] >= 32
    rows, columns, whole, momentum = 0.0, 0.0, 0.0, 0.0
    for t, g in enumerate(gradients, start=1):
        beta = min(0.999, 1 - t**-0.8)
        g = g.astype(np.float64)
        square = g**2 + 1e-30
        if factored:
            matrices = np.moveaxis(square, sides, (-2, -1))
            rows = beta * rows + (1 - beta) * matrices.mean(axis=-1)
            columns = beta * columns + (1 - beta) * matrices.mean(axis=-2)
            estimate = rows[..., :, None] * columns[..., None, :]
            estimate = estimate / rows.mean(axis=-1)[..., None, None]
            whole = np.moveaxis(estimate, (-2, -1), sides)
        else:
            whole = beta * whole + (1 - beta) * square
        momentum = 0.9 * momentum + 0.1 * g / np.sqrt(whole)
        p = p - LR * (momentum + weight_decay * p)
    return p


@pytest.mark.parametrize(
    "shape", [(48, 32), (32, 48), (31, 48), (40,), (33, 2, 40), (2, 50, 34), (3, 3, 40)]
)
def test_adafactor_equals_independent_numpy(shape):
    params = normal({"x/kernel": shape})
    grads = [normal({"x/kernel": shape}, seed) for seed in range(1, 5)]
    found, state = run(make(params, "adafactor", weight_decay=0.1), params, grads)
    expected = numpy_adafactor(
        params["x"]["kernel"], [g["x"]["kernel"] for g in grads], weight_decay=0.1
    )
    np.testing.assert_allclose(found[-1][0]["x"]["kernel"], expected, rtol=1e-5, atol=1e-5)
    moments = sum(leaf.size for path, leaf in tree.leaves_with_paths(state) if "/v" in path)
    if sum(side >= 32 for side in shape) >= 2:
        assert moments < np.prod(shape) / 2  # that is what it is for


def test_adafactor_caps_its_decay():
    params = normal({"x/bias": (4,)})
    grads = [normal({"x/bias": (4,)}, seed) for seed in range(1, 4)]
    _, state = run(make(params, "adafactor", beta2_cap=0.25), params, grads)
    (v,) = [leaf for path, leaf in tree.leaves_with_paths(state) if path.endswith("/v/x/bias")]
    squares = [g["x"]["bias"] ** 2 for g in grads]
    expected = 0.25 * (0.25 * squares[0] + 0.75 * squares[1]) + 0.75 * squares[2]
    np.testing.assert_allclose(v, expected, rtol=1e-5)


def test_adafactor_keeps_momentum_in_bfloat16():
    params = normal({"x/kernel": (4, 4)})
    tx = make(params, "adafactor", accumulator_dtype="bfloat16")
    _, state = run(tx, params, [params])
    momenta = [leaf for path, leaf in tree.leaves_with_paths(state) if "/ema/" in path]
    assert [leaf.dtype for leaf in momenta] == [jnp.bfloat16]


def test_lamb_equals_its_closed_form():
    params = normal({"x/kernel": (5, 3), "x/bias": (3,)})
    grads = [normal({"x/kernel": (5, 3), "x/bias": (3,)}, seed) for seed in (1, 2, 3)]
    found, _ = run(make(params, "lamb", weight_decay=0.1), params, grads)
    for name in ("kernel", "bias"):
        p, m, v = params["x"][name].astype(np.float64), 0.0, 0.0
        for t, grad in enumerate(grads, start=1):
            g = grad["x"][name].astype(np.float64)
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
            r = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6)
            r = r + (0.1 * p if name == "kernel" else 0.0)
            p = p - LR * np.linalg.norm(p) / np.linalg.norm(r) * r
        np.testing.assert_allclose(found[-1][0]["x"][name], p, rtol=1e-4, atol=1e-5)


# --- layouts ---


def blocks(depth: int, seed: int, bias: bool = True):
    """Loop layout; per layer nothing but `wide` factors, stacked 40 deep everything would."""
    per_layer = {"thin/kernel": (2, 48), "wide/kernel": (36, 40)}
    per_layer |= {"thin/bias": (40,)} if bias else {}
    shapes = {f"block_{i}/{k}": v for i in range(depth) for k, v in per_layer.items()}
    return normal({"embedding/kernel": (3, 8), **shapes, "head/kernel": (40, 33)}, seed)


@pytest.mark.parametrize("depth", [2, pytest.param(40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", optimizers.DIRECTIONS)
def test_updates_of_stacked_blocks_equal_those_of_loop_blocks(name, depth):
    looped = blocks(depth, 0, bias=depth < 40)
    # Layers of different size, so that a norm over all of them is not that of one.
    for i in range(depth):
        looped[f"block_{i}"] = jax.tree.map(lambda x, i=i: x * (1 + i), looped[f"block_{i}"])
    gradients = [blocks(depth, seed, bias=depth < 40) for seed in (1, 2)]
    settings = {"weight_decay": 0.1, "layer_decay": 0.9, "freeze": ["blocks/[0]/thin/.*"]}
    settings |= {"lr_mults": [("blocks/1/.*", 3.0)], "clip": 2.0}

    found, _ = run(make(looped, name, **settings), looped, gradients)
    stacked = tree.stack_blocks(looped)
    of_stacked, _ = run(
        make(stacked, name, **settings), stacked, [tree.stack_blocks(g) for g in gradients]
    )
    # Sums that cancel: those of the last of 40 layers are of up to 25, whose last place is 2e-6.
    for (_, updates), (_, stacked_updates) in zip(found, of_stacked, strict=True):
        assert_close(
            tree.unstack_blocks(stacked_updates), updates, rtol=2e-5, atol=max(1e-6, 1e-7 * depth)
        )
        assert np.abs(updates["block_1"]["wide"]["kernel"]).max() > 1e-3


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("name", optimizers.DIRECTIONS)
def test_frozen_parameters_do_not_move_though_decay_is_on(name, scan):
    params = blocks(3, 0)
    grads = [blocks(3, seed) for seed in (1, 2)]
    if scan:
        params, grads = tree.stack_blocks(params), [tree.stack_blocks(g) for g in grads]
    freeze = ["blocks/[0]/.*", "embedding/.*"]
    found, _ = run(make(params, name, weight_decay=0.2, freeze=freeze), params, grads)
    before, after = tree.unstack_blocks(params), tree.unstack_blocks(found[-1][0])
    for path, old in tree.leaves_with_paths(before):
        new = dict(tree.leaves_with_paths(after))[path]
        if path.startswith(("block_0/", "embedding/")):
            np.testing.assert_array_equal(new, old, err_msg=path)
        else:
            assert np.all(new != old), path


@pytest.mark.parametrize("scan", [True, False])
def test_frozen_gradients_do_not_count_in_the_clip_norm(scan):
    params = blocks(2, 0)
    grads = jax.tree.map(np.zeros_like, params)
    grads["block_0"]["thin"]["bias"][:] = 1000.0
    grads["block_1"]["thin"]["bias"][:2] = (3.0, 4.0)
    if scan:
        params, grads = tree.stack_blocks(params), tree.stack_blocks(grads)
    found, _ = run(make(params, "sgd", clip=2.5, freeze=["blocks/0/.*"]), params, [grads])
    updates = tree.unstack_blocks(found[0][1])
    np.testing.assert_allclose(
        updates["block_1"]["thin"]["bias"][:3], [-LR * 1.5, -LR * 2.0, 0], rtol=1e-6
    )
    assert not np.any(updates["block_0"]["thin"]["bias"])


@pytest.mark.parametrize("setting", [{"freeze": ["no/.*"]}, {"lr_mults": [("no/.*", 2.0)]}])
def test_patterns_that_match_nothing_are_bad_input(setting):
    with pytest.raises(BadInput, match=r"'no/\.\*' matches no parameter"):
        make(blocks(1, 0), "sgd", **setting)


def test_freezing_everything_is_bad_input():
    with pytest.raises(BadInput, match="freezes every parameter"):
        make(blocks(1, 0), "sgd", freeze=[".*"])
