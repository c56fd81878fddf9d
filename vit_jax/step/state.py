# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The state that training carries from step to step: arrays only, saved as one tree."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

PyTree = Any


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TrainState:
    """Step count, parameters, optimizer state, and the average of parameters (None when off)."""

    step: jax.Array  # int32 [], optimizer steps done
    params: PyTree  # float32 leaves
    opt_state: PyTree
    ema: PyTree  # as params, or None


def create(
    init: Callable[[jax.Array], PyTree],
    tx: optax.GradientTransformation,
    key: jax.Array,
    *,
    ema: bool,
) -> TrainState:
    """Returns the state before the first step. Pure: meant for `jax.jit` with out-shardings.

    Args:
      init: key -> parameters.
      tx: the optimizer.
      key: typed key.
      ema: keeps an average of the parameters, which starts at the initial parameters.
    """
    return from_params(init(key), tx, ema=ema)


def from_params(params: PyTree, tx: optax.GradientTransformation, *, ema: bool) -> TrainState:
    """Returns the state that starts at the given parameters."""
    average = jax.tree.map(jnp.copy, params) if ema else None
    return TrainState(jnp.zeros((), jnp.int32), params, tx.init(params), average)
