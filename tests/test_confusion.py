# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Counts by class against ones by hand."""

import numpy as np

from vit_jax.evaluators import confusion


def scores(*best):
    """Logits of six classes whose order, from the likeliest on, begins with the given ones."""
    rows = np.zeros((len(best), 6), np.float32)
    for row, order in zip(rows, best, strict=True):
        for place, label in enumerate(order):
            row[label] = 9 - place
    return rows


def test_counts_are_those_by_hand():
    logits = scores([0], [1, 0], [1, 2], [3, 4, 5, 0, 1])
    labels = np.array([[0], [0], [1], [2]], np.int32)
    found = confusion.measure(logits, labels)
    assert (found.top1, found.top5, found.examples) == (0.5, 0.75, 4)
    assert found.counts_Y.tolist() == [2, 1, 1, 0, 0, 0]
    assert found.right_Y.tolist() == [1, 1, 0, 0, 0, 0]
    expected = np.zeros((6, 6), int)
    expected[0, 0] = expected[0, 1] = expected[1, 1] = expected[2, 3] = 1
    np.testing.assert_array_equal(found.confusion_YY, expected)
    assert found.worst(5) == [(0, 1, 1), (2, 3, 1)]
    assert found.worst(1) == [(0, 1, 1)]


def test_one_of_several_labels_is_enough_and_pairs_are_of_single_ones():
    labels = np.array([[2, 1], [1, -1], [-1, -1]], np.int32)
    found = confusion.measure(scores([1], [0], [0]), labels)
    assert found.top1 == 1 / 3
    assert found.counts_Y.tolist() == [0, 2, 1, 0, 0, 0]
    assert found.right_Y.tolist() == [0, 1, 0, 0, 0, 0]
    assert found.confusion_YY.sum() == 1
    assert found.confusion_YY[1, 0] == 1


def test_ties_go_to_the_lower_class():
    found = confusion.measure(np.zeros((2, 3), np.float32), np.array([[0], [1]], np.int32))
    assert found.top1 == 0.5
    assert found.top5 == 1.0
