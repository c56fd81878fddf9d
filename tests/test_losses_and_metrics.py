# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Losses, metrics and the state of a step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import tree
from vit_jax.step import losses, metrics, state

# --- losses against closed forms, and targets from label numbers ---


LOGITS = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32) * 3


def softmax(x):
    e = np.exp(x.astype(np.float64))
    return e / e.sum(axis=-1, keepdims=True)


def test_softmax_of_one_label_is_minus_its_log_probability():
    labels = np.array([0, 3, 4, 3])
    found = losses.softmax_xent(LOGITS, np.eye(5, dtype=np.float32)[labels])
    expected = -np.log(softmax(LOGITS)[np.arange(4), labels])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_softmax_uses_targets_as_given():
    targets = np.array([[0.5, 0.5, 0, 0, 0], [1, 1, 0, 0, 0], [0] * 5, [0.2] * 5], np.float32)
    found = losses.softmax_xent(LOGITS, targets)
    np.testing.assert_allclose(
        found, -(targets * np.log(softmax(LOGITS))).sum(-1), rtol=1e-5, atol=1e-7
    )


def test_sigmoid_is_summed_over_classes():
    targets = np.array([[0, 1, 1, 0, 0], [0] * 5, [1] * 5, [0.3] * 5], np.float32)
    found = losses.sigmoid_xent(LOGITS, targets)
    p = 1 / (1 + np.exp(-LOGITS.astype(np.float64)))
    expected = -(targets * np.log(p) + (1 - targets) * np.log(1 - p)).sum(-1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", losses.LOSSES)
def test_losses_are_finite_and_right_for_large_logits(name):
    logits = np.array([[200.0, -200.0], [-200.0, 200.0]], np.float32)
    targets = np.array([[1, 0], [1, 0]], np.float32)
    found = losses.LOSSES[name](logits, targets)
    np.testing.assert_allclose(found, [0.0, 400.0], atol=1e-6)
    grads = jax.grad(lambda x: losses.LOSSES[name](x, targets).sum())(logits)
    assert np.all(np.isfinite(grads))


@pytest.mark.parametrize("name", losses.LOSSES)
def test_losses_of_bfloat16_logits_are_computed_in_float32(name):
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    targets = np.eye(5, dtype=np.float32)[:4]
    found = losses.LOSSES[name](logits, targets)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, losses.LOSSES[name](logits.astype(jnp.float32), targets))


@pytest.mark.parametrize("name, expected", [("softmax", np.log(10)), ("sigmoid", 10 * np.log(2))])
def test_loss_of_zero_logits(name, expected):
    targets = np.eye(10, dtype=np.float32)[:1]
    found = losses.LOSSES[name](np.zeros((1, 10), np.float32), targets)
    np.testing.assert_allclose(found, [expected], rtol=1e-6)


def test_multi_hot_ignores_padding_and_counts_a_repeated_label_once():
    labels = np.array([[2, -1, -1], [0, 3, -1], [1, 1, 2], [-1, -1, -1]], np.int32)
    expected = [[0, 0, 1, 0], [1, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 0]]
    found = losses.multi_hot(labels, 4)
    assert found.dtype == jnp.float32
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_label_smoothing_keeps_a_distribution():
    found = np.asarray(losses.multi_hot(np.array([[1], [3]], np.int32), 4, smoothing=0.1))
    np.testing.assert_allclose(found[0], [0.025, 0.925, 0.025, 0.025], rtol=1e-6)
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-6)


def test_label_smoothing_of_several_labels():
    found = losses.multi_hot(np.array([[1, 0, -1]], np.int32), 4, smoothing=0.2)
    np.testing.assert_allclose(found[0], [0.85, 0.85, 0.05, 0.05], rtol=1e-6)


# --- metrics count every example once, and add up exactly ---


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


# --- the state before the first step ---


def test_state_starts_at_step_zero_with_the_parameters():
    params = {"w": jnp.arange(3.0)}
    found = state.from_params(params, optax.adam(0.1), ema=False)
    assert found.step.dtype == jnp.int32
    assert found.step.shape == ()
    assert int(found.step) == 0
    np.testing.assert_array_equal(found.params["w"], params["w"])
    assert found.ema is None


def test_average_starts_at_the_parameters_and_shares_no_memory_with_them():
    params = {"w": jnp.arange(3.0)}
    found = state.from_params(params, optax.sgd(0.1), ema=True)
    np.testing.assert_array_equal(found.ema["w"], params["w"])
    # Both are donated to the step: one buffer twice would be an error.
    assert found.ema["w"].unsafe_buffer_pointer() != params["w"].unsafe_buffer_pointer()


@pytest.mark.parametrize("ema", [True, False])
def test_state_is_a_tree_of_arrays_with_stable_paths(ema):
    found = state.from_params({"w": jnp.ones(3)}, optax.trace(0.9), ema=ema)
    paths = [path for path, _ in tree.leaves_with_paths(found)]
    assert paths == ["step", "params/w", "opt_state/trace/w"] + ["ema/w"] * ema
