# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""k nearest neighbours, against votes counted one by one."""

import numpy as np
import pytest
from test_fewshot import drawn

from vit_jax.evaluators.knn import knn


def counted(x, labels, test, classes, neighbours=20, temperature=0.07):
    """Loops over images and neighbours, float64."""
    found = []
    for query in np.float64(test):
        cosines = [query @ k / np.linalg.norm(query) / np.linalg.norm(k) for k in np.float64(x)]
        votes = np.zeros(classes)
        for i in sorted(range(len(x)), key=lambda i: -cosines[i])[:neighbours]:
            votes[labels[i]] += np.exp(cosines[i] / temperature)
        found.append(votes.argmax())
    return np.array(found)


@pytest.mark.parametrize("count, width", [(101, 7), (19, 7), (20, 7), (21, 33), (3, 2)])
def test_classes_are_those_of_counted_votes(count, width):
    x, labels, test = drawn(count, width)
    found = knn(x, labels, test, 5)
    assert (found == counted(x, labels, test, 5)).all()
    assert len(set(found)) > 1


@pytest.mark.parametrize("options", [{"neighbours": 1}, {"neighbours": 7}, {"temperature": 10.0}])
def test_neighbours_and_temperature_count(options):
    x, labels, test = drawn(101, 7)
    found = knn(x, labels, test, 5, **options)
    assert (found == counted(x, labels, test, 5, **options)).all()
    assert (found != knn(x, labels, test, 5)).any()


def test_length_of_a_representation_does_not_matter():
    x, labels, test = drawn(60, 7)
    longer = x * np.linspace(0.5, 100, 60, dtype=np.float32)[:, None]
    assert (knn(longer, labels, 40 * test, 5) == knn(x, labels, test, 5)).all()


def test_more_images_than_are_scored_at_once():
    x, labels, test = drawn(60, 7, scored=2053)
    found = knn(x, labels, test, 5)
    assert found.shape == (2053,)
    assert (found[-60:] == knn(x, labels, test[-60:], 5)).all()


def test_a_representation_of_zeros_is_no_error():
    x, labels, test = drawn(60, 7)
    x[3], test[4] = 0, 0
    assert set(knn(x, labels, test, 5)) <= set(range(5))
