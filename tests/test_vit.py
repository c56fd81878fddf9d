# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The model: numerics of the paper, and switches that change no number."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpy_resnet
import numpy_vit
import pytest
import tiny
from tiny import logits

from vit_jax import tree
from vit_jax.models import layers, variants

RATES = {"dropout": 0.2, "attention_dropout": 0.3, "drop_path": 0.4}
# Every kind of position embedding at every place where it can be.
POSITIONS = [
    ("none", "stem"),
    ("relative", "stem"),
    *(
        (kind, at)
        for kind in ("learned1d", "learned2d", "sincos2d")
        for at in ("stem", "every", "shared")
    ),
]


def reference(cfg, params, images, **changes):
    """Logits of numpy, of a hybrid too."""
    weights, given = tree.unstack_blocks(params), cfg.backbone
    if given is not None:
        constants = (getattr(given, f) for f in numpy_resnet.Constants._fields)
        constants = numpy_resnet.Constants(*constants)
        images = numpy_resnet.hybrid(weights["backbone"], images, constants)
    fields = ("patch", "pool", "posemb", "posemb_at", "gelu", "ln_epsilon")
    return numpy_vit.forward(weights, images, **{f: getattr(cfg, f) for f in fields} | changes)


def assert_equals_reference(cfg):
    params, images = tiny.params(cfg), tiny.images_of(cfg)
    found, expected = logits(cfg, params, images), reference(cfg, params, images)
    assert expected.std() > 0.5
    assert expected.std(axis=0).mean() > 0.2  # between images
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# --- numerics ---


def at(posemb, place="stem", **changes):
    return {"posemb": posemb, "posemb_at": place, "depth": 2} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        at("none", scan=False, representation=9),
        at("relative", registers=2, representation=9),
        at("learned1d", registers=2),
        at("learned1d", "every", registers=2),
        at("learned1d", "shared", registers=2, classes=0, gelu="erf"),
        at("learned2d", registers=2, scan=False),
        at("learned2d", "every", registers=2),
        at("learned2d", "shared", registers=2),
        at("sincos2d", registers=2),
        at("sincos2d", "every"),
        at("sincos2d", "shared", registers=2),
        at("learned1d", "every", pool="gap"),
        at("learned1d", pool="gap", registers=3),
        at("learned2d", "shared", pool="gap", registers=3, representation=9, scan=False),
        at("relative", pool="map", registers=3),
        at("sincos2d", pool="map", registers=3, representation=9, gelu="erf"),
    ],
    ids=str,
)
def test_forward_equals_independent_numpy_vit(changes):
    cfg = tiny.config(**changes)
    assert_equals_reference(cfg)
    if cfg.gelu == "erf":
        params, images = tiny.params(cfg), tiny.images()
        tanh = reference(cfg, params, images, gelu="tanh")
        assert 1e-4 < np.abs(tanh - reference(cfg, params, images)).max() < 1e-2


@pytest.mark.parametrize(
    "patch, changes",
    [
        (1, {"root_width": 64, "stages": (1, 1), "pool": "gap", "posemb": "learned2d"}),
        (2, {"variant": "R+Ti/4", "stages": (), "pool": "map"}),
        (2, {"variant": "R+Ti/16", "gelu": "erf", "registers": 2}),
        (2, {"stem": "small", "stem_stride": 2, "variant": "R+Ti/16", "depth": 1}),
        (1, {"gn_epsilon": 0.1, "ws_epsilon": 0.1, "ws_epsilon_in": "variance", "scan": False}),
    ],
    ids=str,
)
def test_forward_of_hybrids_equals_numpy(patch, changes):
    cfg = tiny.hybrid(**changes)
    assert cfg.patch == patch  # positions of the feature map
    assert_equals_reference(cfg)


