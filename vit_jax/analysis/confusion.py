# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures how well classes are told apart, from the predictions on a split.

Start from `measure`.

Axes: N examples, K labels per example, Y classes, T likeliest classes.
"""

import dataclasses

import numpy as np

MOST = 2000  # largest number of classes with a matrix: 32 MB


@dataclasses.dataclass(frozen=True)
class Measured:
    """The quality of predictions, in total and by class.

    Attributes:
      top1: share of the examples whose likeliest class is one of their labels.
      top5: share of the examples with a label among their five likeliest classes.
      examples: N.
      counts_Y: int64 [Y], number of examples of each class.
      right_Y: int64 [Y], number of those whose likeliest class is that class.
      guessed_Y: int64 [Y], number of examples with that likeliest class, right or wrong.
      confusion_YY: int64 [Y, Y], examples with a single label, by class (row) and likeliest class
        (column); None for more than `MOST` classes.
    """

    top1: float
    top5: float
    examples: int
    counts_Y: np.ndarray
    right_Y: np.ndarray
    guessed_Y: np.ndarray
    confusion_YY: np.ndarray | None

    @property
    def accuracy(self) -> np.ndarray:
        """float64 [Y], share of the examples of each class that are right; NaN without examples."""
        return _shares(self.right_Y, self.counts_Y)

    @property
    def precision(self) -> np.ndarray:
        """float64 [Y], share of the predictions of each class that are right; NaN without any."""
        return _shares(self.right_Y, self.guessed_Y)

    @property
    def mean_class_accuracy(self) -> float:
        """Mean of `accuracy` over the classes that have examples."""
        return float(np.nanmean(self.accuracy))

    def worst(self, most: int) -> list[tuple[int, int, int]]:
        """Returns the most frequent confusions as (class, predicted class, count)."""
        if self.confusion_YY is None:
            return []
        wrong_YY = self.confusion_YY.copy()
        np.fill_diagonal(wrong_YY, 0)
        order = np.argsort(-wrong_YY, axis=None, kind="stable")[:most]
        rows, columns = np.unravel_index(order, wrong_YY.shape)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        return [(r, c, int(wrong_YY[r, c])) for r, c in pairs if wrong_YY[r, c]]


def measure(best_NT: np.ndarray, labels_NK: np.ndarray, classes: int) -> Measured:
    """Counts every example.

    Args:
      best_NT: int [N, T], the likeliest classes of each example, the likeliest first; T = min(5,
        Y).
      labels_NK: int32 [N, K], padded with -1; N is at least 1.
      classes: Y.
    """
    hit_NT = (best_NT[:, :, None] == labels_NK[:, None, :]).any(axis=2)
    row, label = np.nonzero(labels_NK >= 0)[0], labels_NK[labels_NK >= 0]
    right = label[best_NT[row, 0] == label]
    confusion_YY = None
    if classes <= MOST:
        single = (labels_NK >= 0).sum(axis=1) == 1
        pairs = labels_NK[single].max(axis=1, initial=-1).astype(np.int64) * classes
        counted = np.bincount(pairs + best_NT[single, 0], minlength=classes**2)
        confusion_YY = counted.reshape(classes, classes)
    return Measured(
        top1=float(hit_NT[:, 0].mean()),
        top5=float(hit_NT.any(axis=1).mean()),
        examples=len(best_NT),
        counts_Y=np.bincount(label, minlength=classes),
        right_Y=np.bincount(right, minlength=classes),
        guessed_Y=np.bincount(best_NT[:, 0], minlength=classes),
        confusion_YY=confusion_YY,
    )


def _shares(part_Y: np.ndarray, of_Y: np.ndarray) -> np.ndarray:
    return np.divide(part_Y, of_Y, out=np.full(len(of_Y), np.nan), where=of_Y > 0)
