# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Position embeddings: what each kind adds to which token, and their resizing to other grids."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from vit_jax.errors import BadInput
from vit_jax.models import attention_math, posemb, variants

GRIDS = [(2, 3), (5, 2), (1, 4)]


def drawn(kind, grid, width, class_rows):
    """(table, parameters by name), with random parameters."""
    rng, params = np.random.default_rng(0), {}

    def param(name, init, shape):
        params[name] = rng.normal(size=shape).astype(np.float32)
        return params[name]

    table = posemb.table(param, kind, grid, width, class_rows)
    return np.asarray(table), params


# --- what is added ---


@pytest.mark.parametrize("class_rows", [0, 1])
def test_learned1d_has_a_row_for_each_token(class_rows):
    table, params = drawn("learned1d", (2, 3), 8, class_rows)
    assert params["posemb"].shape == (1, class_rows + 6, 8)
    np.testing.assert_array_equal(table, params["posemb"])


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("class_rows", [0, 1])
def test_learned2d_joins_the_embedding_of_the_column_and_that_of_the_row(grid, class_rows):
    rows, columns = grid
    table, params = drawn("learned2d", grid, 8, class_rows)
    shapes = {"posemb_x": (1, columns, 4), "posemb_y": (1, rows, 4), "posemb_cls": (1, 1, 8)}
    assert {n: p.shape for n, p in params.items()} == dict(list(shapes.items())[: 2 + class_rows])
    assert table.shape == (1, class_rows + rows * columns, 8)
    if class_rows:
        np.testing.assert_array_equal(table[:, :1], params["posemb_cls"])
    patches = table[0, class_rows:].reshape(rows, columns, 8)
    for r, c in np.ndindex(grid):
        np.testing.assert_array_equal(patches[r, c, :4], params["posemb_x"][0, c])
        np.testing.assert_array_equal(patches[r, c, 4:], params["posemb_y"][0, r])


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("width", [8, 12, 20])
def test_sincos2d_equals_a_literal_loop(grid, width):
    quarter, found = width // 4, posemb.sincos2d(grid, width)
    assert found.shape == (grid[0] * grid[1], width)
    for r, c in np.ndindex(grid):
        for k in range(quarter):
            omega = 10_000.0 ** -(k / (quarter - 1))
            row = found[r * grid[1] + c]
            assert row[k] == pytest.approx(math.sin(c * omega), abs=1e-12)
            assert row[quarter + k] == pytest.approx(math.cos(c * omega), abs=1e-12)
            assert row[2 * quarter + k] == pytest.approx(math.sin(r * omega), abs=1e-12)
            assert row[3 * quarter + k] == pytest.approx(math.cos(r * omega), abs=1e-12)


