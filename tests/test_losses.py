# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Losses against closed forms, and targets from label numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.step import losses

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
