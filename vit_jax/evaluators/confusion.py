# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which classes are told apart: predictions of a split by class. Start from `measure`.

Axes: N examples, K labels of each, Y classes.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Measured:
    """What predictions are worth, all together and by class.

    Attributes:
      top1: share of the examples whose likeliest class is one of their labels.
      top5: share of those with a label among their five likeliest classes.
      examples: N.
      counts_Y: int64 [Y], examples of each class.
      right_Y: int64 [Y], those whose likeliest class it is.
      confusion_YY: int64 [Y, Y], examples of a class (row) by their likeliest class (column), of
        the examples with a single label.
    """

    top1: float
    top5: float
    examples: int
    counts_Y: np.ndarray
    right_Y: np.ndarray
    confusion_YY: np.ndarray

    def worst(self, most: int) -> list[tuple[int, int, int]]:
        """(class, taken for, how often) of the pairs that are most often taken for each other."""
        wrong_YY = self.confusion_YY.copy()
        np.fill_diagonal(wrong_YY, 0)
        order = np.argsort(-wrong_YY, axis=None, kind="stable")[:most]
        rows, columns = np.unravel_index(order, wrong_YY.shape)
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        return [(r, c, int(wrong_YY[r, c])) for r, c in pairs if wrong_YY[r, c]]


def measure(logits_NY: np.ndarray, labels_NK: np.ndarray) -> Measured:
    """Counts of every example.

    Args:
      logits_NY: float32 [N, Y]; ties go to the lower class.
      labels_NK: int32 [N, K], padded with -1.
    """
    classes = logits_NY.shape[1]
    best_N5 = np.argsort(-logits_NY, axis=1, kind="stable")[:, :5]
    hit_N5 = (best_N5[:, :, None] == labels_NK[:, None, :]).any(axis=2)
    row, label = np.nonzero(labels_NK >= 0)[0], labels_NK[labels_NK >= 0]
    counts_Y = np.bincount(label, minlength=classes)
    right_Y = np.bincount(label[best_N5[row, 0] == label], minlength=classes)
    single = (labels_NK >= 0).sum(axis=1) == 1
    pairs = labels_NK[single].max(axis=1, initial=-1).astype(np.int64) * classes
    confusion = np.bincount(pairs + best_N5[single, 0], minlength=classes**2)
    return Measured(
        top1=float(hit_N5[:, 0].mean()),
        top5=float(hit_N5.any(axis=1).mean()),
        examples=len(logits_NY),
        counts_Y=counts_Y,
        right_Y=right_Y,
        confusion_YY=confusion.reshape(classes, classes),
    )
