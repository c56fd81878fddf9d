# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The model: sizes as published, numerics of the paper, and switches that change no number."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import numpy_vit
import pytest
import tiny

from vit_jax import sharding, tree
from vit_jax.errors import BadInput
from vit_jax.models import layers, vit

# Published numbers of parameters at 224 pixels and 1000 classes (reference/compatibility.md, 2.4).
PUBLISHED = {
    ("Ti/16", "token"): 5_717_416,
    ("S/16", "token"): 22_050_664,
    ("S/32", "token"): 22_878_952,
    ("B/8", "token"): 86_576_872,
    ("B/16", "token"): 86_567_656,
    ("B/32", "token"): 88_224_232,
    ("L/16", "token"): 304_326_632,
    ("L/32", "token"): 306_535_400,
    ("H/14", "token"): 632_045_800,
    ("g/14", "map"): 1_037_857_384,
    ("G/14", "map"): 1_882_797_416,
    ("e/14", "map"): 3_875_135_720,
    ("So400m/14", "map"): 428_833_704,
}
RATES = {"dropout": 0.2, "attention_dropout": 0.3, "drop_path": 0.4}


@functools.lru_cache
def forward(cfg, train=False):
    """Jitted (params, images, key) -> logits."""
    model = vit.ViT(cfg)
    return jax.jit(lambda p, x, key: model.apply({"params": p}, x, train=train, key=key))


def logits(cfg, params, images, train=False, key=None):
    with jax.default_matmul_precision("highest"):
        return np.asarray(forward(cfg, train)(params, images, key))


# --- sizes ---


@pytest.mark.parametrize("variant, pool", PUBLISHED)
def test_parameter_count_is_the_published_one(variant, pool):
    cfg = vit.config(variant=variant, pool=pool, classes=1000)
    assert tree.size(tiny.shapes(cfg, 224, 224)) == PUBLISHED[variant, pool]


def test_parameter_count_of_imagenet21k_with_pre_logits():
    cfg = vit.config(variant="B/16", classes=21843, representation=768)
    assert tree.size(tiny.shapes(cfg, 224, 224)) == 103_186_515


def test_every_size_has_a_published_count():
    assert set(vit.SIZES) == {variant.partition("/")[0] for variant, _ in PUBLISHED}


def test_numbers_replace_those_of_the_variant():
    named = vit.config(variant="B/16", classes=10)
    assert (named.width, named.depth, named.mlp, named.heads) == (768, 12, 3072, 12)
    given = vit.config(variant="B/16", classes=10, depth=3, heads=6)
    assert (given.width, given.depth, given.mlp, given.heads) == (768, 3, 3072, 6)
    assert given.patch == 16


# --- numerics ---