@pytest.mark.parametrize(
    "pool, epsilon", [("token", 0.0), ("token", 1e-5), ("map", 0.0), ("map", 1e-5)]
)
def test_epsilon_of_layer_norm_shows_at_small_variances(pool, epsilon):
    cfg = tiny.config(depth=1, pool=pool, ln_epsilon=epsilon)
    assert cfg.ln_epsilon == (epsilon or 1e-6)
    params, images = tiny.params(cfg), tiny.images()
    # Variances near 1e-6 before every norm, where an epsilon of 1e-5 or 1e-7 would show.
    for name in {"embedding", "cls", "posemb"}.intersection(params):
        params[name] = jax.tree.map(lambda x: np.float32(1e-3) * x, params[name])
    block = params["blocks"]
    small = [block["attn"]["out"], block["mlp"]["down"]]
    if pool == "map":
        small.append(params["map_head"]["attn"]["out"])
    for last in small:
        last.update(jax.tree.map(lambda x: np.float32(1e-3) * x, last))
    found, expected = logits(cfg, params, images), reference(cfg, params, images)
    assert np.abs(reference(cfg, params, images, ln_epsilon=3e-6) - expected).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


# --- positions as parameters ---


@pytest.mark.parametrize(
    "posemb, at, pool",
    [
        *((*position, "token") for position in POSITIONS),
        ("relative", "stem", "gap"),
        ("learned1d", "every", "gap"),
        ("learned2d", "stem", "gap"),
    ],
)
def test_each_place_of_positions_has_its_tables(posemb, at, pool):
    shapes = tiny.shapes(tiny.config(posemb=posemb, posemb_at=at, pool=pool, registers=2))
    found = {p: x.shape for p, x in tree.leaves_with_paths(shapes) if "pos" in p or "rel" in p}
    class_rows = int(pool == "token")
    tables = {
        "learned1d": {"posemb": (1, class_rows + 6, 32)},
        "learned2d": {"posemb_x": (1, 3, 16), "posemb_y": (1, 2, 16)},
    }
    if class_rows:
        tables["learned2d"]["posemb_cls"] = (1, 1, 32)
    if posemb == "relative":
        tokens = class_rows + 2 + 6
        assert found == {"blocks/attn/relative": (3, 2 * tokens - 1, 4, 8)}
    elif at == "every":  # one in each of three layers
        assert found == {f"blocks/{p}": (3, *x) for p, x in tables.get(posemb, {}).items()}
    else:
        assert found == tables.get(posemb, {})


def test_positions_at_every_layer_are_those_of_the_layer():
    cfg = tiny.config(posemb_at="every")
    params, images = tiny.params(cfg), tiny.images()
    plain = logits(cfg, params, images)
    for layer in range(3):
        changed = jax.tree.map(np.copy, params)
        changed["blocks"]["posemb"][layer] *= -1
        assert np.abs(logits(cfg, changed, images) - plain).max() > 0.1
    shared = dict(params) | {"posemb": params["blocks"]["posemb"][0]}
    shared["blocks"] = {k: v for k, v in params["blocks"].items() if k != "posemb"}
    params["blocks"]["posemb"][:] = params["blocks"]["posemb"][0]
    np.testing.assert_allclose(
        logits(tiny.config(posemb_at="shared"), shared, images),
        logits(cfg, params, images),
        rtol=1e-5,
        atol=1e-5,
    )


# --- scan and remat ---


