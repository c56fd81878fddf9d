# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Counts by class against ones by hand."""

import numpy as np

from vit_jax.analysis import confusion


def best(*begins):
    """Five of six classes, of which the likeliest are given; the others follow by number."""
    rest = ([k for k in range(6) if k not in begin] for begin in begins)
    return np.array([[*b, *r][:5] for b, r in zip(begins, rest, strict=True)])


def test_counts_are_those_by_hand():
    likeliest = best([0], [1, 0], [1, 2], [3, 4, 5, 0, 1])
    labels = np.array([[0], [0], [1], [2]], np.int32)
    found = confusion.measure(likeliest, labels, 6)
    assert (found.top1, found.top5, found.examples) == (0.5, 0.75, 4)
    assert found.counts_Y.tolist() == [2, 1, 1, 0, 0, 0]
    assert found.right_Y.tolist() == [1, 1, 0, 0, 0, 0]
    assert found.guessed_Y.tolist() == [1, 2, 0, 1, 0, 0]
    np.testing.assert_array_equal(found.accuracy, [0.5, 1, 0] + [np.nan] * 3)
    np.testing.assert_array_equal(found.precision, [1, 0.5, np.nan, 0, np.nan, np.nan])
    assert found.mean_class_accuracy == 0.5
    expected = np.zeros((6, 6), int)
    expected[0, 0] = expected[0, 1] = expected[1, 1] = expected[2, 3] = 1
    np.testing.assert_array_equal(found.confusion_YY, expected)
    assert found.worst(5) == [(0, 1, 1), (2, 3, 1)]
    assert found.worst(1) == [(0, 1, 1)]


def test_one_of_several_labels_is_enough_and_pairs_are_of_single_ones():
    labels = np.array([[2, 1], [1, -1], [-1, -1]], np.int32)
    found = confusion.measure(best([1], [0], [0]), labels, 6)
    assert found.top1 == 1 / 3
    assert found.counts_Y.tolist() == [0, 2, 1, 0, 0, 0]
    assert found.right_Y.tolist() == [0, 1, 0, 0, 0, 0]
    assert found.confusion_YY.sum() == 1
    assert found.confusion_YY[1, 0] == 1


def test_no_matrix_of_very_many_classes():
    found = confusion.measure(np.array([[1], [2500]]), np.array([[1], [7]], np.int32), 2501)
    assert (found.top1, found.confusion_YY, found.worst(3)) == (0.5, None, [])
    assert found.guessed_Y[2500] == 1
