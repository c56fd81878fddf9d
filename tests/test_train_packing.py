# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Training on several images in a sequence: the rows, exact gradients, meshes, commands."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from test_train_step import HALF, KEY, batch, rules_of

from vit_jax import sharding
from vit_jax.build import naflex, program
from vit_jax.build import run as build
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.inference import packing as host
from vit_jax.models import variants
from vit_jax.models.naflex import Canvas
from vit_jax.preflight.bench import our_steps
from vit_jax.step import state, train_step
from vit_jax.step.classification import Classification
from vit_jax.step.objective import Network
from vit_jax.step.packing import Packing

GRIDS = np.array([[4, 4], [2, 2], [1, 5], [3, 2], [1, 3], [2, 3], [1, 1], [2, 4]] * 2, np.int32)


def test_rows_are_those_of_a_first_fit_of_the_largest_first():
    """As the packing of a stream finds them; what has no room stays for the next pass."""
    lengths = GRIDS.prod(axis=1)
    order = np.argsort(-lengths, kind="stable")
    rows = host.first_fit(lengths[order].tolist(), 16)
    want = [[int(order[i]) for i in row] for row in rows]
    members = Packing(4, 16).members(jnp.asarray(GRIDS), jnp.ones(16, bool))
    assert members.shape == (1, 4, 8)
    have = [[i for i in row if i >= 0] for row in members[0].tolist()]
    assert have == want[:4]
    assert len(want) > 4
    left = np.ones(16, bool)
    left[[i for row in have for i in row]] = False
    again = Packing(4, 16).members(jnp.asarray(GRIDS), jnp.asarray(left))
    assert sorted(i for i in again.ravel().tolist() if i >= 0) == np.flatnonzero(left).tolist()


def test_a_row_has_twice_its_images_at_most_and_groups_keep_theirs():
    ones = jnp.ones((8, 2), jnp.int32)
    members = Packing(2, 16, groups=2).members(ones, jnp.arange(8) != 5)
    assert members.tolist() == [[[0, 1, 2, 3], [-1] * 4], [[0, 2, 3, -1], [-1] * 4]]


def stepped(cfg, shape=(1, 1, 1, 1), packing=None, accumulation=1):
    """The parameters after a step of SGD at a rate of 1, and the metrics of the step."""
    rules = rules_of(shape)
    model, tx = variants.make(cfg, rules), optax.sgd(1.0)

    def apply(params, images, *, train, key):
        return model.apply({"params": params}, images, train=train, key=key)

    step = train_step.make_train_step(
        Classification(cfg.classes), Network(apply, HALF, HALF, packing=packing), tx,
        accumulation=accumulation,
    )  # fmt: skip
    begin = state.from_params(tiny.params(cfg, 16, 16), tx, ema=False)
    axes = sharding.param_axes(jax.eval_shape(lambda: begin.params), variants.axes(cfg))
    places = sharding.place(jax.eval_shape(lambda: begin), axes, rules)
    given = batch(16, 0, 16, 16, cfg.classes, mask=np.arange(16) != 3) | {"grid": GRIDS}
    given = jax.device_put(given, rules.sharding(("act_batch",), (16,)))
    jitted = jax.jit(step, out_shardings=(places, rules.replicated))
    after, measured = jitted(jax.device_put(begin, places), given, KEY)
    return jax.device_get(after.params), {name: float(x) for name, x in measured.items()}


@functools.cache
def one_by_one(pool):
    """The same from images in rows of their own."""
    return stepped(tiny.config(depth=2, naflex=3, **POOLS[pool]))


MESHES = [
    ((1, 1, 1, 1), Packing(2, 16), 1), ((1, 8, 1, 1), Packing(2, 16, 8), 1),
    ((1, 2, 2, 2), Packing(4, 16, 4), 1), ((1, 1, 1, 1), Packing(4, 16), 2),
]  # fmt: skip
POOLS = {
    "token": {"dtype": "float32"}, "gap": {"pool": "gap"},
    "map": {"pool": "map", "registers": 2}, "loop": {"scan": False, "qk_norm": True},
}  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize(
    "pool, shape, packing, accumulation",
    [("token", *mesh) for mesh in MESHES] + [(pool, *MESHES[0]) for pool in list(POOLS)[1:]],
)
def test_loss_and_gradients_are_those_of_images_one_by_one(pool, shape, packing, accumulation):
    """On meshes, with accumulation, and with images that need another pass."""
    cfg = tiny.config(depth=2, naflex=3, **POOLS[pool])
    before = tiny.params(cfg, 16, 16)
    want, expected = one_by_one(pool)
    have, measured = stepped(cfg, shape, packing, accumulation)
    passes = measured.pop("passes")
    assert passes == (1 if packing == MESHES[0][1] else 2)
    for name, value in expected.items():
        assert measured[name] == pytest.approx(value, rel=1e-5), name
    for one, other, old in zip(*map(jax.tree.leaves, (want, have, before)), strict=True):
        assert np.isfinite(other).all()
        np.testing.assert_allclose(other, one, atol=1e-5 * max(1.0, np.abs(one - old).max()))


