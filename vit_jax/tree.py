# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Nested dicts of arrays: paths, and the two layouts of the encoder blocks.

Blocks are either stacked (one subtree `blocks`, each leaf with a leading layer axis, the layout of
scan) or unrolled in a loop (`block_0`, `block_1`, ...). A pattern always addresses one layer by its
canonical path `blocks/3/attn/query/kernel`, whatever the layout. Start from `leaves_with_paths`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

PyTree = Any
STACKED = "blocks"  # the subtree whose leaves have a leading layer axis
_LOOPED = re.compile(r"^block_(\d+)/")


def path_name(path: tuple[Any, ...]) -> str:
    """Returns a jax key path as `a/b/0/c`."""
    return "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path)


def leaves_with_paths(tree: PyTree) -> list[tuple[str, Any]]:
    """Returns all leaves as (path, leaf), in tree order."""
    return [(path_name(p), leaf) for p, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def map_with_path(fn: Callable[..., Any], tree: PyTree, *rest: PyTree) -> PyTree:
    """Maps like `jax.tree.map`, with the path as a string in front of the other arguments."""
    return jax.tree_util.tree_map_with_path(lambda p, *x: fn(path_name(p), *x), tree, *rest)


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Builds nested dicts from path -> leaf; the inverse of `leaves_with_paths` for such trees."""
    root: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, name = path.split("/")
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return root


def is_stacked(path: str) -> bool:
    """Returns True if the leaf at `path` has a leading layer axis."""
    return path.startswith(STACKED + "/")


def layer_paths(path: str, shape: tuple[int, ...]) -> list[str]:
    """Returns the canonical paths of one leaf: one per layer if stacked, else a single one."""
    if is_stacked(path):
        rest = path[len(STACKED) + 1 :]
        return [f"{STACKED}/{layer}/{rest}" for layer in range(shape[0])]
    return [_LOOPED.sub(rf"{STACKED}/\1/", path)]


def layer_index(canonical_path: str) -> int | None:
    """Returns the block number of a canonical path, or None outside the blocks."""
    match = re.match(rf"{STACKED}/(\d+)/", canonical_path)
    return int(match[1]) if match else None


def depth(params: PyTree) -> int:
    """Returns the number of encoder blocks in a parameter tree of either layout."""
    layers = [
        layer_index(name)
        for path, leaf in leaves_with_paths(params)
        for name in layer_paths(path, leaf.shape)
    ]
    return 1 + max((i for i in layers if i is not None), default=-1)


def stack_blocks(params: dict[str, Any]) -> dict[str, Any]:
    """Converts unrolled blocks to stacked ones; returns a tree without `block_0` as it is."""
    names = [f"block_{i}" for i in range(sum(_LOOPED.match(k + "/") is not None for k in params))]
    if not names:
        return params
    rest = {k: v for k, v in params.items() if k not in names}
    return rest | {STACKED: jax.tree.map(_stack, *(params[n] for n in names))}


def _stack(*leaves: Any) -> Any:
    return (np if isinstance(leaves[0], np.ndarray) else jnp).stack(leaves)


def unstack_blocks(params: dict[str, Any]) -> dict[str, Any]:
    """Converts stacked blocks to unrolled ones; returns a tree without stacked blocks as it is."""
    if STACKED not in params:
        return params
    rest = {k: v for k, v in params.items() if k != STACKED}
    layers = range(jax.tree.leaves(params[STACKED])[0].shape[0])
    return rest | {f"block_{i}": jax.tree.map(lambda x, i=i: x[i], params[STACKED]) for i in layers}


def size(tree: PyTree) -> int:
    """Returns the number of elements in all leaves."""
    return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(tree))


def difference(actual: PyTree, expected: PyTree) -> str:
    """Describes how two trees differ in paths and shapes, from both sides; "" if they agree."""
    have = {p: tuple(x.shape) for p, x in leaves_with_paths(actual)}
    want = {p: tuple(x.shape) for p, x in leaves_with_paths(expected)}
    rows = [f"  missing      {p} {want[p]}" for p in want if p not in have]
    rows += [f"  unexpected   {p} {have[p]}" for p in have if p not in want]
    rows += [
        f"  wrong shape  {p}: {have[p]}, expected {want[p]}"
        for p in want
        if p in have and have[p] != want[p]
    ]
    return "\n".join(rows)
