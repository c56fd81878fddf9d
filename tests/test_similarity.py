# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Similarity of position embeddings, against tables of which the answer is known."""

import math

import jax
import numpy as np
import pytest
import tiny
from test_vit import POSITIONS

from vit_jax.analysis import similarity
from vit_jax.models import variants
from vit_jax.weights import convert, fitting


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


def cosine(u, v):
    return float(u @ v / math.sqrt((u @ u) * (v @ v)))


def added(cfg, params, row, column):
    """What a patch of the grid of 2 x 3 is given, from the parameters by their names."""
    if cfg.posemb == "learned1d":
        return params["posemb"][0, -6:][3 * row + column]
    if cfg.posemb == "learned2d":
        return np.concatenate([params["posemb_x"][0, column], params["posemb_y"][0, row]])
    waves = [1e4 ** (-k / 7) for k in range(8)]
    parts = [f(place * w) for place in (column, row) for f in (math.sin, math.cos) for w in waves]
    return np.array(parts)


@pytest.mark.parametrize("scan, pool", [(True, "token"), (False, "gap")])
@pytest.mark.parametrize("kind, at", [p for p in POSITIONS if p[0] not in ("none", "relative")])
def test_tiles_are_cosines_of_what_the_model_adds(kind, at, scan, pool):
    cfg = tiny.config(posemb=kind, posemb_at=at, scan=scan, pool=pool, registers=2)
    params = tiny.params(cfg)
    given = jax.tree.map(jax.numpy.asarray, params)
    found = similarity.of_model(cfg, given, (tiny.HEIGHT, tiny.WIDTH))
    every = at == "every"
    assert found.shape == (3 if every else 1, 2, 3, 2, 3)
    for layer, tiles in enumerate(found):
        owner = params
        if every and scan:
            owner = {name: value[layer] for name, value in params["blocks"].items()
                     if name.startswith("posemb")}  # fmt: skip
        elif every:
            owner = params[f"block_{layer}"]
        for a, b in np.ndindex(2, 3):
            for c, d in np.ndindex(2, 3):
                expected = cosine(added(cfg, owner, a, b), added(cfg, owner, c, d))
                assert tiles[a, b, c, d] == pytest.approx(expected, abs=1e-5)
    assert np.ptp(found) > 0.1


def test_models_that_add_nothing_have_none():
    kinds = [kind for kind, _ in POSITIONS]
    have = {kind: similarity.has_embeddings(tiny.config(posemb=kind)) for kind in kinds}
    assert {kind for kind in kinds if not have[kind]} == {"none", "relative"}


def test_at_another_resolution_they_are_those_that_are_resized():
    cfg = tiny.config()
    params, target = tiny.params(cfg), variants.shapes(cfg, 24, 16)
    flat = convert.flatten(params)
    fitted = fitting.fit(flat, target, old=(2, 3), new=(6, 4), fresh_head=False).params
    found = similarity.of_model(cfg, fitted, (24, 16))
    assert found.shape == (1, 6, 4, 6, 4)
    small = similarity.of_model(cfg, params, (tiny.HEIGHT, tiny.WIDTH))
    corners = np.ix_([0], [0, 5], [0, 3], [0, 5], [0, 3])  # which stay where they are
    np.testing.assert_allclose(found[corners], small[:, :, ::2, :, ::2], atol=1e-5)


def test_an_embedding_of_zeros_is_like_none():
    table = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    table[2] = 0
    found = similarity.of_grid(table, (2, 2)).reshape(4, 4)
    np.testing.assert_array_equal(found[2], 0)
    np.testing.assert_allclose(np.diag(found), [1, 1, 0, 1], atol=1e-6)