@pytest.mark.integration
@pytest.mark.parametrize("pool", ["token", "map"])
def test_flops_of_a_row_are_those_of_the_compiler(pool):
    """Which also counts norms, softmax, GELU, and the sum of the class tokens of all images."""
    sizes = {"width": 192, "depth": 2, "mlp": 768, "heads": 3, "scan": False}
    cfg = tiny.config(naflex=1, pool=pool, classes=500, **sizes)
    image = jax.ShapeDtypeStruct((1, 32, 32, 3), np.float32)
    grids = jax.ShapeDtypeStruct((1, 6, 2), np.int32)
    forward = jax.jit(lambda p, x, g: variants.make(cfg).apply({"params": p}, Canvas(x, g)))
    compiled = forward.lower(variants.shapes(cfg, 32, 32), image, grids).compile()
    ratio = compiled.cost_analysis()["flops"] / cfg.packed_flops(32, 32, 3)
    assert 1.0 <= ratio < 1.05


def words(**more):
    made = {
        "model.variant": "custom/4", "model.width": 16, "model.depth": 2, "model.mlp": 16,
        "model.heads": 2, "model.naflex": 3, "data.image_size": 16, "data.workers": 1,
        "data.train_ops": "decode|flip_lr|naflex({size}, 4, enlarge=False)",
        "data.eval_ops": "decode|naflex({size}, 4)", "batch_size": 16, "pack": 2,
    }  # fmt: skip
    return [f"--config.{key}={value}" for key, value in (made | more).items()]


def of_run(devices=8, **more):
    config = config_lib.load("configs/base.py", words(**more))
    build.check(config)
    return program.make(config, classes=10, examples=64, devices=jax.devices()[:devices])


def learned(**more):
    """The trained parameters and their average after a step of a run, and its metrics."""
    sgd = {"optimizer.name": "sgd", "optimizer.sgd.accumulator_dtype": "float32"}
    one = of_run(devices=2, **sgd, **{"schedule.lr": 1, "schedule.warmup": 0}, **more)
    given = batch(16, 0, 16, 16, 10, mask=np.arange(16) != 3) | {"grid": GRIDS}
    placed = jax.device_put(given, one.batch_sharding)
    after, measured = one.step(one.init(), placed, one.step_key)
    return jax.device_get((after.params, after.ema, measured))


@pytest.mark.integration
@pytest.mark.parametrize("more", [
    {"optimizer.sam.rho": 0.5, "model.remat": "full"},
    {"trainable": "lora(rank=2)", "ema.decay": 0.5},
    {"trainable": "last(1)"},
], ids=str)  # fmt: skip
def test_an_update_of_part_of_a_model_or_in_two_passes_is_that_of_images_one_by_one(more):
    want, average, expected = learned(**more, pack=1)
    have, packed_average, measured = learned(**more, pack=4)
    assert measured.pop("passes") == 2  # here the largest has a row of its own
    for name, value in expected.items():
        assert measured[name] == pytest.approx(value, rel=1e-5), name
    assert jax.tree.structure(want) == jax.tree.structure(have)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(y, x, atol=1e-5), want, have)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(y, x, atol=1e-5), average, packed_average)


def test_images_of_a_benchmark_need_one_pass():
    one = of_run(pack=1.5, batch_size=64)
    members = naflex.packing(one.config, one.model.cfg, one.rules).members
    grids = our_steps.random_batch(one)["grid"]
    assert sorted(members(grids, jnp.ones(64, bool)).ravel().tolist())[-64:] == sorted(
        [*range(8)] * 8
    )


@pytest.mark.parametrize("more, parts", [
    ({"data.train_ops": "decode|resize({size})"}, ["pack=2", "one size", "naflex({size}, PATCH)"]),
    ({"objective": "siglip"}, ["pack=2", "siglip", "learn classes"]),
    ({"model.drop_path": 0.1}, ["pack=2", "drop_path=0.1", "drop_path=0"]),
    ({"pack": 0.5}, ["pack", "0.5", "[1, 10000]"]),
    ({"pack": 17, "batch_size": 512}, ["pack=17", "16 patches", "at most 16"]),
    ({"pack": 4}, ["pack=4", "has 2 of", "fill no row", "from 2 to 2", "larger batch_size"]),
    ({"pack": 1.2, "batch_size": 32}, ["pack=1.2", "has 4 of", "as many rows", "from 1.34 to 4"]),
    ({"accumulation": 2}, ["pack=2", "has 1 of", "accumulation=2", "give a larger batch_size"]),
    ({"masked.target": "mean"}, ["masked.target=mean takes images of one size"]),
    ({"objective": "mae"}, ["objective=mae takes images of one size"]),
])  # fmt: skip
def test_what_cannot_be_packed_is_refused(tmp_path, root, capsys, more, parts):
    recipe = f"--config={root / 'configs' / 'quickstart.py'}"
    workdir = f"--workdir={tmp_path / 'run'}"
    assert main.main(["train", recipe, workdir, *words(**more)]) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in parts), said
