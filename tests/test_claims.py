# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Verdicts on made measurements: each of the four, by each test, and the arithmetic behind them."""

import math

import numpy as np
import pytest

from vit_jax.errors import BadInput
from vit_jax.experiments.tables import claims
from vit_jax.experiments.tables.claims import Claim


def claim(test="above", margin=0.0, terms=((1.0, "a", "m"), (-1.0, "b", "m")), seeds=3):
    return Claim("hour", "a beats b", terms, test, margin, "points", seeds)


def rows(a, b=None):
    return {("a", "m"): dict(enumerate(a)), ("b", "m"): dict(enumerate(b or [0.0] * len(a)))}


def verdict(values, **given):
    return claims.judge(claim(**given), rows(values)).verdict


def test_mean_and_standard_error_are_of_pairs_of_a_seed():
    found = claims.judge(claim(), rows([51.0, 62.0, 73.0], [50.0, 60.0, 70.0]))
    assert found.values == (1.0, 2.0, 3.0)
    assert found.mean == 2.0
    assert found.error == pytest.approx(1.0 / math.sqrt(3))  # deviation of a sample: 1
    assert found.verdict == "shown"  # 2 - 2.920 x 0.577 = 0.31


@pytest.mark.parametrize(
    "test, margin, values, expected",
    [
        ("above", 0.0, (1.0, 2.0, 3.0), "shown"),
        ("above", 0.0, (-1.0, -2.0, -3.0), "opposite"),
        ("above", 0.0, (-1.0, 2.0, 3.0), "not shown"),
        ("above", 0.5, (1.0, 2.0, 3.0), "not shown"),  # the interval begins at 0.31
        ("above", 0.5, (-1.0, -2.0, -3.0), "not shown"),
        ("above", 0.3, (-1.0, -2.0, -3.0), "opposite"),
        ("below", 0.0, (-1.0, -2.0, -3.0), "shown"),
        ("below", 0.0, (1.0, 2.0, 3.0), "opposite"),
        ("below", 0.0, (-1.0, 0.5, 0.1), "not shown"),
        ("below", 0.5, (-1.0, -2.0, -3.0), "not shown"),
        ("equal", 1.0, (0.1, 0.0, -0.1), "shown"),
        ("equal", 1.0, (2.0, 2.1, 2.2), "opposite"),
        ("equal", 1.0, (-2.0, -2.1, -2.2), "opposite"),
        ("equal", 1.0, (2.0, 0.0, -2.0), "not shown"),  # no difference found shows nothing
        ("equal", 1.0, (0.9, 1.0, 1.1), "not shown"),
    ],
)
def test_every_verdict_is_reached(test, margin, values, expected):
    assert verdict(values, test=test, margin=margin) == expected


def test_too_few_seeds_or_no_runs_are_missing_and_keep_what_there_is():
    one = claims.judge(claim(), rows([1.0]))
    assert (one.verdict, one.mean, one.error) == ("missing", 1.0, None)
    two = claims.judge(claim(), rows([1.0, 2.0]))
    assert (two.verdict, two.mean, two.error) == ("missing", 1.5, 0.5)
    none = claims.judge(claim(), {("a", "m"): {0: 1.0, 1: 2.0, 2: 3.0}})
    assert (none.verdict, none.values, none.mean) == ("missing", (), None)


def test_seed_that_lacks_a_term_does_not_count():
    measured = {("a", "m"): {0: 9.0, 1: 2.0, 2: 3.0, 3: 4.0}, ("b", "m"): {1: 1, 2: 1, 3: 1, 7: 5}}
    found = claims.judge(claim(), measured)
    assert found.values == (1.0, 2.0, 3.0)
    assert found.verdict == "shown"


def test_weights_are_those_of_the_terms():
    terms = ((0.5, "a", "m"), (0.25, "a", "m"), (-2.0, "b", "m"))
    found = claims.judge(claim(terms=terms), rows([4.0, 4.0, 8.0], [1.0, 2.0, 1.0]))
    assert found.values == (1.0, -1.0, 4.0)


@pytest.mark.parametrize(
    "count, t95", [(2, 6.314), (3, 2.920), (5, 2.132), (10, 1.833), (30, 1.699)]
)
def test_interval_is_students(count, t95):
    """Quantiles as printed in tables of the t distribution."""
    values = [1.0 + (-1) ** n for n in range(count)]
    error = np.std(values, ddof=1) / count**0.5
    bound = np.mean(values) - t95 * error
    for margin, verdict in ((bound - 2e-3, "shown"), (bound + 2e-3, "not shown")):
        moved = [value - margin + 1.0 for value in values]  # the margin is 1
        assert claims.judge(claim("above", 1.0, seeds=2), rows(moved)).verdict == verdict


def test_criterion_says_test_margin_unit_and_seeds():
    assert claim("equal", 1.5).criterion == "mean ± t se within ± 1.5 points, 3 seeds"
    assert claim("above", 0.5).criterion == "mean ± t se > 0.5 points, 3 seeds"
    assert claim("below", 0.5).criterion == "mean ± t se < -0.5 points, 3 seeds"


def test_unknown_test_is_refused():
    with pytest.raises(BadInput, match=r"'beyond'.*above, below, equal"):
        claim("beyond")
