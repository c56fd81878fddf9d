# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Optimizers, schedules and masks of parameters."""

import functools
import math
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

# --- optimizers ---


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
    "lion": {"b1": 0.9, "b2": 0.98, "mu_dtype": "float32"},
    "muon": {
        "momentum": 0.9,
        "iterations": 5,
        "rms": 0.2,
        "b1": 0.9,
        "b2": 0.99,
        "eps": 1e-8,
        "mu_dtype": "float32",
    },
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


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("name", ["adamw", "sgd", "adafactor"])
def test_decay_has_a_factor_of_its_own_for_each_layer_and_head(name, scan):
    """As in "Scaling Vision Transformers": 0.03 on the body and 100 times as much on the head."""
    params = tiny.params(tiny.config(scan=scan))
    multipliers = [("head/.*", 100.0), (r"blocks/1/.*", 0.0), ("blocks/.*", 2.0)]
    momentum = {} if name == "adamw" else {"momentum": 0.0}
    tx = make(params, name, weight_decay=0.03, decay_multipliers=multipliers, **momentum)
    found, _ = run(tx, params, [jax.tree.map(np.zeros_like, params)])
    before, after = tree.unstack_blocks(params), tree.unstack_blocks(found[0][0])
    expected = {"head": 3.0, "block_0": 0.06, "block_1": 0.0, "block_2": 0.06}
    for (path, old), (_, new) in zip(*map(tree.leaves_with_paths, (before, after)), strict=True):
        decay = expected.get(path.split("/")[0], 0.03) if path.endswith("/kernel") else 0.0
        np.testing.assert_allclose(new, old * (1 - LR * decay), rtol=3e-7, atol=1e-7, err_msg=path)


@pytest.mark.parametrize("name", optimizers.DIRECTIONS)
def test_a_factor_on_all_decay_is_another_decay(name):
    params = tiny.params(tiny.config(depth=2))
    grads = [tiny.randomised(params, seed) for seed in (3, 4)]
    twice = make(params, name, weight_decay=0.1, decay_multipliers=[(".*", 2.0)])
    found, state = run(twice, params, grads)
    expected, expected_state = run(make(params, name, weight_decay=0.2), params, grads)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert len(jax.tree.leaves(state)) == len(jax.tree.leaves(expected_state))


def test_factors_on_decay_that_have_no_use_are_bad_input():
    params = tiny.params(tiny.config())
    for mask, pattern, factor, words in (
        (
            "kernels",
            "head/bias",
            2.0,
            "only parameters that do not decay with .*decay_mask=kernels",
        ),
        (
            "kernels",
            "heads/.*",
            2.0,
            "'heads/.*' matches no parameter that is trained; near are head/bias",
        ),
        ("all", "head/.*", -1.0, r"'head/\.\*' has -1.0; give 0 or more"),
    ):
        with pytest.raises(BadInput, match=rf"optimizer\.decay\.multipliers: .*{words}"):
            make(params, "adamw", decay_mask=mask, decay_multipliers=[(pattern, factor)])
    make(params, "adamw", decay_mask="all", decay_multipliers=[("head/bias", 2.0)])


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


def test_lion_equals_its_closed_form():
    params = normal({"x/kernel": (5, 3), "x/bias": (3,)})
    grads = [normal({"x/kernel": (5, 3), "x/bias": (3,)}, seed) for seed in (1, 2, 3)]
    found, state = run(make(params, "lion", weight_decay=0.1), params, grads)
    for name, decay in (("kernel", 0.1), ("bias", 0.0)):
        p, m = params["x"][name].astype(np.float64), 0.0
        for grad in grads:
            g = grad["x"][name]
            p = p - LR * (np.sign(0.9 * m + 0.1 * g) + decay * p)
            m = 0.98 * m + 0.02 * g
        np.testing.assert_allclose(found[-1][0]["x"][name], p, rtol=1e-5, atol=1e-6)
    assert sum(x.size for x in jax.tree.leaves(state) if x.ndim) == 18  # one moment


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
    settings |= {"decay_multipliers": [("blocks/1/.*", 50.0), ("head/.*", 0.0)]}

    found, _ = run(make(looped, name, **settings), looped, gradients)
    stacked = tree.stack_blocks(looped)
    of_stacked, _ = run(
        make(stacked, name, **settings), stacked, [tree.stack_blocks(g) for g in gradients]
    )
    # Sums that cancel: those of the last of 40 layers are of up to 25, whose last place is 2e-6.
    # Muon's are sums over whole matrices, of up to 100; test_muon has usual sizes and 1e-6.
    atol = 1e-5 if name == "muon" else max(1e-6, 1e-7 * depth)
    for (_, updates), (_, stacked_updates) in zip(found, of_stacked, strict=True):
        assert_close(tree.unstack_blocks(stacked_updates), updates, rtol=2e-5, atol=atol)
        assert np.abs(updates["block_1"]["wide"]["kernel"]).max() > 1e-3


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("name", optimizers.DIRECTIONS)
def test_frozen_parameters_do_not_move_though_decay_is_on(name, scan):
    params = blocks(3, 0)
    grads = [blocks(3, 1)] * 2  # with others, two steps of Lion can cancel
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


