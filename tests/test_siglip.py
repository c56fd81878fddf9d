# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Two towers: the text tower, the losses over all pairs, accumulation, and what is frozen."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpy_vit
import optax
import pytest
import tiny
from test_train_step import HALF, rules_of

from vit_jax import tree
from vit_jax.build import program
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import text as text_lib
from vit_jax.models import variants
from vit_jax.step import pairs, state, train_step
from vit_jax.step.objective import Network
from vit_jax.step.siglip import Siglip

KEY = jax.random.key(0)
TEXT = {"text": "custom", "text_width": 8, "text_depth": 2, "text_mlp": 12, "text_heads": 2}
TEXT |= {"length": 6, "vocabulary": 11}
BATCH, EMBEDDING = 32, 6


# ---------------------------------------------------------------- the text tower


@pytest.mark.parametrize("pool", text_lib.POOLS)
def test_text_tower_is_that_of_numpy(pool):
    like = variants.config(variant="S/16", classes=0)
    cfg = text_lib.config("custom", vocabulary=11, length=6, pool=pool, outputs=5, like=like,
                          width=8, depth=2, mlp=12, heads=2)  # fmt: skip
    tokens = np.random.default_rng(0).integers(0, 11, (3, 6))
    tower = text_lib.TextTower(cfg)
    params = tiny.randomised(jax.eval_shape(tower.init, KEY, tokens)["params"])
    found = tower.apply({"params": params}, tokens)
    w = numpy_vit.as_float64(params)
    z = w["tokens"][tokens] + w["posemb"]
    for layer in range(2):
        block = w[f"block_{layer}"]
        normed = numpy_vit.layer_norm(z, block["attn_norm"], 1e-6)
        z = z + numpy_vit._attention(normed, normed, block["attn"], [])
        z = z + numpy_vit.mlp(
            numpy_vit.layer_norm(z, block["mlp_norm"], 1e-6), block["mlp"], "tanh"
        )
    z = numpy_vit.layer_norm(z, w["norm"], 1e-6)
    if pool == "map":
        head = w["map_head"]
        y = numpy_vit._attention(np.repeat(head["probe"], 3, axis=0), z, head["attn"], [])
        y = (y + numpy_vit.mlp(numpy_vit.layer_norm(y, head["norm"], 1e-6), head["mlp"], "tanh"))[
            :, 0
        ]
    else:
        y = z[:, 0 if pool == "first" else -1]
    np.testing.assert_allclose(found, numpy_vit.linear(y, w["projection"]), rtol=2e-5, atol=2e-5)


def test_sizes_are_those_of_the_paper():
    """SigLIP B/16 has 203 M parameters: 92.9 M in the image tower, 110.3 M in the text tower."""
    like = variants.config(variant="B/16", classes=0)
    cfg = text_lib.config("B", vocabulary=32_000, length=64, pool="last", outputs=768, like=like,
                          width=0, depth=0, mlp=0, heads=0)  # fmt: skip
    shapes = jax.eval_shape(text_lib.TextTower(cfg).init, KEY, jnp.zeros((1, 64), jnp.int32))
    own = tree.size(shapes["params"])
    assert own == 32_000 * 768 + 64 * 768 + 12 * (12 * 768**2 + 13 * 768) + 2 * 768 + 769 * 768
    image = tree.size(
        variants.shapes(variants.config(variant="B/16", classes=0, pool="map"), 224, 224)
    )
    assert round((own + image + 2) / 1e6) == 203


def test_flops_by_hand():
    """2 layers of width 8, MLP 12, 6 tokens; 5 outputs of 4 features."""
    objective = Siglip(**TEXT, embedding=5)
    like = tiny.config(classes=0, width=16, depth=1, heads=2, mlp=20)
    layer = 6 * (4 * 8 * 8 + 2 * 8 * 12) + 2 * 6 * 6 * 8
    text = 2 * (2 * layer + 8 * 5)
    whole = objective.step_flops(like, 8, 12)
    assert objective.own_flops(like, 8, 12) == 3 * (text + 2 * 16 * 5)
    assert whole == 3 * variants.forward_flops(like, 8, 12) + 3 * (text + 2 * 16 * 5)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"text": "Q"}, "size of a text tower"),
        ({"text": "custom"}, "give text_width, text_depth, text_mlp, text_heads"),
        ({"text_heads": 5}, "text_heads=5 do not divide text_width=768"),
        ({"length": 1}, "length=1; give a whole number from 2 to 16384"),
        ({"loss": "hinge"}, "loss='hinge'; give sigmoid or softmax"),
        ({"pool": "gap"}, "pool='gap'; give last or first or map"),
        ({"clean": "upper"}, "clean='upper'"),
        ({"tokenizer": 3}, "tokenizer=3"),
    ],
)
def test_settings_that_do_not_go_together(options, said):
    with pytest.raises((ValueError, BadInput), match=re.escape(said)):
        Siglip(**options)


# ---------------------------------------------------------------- all pairs