@pytest.mark.parametrize(
    "pool, representation, scan",
    [
        ("token", 0, True),
        ("token", 0, False),
        ("gap", 0, True),
        ("gap", 9, False),
        ("map", 0, True),
        ("map", 9, True),
        ("token", 9, True),
    ],
)
def test_forward_equals_independent_numpy_vit(pool, representation, scan):
    cfg = tiny.config(pool=pool, representation=representation, scan=scan)
    params, images = tiny.params(cfg), tiny.images()
    found = logits(cfg, params, images)
    expected = numpy_vit.forward(
        tree.unstack_blocks(params), images, patch=cfg.patch, pool=cfg.pool
    )
    assert expected.std() > 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_layer_norm_epsilon_equals_that_of_numpy_vit():
    # Variances near 1e-6, where an epsilon of 1e-5 or 1e-7 would show.
    cfg = tiny.config(depth=1)
    params, images = tiny.params(cfg), tiny.images()
    for name in ("embedding", "cls", "posemb"):
        params[name] = jax.tree.map(lambda x: 1e-3 * x, params[name])
    block = params["blocks"]
    for last in (block["attn"]["out"], block["mlp"]["down"]):
        last.update(jax.tree.map(lambda x: 1e-3 * x, last))
    found = logits(cfg, params, images)
    expected = numpy_vit.forward(tree.unstack_blocks(params), images, patch=4, pool="token")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_scan_equals_loop_in_evaluation():
    stacked, looped = tiny.config(), tiny.config(scan=False)
    images = tiny.images()
    np.testing.assert_allclose(
        logits(stacked, tiny.params(stacked), images),
        logits(looped, tiny.params(looped), images),
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize("remat", ["none", "full"])
def test_scan_draws_the_same_dropout_as_loop(remat):
    stacked, looped = tiny.config(**RATES, remat=remat), tiny.config(**RATES, scan=False)
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
    cfg = tiny.config(**RATES, remat=remat, scan=scan)
    model, images = vit.ViT(cfg), tiny.images()
    weights = np.random.default_rng(2).normal(size=(len(images), cfg.classes)).astype(np.float32)

    def weighted(params, key):
        out = model.apply({"params": params}, images, train=True, key=key)
        return jnp.sum(jnp.square(out) * weights)

    traced = jax.jit(jax.value_and_grad(weighted)).trace(tiny.params(cfg), jax.random.key(3))
    found = traced.lower().compile()(tiny.params(cfg), jax.random.key(3))
    return jax.tree.map(np.asarray, found), str(traced.jaxpr)


@pytest.mark.parametrize("remat, scan", [("dots", True), ("full", True), ("full", False)])
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


def test_remat_recomputes_what_it_says():
    def counts(remat):
        text = value_and_grads(remat, True)[1]
        return text.count("dot_general["), len(re.findall(r"= tanh ", text))

    none, dots, full = counts("none"), counts("dots"), counts("full")
    assert dots[0] == none[0]  # products are kept
    assert dots[1] > none[1]  # and the GELU is computed again
    assert full[0] > none[0]
    assert full[1] > none[1]


def test_bfloat16_stays_near_float32_and_keeps_parameters_and_logits_float32():
    exact, rough = tiny.config(), tiny.config(dtype="bfloat16")
    images = tiny.images(16)
    for leaf in jax.tree.leaves(tiny.shapes(rough)):
        assert leaf.dtype == jnp.float32
    params = tiny.params(exact)
    expected = logits(exact, params, images)
    found = logits(rough, params, images)
    assert found.dtype == np.float32
    error = np.abs(found - expected).max() / expected.std()
    assert 1e-4 < error < 0.15  # bfloat16 has 8 bits; 0 would mean that it is not used


@pytest.mark.parametrize("pool, width", [("token", 0), ("map", 0), ("gap", 6)])
def test_head_starts_at_zero_with_the_given_bias(pool, width):
    cfg = tiny.config(pool=pool, head_bias=-10.0, depth=1, representation=width)
    model = vit.ViT(cfg)
    found = jax.jit(lambda key, x: model.init_with_output(key, x))(jax.random.key(0), tiny.images())
    np.testing.assert_array_equal(found[0], np.full((5, 7), -10.0, np.float32))
    assert not np.any(found[1]["params"]["head"]["kernel"])


def test_initial_parameters_follow_the_published_distributions():
    cfg = vit.config(variant="Ti/16", width=192, depth=2, mlp=768, heads=3, classes=10)
    image = np.zeros((1, 64, 64, 3), np.float32)
    params = jax.jit(vit.ViT(cfg).init)(jax.random.key(0), image)["params"]

    def std(x):
        return float(np.std(np.asarray(x)))

    assert not np.any(params["cls"])
    assert std(params["posemb"]) == pytest.approx(0.02, rel=0.1)
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


# --- bad input ---


@pytest.mark.parametrize(
    "change, words",
    [
        ({"variant": "X/16"}, ["'X/16'", "Ti/16", "So400m/16"]),
        ({"variant": "B16"}, ["'B16'", "Did you mean 'B/16'", "L/16"]),
        ({"variant": "B/0"}, ["'B/0'", "B/16"]),
        ({"variant": "B/"}, ["'B/'", "B/16"]),
        ({"pool": "mean"}, ["model.pool", "'mean'", "token", "gap", "map"]),
        ({"remat": "some"}, ["model.remat", "'some'", "none", "dots", "full"]),
        ({"dtype": "float16"}, ["model.dtype", "'float16'", "float32", "bfloat16"]),
        ({"heads": 5}, ["width 32", "heads 5", "[1, 2, 4, 8, 16, 32]"]),
        ({"depth": -1}, ["depth -1", "positive"]),
        ({"mlp": -4}, ["mlp -4", "positive"]),
        ({"dropout": 1.0}, ["model.dropout=1.0", "[0, 1)"]),
        ({"dropout": -0.1}, ["model.dropout=-0.1", "[0, 1)"]),
        ({"attention_dropout": 2.0}, ["model.attention_dropout=2.0", "[0, 1)"]),
        ({"drop_path": 1.5}, ["model.drop_path=1.5", "[0, 1)"]),
        ({"drop_path": float("nan")}, ["model.drop_path=nan", "[0, 1)"]),
    ],
)
def test_bad_values_list_what_would_do(change, words):
    with pytest.raises(BadInput) as caught:
        tiny.config(**change)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("width", [-8, 33])
def test_bad_width_is_bad_input(width):
    with pytest.raises(BadInput, match=f"width {width}"):
        tiny.config(width=width)


@pytest.mark.parametrize(
    "size, patch, words",
    [(225, 16, "224 or 240"), (10, 16, "use 16"), (0, 16, "use 16"), (50, 8, "48 or 56")],
)
def test_image_size_names_the_nearest_that_fit(size, patch, words):
    with pytest.raises(BadInput, match=words):
        vit.check_image_size(size, patch)


@pytest.mark.parametrize("size", [16, 224, 384])
def test_image_size_that_fits_passes(size):
    vit.check_image_size(size, 16)


# --- logical axes ---


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("pool, representation", [("token", 9), ("gap", 0), ("map", 9)])
def test_every_parameter_has_logical_axes_of_its_dimensions(pool, representation, scan):
    cfg = tiny.config(pool=pool, representation=representation, scan=scan)
    shapes = tiny.shapes(cfg)
    axes = sharding.param_axes(shapes, vit.AXES)
    leaves = dict(tree.leaves_with_paths(shapes))
    assert set(axes) == set(leaves)
    sizes = {"embed": 32, "heads": 4, "head_dim": 8, "mlp": 48, "classes": 7, "layers": 3}
    for path, names in axes.items():
        assert len(names) == len(leaves[path].shape)
        for name, size in zip(names, leaves[path].shape, strict=True):
            if name == "embed" and path == "head/kernel":
                assert size == (representation or 32)
            elif name in sizes:
                assert size == sizes[name], (path, names)
        split = {"embed", "heads", "mlp", "classes"}.intersection(names)
        assert split or path == "pre_logits/bias", path  # nothing large is left whole
        assert ("layers" in names) == tree.is_stacked(path)