def test_optimizer_that_freezes_everything_is_bad_input():
    with pytest.raises(BadInput, match="freezes every parameter"):
        make(blocks(1, 0), "sgd", freeze=[".*"])


# --- schedules ---


RATE, WARMUP, COOLDOWN, TOTAL = 0.3, 10, 20, 110
SHAPE = {
    "cosine": lambda t: RATE * 0.5 * (1 + math.cos(math.pi * min(max((t - 10) / 100, 0), 1))),
    "linear": lambda t: 0.01 + (RATE - 0.01) * (1 - min(max((t - 10) / 100, 0), 1)),
    "rsqrt": lambda t: RATE / math.sqrt(1 + (max(t - 10, 0) + 5) / 40),
    "step": lambda t: RATE * (1 if t < 60 else 0.5 if t < 91 else 0.25),
}


def make_schedule(name, **changes):
    given = {"lr": RATE, "warmup": WARMUP, "cooldown": COOLDOWN, "total_steps": TOTAL}
    own = {"linear": {"end": 0.01}, "rsqrt": {"timescale": 40, "shift": 5}}
    own["step"] = {"drops": (60, 91), "factor": 0.5}
    own = own.get(name, {})
    return schedules.make_schedule(name=name, **given | own | changes)


CORNERS = [0, 1, WARMUP // 2, WARMUP, WARMUP + 1, 59, 60, 90, 91, 100, TOTAL - 1, TOTAL, TOTAL + 1]


@pytest.mark.parametrize("name", SHAPE)
def test_rate_at_every_corner_follows_the_closed_form(name):
    schedule = make_schedule(name)
    on_device = jax.jit(schedule)(np.array(CORNERS, np.int32))
    assert on_device.dtype == np.float32
    for t, traced in zip(CORNERS, on_device, strict=True):
        ramp = min(1, t / WARMUP) * max(0, min(1, (TOTAL - t) / COOLDOWN))
        expected = pytest.approx(SHAPE[name](t) * ramp, rel=1e-5, abs=1e-8)
        assert float(schedule(t)) == expected, t
        assert float(traced) == expected, t


@pytest.mark.parametrize("name", SHAPE)
def test_rate_is_zero_at_the_start_of_a_warmup_and_after_a_cooldown(name):
    schedule = make_schedule(name)
    assert float(schedule(0)) == 0.0
    assert float(schedule(TOTAL)) == 0.0
    assert float(schedule(TOTAL + 1)) == 0.0


@pytest.mark.parametrize(
    "name, end", [("cosine", 0.0), ("linear", 0.01), ("rsqrt", SHAPE["rsqrt"](TOTAL))]
)
def test_rate_without_cooldown_ends_at_its_end_and_never_beyond(name, end):
    schedule = make_schedule(name, cooldown=0)
    assert float(schedule(TOTAL)) == pytest.approx(end, abs=1e-8)
    after = SHAPE["rsqrt"](TOTAL + 1) if name == "rsqrt" else end
    assert float(schedule(TOTAL + 1)) == pytest.approx(after, abs=1e-8)


@pytest.mark.parametrize("name", ["cosine", "linear"])
def test_rate_without_warmup_starts_at_the_peak(name):
    assert float(make_schedule(name, warmup=0)(0)) == pytest.approx(RATE)


def test_halfway_and_peak_values():
    assert float(make_schedule("cosine", cooldown=0)(60)) == pytest.approx(RATE / 2)
    assert float(make_schedule("linear", cooldown=0)(60)) == pytest.approx((RATE + 0.01) / 2)
    assert float(make_schedule("rsqrt", cooldown=0, shift=0)(10 + 3 * 40)) == pytest.approx(
        RATE / 2
    )
    assert float(make_schedule("cosine")(WARMUP)) == pytest.approx(RATE)


def test_linear_ends_at_the_rate_of_the_paper_by_default():
    schedule = schedules.make_schedule(name="linear", lr=1.0, warmup=0, cooldown=0, total_steps=10)
    assert float(schedule(10)) == pytest.approx(1e-5)


def test_warmup_and_cooldown_that_fill_the_run_meet():
    schedule = make_schedule("linear", warmup=10, cooldown=10, total_steps=20, end=RATE)
    found = [float(schedule(t)) for t in (0, 5, 10, 15, 20)]
    np.testing.assert_allclose(found, [0, RATE / 2, RATE, RATE / 2, 0], rtol=1e-6, atol=1e-9)


def test_warmup_of_the_whole_run_is_finite():
    schedule = make_schedule("cosine", warmup=10, cooldown=0, total_steps=10)
    assert float(schedule(9)) == pytest.approx(0.9 * RATE)
    assert math.isfinite(float(schedule(10)))


@pytest.mark.parametrize("warmup, cooldown", [(91, 20), (111, 0), (0, 111)])
def test_warmup_and_cooldown_longer_than_the_run_raise(warmup, cooldown):
    with pytest.raises(BadInput, match=rf"{warmup} .* {cooldown} .* {TOTAL} steps"):
        make_schedule("cosine", warmup=warmup, cooldown=cooldown)


def test_schedule_traces_with_an_integer_count():
    schedule = make_schedule("cosine")
    rate = jax.jit(schedule)(np.int32(60))
    assert rate.dtype == np.float32
    assert float(rate) == pytest.approx(RATE / 2)


def test_step_without_drops_stays_and_falls_to_a_tenth_by_default():
    assert float(make_schedule("step", drops=(), cooldown=0)(TOTAL)) == pytest.approx(RATE)
    last = schedules.make_schedule(
        name="step", lr=1.0, warmup=0, cooldown=0, total_steps=40, drops=(10, 23, 30, 37)
    )
    found = [float(last(t)) for t in (9, 10, 22, 23, 30, 37, 40)]
    assert found == pytest.approx([1, 0.1, 0.1, 0.01, 0.001, 0.0001, 0.0001])


# --- masks ---


BOTH = pytest.mark.parametrize("scan", [True, False])


def shapes(scan: bool, **changes):
    return tiny.shapes(tiny.config(scan=scan, **changes))


def by_layer(params, factors) -> dict[str, float]:
    """canonical path -> factor, whatever the layout."""
    found = {}
    for (path, leaf), (_, factor) in zip(
        tree.leaves_with_paths(params), tree.leaves_with_paths(factors), strict=True
    ):
        names = tree.layer_paths(path, leaf.shape)
        whole = np.broadcast_to(factor, leaf.shape)  # as the optimizer multiplies
        for layer, name in enumerate(names):
            part = whole[layer] if tree.is_stacked(path) else whole
            assert np.all(part == part.ravel()[0]), name
            found[name] = float(part.ravel()[0])
    return found


@BOTH
@pytest.mark.parametrize("pool", ["token", "map"])
def test_decay_mask_covers_every_parameter_and_is_true_for_kernels_only(scan, pool):
    params = shapes(scan, pool=pool, representation=9)
    mask = optimizers.decay_factors(params, "kernels", [])
    assert jax.tree.structure(mask) == jax.tree.structure(params)
    decayed = {path for path, decays in tree.leaves_with_paths(mask) if decays}
    assert decayed == {p for p, _ in tree.leaves_with_paths(params) if p.split("/")[-1] == "kernel"}
    assert {"embedding/kernel", "head/kernel", "pre_logits/kernel"} < decayed
    assert not any("norm" in path or path in ("cls", "posemb") for path in decayed)


@BOTH
def test_decay_mask_all_is_true_everywhere(scan):
    assert all(jax.tree.leaves(optimizers.decay_factors(shapes(scan), "all", [])))


@BOTH
def test_canonical_paths_name_every_parameter_of_every_layer(scan):
    paths = optimizers.canonical_paths(shapes(scan))
    assert sorted(paths) == sorted(optimizers.canonical_paths(shapes(not scan)))
    assert len(paths) == len(set(paths)) == 3 * 16 + 8


@BOTH
def test_freezing_one_layer_leaves_the_others(scan):
    params = shapes(scan)
    found = by_layer(params, optimizers.trainable(params, ["blocks/[0]/.*"]))
    for path, factor in found.items():
        assert factor == (0.0 if path.startswith("blocks/0/") else 1.0), path


@BOTH
def test_a_pattern_matches_whole_paths_only(scan):
    params = shapes(scan)
    found = by_layer(params, optimizers.trainable(params, ["blocks/1/mlp/up/bias", "head/.*"]))
    assert {path for path, factor in found.items() if factor == 0} == {
        "blocks/1/mlp/up/bias",
        "head/kernel",
        "head/bias",
    }
    with pytest.raises(BadInput, match=r"'mlp/up/bias' matches no parameter"):
        optimizers.trainable(params, ["mlp/up/bias"])


@BOTH
def test_layer_decay_of_stem_blocks_and_head(scan):
    params = shapes(scan, pool="token", representation=9)
    found = by_layer(params, optimizers.rate_factors(params, [], 0.5))
    for path, factor in found.items():
        top = path.split("/")[0]
        layer = {"embedding": 0, "cls": 0, "posemb": 0}.get(top, 4)
        if top == "blocks":
            layer = 1 + int(path.split("/")[1])
        assert factor == 0.5 ** (4 - layer), path
    assert found["cls"] == found["posemb"] == found["embedding/kernel"] == 0.5**4
    assert found["blocks/0/attn/query/kernel"] == 0.5**3
    assert found["blocks/2/mlp_norm/scale"] == 0.5
    assert found["norm/scale"] == found["pre_logits/bias"] == found["head/kernel"] == 1.0


def test_layer_decay_leaves_a_pooling_head_alone():
    params = shapes(True, pool="map")
    found = by_layer(params, optimizers.rate_factors(params, [], 0.5))
    assert found["map_head/probe"] == found["map_head/attn/query/kernel"] == 1.0


@BOTH
def test_first_matching_rate_wins_and_multiplies_layer_decay(scan):
    params = shapes(scan)
    mults = [("head/kernel", 3.0), ("head/.*", 5.0), (r"blocks/[12]/.*", 7.0), (".*/bias", 11.0)]
    found = by_layer(params, optimizers.rate_factors(params, mults, 0.5))
    assert found["head/kernel"] == 3.0
    assert found["head/bias"] == 5.0
    assert found["blocks/2/attn/out/bias"] == 7.0 * 0.5
    assert found["blocks/0/attn/out/bias"] == 11.0 * 0.125
    assert found["blocks/0/attn/out/kernel"] == 0.125
    assert found["norm/scale"] == 1.0


@BOTH
def test_a_rate_of_zero_is_allowed(scan):
    params = shapes(scan)
    found = by_layer(params, optimizers.rate_factors(params, [("cls", 0.0)], 1.0))
    assert [path for path, factor in found.items() if factor == 0] == ["cls"]


@BOTH
@pytest.mark.parametrize(
    "pattern, words",
    [
        ("heads/.*", ["'heads/.*' matches no parameter", "paths look like", "blocks/"]),
        ("blocks/3/.*", ["'blocks/3/.*' matches no parameter"]),  # the last one is 2
        ("block_0/.*", ["'block_0/.*' matches no parameter"]),
        ("head/(", ["'head/(' is not a regular expression"]),
    ],
)
def test_bad_patterns_say_what_paths_look_like(scan, pattern, words):
    params = shapes(scan)
    with pytest.raises(BadInput) as of_freeze:
        optimizers.trainable(params, ["cls", pattern])
    with pytest.raises(BadInput) as of_rates:
        optimizers.rate_factors(params, [("cls", 1.0), (pattern, 2.0)], 1.0)
    for word in words:
        assert word in str(of_freeze.value)
        assert word in str(of_rates.value)
    assert str(of_freeze.value).startswith("optimizer.freeze")
    assert str(of_rates.value).startswith("optimizer.lr_mults")


@BOTH
def test_freezing_everything_is_bad_input(scan):
    with pytest.raises(BadInput, match="freezes every parameter"):
        optimizers.trainable(shapes(scan), ["blocks/.*", "[^b].*"])
