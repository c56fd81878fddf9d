# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Paths, and the two layouts of the encoder blocks."""

import jax
import numpy as np
import optax
import pytest
import tiny

from vit_jax import tree


def looped(depth: int) -> dict:
    rng = np.random.default_rng(0)
    block = {"mlp": {"up": {"kernel": (2, 3), "bias": (3,)}}, "norm": {"scale": (2,)}}
    draw = lambda: jax.tree.map(  # noqa: E731
        lambda shape: rng.normal(size=shape), block, is_leaf=lambda x: isinstance(x, tuple)
    )
    return {"cls": rng.normal(size=(1, 1, 2))} | {f"block_{i}": draw() for i in range(depth)}


def assert_same(a: dict, b: dict) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_path_names_join_dict_keys_fields_and_indices():
    nested = {"a": [optax.EmptyState(), optax.ScaleByAdamState(1, {"w": 2}, (3, 4))]}
    assert [path for path, _ in tree.leaves_with_paths(nested)] == [
        "a/1/count",
        "a/1/mu/w",
        "a/1/nu/0",
        "a/1/nu/1",
    ]


def test_map_with_path_passes_path_and_matching_leaves():
    found = tree.map_with_path(lambda p, x, y: f"{p}:{x}{y}", {"a": {"b": 1}}, {"a": {"b": 2}})
    assert found == {"a": {"b": "a/b:12"}}


@pytest.mark.parametrize("depth", [1, 3, 12])  # 12: block_10 must not come before block_2
def test_stack_then_unstack_is_identity(depth):
    params = looped(depth)
    stacked = tree.stack_blocks(params)
    assert set(stacked) == {"cls", "blocks"}
    kernel = stacked["blocks"]["mlp"]["up"]["kernel"]
    assert isinstance(kernel, np.ndarray)
    assert kernel.shape == (depth, 2, 3)
    np.testing.assert_array_equal(
        kernel[depth - 1], params[f"block_{depth - 1}"]["mlp"]["up"]["kernel"]
    )
    assert_same(tree.unstack_blocks(stacked), params)


def test_unstack_then_stack_is_identity():
    stacked = tree.stack_blocks(looped(11))
    assert_same(tree.stack_blocks(tree.unstack_blocks(stacked)), stacked)


def test_tree_of_the_wanted_layout_is_returned_as_it_is():
    params = looped(2)
    stacked = tree.stack_blocks(params)
    assert tree.unstack_blocks(params) is params
    assert tree.stack_blocks(stacked) is stacked
    assert tree.unstack_blocks(plain := {"head": np.zeros(2)}) is plain


def test_stack_of_jax_arrays_stays_on_the_device():
    stacked = tree.stack_blocks(jax.device_put({"block_0": {"w": np.ones(2)}}))
    assert isinstance(stacked["blocks"]["w"], jax.Array)


@pytest.mark.parametrize("pool", ["token", "map"])
def test_layer_paths_of_both_layouts_agree(pool):
    names = {
        scan: sorted(
            name
            for path, leaf in tree.leaves_with_paths(tiny.shapes(tiny.config(pool=pool, scan=scan)))
            for name in tree.layer_paths(path, leaf.shape)
        )
        for scan in (True, False)
    }
    assert names[True] == names[False]
    assert "blocks/2/attn/query/kernel" in names[True]
    assert "norm/scale" in names[True]


@pytest.mark.parametrize(
    "path, index", [("blocks/3/attn/out/bias", 3), ("blocks/12/x", 12), ("head/kernel", None)]
)
def test_layer_index(path, index):
    assert tree.layer_index(path) == index


def test_only_the_subtree_of_blocks_is_stacked():
    assert tree.is_stacked("blocks/attn/out/bias")
    assert not tree.is_stacked("block_0/attn/out/bias")
    assert not tree.is_stacked("blocks_of/attn")


@pytest.mark.parametrize("depth", [1, 12])
def test_depth_of_both_layouts(depth):
    params = looped(depth)
    assert tree.depth(params) == tree.depth(tree.stack_blocks(params)) == depth


def test_depth_without_blocks_is_zero():
    assert tree.depth({"head": {"kernel": np.zeros((2, 3))}}) == 0


def test_size_counts_elements():
    assert tree.size({"a": np.zeros((2, 3)), "b": np.zeros(())}) == 7


def test_difference_is_empty_for_equal_shapes():
    a, b = {"x": {"y": np.zeros((2, 3))}}, {"x": {"y": np.ones((2, 3), np.int8)}}
    assert tree.difference(a, b) == ""


def test_difference_lists_missing_unexpected_and_wrong_shape():
    given = {"a": np.zeros(2), "b": {"c": np.zeros((2, 3))}, "same": np.zeros(4)}
    expected = {"b": {"c": np.zeros((3, 2)), "d": np.zeros(5)}, "same": np.zeros(4)}
    lines = [" ".join(line.split()) for line in tree.difference(given, expected).splitlines()]
    assert lines == [
        "missing b/d (5,)",
        "unexpected a (2,)",
        "wrong shape b/c: (2, 3), expected (3, 2)",
    ]
