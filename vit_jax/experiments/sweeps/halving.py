# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Successive halving: the rule of a recipe that stops the weaker runs of a stage early. Pure.

All runs train to the first rung; the best 1/eta of them go on to the second, and so on; those that
are left train to their end. This is Algorithm 1 of Jamieson and Talwalkar (arXiv:1502.07943) with a
factor eta. It is not its asynchronous variant ASHA (arXiv:1810.05934), which promotes a run by the
results that are there at that moment: which runs survive then depends on the speed of machines, on
`--parallel` and on restarts. Here a rung waits for all its runs, so it depends on nothing but their
metrics.

A run keeps the learning rates of its whole length, and is continued from its checkpoint. A run that
survives is therefore, bit for bit, the run without the rule. Start from `read`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax.checkpoints import retention
from vit_jax.config import timeline
from vit_jax.errors import BadInput

_KEYS = ("metric", "eta", "rungs", "within")


@dataclasses.dataclass(frozen=True)
class Halving:
    """The rule of a stage.

    Attributes:
      metric: the metric that ranks, `<split>/<metric>`; of a loss, less is better.
      eta: a rung keeps one of `eta` runs, rounded down, and at least one; above 1.
      rungs: rungs in percent of the length, rising; a rung is the nearest evaluation of `metric`.
      within: keys of the points; runs are ranked among those with the same values of them.
    """

    metric: str
    eta: float
    rungs: tuple[float, ...]
    within: tuple[str, ...] = ()

    def steps(self, run: str, steps: timeline.Steps) -> tuple[int, ...]:
        """Returns the steps of the rungs.

        Args:
          run: name of the run, for errors.
          steps: the durations of the run.

        Raises:
          BadInput: the run does not evaluate the metric at different steps for the rungs.
        """
        split = self.metric.rpartition("/")[0]
        if split.removesuffix("_raw") not in steps.evals:
            raise BadInput(
                f"{run}: halving ranks by {self.metric}, and the run has no evaluation {split}, "
                f"only {', '.join(steps.evals)}."
            )
        every = steps.evals[split.removesuffix("_raw")]
        nearest = [every * round(p * steps.total / 100 / every) if every else 0 for p in self.rungs]
        rises = all(a < b for a, b in zip([0, *nearest], [*nearest, steps.total], strict=True))
        if not rises:
            rungs = ", ".join(f"{p:g} percent" for p in self.rungs)
            raise BadInput(
                f"{run}: the rungs ({rungs} of {steps.total:,} steps) need evaluations of "
                f"{self.metric} near them, each at another step before the end; it is evaluated "
                f"every {every:,} steps (0: only at the end). Set evals.{split}.every."
            )
        return tuple(nearest)

    def best(
        self, points: Mapping[str, Mapping[str, Any]], measured: Mapping[str, float]
    ) -> dict[str, tuple[int, int, int]]:
        """Returns the verdict of a rung: run -> (its rank from 1, how many are kept, of how many).

        A run is kept if its rank is at most the number kept. The earlier of two equal runs ranks
        first.

        Args:
          points: run -> keys, of the runs at this rung in order.
          measured: run -> the metric there.
        """
        groups = dict[tuple[Any, ...], list[str]]()
        for run, keys in points.items():
            groups.setdefault(tuple(keys.get(key) for key in self.within), []).append(run)
        verdicts = {}
        for runs in groups.values():
            kept = max(1, int(len(runs) / self.eta))
            scores = {
                run: retention.score({self.metric: measured[run]}, self.metric) for run in runs
            }
            ranked = sorted(runs, key=lambda run: -scores[run])
            for rank, run in enumerate(ranked, 1):
                verdicts[run] = rank, kept, len(runs)
        return verdicts


def read(where: str, stage: Any) -> tuple[Any, Halving | None]:
    """Splits a stage of a recipe into its points and its rule, if it is a dict with both.

    Raises:
      BadInput: the rule has unknown keys or impossible values.
    """
    if not isinstance(stage, Mapping):
        return stage, None
    if set(stage) != {"points", "halving"} or not isinstance(stage["halving"], Mapping):
        raise BadInput(
            f"{where} is a dict with the keys {list(stage)}; expected a list of points, a "
            "function, or {'points': ..., 'halving': {'metric': ..., 'eta': ..., 'rungs': (...)}}."
        )
    rule = stage["halving"]
    unknown = [key for key in rule if key not in _KEYS]
    missing = [key for key in _KEYS[:3] if key not in rule]
    if unknown or missing:
        raise BadInput(
            f"{where}: halving has the keys {list(rule)}; expected metric, eta, rungs, and within "
            "where runs are ranked in groups."
        )
    halving = Halving(**{key: _plain(value) for key, value in rule.items()})
    rungs, within = halving.rungs, halving.within
    is_metric = isinstance(halving.metric, str) and "/" in halving.metric
    if not is_metric or not _is_number(halving.eta) or halving.eta <= 1:
        raise BadInput(
            f"{where}: halving has metric={halving.metric!r}, eta={halving.eta!r}; expected a "
            "metric such as 'val/top1', and a number above 1."
        )
    numbers = isinstance(rungs, tuple) and bool(rungs) and all(map(_is_number, rungs))
    if not numbers or list(rungs) != sorted(set(rungs)) or not 0 < rungs[0] <= rungs[-1] < 100:
        raise BadInput(
            f"{where}: halving has rungs={rungs!r}; expected rising percents of the length, such "
            "as (10, 30)."
        )
    if not isinstance(within, tuple) or not all(isinstance(key, str) for key in within):
        raise BadInput(f"{where}: halving has within={within!r}; expected keys of the points.")
    return stage["points"], halving


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
