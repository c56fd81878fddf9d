# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Exact classification metrics of a split: every example once, whatever batch size and devices."""

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import jax

from vit_jax.step import metrics

if TYPE_CHECKING:
    from vit_jax.evaluators import custom


def evaluate(
    eval_step: Callable[[Any, dict[str, jax.Array]], dict[str, Any]],
    params: Any,
    batches: Iterable[tuple[str, dict[str, jax.Array]]],
    evaluator: "custom.Evaluator | None" = None,
) -> dict[str, float | int]:
    """Runs over all batches; the device is never waited for before the last one.

    Args:
      eval_step: from `train_step.make_eval_step`, compiled.
      params: parameters on the mesh.
      batches: (part, global batch with a mask); part is "" but for ImageNet-C's.
      evaluator: of a user's own, which measures all parts together; it needs a step with `scores`.

    Returns:
      `top1`, `top5`, `loss` and `examples` of all parts together, see `metrics.total`; with parts
      also what `robustness.corruption_errors` says, and with an evaluator what it does.
    """
    measured: dict[str, list[Any]] = {}
    scores: list[Any] = []
    for part, batch in batches:
        sums = eval_step(params, batch)
        measured.setdefault(part, []).append(sums)
        if evaluator is not None:  # fetched one batch late, so that devices never wait for the host
            scores.append(sums.pop("scores"))
            scores[-2:-1] = jax.device_get(scores[-2:-1])
    measured = jax.device_get(measured)
    found = metrics.total(itertools.chain.from_iterable(measured.values()))
    if evaluator is not None:
        from vit_jax.evaluators import custom

        found |= custom.measure(evaluator, jax.device_get(scores))
    if "" in measured:
        return found
    top1 = {part: metrics.total(sums)["top1"] for part, sums in measured.items()}
    from vit_jax.paper import robustness

    return found | robustness.corruption_errors(top1)
