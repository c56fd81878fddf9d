# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Muon for the matrices inside a network, and AdamW for every other parameter.

Each layer's kernel is a matrix of its own, stacked or not: the layer axis of stacked blocks is
never part of a matrix. The iteration is optax's. Axes: S layers, M rows (inputs), N columns
(outputs) of a matrix. Start from `muon`.
"""

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import NamedSharding, PartitionSpec
from optax.contrib import MuonDimensionNumbers, scale_by_muon

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.sharding import Rules

PyTree = Any
Transform = optax.GradientTransformation

_APART = ("replica", "data")  # mesh axes over which layers are split for the iteration

# What owns a kernel that is not between two hidden layers, or belongs to an objective.
_ENDS = re.compile(r"embedding|(\w+_)?head(_\w+)?|(.*/)?conv_root|objective/.*")


def is_matrix(path: str, shape: tuple[int, ...]) -> bool:
    """Returns True if Muon trains a parameter: a kernel between two hidden layers."""
    owner, _, name = path.rpartition("/")
    return name == "kernel" and len(shape) > 1 and not _ENDS.fullmatch(owner)


def axes(path: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns which axes of a kernel are its rows, and which its columns; layers are neither.

    Kernels of query, key and value are [D, N, K] and have one axis of rows. Any other kernel has
    one axis of columns, as `out` [N, K, D] and convolutions [h, w, C, D].
    """
    first = int(tree.is_stacked(path))
    every = tuple(range(first, len(shape)))
    rows = 1 if path.split("/")[-2] in ("query", "key", "value") else len(every) - 1
    return every[:rows], every[rows:]


def matrix(path: str, shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Returns S, M and N of a kernel; S is 1 if it is not stacked."""
    rows, columns = (math.prod(shape[k] for k in side) for side in axes(path, shape))
    return math.prod(shape) // (rows * columns), rows, columns


def muon(
    decay: Transform,
    *,
    momentum: float,
    iterations: int,
    rms: float,
    b1: float,
    b2: float,
    eps: float,
    mu_dtype: str,
    rules: Rules | None = None,
) -> Transform:
    """Applies Muon to matrices and Adam to the rest, then decay to both.

    A matrix moves by scale * orthogonalised(Nesterov momentum), where the Newton-Schulz iteration
    of Keller Jordan's Muon brings all singular values near 1. The scale is rms * sqrt(max(M, N)):
    the root mean square of an update is then about `rms` for every shape (arXiv:2502.16982,
    equation 4). With 0.2 it is that of AdamW, whose rate and decay suit Muon too. With rms=0 the
    scale is sqrt(max(1, N / M)), as in Jordan's code.

    Args:
      decay: what follows.
      momentum: decay of the momentum of matrices.
      iterations: number of Newton-Schulz iterations.
      rms: see above.
      b1: of Adam.
      b2: of Adam.
      eps: of Adam.
      mu_dtype: dtype of the momentum and of Adam's first moment.
      rules: placement, see `_layers_apart`.
    """
    dtype = jnp.dtype(mu_dtype)
    orthogonal = scale_by_muon(
        ns_steps=iterations,
        beta=momentum,
        mu_dtype=dtype,
        weight_dimension_numbers=lambda updates: tree.map_with_path(
            lambda path, x: MuonDimensionNumbers(*axes(path, x.shape)), updates
        ),
    )

    def finished(path: str, update: jax.Array) -> jax.Array:
        _, rows, columns = matrix(path, update.shape)
        scale = rms * math.sqrt(max(rows, columns)) if rms else math.sqrt(max(1, columns / rows))
        return _layers_apart(path, update, rules) * scale

    matrices = optax.chain(
        orthogonal,
        optax.stateless(lambda updates, _: tree.map_with_path(finished, updates)),
    )
    parts: dict[Any, Transform] = {
        "muon": matrices,
        "adam": optax.scale_by_adam(b1, b2, eps, mu_dtype=dtype),
    }
    return optax.chain(optax.partition(parts, _labels), decay)


def _labels(params: PyTree) -> PyTree:
    labels = tree.map_with_path(
        lambda path, x: "muon" if is_matrix(path, x.shape) else "adam", params
    )
    if "muon" not in jax.tree.leaves(labels):
        raise BadInput(
            "optimizer.name=muon moves kernels between two hidden layers, and none is trained; use "
            "--config.optimizer.name=adamw."
        )
    return labels


def _layers_apart(path: str, update: jax.Array, rules: Rules | None) -> jax.Array:
    """Splits the layers of stacked matrices over the devices that hold the same part of each.

    The compiler takes this placement back through the iteration. Without it, these devices would
    all compute the same. Over `fsdp` and `tensor` the compiler splits the products.
    """
    if rules is None or not tree.is_stacked(path):
        return update
    spec = PartitionSpec(_APART, *[PartitionSpec.UNCONSTRAINED] * (update.ndim - 1))
    return jax.lax.with_sharding_constraint(update, NamedSharding(rules.mesh, spec))


def flops(params: PyTree, iterations: int, rules: Rules) -> int:
    """Returns the least FLOPs of the Newton-Schulz iterations of a step on the busiest device.

    An iteration computes X X^T, its square, and a product with X; with M <= N these are
    2 M^2 N + 2 M^3 + 2 M^2 N FLOPs.
    """
    mesh, total = rules.mesh, 0
    apart = math.prod(mesh.shape[axis] for axis in _APART)
    for path, leaf in tree.leaves_with_paths(params):
        if is_matrix(path, leaf.shape):
            layers, *sides = matrix(path, leaf.shape)
            low, high = sorted(sides)
            total += -(-layers // apart) * iterations * low**2 * (4 * high + 2 * low)
    return total * apart // mesh.size
