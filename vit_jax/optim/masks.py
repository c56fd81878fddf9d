# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Factors for each parameter from path patterns: weight decay, learning rates, freezing.

Patterns are regular expressions matched against the whole canonical path of one layer
(`blocks/3/attn/query/kernel`, `head/bias`), so they mean the same with and without scan.
Start from `rate_factors`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from vit_jax import tree
from vit_jax.errors import BadInput

PyTree = Any
# The parameters before the first block: layer 0 of layer-wise decay.
_STEM = re.compile(r"(backbone|embedding|mask_token|cls|registers|posemb(_\w+)?)(/.*)?")


def _per_layer(params: PyTree, value: Callable[[str], float]) -> PyTree:
    """Returns a factor for each parameter; [S, 1, ...] where layers are stacked and differ."""

    def one(path: str, leaf: Any) -> np.ndarray:
        values = np.array([value(p) for p in tree.layer_paths(path, leaf.shape)], np.float32)
        if not tree.is_stacked(path):
            return values[0]
        if np.all(values == values[0]):
            return values[0]
        return values.reshape(-1, *[1] * (len(leaf.shape) - 1))

    return tree.map_with_path(one, params)


def canonical_paths(params: PyTree) -> list[str]:
    """Returns the paths that patterns are matched against: one per parameter of each layer."""
    return [
        name
        for path, leaf in tree.leaves_with_paths(params)
        for name in tree.layer_paths(path, leaf.shape)
    ]


def _compile(key: str, pattern: str, paths: Sequence[str]) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as e:
        raise BadInput(f"{key}: {pattern!r} is not a regular expression: {e}.") from e
    if not any(compiled.fullmatch(p) for p in paths):
        shown = ", ".join(paths[:: max(1, len(paths) // 8)])
        raise BadInput(f"{key}: {pattern!r} matches no parameter; paths look like {shown}.")
    return compiled


def decay_mask(params: PyTree, which: str) -> PyTree:
    """Returns a mask, True where weight decay acts: `kernels` (big_vision, AugReg) or `all`."""
    return tree.map_with_path(lambda path, _: which == "all" or path.endswith("/kernel"), params)


def trainable(params: PyTree, freeze: Sequence[str]) -> PyTree:
    """Returns a factor per parameter, or per layer of it: 0 where a pattern freezes it, else 1.

    Raises:
      BadInput: a pattern matches nothing, or everything is frozen.
    """
    paths = canonical_paths(params)
    patterns = [_compile("optimizer.freeze", p, paths) for p in freeze]
    factors = _per_layer(params, lambda path: float(not any(p.fullmatch(path) for p in patterns)))
    if not any(np.any(f) for f in jax.tree.leaves(factors)):
        raise BadInput(
            f"optimizer.freeze={tuple(freeze)} freezes every parameter; leave some to train."
        )
    return factors


def rate_factors(
    params: PyTree, lr_mults: Sequence[tuple[str, float]], layer_decay: float
) -> PyTree:
    """Returns the factor on the learning rate of each parameter.

    Args:
      params: tree of arrays or shapes.
      lr_mults: (pattern, factor) pairs; the first match wins; without a match the factor is 1.
      layer_decay: d; a parameter of layer l has a further factor d^(S + 1 - l): the stem is layer
        0, block i is layer i + 1, norm and head are layer S + 1 (arXiv:2003.10555, section A).
    """
    paths, depth = canonical_paths(params), tree.depth(params)
    patterns = [(_compile("optimizer.lr_mults", p, paths), factor) for p, factor in lr_mults]

    def factor(path: str) -> float:
        index = tree.layer_index(path)
        layer = index + 1 if index is not None else (0 if _STEM.fullmatch(path) else depth + 1)
        multiple = next((f for p, f in patterns if p.fullmatch(path)), 1.0)
        return multiple * layer_decay ** (depth + 1 - layer)

    return _per_layer(params, factor)
