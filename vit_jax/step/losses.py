# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Losses, which map logits and targets to one value per example.

Axes: B batch, K labels of an example, Y classes. Start from `find`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from vit_jax.config import plugins
from vit_jax.errors import BadInput

Loss = Callable[[jax.Array, jax.Array], jax.Array]  # logits and targets [B, Y] to float32 [B]


def softmax_xent(logits_BY: jax.Array, targets_BY: jax.Array) -> jax.Array:
    """Returns the cross-entropy against a distribution over classes, in nats, float32 [B].

    Targets that do not sum to one (several labels) are used as given.
    """
    return -jnp.sum(targets_BY * jax.nn.log_softmax(logits_BY.astype(jnp.float32)), axis=-1)


def sigmoid_xent(logits_BY: jax.Array, targets_BY: jax.Array) -> jax.Array:
    """Returns the binary cross-entropy summed over classes, in nats, float32 [B].

    This is the pre-training loss on JFT-300M and ImageNet-21k (BiT, arXiv:1912.11370; ViT,
    appendix B.1).
    """
    logits_BY = logits_BY.astype(jnp.float32)
    log_p, log_not_p = jax.nn.log_sigmoid(logits_BY), jax.nn.log_sigmoid(-logits_BY)
    return -jnp.sum(targets_BY * log_p + (1.0 - targets_BY) * log_not_p, axis=-1)


def squared_error(predicted: jax.Array, targets: jax.Array) -> jax.Array:
    """Returns the mean squared difference along the last axis: [..., N] to float32 [...]."""
    return jnp.mean((predicted.astype(jnp.float32) - targets) ** 2, axis=-1)


LOSSES: dict[str, Loss] = {
    "softmax": softmax_xent,
    "sigmoid": sigmoid_xent,
}


def find(name: str) -> Loss:
    """Returns a loss by name: a key of `LOSSES`, or `MODULE:FUNCTION(key=value)` of a user.

    Raises:
      BadInput: a user's loss does not exist; see `plugins.find`. One that does not return one
        value per example raises it later, when it is traced.
    """
    if not plugins.is_own(name):
        return LOSSES[name]
    own = plugins.find(f"loss.name={name!r}", name, None, None)

    def loss(logits_BY: jax.Array, targets_BY: jax.Array) -> jax.Array:
        loss_B = jnp.asarray(own(logits_BY.astype(jnp.float32), targets_BY))
        if loss_B.shape != logits_BY.shape[:1] or loss_B.dtype != jnp.float32:
            raise BadInput(
                f"loss.name={name!r} gives {loss_B.dtype} {list(loss_B.shape)} for logits "
                f"{list(logits_BY.shape)}; expected float32 [{len(logits_BY)}], a value an example."
            )
        return loss_B

    return loss


def multi_hot(labels_BK: jax.Array, classes: int, *, smoothing: float = 0.0) -> jax.Array:
    """Returns targets from label numbers.

    Args:
      labels_BK: int32 [B, K], padded with -1.
      classes: Y.
      smoothing: s in [0, 1): targets become (1 - s) * targets + s / Y.

    Returns:
      float32 [B, Y].
    """
    hot_BKY = jax.nn.one_hot(labels_BK, classes)  # a label of -1 is a row of zeros
    return (1.0 - smoothing) * jnp.max(hot_BKY, axis=1) + smoothing / classes