@pytest.mark.integration
@pytest.mark.parametrize(
    "posemb, at", [("relative", "stem"), ("learned2d", "every"), ("learned1d", "shared")]
)
def test_scan_equals_loop_in_training_at_every_place_of_positions(posemb, at):
    changes = {"posemb": posemb, "posemb_at": at, "registers": 1, "depth": 2, "drop_path": 0.4}
    stacked, looped = tiny.config(**changes), tiny.config(**changes, scan=False)
    images, key = tiny.images(), jax.random.key(5)
    np.testing.assert_allclose(
        logits(stacked, tiny.params(stacked), images, True, key),
        logits(looped, tiny.params(looped), images, True, key),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.integration
def test_scan_draws_the_same_dropout_as_loop_with_remat():
    stacked, looped = tiny.config(**RATES, remat="full"), tiny.config(**RATES, scan=False)
    images, key = tiny.images(), jax.random.key(5)
    found = logits(stacked, tiny.params(stacked), images, True, key)
    np.testing.assert_allclose(
        found, logits(looped, tiny.params(looped), images, True, key), rtol=1e-5, atol=1e-5
    )
    still = logits(stacked, tiny.params(stacked), images)
    assert np.abs(found - still).max() > 0.1


@functools.lru_cache
def value_and_grads(remat, scan):
    """(logits' weighted sum and gradients under dropout, text of the differentiated program)."""
    cfg = tiny.config(**RATES, remat=remat, scan=scan, depth=2)
    model, images = variants.make(cfg), tiny.images()
    weights = np.random.default_rng(2).normal(size=(len(images), cfg.classes)).astype(np.float32)

    def weighted(params, key):
        out = model.apply({"params": params}, images, train=True, key=key)
        return jnp.sum(jnp.square(out) * weights)

    traced = jax.jit(jax.value_and_grad(weighted)).trace(tiny.params(cfg), jax.random.key(3))
    found = traced.lower().compile()(tiny.params(cfg), jax.random.key(3))
    return jax.tree.map(np.asarray, found), str(traced.jaxpr)


REMATS = [
    ("full", True),
    pytest.param("full", False, marks=pytest.mark.slow),
    pytest.param("dots", True, marks=pytest.mark.slow),
    pytest.param("query,key,attention", True, marks=pytest.mark.slow),
]


@pytest.mark.integration
@pytest.mark.parametrize("remat, scan", REMATS)
def test_remat_changes_neither_value_nor_gradients(remat, scan):
    (value, grads), _ = value_and_grads(remat, scan)
    (plain_value, plain_grads), _ = value_and_grads("none", True)
    np.testing.assert_allclose(value, plain_value, rtol=1e-5)
    plain_grads = plain_grads if scan else tree.unstack_blocks(plain_grads)
    for (path, found), (_, expected) in zip(
        tree.leaves_with_paths(grads), tree.leaves_with_paths(plain_grads), strict=True
    ):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            found, expected, rtol=1e-5, atol=1e-5 * scale + 1e-5, err_msg=path
        )


@pytest.mark.integration
def test_remat_recomputes_what_it_says():
    def counts(remat):
        text = value_and_grads(remat, True)[1]
        return text.count("dot_general["), len(re.findall(r"= tanh ", text))

    none, dots, full = counts("none"), counts("dots"), counts("full")
    assert dots[0] == none[0] + 2  # products are kept, but for queries by keys, weights by values
    assert dots[1] > none[1]  # and the GELU is computed again
    assert full[0] > none[0]
    assert full[1] > none[1]


@pytest.mark.integration
def test_head_starts_at_zero_with_the_given_bias():
    cfg = tiny.config(pool="map", head_bias=-10.0, depth=1, representation=6)
    model = variants.make(cfg)
    found = jax.jit(model.init_with_output)(jax.random.key(0), tiny.images())
    np.testing.assert_array_equal(found[0], np.full((5, 7), -10.0, np.float32))
    assert not np.any(found[1]["params"]["head"]["kernel"])