@functools.cache
def vectors():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, EMBEDDING))
    y = x + rng.normal(size=(BATCH, EMBEDDING))
    tokens = rng.integers(0, 9, (BATCH, 4))
    tokens[5], y[5] = tokens[7], y[7]  # two images with one text
    unit = [(a / np.linalg.norm(a, axis=1, keepdims=True)).astype(np.float32) for a in (x, y)]
    real = np.arange(BATCH) % 7 != 3
    return (*unit, tokens, real)


def in_numpy(kind, scale, bias):
    """Losses and hits of the papers' formulas, over real rows."""
    x, y, tokens, real = vectors()
    rows = np.flatnonzero(real)
    scores = x[rows].astype(np.float64) @ y[rows].T * scale + bias
    if kind == "sigmoid":
        signs = 2 * np.eye(len(rows)) - 1
        losses = np.log1p(np.exp(-signs * scores)).sum(axis=1)
    else:
        row, column = (scores - np.log(np.exp(scores).sum(k, keepdims=True)) for k in (1, 0))
        losses = -(np.diag(row) + np.diag(column)) / 2
    same = (tokens[rows][:, None] == tokens[rows][None]).all(axis=2)
    at = np.arange(len(rows))
    return losses, same[at, scores.argmax(axis=1)], same[scores.argmax(axis=0), at]


@functools.cache
def compared(kind, shape):
    x, y, tokens, real = vectors()
    rules = rules_of(shape)
    over = rules.sharding(("act_batch",), (BATCH,))
    prints = pairs.fingerprints(jnp.asarray(tokens))
    x, y, prints, real = (jax.device_put(a, over) for a in (x, y, prints, real))

    def loss(x, y, scale, bias):
        found = pairs.compared(x, y, prints, real, scale, bias, kind=kind, rules=rules)
        return found.loss.sum(), found

    step = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3), has_aux=True))
    lowered = step.lower(x, y, jnp.float32(7), jnp.float32(-3))
    gradients, found = jax.device_get(lowered.compile()(x, y, jnp.float32(7), jnp.float32(-3)))
    return found, gradients, lowered.compile().as_text()


@pytest.mark.parametrize("kind", pairs.KINDS)
def test_losses_and_hits_are_those_of_the_papers_formulas(kind):
    found, _, _ = compared(kind, (1, 1, 1, 1))
    real = vectors()[3]
    losses, texts, images = in_numpy(kind, 7, -3)
    np.testing.assert_allclose(found.loss[real], losses, rtol=1e-5)
    np.testing.assert_array_equal(found.text_found[real], texts)
    np.testing.assert_array_equal(found.image_found[real], images)
    assert 0 < texts.sum() < len(texts)
    assert not np.concatenate([x[~real] for x in found]).any()


@pytest.mark.integration
@pytest.mark.parametrize("kind", pairs.KINDS)
@pytest.mark.parametrize("shape", [(1, 8, 1, 1), (1, 2, 2, 2), (1, 1, 8, 1), (2, 2, 2, 1)])
def test_chunks_around_the_mesh_are_exact_and_no_device_has_all_pairs(kind, shape):
    expected, gradients, _ = compared(kind, (1, 1, 1, 1))
    found, again, text = compared(kind, shape)
    for a, b in zip([*found, *again], [*expected, *gradients], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert "collective-permute" in text
    assert f"[{BATCH},{BATCH}]" not in text
    alone = compared(kind, (1, 1, 1, 1))[2]
    assert f"[{BATCH},{BATCH}]" in alone  # so the text would show it


# ---------------------------------------------------------------- training steps


def apply(params, images, *, train, key):
    x = jnp.tanh(images.reshape(images.shape[0], -1) @ params["weights"])
    if train and "dropped" in params:
        x = jnp.where(jax.random.bernoulli(key, 0.5, x.shape), 2 * x, 0)
    return x


def parameters(objective):
    rng = np.random.default_rng(0)
    output = jax.ShapeDtypeStruct((1, 4), jnp.float32)
    own = jax.jit(lambda key: objective.parameters(key, output))(jax.random.key(3))
    return {"weights": jnp.asarray(rng.normal(size=(12, 4)), jnp.float32), "objective": own}


def batch(size=16):
    rng = np.random.default_rng(1)
    return {
        "image": rng.integers(0, 256, (size, 2, 2, 3)).astype(np.uint8),
        "tokens": rng.integers(0, 11, (size, 6)).astype(np.int32),
        "labels": np.full((size, 1), -1, np.int32),
        "_mask": np.arange(size) != 5,
    }


@functools.cache
def steps(loss, accumulation=1, shape=(1, 1, 1, 1), embedding=0):
    objective, tx = Siglip(**TEXT, loss=loss, bias=-2.0, embedding=embedding), optax.sgd(0.3)
    rules = rules_of(shape)
    network = Network(apply, HALF, HALF, rules=rules)
    params = jax.device_put(parameters(objective), rules.replicated)
    given = jax.device_put(batch(), rules.sharding(("act_batch",), (16,)))
    step = jax.jit(train_step.make_train_step(objective, network, tx, accumulation=accumulation))
    current, measured = state.from_params(params, tx, ema=False), []
    for _ in range(3):
        current, found = step(current, given, KEY)
        measured.append([float(found[name]) for name in (*objective.METRICS, "grad_norm")])
    return np.array(measured), jax.device_get(current.params)


@pytest.mark.integration
@pytest.mark.parametrize(
    "loss, accumulation, shape",
    [
        ("sigmoid", 4, (1, 1, 1, 1)),
        ("sigmoid", 1, (1, 8, 1, 1)),
        ("sigmoid", 2, (1, 2, 2, 2)),
        ("softmax", 2, (1, 8, 1, 1)),
    ],
)  # fmt: skip
def test_pairs_are_those_of_the_global_batch(loss, accumulation, shape):
    expected, params = steps(loss, embedding=5)
    found, again = steps(loss, accumulation, shape, embedding=5)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), again, params)
    assert expected[2, 0] < expected[0, 0]  # it learns


