# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The arrays that a step works on: the state of training, saved as one tree, and its images."""

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


def normalise(image_BHWC: jax.Array, mean: tuple[float, ...], std: tuple[float, ...]) -> jax.Array:
    """Maps uint8 [0, 255] to float32: (image / 255 - mean) / std, per channel.

    It takes one multiplication and one addition: (0.5, 0.5) gives image / 127.5 - 1.
    """
    scale = jnp.asarray([[[[1.0 / (255.0 * s) for s in std]]]], jnp.float32)
    shift = jnp.asarray([[[[-m / s for m, s in zip(mean, std, strict=True)]]]], jnp.float32)
    return image_BHWC.astype(jnp.float32) * scale + shift