def test_initial_parameters_follow_the_published_distributions():
    cfg = variants.config(variant="Ti/16", depth=2, classes=10, registers=40, posemb="relative")
    image = np.zeros((1, 64, 64, 3), np.float32)
    params = jax.jit(variants.make(cfg).init)(jax.random.key(0), image)["params"]

    def std(x):
        return float(np.std(np.asarray(x)))

    assert not np.any(params["cls"])
    assert std(params["registers"]) == pytest.approx(1e-6, rel=0.1)
    assert std(params["blocks"]["attn"]["relative"]) == pytest.approx(0.02, rel=0.1)
    assert std(params["embedding"]["kernel"]) == pytest.approx((16 * 16 * 3) ** -0.5, rel=0.05)
    blocks = params["blocks"]
    for name in ("query", "key", "value", "out"):  # Xavier of the flattened [192, 192] matrix
        assert std(blocks["attn"][name]["kernel"]) == pytest.approx((2 / 384) ** 0.5, rel=0.05)
        assert not np.any(blocks["attn"][name]["bias"])
    for name in ("up", "down"):
        assert std(blocks["mlp"][name]["kernel"]) == pytest.approx((2 / 960) ** 0.5, rel=0.05)
        assert std(blocks["mlp"][name]["bias"]) == pytest.approx(1e-6, rel=0.2)
    for norm in (blocks["attn_norm"], blocks["mlp_norm"], params["norm"]):
        assert np.all(np.asarray(norm["scale"]) == 1.0)
        assert not np.any(norm["bias"])
    first, second = blocks["mlp"]["up"]["kernel"]  # layers are drawn apart
    assert std(first - second) == pytest.approx(2**0.5 * std(first), rel=0.05)


# --- dropout and stochastic depth ---


def test_dropout_keeps_the_expectation():
    x = np.full((400, 50), 3.0, np.float32)
    found = np.asarray(layers.dropout(x, 0.25, jax.random.key(0)))
    assert set(np.unique(found)) == {0.0, 4.0}
    assert found.mean() == pytest.approx(3.0, abs=0.05)  # standard error 0.012
    assert 0 < (found[0] == 0).sum() < 50


def test_drop_path_keeps_the_expectation_and_drops_whole_examples():
    x = np.full((4000, 2, 3), 3.0, np.float32)
    found = np.asarray(layers.dropout(x, 0.25, jax.random.key(0), per_example=True))
    assert set(np.unique(found)) == {0.0, 4.0}
    assert np.all(found == found[:, :1, :1])
    assert found.mean() == pytest.approx(3.0, abs=0.12)  # standard error 0.027


def test_dropout_keeps_the_dtype():
    x = jnp.ones((2, 3), jnp.bfloat16)
    assert layers.dropout(x, jnp.float32(0.5), jax.random.key(0)).dtype == jnp.bfloat16


def test_drop_path_is_zero_in_the_first_block_and_per_example_in_the_last():
    cfg = tiny.config(drop_path=0.5, depth=2)
    same = np.repeat(tiny.images(1), 64, axis=0)
    found = logits(cfg, tiny.params(cfg), same, True, jax.random.key(1))
    distinct, counts = np.unique(found.round(3), axis=0, return_counts=True)
    assert len(distinct) == 4  # two branches of one block are dropped or kept
    assert counts.min() >= 5  # of 16 expected


def test_dropout_differs_between_layers():
    # Two layers with rates 1/4 and 1/2 leave 4 * 4 combinations of their branches; if they drew the
    # same numbers, what the first drops the second would drop too, which leaves 3 * 3.
    cfg = tiny.config(drop_path=0.5, depth=3)
    same = np.repeat(tiny.images(1), 128, axis=0)
    found = logits(cfg, tiny.params(cfg), same, True, jax.random.key(1))
    assert 12 <= len(np.unique(found.round(3), axis=0)) <= 16


def test_nothing_is_dropped_in_evaluation():
    images = tiny.images()
    cfg = tiny.config(**RATES)
    params = tiny.params(cfg)
    plain = logits(tiny.config(), params, images)
    np.testing.assert_array_equal(logits(cfg, params, images, False, jax.random.key(0)), plain)
    np.testing.assert_array_equal(logits(cfg, params, images), plain)
    rateless = logits(tiny.config(), params, images, True, jax.random.key(0))
    np.testing.assert_array_equal(rateless, plain)


@pytest.mark.parametrize("rate", RATES)
def test_each_rate_acts_in_training_and_follows_the_key(rate):
    cfg = tiny.config(**{rate: 0.5})
    params, images = tiny.params(cfg), tiny.images()
    one, again, other = (
        logits(cfg, params, images, True, jax.random.key(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-2
    assert np.abs(one - logits(tiny.config(), params, images)).max() > 1e-2
