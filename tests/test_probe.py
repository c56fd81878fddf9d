# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The linear probe, against scikit-learn's logistic regression."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from test_fewshot import drawn

from vit_jax.evaluators import probe
from vit_jax.evaluators.fewshot import whitening


@pytest.mark.parametrize("count, width", [(60, 7), (20, 33)])
@pytest.mark.parametrize("strength", [0.1, 1.0, 100.0])
def test_fit_is_that_of_scikit_learn(count, width, strength):
    x, labels, test = drawn(count, width)
    mean, std = whitening(x)
    x, test = (((v - mean) / std).astype(np.float32) for v in (x, test))
    kernel, bias = probe.fit(x, labels, 5, strength)
    theirs = LogisticRegression(C=1 / strength, tol=1e-8, max_iter=10_000).fit(x, labels)
    logits = test @ kernel + bias
    odds = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(
        odds / odds.sum(1, keepdims=True), theirs.predict_proba(test), rtol=0, atol=4e-3
    )


def test_a_fifth_of_each_class_is_held_out_unless_it_is_alone():
    labels = np.array([0] * 11 + [1] * 2 + [2] + [4] * 5)
    held = probe.held_out(labels)
    assert [int(held[labels == c].sum()) for c in range(5)] == [3, 1, 0, 0, 1]


def test_strength_is_the_best_on_held_out_images(monkeypatch):
    tried = []

    def fit(x, labels, classes, strength):
        tried.append((strength, len(x)))
        right = strength in (10.0, 100.0, 1000.0)
        return np.eye(2, dtype=np.float32), np.float32([0, 0] if right else [9, 0])

    monkeypatch.setattr(probe, "fit", fit)
    labels = np.array([0, 1] * 10)
    assert probe.choose_strength(np.eye(2, dtype=np.float32)[labels], labels, 2) == 1000.0
    assert [s for s, _ in tried] == [*probe.STRENGTHS, 10.0, 1000.0]
    assert {n for _, n in tried} == {16}


def test_without_two_images_of_a_class_the_strength_is_one():
    assert probe.choose_strength(np.eye(3, dtype=np.float32), np.arange(3), 3) == 1.0


def test_probe_learns_and_scale_and_shift_of_features_do_not_matter(monkeypatch):
    monkeypatch.setattr(probe, "MOST_STEPS", 50)
    x, labels, _ = drawn(200, 8)
    test, truth = x[150:], labels[150:]
    found = probe.probe(x[:150], labels[:150], test, 5)
    assert np.mean(found == truth) > 0.55  # chance is 0.2
    moved = probe.probe(50 * x[:150] + 7, labels[:150], 50 * test + 7, 5)
    assert np.mean(found == moved) > 0.95
