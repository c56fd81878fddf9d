# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Every family of models on every kind of mesh: the same losses, the same state, split as asked."""

import functools
import re

import jax
import numpy as np
import optax
import pytest
import tiny
from test_train_step import KEY, batch, make_step, rules_of

from vit_jax import sharding, tree
from vit_jax.models import variants
from vit_jax.step import state

# replica, data, fsdp, tensor
MESHES = [(1, 8, 1, 1), (1, 1, 8, 1), (1, 2, 2, 2), (1, 1, 2, 4), (2, 2, 2, 1)]
SIDE = 24


def model_of(family: str) -> variants.Config:
    """Sizes that eight devices divide: heads by 4, widths by 8."""
    rates = {"vit": {"dropout": 0.1, "drop_path": 0.1}, "mixer": {"drop_path": 0.1}}
    more = {"hybrid": {"stages": (1, 1), "depth": 1}, "bit": {"stages": (1, 1)}}
    depth = {"vit": {"depth": 2}, "mixer": {"depth": 2}}
    changes = rates.get(family, {}) | more.get(family, {}) | depth.get(family, {})
    return tiny.FAMILIES[family](**changes)


@functools.lru_cache
def three_steps(family: str, shape: tuple[int, ...]):
    """Losses and gradient norms of three steps, paths of split leaves, and the text of the step."""
    cfg = model_of(family)
    lowered, compiled, current, over = step_on(cfg, shape)
    found = []
    for seed in range(3):
        given = batch(16, seed, SIDE, SIDE, cfg.classes, mask=np.arange(16) != 11)
        before = current
        current, measured = compiled(current, jax.device_put(given, over), KEY)
        assert all(x.is_deleted() for x in jax.tree.leaves(before))  # its memory is used again
        found.append([float(measured["loss"]), float(measured["grad_norm"])])
    split = {p for p, x in tree.leaves_with_paths(current) if not x.sharding.is_fully_replicated}
    held = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(current))
    assert compiled.memory_analysis().alias_size_in_bytes == held  # the whole state, in place
    return np.array(found), split, lowered.as_text()


def step_on(cfg: variants.Config, shape: tuple[int, ...], **options):
    """(lowered step, compiled step, state, placement of a batch) of a model on a mesh."""
    rules = rules_of(shape)
    model = variants.make(cfg, rules)
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.3, momentum=0.9))
    step = make_step(
        tx,
        lambda p, x, *, train, key: model.apply({"params": p}, x, train=train, key=key),
        classes=cfg.classes,
        **options,
    )
    params = tiny.params(cfg, SIDE, SIDE)
    abstract = jax.eval_shape(lambda p: state.from_params(p, tx, ema=True), params)
    axes = sharding.param_axes(abstract.params, variants.axes(cfg))
    places = sharding.place(abstract, axes, rules)
    begin = jax.jit(lambda p: state.from_params(p, tx, ema=True), out_shardings=places)
    jitted = jax.jit(step, out_shardings=(places, rules.replicated), donate_argnums=0)
    over = rules.sharding(("act_batch",), (16,))
    given = jax.device_put(batch(16, 0, SIDE, SIDE, cfg.classes), over)
    lowered = jitted.lower(begin(params), given, KEY)
    return lowered, lowered.compile(), begin(params), over


# By default one mesh that has all axes, and for ViT one with slices. A hybrid is both in one.
QUICK = [("vit", (2, 2, 2, 1)), *((family, (1, 2, 2, 2)) for family in ("vit", "mixer"))]


@pytest.mark.integration
@pytest.mark.parametrize(
    "family, shape",
    [
        pytest.param(
            family, shape, id=f"{family}-{shape}",
            marks=[pytest.mark.slow] * ((family, shape) not in QUICK),
        )
        for family in tiny.FAMILIES
        for shape in MESHES
    ],
)  # fmt: skip
def test_losses_of_three_steps_are_those_of_one_device(family, shape):
    expected, none_split, _ = three_steps(family, (1, 1, 1, 1))
    found, split, text = three_steps(family, shape)
    assert not none_split
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.ptp(expected[:, 0]) > 0.02  # it learns, so equal is not trivial
    assert text.count("sharding_constraint") >= 2
    params = {p.removeprefix("params/") for p in split if p.startswith("params/")}
    assert {p.removeprefix("ema/") for p in split if p.startswith("ema/")} == params
    moments = {p for p in split if p.startswith("opt_state/")}
    assert {p for p in params if any(m.endswith("/" + p) for m in moments)} == params
    assert bool(params) == (shape[2] * shape[3] > 1 and (shape[2] > 1 or family != "bit"))


@pytest.mark.integration
@pytest.mark.parametrize(
    "family",
    ["vit", *(pytest.param(f, marks=pytest.mark.slow) for f in ("hybrid", "bit", "mixer"))],
)
def test_no_image_crosses_devices_for_micro_batches(family):
    for shape in [(1, 2, 2, 2)] if family != "mixer" else [(1, 2, 2, 2), (2, 2, 2, 1)]:
        _, compiled, *_ = step_on(model_of(family), shape, accumulation=2)
        moved = re.findall(
            r"= (.*?) (?:all-gather|all-to-all|collective-permute)(?:-start)?\(", compiled.as_text()
        )
        assert moved or shape[3] == 1  # parameters do cross
        pixels = rf",{SIDE},{SIDE},3\]|,{SIDE * SIDE * 3}\]"
        assert not [array for array in moved if re.search(pixels, array) or "u8[" in array]


@pytest.mark.integration
@pytest.mark.parametrize(
    "family",
    ["vit", *(pytest.param(f, marks=pytest.mark.slow) for f in ("hybrid", "bit", "mixer"))],
)
def test_state_is_made_in_place_and_bitwise_the_same_on_every_mesh(family):
    cfg, tx = model_of(family), optax.adamw(1e-3)
    model, image = variants.make(cfg), jax.numpy.zeros((1, SIDE, SIDE, 3))

    def create(key):
        return state.from_params(model.init(key, image)["params"], tx, ema=True)

    made = {}
    for shape in [(1, 1, 1, 1), *MESHES]:
        rules = rules_of(shape)
        abstract = jax.eval_shape(create, KEY)
        axes = sharding.param_axes(abstract.params, variants.axes(cfg))
        places = sharding.place(abstract, axes, rules)
        compiled = jax.jit(create, out_shardings=places).lower(KEY).compile()
        made[shape] = dict(tree.leaves_with_paths(compiled(KEY)))
        memory, whole = compiled.memory_analysis(), tree.size(abstract.params) * 4
        if shape[2] == 8:  # parameters, two moments and average: an eighth of each, at most
            assert memory.output_size_in_bytes < 0.6 * 4 * whole
    for found in made.values():
        for path, leaf in made[1, 1, 1, 1].items():
            np.testing.assert_array_equal(np.asarray(found[path]), np.asarray(leaf), err_msg=path)
