# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tests claims against measurements: the criterion is data, the verdict is computed.

A claim is about one number for each seed: a weighted sum of measurements of runs with that seed.
The mean over seeds has a standard error and, by Student's t, an interval that covers the truth in
90 % of cases. `above` is shown if the interval lies above the margin, `below` if it lies below
minus the margin, `equal` if it lies within plus or minus the margin. So the mere lack of a
difference shows nothing. Pure; start from `judge`.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from scipy import special

from vit_jax.errors import unknown

Test = Literal["above", "below", "equal"]
Verdict = Literal["shown", "not shown", "opposite", "missing"]


@dataclasses.dataclass(frozen=True)
class Claim:
    """A claim, and the criterion for it.

    Attributes:
      tier: the group of runs that it is about.
      claim: the claim in words.
      terms: (weight, cell, metric); the number is the sum of weight x metric.
      test: how the mean is compared with the margin.
      margin: at least 0, in `unit`.
      unit: unit of the number.
      seeds: the smallest number of seeds to judge, at least 2.
    """

    tier: str
    claim: str
    terms: Sequence[tuple[float, str, str]]
    test: Test
    margin: float
    unit: str
    seeds: int

    def __post_init__(self):
        if self.test not in get_args(Test):
            raise unknown("test of a claim", self.test, get_args(Test))

    @property
    def criterion(self) -> str:
        """Returns the test in words."""
        test = {
            "above": f"> {self.margin:g}",
            "below": f"< {-self.margin:g}",
            "equal": f"within ± {self.margin:g}",
        }[self.test]
        return f"mean ± t se {test} {self.unit}, {self.seeds} seeds"


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Attributes:
      claim: the claim.
      verdict: computed from the other attributes.
      values: one for each seed that has every term, ascending by seed.
      mean: the mean of `values`; None without values.
      error: standard error of the mean; None with fewer than two values.
    """

    claim: Claim
    verdict: Verdict
    values: tuple[float, ...] = ()
    mean: float | None = None
    error: float | None = None


def judge(claim: Claim, measured: Mapping[tuple[str, str], Mapping[int, float]]) -> Judged:
    """Returns the verdict on a claim.

    Args:
      claim: the claim.
      measured: (cell, metric) -> seed -> value.
    """
    each = [measured.get((cell, metric), {}) for _, cell, metric in claim.terms]
    seeds = sorted(set.intersection(*map(set, each)))
    weights = [weight for weight, _, _ in claim.terms]
    values = tuple(
        math.fsum(w * m[seed] for w, m in zip(weights, each, strict=True)) for seed in seeds
    )
    mean = statistics.fmean(values) if values else None
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    if len(values) < claim.seeds or mean is None or error is None:
        return Judged(claim, "missing", values, mean, error)
    half = float(special.stdtrit(len(values) - 1, 0.95)) * error
    return Judged(claim, _verdict(claim, mean - half, mean + half), values, mean, error)


def _verdict(claim: Claim, low: float, high: float) -> Verdict:
    """Returns the verdict for an interval."""
    if claim.test == "equal":
        inside = -claim.margin < low and high < claim.margin
        outside = low > claim.margin or high < -claim.margin
        return "shown" if inside else "opposite" if outside else "not shown"
    if claim.test == "below":
        low, high = -high, -low
    if low > claim.margin:
        return "shown"
    return "opposite" if high < -claim.margin else "not shown"
