# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The tolerance, by hand."""

import pytest

from vit_jax.experiments.tables import filling


@pytest.mark.parametrize(
    "given, expected",
    [
        ((0.0, 1, 0.0, 3, 0.0), 0.1),  # never less
        ((0.03, 1, 0.05, 3, 0.1), 0.2),  # the test set: 2 x 0.1
        ((0.3, 3, 0.5, 3, 0.1), 0.673300),  # 2 sqrt(0.09 / 3 + 0.25 / 3)
        ((0.3, 1, 0.5, 3, 0.1), 0.832666),  # 2 sqrt(0.09 + 0.25 / 3)
        ((0.3, 3, 0.5, 2, 0.1), 0.787401),  # 2 sqrt(0.09 / 3 + 0.25 / 2)
    ],
)
def test_tolerance_is_the_largest_of_three(given, expected):
    assert filling.tolerance(*given) == pytest.approx(expected, abs=1e-6)


def test_error_of_a_test_set_is_binomial():
    assert filling.binomial([0.9], [10_000]) == pytest.approx(0.3)  # sqrt(0.9 0.1 / 10^4)
    assert filling.binomial([0.5], [100]) == pytest.approx(5.0)


def test_error_of_a_mean_is_that_of_independent_test_sets():
    # sqrt(0.25 / 100 + 0.25 / 100) / 2
    assert filling.binomial([0.5, 0.5], [100, 100]) == pytest.approx(3.535534, abs=1e-6)
