# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mean attention distance, against closed values and loops over pairs of patches."""

import numpy as np
import pytest

from vit_jax.analysis import maps


def random_weights(*shape, seed=0):
    weights = np.random.default_rng(seed).gamma(0.3, size=shape).astype(np.float32)
    return weights / weights.sum(axis=-1, keepdims=True)


def by_loops(weights, grid, stride):
    """One image, one head: class token and registers first."""
    patches = grid[0] * grid[1]
    first = len(weights) - patches
    total = 0.0
    for i in range(patches):
        far = share = 0.0
        for j in range(patches):
            dy = (i // grid[1] - j // grid[1]) * stride
            dx = (i % grid[1] - j % grid[1]) * stride
            far += weights[first + i, first + j] * (dx * dx + dy * dy) ** 0.5
            share += weights[first + i, first + j]
        total += far / share
    return total / patches


@pytest.mark.parametrize("grid, stride, others", [((3, 3), 16, 0), ((2, 5), 4, 1), ((4, 3), 8, 3)])
def test_distance_is_that_of_loops_over_pairs(grid, stride, others):
    tokens = grid[0] * grid[1] + others
    weights = random_weights(2, 4, tokens, tokens)
    found = maps.distance(weights, maps.pixels_between(grid, stride))
    expected = [[by_loops(weights[i, n], grid, stride) for n in range(4)] for i in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.ptp(expected) > 0.1


def test_a_row_of_patches_has_a_closed_value():
    """Of |i - j| for i, j in 0 ... n - 1 the mean is (n * n - 1) / 3n."""
    for n in (2, 7, 16):
        assert maps.even_distance((1, n), 10) == pytest.approx(10 * (n * n - 1) / (3 * n))
        assert maps.even_distance((n, 1), 10) == pytest.approx(maps.even_distance((1, n), 10))


def test_even_attention_has_the_even_distance_whatever_the_class_token_gets():
    grid, pixels = (4, 6), maps.pixels_between((4, 6), 14)
    weights = np.full((25, 25), 0.01)
    weights[:, 0] = 0.76
    found = maps.distance(weights, pixels)
    assert float(found) == pytest.approx(maps.even_distance(grid, 14), rel=1e-5)


def test_attention_to_itself_is_at_no_distance():
    pixels = maps.pixels_between((3, 3), 16)
    assert float(maps.distance(np.eye(10), pixels)) == 0
    assert float(maps.distance(np.eye(10)[:, ::-1], pixels)) > 16


def test_a_patch_that_sees_no_patch_counts_as_zero():
    weights = np.zeros((5, 5))
    weights[:, 0] = 1
    assert float(maps.distance(weights, maps.pixels_between((2, 2), 16))) == 0
