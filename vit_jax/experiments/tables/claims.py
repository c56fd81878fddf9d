# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tests claims against measurements: the criterion is data, the verdict is computed.

A claim is about one number for each seed: a weighted sum of measurements of runs with that seed.
`above` says that its mean over seeds is more than the margin, `below` that it is less than minus
the margin, `equal` that it lies within plus or minus the margin. So the mere lack of a difference
shows nothing. Student's t gives a p-value for the claim and for its opposite. Twice the smaller one
is the p-value of the test, and Holm's procedure (1979) corrects it for the number of claims.

Seeds 0 to n - 1 are the first execution, n to 2 n - 1 the second, and so on. A claim whose
executions disagree is `not settled`. Pure; start from `judge`.
"""

import collections
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from scipy import special

from vit_jax.errors import BadInput, unknown

LEVEL = 0.05  # of all claims of an execution together

Test = Literal["above", "below", "equal"]
Verdict = Literal["shown", "not shown", "opposite", "not settled", "missing"]
Measured = Mapping[tuple[str, str], Mapping[int, float]]  # (cell, metric) -> seed -> value


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
      seeds: the number of seeds of an execution, at least 2.
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
        if self.margin < 0 or self.seeds < 2:
            raise BadInput(f"{self.claim}: a claim has a margin of 0 or more, and 2 or more seeds.")

    @property
    def criterion(self) -> str:
        """Returns the test in words."""
        test = {
            "above": f"> {self.margin:g}",
            "below": f"< {-self.margin:g}",
            "equal": f"within ± {self.margin:g}",
        }[self.test]
        return f"{test} {self.unit}, {self.seeds} seeds"


@dataclasses.dataclass(frozen=True)
class Execution:
    """A claim in the runs of one execution.

    Attributes:
      number: 1 for the first.
      values: one for each seed that has every term, ascending by seed.
      mean: the mean of `values`.
      error: standard error of the mean; None with fewer than two values.
      p: p-value of the test, before Holm's correction; 1 while seeds are missing.
      verdict: computed from the values of all claims.
    """

    number: int
    values: tuple[float, ...]
    mean: float
    error: float | None
    p: float
    verdict: Verdict


@dataclasses.dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Attributes:
      claim: the claim.
      executions: those that have a value, ascending.
    """

    claim: Claim
    executions: tuple[Execution, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Returns the verdict of all complete executions; `not settled` if they disagree."""
        complete: list[Verdict] = [
            one.verdict for one in self.executions if one.verdict != "missing"
        ]
        if not complete:
            return "missing"
        return complete[0] if len(set(complete)) == 1 else "not settled"


def judge(claims: Sequence[Claim], measured: Measured) -> list[Judged]:
    """Returns the verdict on each claim.

    Holm's correction runs over all claims of a tier; those that lack seeds count with a p of 1.

    Args:
      claims: all claims.
      measured: (cell, metric) -> seed -> value.
    """
    executions = [_executions(claim, measured) for claim in claims]
    tiers = collections.Counter(claim.tier for claim in claims)
    tested: dict[tuple[str, int], list[float]] = collections.defaultdict(list)
    for claim, found in zip(claims, executions, strict=True):
        for one in found:
            tested[claim.tier, one.number].append(one.p)
    for (tier, _), family in tested.items():
        family += [1.0] * (tiers[tier] - len(family))
    return [
        Judged(claim, tuple(_corrected(one, tested[claim.tier, one.number]) for one in found))
        for claim, found in zip(claims, executions, strict=True)
    ]


def _corrected(one: Execution, family: Sequence[float]) -> Execution:
    if one.verdict == "missing" or significant(one.p, family):
        return one
    return dataclasses.replace(one, verdict="not shown")


def significant(p: float, family: Sequence[float]) -> bool:
    """Returns True if Holm's procedure rejects a hypothesis with this p-value.

    Args:
      p: one of `family`.
      family: p-values of all hypotheses.
    """
    ascending = sorted(family)
    return all(
        other <= LEVEL / (len(ascending) - i) for i, other in enumerate(ascending) if other <= p
    )


def _executions(claim: Claim, measured: Measured) -> list[Execution]:
    """Returns the executions of a claim, each with its verdict before Holm's correction."""
    each = [measured.get((cell, metric), {}) for _, cell, metric in claim.terms]
    weights = [weight for weight, _, _ in claim.terms]
    values: dict[int, list[float]] = collections.defaultdict(list)
    for seed in sorted(set.intersection(*map(set, each))):
        total = math.fsum(w * m[seed] for w, m in zip(weights, each, strict=True))
        values[seed // claim.seeds + 1].append(total)
    return [_execution(claim, number, tuple(found)) for number, found in values.items()]


def _execution(claim: Claim, number: int, values: tuple[float, ...]) -> Execution:
    mean = statistics.fmean(values)
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    if len(values) < claim.seeds or error is None:
        return Execution(number, values, mean, error, 1.0, "missing")

    shown, opposite = _p_values(claim, mean, error, len(values) - 1)
    verdict: Verdict = "shown" if shown < opposite else "opposite"
    return Execution(number, values, mean, error, min(1.0, 2 * min(shown, opposite)), verdict)


def _p_values(claim: Claim, mean: float, error: float, degrees: int) -> tuple[float, float]:
    """Returns the p-values of a claim and of its opposite."""

    def below(bound: float) -> float:
        """Returns the p-value of `the true mean is below a bound`."""
        return float(special.stdtr(degrees, (mean - bound) / error)) if error else mean >= bound

    def above(bound: float) -> float:
        """Returns the p-value of `the true mean is above a bound`."""
        return float(special.stdtr(degrees, (bound - mean) / error)) if error else mean <= bound

    margin = claim.margin
    if claim.test == "equal":
        return max(above(-margin), below(margin)), min(above(margin), below(-margin))
    higher, lower = above(margin), below(-margin)
    return (higher, lower) if claim.test == "above" else (lower, higher)
