# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Computes exact classification metrics of a split.

Every example counts once, for any batch size and any devices. Start from `evaluate`.
"""

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
) -> dict[str, Any]:
    """Runs over all batches; waits for the device only after the last one.

    Args:
      eval_step: from `train_step.make_eval_step`, compiled.
      params: parameters on the mesh.
      batches: (part, global batch with a mask); part is "" except for ImageNet-C.
      evaluator: a user's own evaluator, which measures all parts together; it needs a step with
        `scores`.

    Returns:
      `top1`, `top5`, `loss` and `examples` of all parts together, see `metrics.total`. With parts,
      also the result of `robustness.corruption_errors`; with an evaluator, also its metrics.
    """
    measured: dict[str, list[Any]] = {}
    scores: list[Any] = []
    for part, batch in batches:
        sums = eval_step(params, batch)
        measured.setdefault(part, []).append(sums)
        if evaluator is not None:  # one batch late, so that devices never wait for the host
            scores.append(sums.pop("scores"))
            scores[-2:-1] = jax.device_get(scores[-2:-1])
    measured = jax.device_get(measured)
    results = metrics.total(itertools.chain.from_iterable(measured.values()))
    if evaluator is not None:
        from vit_jax.evaluators import custom

        results |= custom.measure(evaluator, jax.device_get(scores))
    if "" in measured:
        return results
    top1 = {part: metrics.total(sums)["top1"] for part, sums in measured.items()}
    from vit_jax.paper import robustness

    return results | robustness.corruption_errors(top1)
