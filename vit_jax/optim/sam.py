# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sharpness-aware minimisation: the gradient of a step is taken a little uphill of its parameters.

The second pass is part of `step.train_step`. Start from `climbing`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from vit_jax.optim import optimizers

PyTree = Any
Climb = Callable[[PyTree, PyTree], PyTree]


def climbing(params: PyTree, rho: float, freeze: Sequence[str]) -> Climb:
    """Returns (parameters, gradients) -> parameters + rho * gradients / |gradients|.

    See arXiv:2010.01412, equation 2 with p = 2. Frozen parameters stay and do not count in the
    norm. Gradients of zero move nothing.

    Args:
      params: tree of arrays or shapes.
      rho: length of the step uphill, above 0.
      freeze: see `optimizers.trainable`.
    """
    factors = optimizers.trainable(params, freeze) if freeze else None

    def climb(params: PyTree, grads: PyTree) -> PyTree:
        if factors is not None:
            grads = jax.tree.map(lambda g, f: g * jnp.asarray(f, g.dtype), grads, factors)
        norm = optax.tree.norm(grads)
        step = jnp.where(norm > 0, rho / jnp.where(norm > 0, norm, 1.0), 0.0)
        return jax.tree.map(lambda p, g: p + step * g, params, grads)

    return climb
