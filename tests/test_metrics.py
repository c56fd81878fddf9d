# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Metrics count every example once, and add up exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.step import metrics


def test_top_k_looks_among_all_labels_and_not_at_padding():
    logits = np.array([[0, 1, 2, 3], [3, 2, 1, 0], [0, 9, 0, 1], [5, 4, 3, 2]], np.float32)
    labels = np.array([[3, -1], [1, 0], [2, 0], [-1, -1]], np.int32)
    np.testing.assert_array_equal(metrics.in_top_k(logits, labels, 1), [True, True, False, False])
    np.testing.assert_array_equal(metrics.in_top_k(logits, labels, 3), [True, True, True, False])


def test_top_k_of_each_k():
    logits = np.arange(10, dtype=np.float32)[None]
    for k in range(1, 11):
        found = [bool(metrics.in_top_k(logits, np.array([[y]]), k)[0]) for y in (9, 5, 0)]
        assert found == [True, k >= 5, k >= 10]


def test_top_5_with_fewer_classes_is_always_a_hit():
    logits = np.array([[1, 2, 3], [3, 2, 1]], np.float32)
    assert np.all(metrics.in_top_k(logits, np.array([[0], [2]]), 5))


def test_ties_go_to_the_lower_class():
    logits = np.zeros((2, 8), np.float32)
    np.testing.assert_array_equal(metrics.in_top_k(logits, np.array([[0], [1]]), 1), [True, False])
    np.testing.assert_array_equal(metrics.in_top_k(logits, np.array([[4], [5]]), 5), [True, False])


def test_sums_of_a_split_batch_move_no_logits_between_devices():
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    over = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    arrays = [((64, 50), np.float32), ((64, 1), np.int32), ((64,), np.bool_), ((64,), np.float32)]
    shapes = [jax.ShapeDtypeStruct(shape, dtype, sharding=over) for shape, dtype in arrays]
    text = jax.jit(metrics.sums).lower(*shapes).compile().as_text()
    assert "all-reduce" in text
    assert "all-gather" not in text


def test_sums_leave_out_masked_rows_even_if_not_finite():
    logits = np.eye(6, dtype=np.float32)[[0, 1, 2, 3]]
    logits[3] = np.nan
    labels = np.array([[0], [5], [2], [3]], np.int32)
    mask = np.array([True, True, False, False])
    loss = np.array([0.25, 0.5, 8.0, np.nan], np.float32)
    found = metrics.sums(logits, labels, mask, loss)
    assert {name: value.dtype.name for name, value in found.items()} == {
        "top1": "int32",
        "top5": "int32",
        "loss": "float32",
        "examples": "int32",
    }
    # Class 5 is the last of the five equal logits beside class 1: not among the top five.
    assert {name: float(value) for name, value in found.items()} == {
        "top1": 1,
        "top5": 1,
        "loss": 0.75,
        "examples": 2,
    }


def test_sums_of_a_wholly_masked_batch_are_zero():
    found = metrics.sums(
        jnp.ones((2, 6)), jnp.zeros((2, 1), jnp.int32), jnp.zeros(2, bool), jnp.ones(2)
    )
    assert all(float(value) == 0 for value in found.values())


def test_total_weighs_examples_and_not_batches():
    batches = [
        {"top1": np.int32(3), "top5": np.int32(4), "loss": np.float32(4.0), "examples": 4},
        {"top1": np.int32(0), "top5": np.int32(1), "loss": np.float32(2.5), "examples": 1},
        {"top1": np.int32(0), "top5": np.int32(0), "loss": np.float32(0.0), "examples": 0},
    ]
    found = metrics.total(iter(batches))
    assert found == {"top1": 0.6, "top5": 1.0, "loss": 1.3, "examples": 5}
    assert isinstance(found["examples"], int)


def test_total_is_exact_beyond_float32():
    # 2^24 + 1 is the first integer that float32 cannot hold.
    batches = [{"top1": 1, "loss": np.float32(0.5), "examples": 1}] * 3
    big = {"top1": 2**24, "loss": np.float32(2**24), "examples": 2**24}
    found = metrics.total([big, *batches])
    assert found["examples"] == 2**24 + 3
    assert found["top1"] == 1.0
    assert found["loss"] == (2**24 + 1.5) / (2**24 + 3)


@pytest.mark.parametrize("sizes", [[10], [4, 4, 2], [1] * 10, [7, 3]])
def test_total_does_not_depend_on_the_split_into_ragged_batches(sizes):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(10, 7)).astype(np.float32)
    labels = rng.integers(0, 7, size=(10, 2)).astype(np.int32)
    loss = rng.integers(0, 100, size=10).astype(np.float32)
    rows, start = [], 0
    for size in sizes:
        some = slice(start, start + size)
        pad = [(0, 10 - size)]
        rows.append(
            metrics.sums(
                np.pad(logits[some], [*pad, (0, 0)]),
                np.pad(labels[some], [*pad, (0, 0)]),
                np.arange(10) < size,
                np.pad(loss[some], pad, constant_values=99),
            )
        )
        start += size
    order = np.argsort(-logits, axis=-1)
    hits = [
        [y in row[:k] for row, y in zip(order, ys, strict=True)] for k in (1, 5) for ys in labels.T
    ]
    expected = {
        "top1": np.mean(np.logical_or(hits[0], hits[1])),
        "top5": np.mean(np.logical_or(hits[2], hits[3])),
        "loss": loss.mean(),
        "examples": 10,
    }
    assert metrics.total(rows) == pytest.approx(expected, rel=1e-12)