@pytest.mark.integration
def test_both_passes_of_a_micro_batch_drop_the_same():
    objective, network = Siglip(**TEXT), Network(apply, HALF, HALF)
    params, keys = parameters(objective) | {"dropped": jnp.zeros(())}, jax.random.split(KEY, 2)
    parts = {name: x.reshape(2, 8, *x.shape[1:]) for name, x in batch().items()}

    def part(given, i):
        return jax.tree.map(lambda x: x[i], given), keys[i]

    def embedded(params, micro, key):
        return objective._embed(network, params, micro, train=True, key=key)

    def whole(params):
        each = [embedded(params, *part(parts, i)) for i in (0, 1)]
        vectors = tuple(jnp.concatenate(x) for x in zip(*each, strict=True))
        scaling = objective.scale_and_bias(params)
        return objective._compared(network, batch(), vectors, scaling)["loss"]

    given = objective.relate(network, params, None, parts, keys)

    def in_parts(params):
        each = [part(given, i) for i in (0, 1)]
        return sum(objective.sums(network, params, None, x, None, k)["loss"] for x, k in each)

    expected, found = jax.jit(jax.grad(whole))(params), jax.jit(jax.grad(in_parts))(params)
    assert float(whole(params)) == pytest.approx(float(in_parts(params)), rel=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, expected
    )


@pytest.mark.integration
def test_loss_begins_where_the_paper_says():
    """With log 10 and -10, all pairs begin near -10, so an image costs about 10."""
    objective = Siglip(**TEXT)
    params, given = parameters(objective), batch()
    sums = objective.eval_sums(Network(apply, HALF, HALF), params, None, given)
    assert int(sums["examples"]) == 15
    assert 0 < float(sums["loss"]) / 15 < 25
    scale, bias = objective.scale_and_bias(params)
    assert (float(scale), float(bias)) == (pytest.approx(10), -10)


RUN = [
    "configs/contrastive.py", "data.source=digits", "data.views=", "data.image_size=8",
    "data.train_ops=resize({size})", "data.eval_ops=resize({size})", "batch_size=16",
    "length=2 steps", "schedule.warmup=0",
]  # fmt: skip
OBJECTIVE = (
    "siglip(template='a {}', text='custom', text_width=8, text_depth=1, text_mlp=8, text_heads=2, "
    "length=8)"
)


def loaded(*more):
    words = [f"--config.{one}" for one in (*RUN[1:], f"objective={OBJECTIVE}", *more)]
    return config_lib.load(RUN[0], words)


def test_every_parameter_has_a_place_on_a_mesh():
    config = loaded("mesh.fsdp=2", "mesh.tensor=2", "mesh.data=2")
    made = program.make(config, classes=10, examples=64, devices=jax.devices()[:8])
    places = {p: x.sharding.spec for p, x in tree.leaves_with_paths(made.abstract.params)}
    assert places["objective/text/block_0/attn/query/kernel"][:2] == ("fsdp", "tensor")
    assert places["objective/text/tokens"][1] == "fsdp"
    assert not places["objective/temperature"]


def test_locked_image_tower_has_no_optimizer_state_and_costs_a_forward_pass(tmp_path):
    config = loaded("trainable=head", f"init={tmp_path}")
    made = program.make(config, classes=10, examples=64)
    trained = {p for p, _ in tree.leaves_with_paths(made.abstract.params)}
    assert {p.partition("/")[0] for p in trained} == {"objective"}
    moments = [p for p, _ in tree.leaves_with_paths(made.abstract.opt_state)]
    assert [p for p in moments if "text/tokens" in p]
    assert not [p for p in moments if "blocks/" in p or "embedding/" in p]
    own = made.objective.own_flops(made.model.cfg, 8, 8)
    assert made.step_flops == variants.forward_flops(made.model.cfg, 8, 8) + own
