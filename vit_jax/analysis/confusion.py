# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which classes are told apart: predictions of a split by class. Start from `measure`.

Axes: N examples, K labels of each, Y classes, T the likeliest of them.
"""

import dataclasses

import numpy as np

MOST = 2000  # classes that a matrix is kept of: 32 MB


@dataclasses.dataclass(frozen=True)
class Measured:
    """What predictions are worth, all together and by class.

    Attributes:
      top1: share of the examples whose likeliest class is one of their labels.
      top5: share of those with a label among their five likeliest classes.
      examples: N.
      counts_Y: int64 [Y], examples of each class.
      right_Y: int64 [Y], those whose likeliest class it is.
      guessed_Y: int64 [Y], examples whose likeliest class it is, right or wrong.
      confusion_YY: int64 [Y, Y], examples of a class (row) by their likeliest class (column), of
        the examples with a single label; None with more than `MOST` classes.
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
        """float64 [Y], share of the examples of each class that are right; NaN without one."""
        return _shares(self.right_Y, self.counts_Y)

    @property
    def precision(self) -> np.ndarray:
        """float64 [Y], share of those taken for a class that are of it; NaN where none is."""
        return _shares(self.right_Y, self.guessed_Y)

    @property
    def mean_class_accuracy(self) -> float:
        """Mean of `accuracy` over the classes that have examples."""
        return float(np.nanmean(self.accuracy))

    def worst(self, most: int) -> list[tuple[int, int, int]]:
        """(class, taken for, how often) of the pairs that are most often taken for each other."""
        if self.confusion_YY is None:
            return []
        wrong_YY = self.confusion_YY.copy()
        np.fill_diagonal(wrong_YY, 0)
        order = np.argsort(-wrong_YY, axis=None, kind="stable")[:most]
        rows, columns = np.unravel_index(order, wrong_YY.shape)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        return [(r, c, int(wrong_YY[r, c])) for r, c in pairs if wrong_YY[r, c]]


def measure(best_NT: np.ndarray, labels_NK: np.ndarray, classes: int) -> Measured:
    """Counts of every example.

    Args:
      best_NT: int [N, T], the likeliest classes of each, the likeliest first; T = min(5, Y).
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
