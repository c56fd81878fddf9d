# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Similarity of position embeddings by distance, against tables of which the answer is known."""

import numpy as np
import pytest

from vit_jax.analysis import similarity


def by_place(rows, columns, alike):
    """Embeddings whose similarity of two places is a function of their distance."""
    places = [(y, x) for y in range(rows) for x in range(columns)]
    wanted = np.array([[alike(np.hypot(a - c, b - d)) for c, d in places] for a, b in places])
    values, vectors = np.linalg.eigh(wanted)
    assert values.min() > 0
    return vectors * np.sqrt(values)


@pytest.mark.parametrize("rows, columns", [(4, 4), (2, 5)])
def test_similarity_that_falls_with_distance_is_minus_one(rows, columns):
    table = by_place(rows, columns, lambda d: np.exp(-d / 4))
    assert similarity.distance_correlation(table, rows, columns) == pytest.approx(-1)
    stretched = table * np.linspace(1, 9, len(table))[:, None]  # cosine: length does not matter
    assert similarity.distance_correlation(stretched, rows, columns) == pytest.approx(-1)


def test_similarity_that_rises_with_distance_is_one():
    table = by_place(3, 3, lambda d: 1.0 if d == 0 else 0.01 * d)
    assert similarity.distance_correlation(table, 3, 3) == pytest.approx(1)


def test_grid_is_not_transposed():
    table = by_place(2, 5, lambda d: np.exp(-d / 4))
    assert similarity.distance_correlation(table, 5, 2) > -0.9


def test_equals_spearman_of_another_library():
    stats = pytest.importorskip("scipy.stats")
    table = np.random.default_rng(0).normal(size=(12, 6))
    distances, cosines = [], []
    for i in range(12):
        for j in range(i):
            (a, b), (c, d) = divmod(i, 4), divmod(j, 4)
            distances.append((a - c) ** 2 + (b - d) ** 2)
            u, v = table[i], table[j]
            cosines.append(u @ v / np.sqrt((u @ u) * (v @ v)))
    expected = stats.spearmanr(distances, cosines).statistic
    assert similarity.distance_correlation(table, 3, 4) == pytest.approx(expected)
