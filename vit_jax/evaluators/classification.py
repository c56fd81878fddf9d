# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Exact classification metrics of a split: every example once, whatever batch size and devices."""

from collections.abc import Callable, Iterable
from typing import Any

import jax

from vit_jax import metrics


def evaluate(
    eval_step: Callable[[Any, dict[str, jax.Array]], dict[str, jax.Array]],
    params: Any,
    batches: Iterable[dict[str, jax.Array]],
) -> dict[str, float | int]:
    """Runs over all batches; the device is never waited for before the last one.

    Args:
      eval_step: from `train_step.make_eval_step`, compiled.
      params: parameters on the mesh.
      batches: global batches with a mask.

    Returns:
      `top1`, `top5`, `loss` and `examples`, see `metrics.total`.
    """
    return metrics.total(jax.device_get([eval_step(params, batch) for batch in batches]))
