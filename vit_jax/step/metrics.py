# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Metrics as sums and counts: added up over batches and divided once, so they are exact.

Axes: B batch, K labels of an example, Y classes, C columns of an evaluation with other classes,
G classes that map to one column. Start from `sums`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def in_top_k(logits_BY: jax.Array, labels_BK: jax.Array, k: int) -> jax.Array:
    """Returns True where one of the k highest logits is among the labels; bool [B].

    It counts the classes that come before a label. A sort would gather the logits of all devices.
    Ties go to the lower class number; a NaN logit is never right.
    """
    label_BK1 = labels_BK[..., None]
    own_BK1 = jnp.take_along_axis(logits_BY[:, None, :], jnp.maximum(label_BK1, 0), axis=-1)
    number_11Y = jnp.arange(logits_BY.shape[-1])[None, None, :]
    logits_B1Y = logits_BY[:, None, :]
    before_BKY = (logits_B1Y > own_BK1) | ((logits_B1Y == own_BK1) & (number_11Y < label_BK1))
    real_BK = (labels_BK >= 0) & ~jnp.isnan(own_BK1[..., 0])
    return jnp.any((jnp.sum(before_BKY, axis=-1) < k) & real_BK, axis=1)


def of_columns(logits_BY: jax.Array, columns_CG: jax.Array) -> jax.Array:
    """Returns the highest logit among each column's classes; float32 [B, C].

    Args:
      logits_BY: float32 [B, Y].
      columns_CG: int32 [C, G], class numbers padded with -1; each column has at least one.
    """
    logits_BCG = jnp.take(logits_BY, jnp.maximum(columns_CG, 0), axis=1)
    return jnp.max(jnp.where(columns_CG[None] >= 0, logits_BCG, -jnp.inf), axis=-1)


def sums(
    logits_BY: jax.Array, labels_BK: jax.Array, mask_B: jax.Array, loss_B: jax.Array
) -> dict[str, jax.Array]:
    """Returns sums over the real examples of a batch.

    Args:
      logits_BY: float32 [B, Y].
      labels_BK: int32 [B, K], padded with -1.
      mask_B: bool [B], False for padding rows.
      loss_B: float32 [B].

    Returns:
      `top1`, `top5`, `examples` as int32 [] and `loss` as float32 [].
    """
    return {
        "top1": jnp.sum(in_top_k(logits_BY, labels_BK, 1) & mask_B, dtype=jnp.int32),
        "top5": jnp.sum(in_top_k(logits_BY, labels_BK, 5) & mask_B, dtype=jnp.int32),
        "loss": jnp.sum(jnp.where(mask_B, loss_B, 0.0)),
        "examples": jnp.sum(mask_B, dtype=jnp.int32),
    }


def total(batches: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns means over all examples of all batches; sums are added in float64.

    Args:
      batches: the result of `sums` for each batch, on the host.

    Returns:
      `top1`, `top5` in [0, 1], `loss` in nats, and `examples`; further arrays in float64.
    """
    added: dict[str, Any] = {}
    for batch in batches:
        for name, value in batch.items():
            added[name] = added.get(name, 0.0) + np.asarray(value, np.float64)
    count = added.pop("examples")
    means = {name: value / count for name, value in added.items()}
    numbers = {name: float(mean) if mean.ndim == 0 else mean for name, mean in means.items()}
    return numbers | {"examples": int(count)}
