# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Few-shot evaluation: learns from a few images of each class on frozen features.

Axes: N images to learn from, M images to score, D width, Y classes. Start from `evaluate`. `ridge`
is the paper's classifier; `knn` and `probe` have the others.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_jax.data.tasks.shots import ALL, Task

# (float32 [N, D], int [N], float32 [M, D], Y) -> int [M], the class of each of the M images.
Classify = Callable[[np.ndarray, np.ndarray, np.ndarray, int], np.ndarray]

L2 = 2.0**10
BIAS = 100.0  # value of the constant feature
EPSILON = 1e-5  # added to standard deviations


def classifier(method: str, l2: float = L2) -> Classify:
    """Returns the classifier `ridge`, `knn` or `probe`; `l2` is that of `ridge`."""
    from vit_jax.evaluators import knn, probe

    classifiers: dict[str, Classify] = {
        "ridge": functools.partial(ridge, l2=l2), "knn": knn.knn, "probe": probe.probe,
    }  # fmt: skip
    return classifiers[method]


def evaluate(
    train_ND: np.ndarray, test_MD: np.ndarray, task: Task, classify: Classify
) -> dict[str, dict[str, Any]]:
    """Returns the top-1 accuracy on the test images for each number of shots.

    Args:
      train_ND: float32, the features of `task.train`, in its order.
      test_MD: float32, those of `task.test`.
      task: from `shots.make_task`.
      classify: a classifier such as `ridge`.

    Returns:
      Number of shots as text ("all" for the whole split) -> `top1`, in [0, 1], the mean over seeds;
      `seeds`, the value of each seed; and `examples`, the number of images scored.
    """
    seeds: dict[str, list[float]] = {}
    for (shots, _), chosen in task.picks.items():
        labels_N = task.train_labels[chosen]
        classes_M = classify(train_ND[chosen], labels_N, test_MD, task.classes)
        hits = float(np.mean(classes_M == task.test_labels))
        seeds.setdefault("all" if shots == ALL else str(shots), []).append(hits)
    return {
        shots: {"top1": sum(v) / len(v), "seeds": v, "examples": len(test_MD)}
        for shots, v in seeds.items()
    }


def whitening(x_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (mean, standard deviation + 1e-5) of each feature, float64 [1, D]."""
    x_ND = x_ND.astype(np.float64)
    return x_ND.mean(axis=0, keepdims=True), x_ND.std(axis=0, keepdims=True) + EPSILON


def ridge(
    x_ND: np.ndarray, labels_N: np.ndarray, x_MD: np.ndarray, classes: int, *, l2: float = L2
) -> np.ndarray:
    """Returns the class with the highest score of `ridge_scores`; int64 [M]."""
    return ridge_scores(x_ND, labels_N, x_MD, classes, l2=l2).argmax(axis=1)


def ridge_scores(
    x_ND: np.ndarray, labels_N: np.ndarray, x_MD: np.ndarray, classes: int, *, l2: float = L2
) -> np.ndarray:
    """Returns least-squares scores from features to {-1, 1}^Y, in closed form; float64 [M, Y].

    The regularised least squares of section 4.1 of arXiv:2010.11929. Details that the paper leaves
    open follow big_vision: the images to learn from whiten the features, and a constant feature of
    100 is added, whose weights are penalised like the others. The system of the smaller Gram matrix
    is solved, N x N or (D + 1) x (D + 1). For one `l2` this gives the result of big_vision's
    eigendecomposition.

    Args:
      x_ND: float32, features of the images to learn from.
      labels_N: their classes.
      x_MD: float32, features of the images to score.
      classes: Y.
      l2: penalty on all weights; above 0.
    """
    mean, std = whitening(x_ND)

    def prepared(x: np.ndarray) -> np.ndarray:
        return np.pad((x - mean) / std, ((0, 0), (0, 1)), constant_values=BIAS)

    a_ND = prepared(x_ND)
    targets_NY = np.where(labels_N[:, None] == np.arange(classes)[None, :], 1.0, -1.0)
    count, width = a_ND.shape
    if count < width:
        weights_DY = a_ND.T @ np.linalg.solve(a_ND @ a_ND.T + l2 * np.eye(count), targets_NY)
    else:
        weights_DY = np.linalg.solve(a_ND.T @ a_ND + l2 * np.eye(width), a_ND.T @ targets_NY)
    return prepared(x_MD) @ weights_DY
