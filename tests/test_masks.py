# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Per-parameter factors: which parameters decay, which are frozen, and at which rate they learn."""

import jax
import numpy as np
import pytest
import tiny

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.optim import optimizers

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
    mask = optimizers.decayed(params, "kernels")
    assert jax.tree.structure(mask) == jax.tree.structure(params)
    decayed = {path for path, decays in tree.leaves_with_paths(mask) if decays}
    assert decayed == {p for p, _ in tree.leaves_with_paths(params) if p.split("/")[-1] == "kernel"}
    assert {"embedding/kernel", "head/kernel", "pre_logits/kernel"} < decayed
    assert not any("norm" in path or path in ("cls", "posemb") for path in decayed)


@BOTH
def test_decay_mask_all_is_true_everywhere(scan):
    assert all(jax.tree.leaves(optimizers.decayed(shapes(scan), "all")))


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
