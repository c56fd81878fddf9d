# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""MLP-Mixer: numerics of the published models, scan, stochastic depth, initial values."""

import dataclasses

import jax
import numpy as np
import numpy_mixer
import pytest
import tiny
from flax.errors import ScopeParamShapeError

from vit_jax import tree
from vit_jax.models import mixer, variants


def reference(cfg, weights, images, **changes):
    given = {"patch": cfg.patch, "gelu": cfg.gelu, "ln_epsilon": cfg.ln_epsilon} | changes
    return numpy_mixer.forward(tree.unstack_blocks(weights), images, **given)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scan": False},
        {"gelu": "erf"},
        {"classes": 0},
        {"ln_epsilon": 0.1},
        {"token_mlp": 40, "depth": 1},
    ],
    ids=str,
)
def test_forward_equals_independent_numpy_mixer(changes):
    cfg = tiny.mixer(**changes)
    weights, images = tiny.params(cfg), tiny.images()
    found, expected = tiny.logits(cfg, weights, images), reference(cfg, weights, images)
    assert expected.std() > 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_the_two_forms_of_gelu_differ():
    cfg = tiny.mixer()
    weights, images = tiny.params(cfg), tiny.images()
    found = tiny.logits(cfg, weights, images) - tiny.logits(tiny.mixer(gelu="erf"), weights, images)
    assert 1e-5 < np.abs(found).max() < 1e-2


@pytest.mark.parametrize("epsilon", [1e-6, 1e-5])
def test_epsilon_of_layer_norm_shows_at_small_variances(epsilon):
    cfg = tiny.mixer(depth=1, ln_epsilon=epsilon)
    weights, images = tiny.params(cfg), tiny.images()
    # Variances near 1e-6 before every norm.
    weights["embedding"] = jax.tree.map(lambda x: np.float32(1e-3) * x, weights["embedding"])
    for name in ("token_mlp", "channel_mlp"):
        last = weights["blocks"][name]["down"]
        last.update(jax.tree.map(lambda x: np.float32(1e-3) * x, last))
    found, expected = tiny.logits(cfg, weights, images), reference(cfg, weights, images)
    assert np.abs(reference(cfg, weights, images, ln_epsilon=3e-6) - expected).max() > 0.01
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("train", [False, True])
def test_scan_equals_loop(train):
    stacked, looped = tiny.mixer(drop_path=0.4), tiny.mixer(drop_path=0.4, scan=False)
    images, key = tiny.images(), jax.random.key(5)
    found = tiny.logits(stacked, tiny.params(stacked), images, train, key)
    expected = tiny.logits(looped, tiny.params(looped), images, train, key)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    still = tiny.logits(stacked, tiny.params(stacked), images)
    assert (np.abs(found - still).max() > 0.1) == train


def test_drop_path_is_zero_in_the_first_block_and_per_example_in_the_last():
    cfg = tiny.mixer(drop_path=0.5, depth=2)
    same = np.repeat(tiny.images(1), 64, axis=0)
    found = tiny.logits(cfg, tiny.params(cfg), same, True, jax.random.key(1))
    distinct, counts = np.unique(found.round(3), axis=0, return_counts=True)
    assert len(distinct) == 4  # two branches of one block are dropped or kept
    assert counts.min() >= 5  # of 16 expected


def test_nothing_is_dropped_in_evaluation_nor_without_a_rate():
    cfg, plain = tiny.mixer(drop_path=0.4), tiny.mixer()
    weights, images, key = tiny.params(cfg), tiny.images(), jax.random.key(0)
    expected = tiny.logits(plain, weights, images)
    np.testing.assert_array_equal(tiny.logits(cfg, weights, images, False, key), expected)
    np.testing.assert_array_equal(tiny.logits(plain, weights, images, True, key), expected)


def test_parameters_fit_one_number_of_tokens():
    cfg = tiny.mixer()
    assert tree.difference(tiny.shapes(cfg, 12, 8), tiny.shapes(cfg)) == ""
    mlps = {p: x.shape for p, x in tree.leaves_with_paths(tiny.shapes(cfg)) if "up/kernel" in p}
    assert mlps == {
        "blocks/token_mlp/up/kernel": (3, 6, 20),
        "blocks/channel_mlp/up/kernel": (3, 32, 48),
    }
    with pytest.raises(ScopeParamShapeError, match="token_mlp/up"):
        tiny.logits(cfg, tiny.params(cfg), tiny.images(1, 12, 12))


def test_initial_parameters_follow_the_published_distributions():
    cfg = variants.config(variant="Mixer-S/16", classes=10, depth=2, head_bias=-3.0)
    init = jax.jit(variants.make(cfg).init_with_output)
    found, variables = init(jax.random.key(0), np.ones((2, 96, 96, 3), np.float32))
    np.testing.assert_array_equal(found, np.full((2, 10), -3.0, np.float32))
    for path, leaf in tree.leaves_with_paths(variables["params"]):
        *_, name = path.split("/")
        if path == "head/bias":
            assert np.all(np.asarray(leaf) == -3.0)
        elif name == "scale":
            assert np.all(np.asarray(leaf) == 1.0), path
        elif name == "bias" or path == "head/kernel":
            assert not np.any(leaf), path
        else:
            inputs = np.prod(leaf.shape[tree.is_stacked(path) : -1])
            assert np.std(np.asarray(leaf)) == pytest.approx(inputs**-0.5, rel=0.05), path
    first, second = np.asarray(variables["params"]["blocks"]["channel_mlp"]["up"]["kernel"])
    assert np.std(first - second) == pytest.approx(2**0.5 * np.std(first), rel=0.05)


def test_numbers_replace_those_of_the_variant():
    named = variants.config(variant="Mixer-B/16", classes=3)
    assert named == mixer.MixerConfig(16, 768, 12, 3072, 384, 3)  # the rest is default
    given = variants.config(variant="Mixer-B/16", classes=3, depth=2, token_mlp=9, gelu="erf")
    assert given == dataclasses.replace(named, depth=2, token_mlp=9, gelu="erf")