def test_sincos2d_equals_the_documented_formula_of_big_vision():
    rows, columns, width = 3, 4, 16
    y, x = np.mgrid[:rows, :columns]
    omega = 1.0 / 10_000.0 ** (np.arange(width // 4) / (width // 4 - 1))
    x, y = np.outer(x.ravel(), omega), np.outer(y.ravel(), omega)
    expected = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)
    np.testing.assert_allclose(posemb.sincos2d((rows, columns), width), expected, atol=1e-12)


@pytest.mark.parametrize("kind", ["learned1d", "learned2d"])
def test_learned_embeddings_start_with_a_deviation_of_2_percent(kind):
    param = lambda name, init, shape: init(jax.random.key(0), shape)  # noqa: E731
    table = np.asarray(posemb.table(param, kind, (20, 30), 40, 1))
    assert table.std() == pytest.approx(0.02, rel=0.1)


@pytest.mark.parametrize("std", [0.02, 0.05])
def test_the_deviation_of_the_start_is_a_key(std):
    cfg = tiny.config(posemb_std=std, width=256, mlp=8, depth=1)
    params = jax.jit(variants.make(cfg).init)(jax.random.key(0), tiny.images(1))["params"]
    assert np.std(params["posemb"]) == pytest.approx(std, rel=0.1)


@pytest.mark.parametrize("kind", ["sincos2d", "relative", "none"])
def test_a_deviation_without_learned_embeddings_is_refused(kind):
    with pytest.raises(BadInput, match=f"posemb_std=0.05 with posemb={kind}.*leave it out"):
        tiny.config(posemb=kind, posemb_std=0.05)


def test_sincos2d_has_no_parameters_and_adds_nothing_to_the_class_token():
    table, params = drawn("sincos2d", (2, 3), 8, 1)
    assert not params
    assert table.dtype == np.float32
    assert not np.any(table[:, 0])
    np.testing.assert_allclose(table[0, 1:], posemb.sincos2d((2, 3), 8), atol=1e-7)


@pytest.mark.parametrize("class_rows", [0, 1])
def test_registers_have_rows_of_zeros_after_the_class_token(class_rows):
    table, _ = drawn("learned1d", (2, 3), 8, class_rows)
    found = np.asarray(posemb.with_registers(table, class_rows, 4))
    assert not np.any(found[:, class_rows : class_rows + 4])
    np.testing.assert_array_equal(np.delete(found, range(class_rows, class_rows + 4), 1), table)
    assert posemb.with_registers(table, class_rows, 0) is table


# --- relative ---


def queries(length):
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    return draw(2, length, 3, 4), draw(2 * length - 1, 3, 4)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_relative_scores_equal_a_double_loop(length):
    query, table = queries(length)
    found = np.asarray(jax.jit(attention_math.relative_scores)(query, table))
    assert found.shape == (2, 3, length, length)
    for i, j in np.ndindex(length, length):
        expected = (query[:, i] * table[length - 1 + i - j]).sum(-1)
        np.testing.assert_allclose(found[:, :, i, j], expected, rtol=1e-5, atol=1e-5)


def test_relative_scores_of_equal_queries_depend_on_the_offset_alone():
    query, table = queries(6)
    found = np.asarray(attention_math.relative_scores(np.repeat(query[:, :1], 6, axis=1), table))
    np.testing.assert_allclose(found[..., 1:, 1:], found[..., :-1, :-1], rtol=1e-5, atol=1e-5)
    assert len(np.unique(found[0, 0].round(4))) == 11


# --- resizing ---


def resize(grid_hwd, new, class_rows=0):
    """`posemb.resize` of a grid [rows, columns, D] with class rows of -9, as [rows, columns, D]."""
    rows, columns, width = grid_hwd.shape
    given = np.concatenate([np.full((class_rows, width), -9.0), grid_hwd.reshape(-1, width)])
    found = posemb.resize(given[None], new, (rows, columns), class_rows=class_rows)
    assert found.shape == (1, class_rows + new[0] * new[1], width)
    assert found.dtype == np.float32
    assert np.all(found[0, :class_rows] == -9.0)
    return found[0, class_rows:].reshape(*new, width)


def noise(*shape):
    return np.random.default_rng(0).normal(size=shape)


def test_resizing_equals_scipy_zoom_where_scipy_fills_every_row():
    zoom = pytest.importorskip("scipy.ndimage").zoom
    compared = 0
    for old, new in itertools.product([2, 3, 7, 14, 16, 24], [2, 3, 7, 12, 14, 16, 24, 28]):
        given = noise(old, old, 2)
        expected = zoom(given, (new / old, new / old, 1), order=1)
        if expected.shape[0] == new and np.any(expected[-1]) and np.any(expected[:, -1]):
            compared += 1
            np.testing.assert_allclose(resize(given, (new, new)), expected, rtol=0, atol=1e-6)
    assert compared > 35  # of 48


@pytest.mark.parametrize("class_rows", [0, 1])
@pytest.mark.parametrize("grid", [(3, 3), (2, 5), (1, 1)])
def test_resizing_to_the_same_grid_changes_nothing(grid, class_rows):
    given = noise(*grid, 4).astype(np.float32)
    np.testing.assert_array_equal(resize(given, grid, class_rows), given)


@pytest.mark.parametrize("old, new", [(16, 30), (28, 48), (24, 22), (32, 16), (48, 24)])
def test_resizing_fills_every_row_and_column_where_scipy_leaves_zeros(old, new):
    given = 1.0 + noise(old, old, 2) ** 2
    found = resize(given, (new, new))
    assert found.min() >= 1.0
    for a, b in itertools.product((0, -1), (0, -1)):
        np.testing.assert_allclose(found[a, b], given[a, b], rtol=1e-6)


@pytest.mark.parametrize("new", [(4, 9), (3, 2), (7, 5), (2, 13), (16, 30)])
def test_resizing_keeps_linear_functions_of_row_and_column(new):
    def plane(rows, columns):
        r, c = np.meshgrid(np.linspace(0, 1, rows), np.linspace(0, 1, columns), indexing="ij")
        return np.stack([2 + 3 * r - 5 * c, r, c], axis=-1)

    np.testing.assert_allclose(resize(plane(4, 6), new), plane(*new), rtol=0, atol=1e-6)


def test_resizing_is_linear_between_neighbours():
    found = resize(np.array([[0.0, 1.0, 5.0]]).reshape(1, 3, 1), (1, 5))
    np.testing.assert_allclose(found.ravel(), [0, 0.5, 1, 3, 5], atol=1e-6)


@pytest.mark.parametrize("old, expected", [(3, 1.0), (4, 1.5), (1, 0.0)])
def test_resizing_to_one_position_takes_the_middle(old, expected):
    given = np.arange(float(old)).reshape(1, old, 1)
    assert resize(given, (1, 1)).item() == pytest.approx(expected)
    assert posemb.resize_axis(given, 1).item() == pytest.approx(expected)


def test_resizing_one_position_repeats_it():
    given = noise(1, 1, 3)
    np.testing.assert_allclose(resize(given, (2, 3)), np.tile(given, (2, 3, 1)), rtol=1e-6)


@pytest.mark.parametrize("class_rows", [0, 1])
def test_resizing_of_another_grid_is_bad_input(class_rows):
    with pytest.raises(BadInput, match=r"12 position embeddings are not a grid of 3 x 5"):
        posemb.resize(noise(1, 12 + class_rows, 4), (2, 2), (3, 5), class_rows=class_rows)


@pytest.mark.parametrize("old, new", [(3, 7), (7, 3), (16, 30), (4, 4), (2, 1)])
def test_resizing_each_axis_equals_resizing_a_grid_that_varies_along_it(old, new):
    axis = noise(1, old, 4)
    found = posemb.resize_axis(axis, new)
    assert found.shape == (1, new, 4)
    assert found.dtype == np.float32
    columns = resize(np.repeat(axis, 3, axis=0), (2, new))
    np.testing.assert_allclose(found[0], columns[1], rtol=0, atol=1e-6)
    rows = resize(np.repeat(axis.swapaxes(0, 1), 3, axis=1), (new, 2))
    np.testing.assert_allclose(found[0], rows[:, 1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("new", [2, 3, 5, 8, 30])
def test_resizing_an_axis_keeps_linear_functions_and_its_ends(new):
    given = (2.0 + 3.0 * np.linspace(0, 1, 4)).reshape(1, 4, 1)
    expected = 2.0 + 3.0 * np.linspace(0, 1, new)
    np.testing.assert_allclose(posemb.resize_axis(given, new)[0, :, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 5])
def test_resizing_an_axis_to_its_length_changes_nothing(size):
    given = noise(1, size, 3).astype(np.float32)
    np.testing.assert_array_equal(posemb.resize_axis(given, size), given)


# ---------------------------------------------------------------- resizing as other libraries


@pytest.mark.parametrize("old, new", [(5, 7), (7, 3), (4, 9), (6, 6)])
def test_smooth_resizing_is_the_cubic_one_of_jax_with_antialias(old, new):
    x = np.random.default_rng(0).normal(size=(1, old * old, 3)).astype(np.float32)
    have = posemb.resize(x, (new, new), (old, old), class_rows=0, how="smooth")
    grid = jnp.asarray(x).reshape(old, old, 3)
    want = jax.image.resize(grid, (new, new, 3), "cubic", antialias=True, precision="highest")
    np.testing.assert_allclose(have, want.reshape(1, new * new, 3), atol=2e-6)


def test_bicubic_resizing_is_that_of_torch():
    """Values of torch 2.13: `interpolate(x, size, mode="bicubic", align_corners=False)`."""
    x = np.float32([0, 1, 4, 2, -3])[None, :, None]
    have = [
        posemb.resize(x, (new, 1), (5, 1), class_rows=0, how="bicubic")[0, :, 0] for new in (7, 3)
    ]
    seven = [-0.0787175, 0.2653066, 1.9883389, 4.0, 3.205539, -0.3090367, -3.3935883]
    np.testing.assert_allclose(have[0], seven, atol=1e-5)
    np.testing.assert_allclose(have[1], [0.148149, 4.0, -1.537037], atol=1e-5)
