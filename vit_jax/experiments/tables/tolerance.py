# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Computes how far an accuracy may be from the paper's. Start from `tolerance`."""

import math
from collections.abc import Sequence

LEAST = 0.1  # points


def tolerance(
    paper_std: float, paper_runs: int, our_std: float, our_runs: int, binomial: float
) -> float:
    """Returns the largest difference, in points, at which two accuracies count as the same.

    max(2 sqrt(s_paper^2 / n_paper + s_ours^2 / n_ours), 2 binomial, 0.1)

    Args:
      paper_std: s_paper, standard deviation between the paper's runs, in points.
      paper_runs: n_paper, number of runs that the paper's value is the mean of.
      our_std: s_ours, standard deviation between our runs, in points.
      our_runs: n_ours, number of our seeds.
      binomial: standard error due to the test set, in points.
    """
    between = math.sqrt(paper_std**2 / paper_runs + our_std**2 / our_runs)
    return max(2 * between, 2 * binomial, LEAST)


def binomial(shares: Sequence[float], examples: Sequence[int]) -> float:
    """Returns the standard error, in points, of a mean of accuracies on test sets of given sizes.

    Args:
      shares: accuracies from 0 to 1, one for each test set.
      examples: size of each test set.
    """
    variance = sum(p * (1 - p) / n for p, n in zip(shares, examples, strict=True))
    return 100 * math.sqrt(variance) / len(shares)
