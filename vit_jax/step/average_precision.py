# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The AP50 that a run measures while it trains, in numpy.

It is COCO's for data without crowd regions: the mean over classes that occur of the precision at
101 recalls, of at most 100 detections an image. Start from `ap50`.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

_OVERLAP = 0.5


class Image(NamedTuple):
    """The detections and the objects of an image.

    Attributes:
      boxes: float [N, 4], the best first.
      scores: float [N], descending.
      classes: int [N].
      true_boxes: float [M, 4].
      true_classes: int [M], -1 for rows that do not count.
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    true_boxes: np.ndarray
    true_classes: np.ndarray


def ap50(images: Iterable[Image], classes: int) -> float:
    """Returns AP50; nan if no object occurs. Detections with a score of 0 do not count."""
    scores = [list[np.ndarray]() for _ in range(classes)]
    right = [list[np.ndarray]() for _ in range(classes)]
    objects = np.zeros(classes, int)
    for image in images:
        for k in np.unique(np.concatenate([image.classes, image.true_classes])):
            if k < 0:
                continue
            mine = (image.classes == k) & (image.scores > 0)
            true = image.true_boxes[image.true_classes == k]
            objects[k] += len(true)
            scores[k].append(image.scores[mine])
            right[k].append(_matched(image.boxes[mine], true))
    values = [
        _precision(np.concatenate(s), np.concatenate(r), n)
        for s, r, n in zip(scores, right, objects, strict=True)
        if n
    ]
    return float(np.mean(values)) if values else math.nan


def _matched(boxes: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Returns True for boxes, the best first, that find an object which none before them found."""
    ious = iou(boxes, true)
    found, free = np.zeros(len(boxes), bool), np.ones(len(true), bool)
    for number in range(len(boxes) if len(true) else 0):
        row = np.where(free, ious[number], 0)
        best = len(true) - 1 - int(row[::-1].argmax())  # of equals the last, as pycocotools
        if row[best] >= _OVERLAP:
            found[number], free[best] = True, False
    return found


def iou(boxes_N4: np.ndarray, others_M4: np.ndarray) -> np.ndarray:
    """Returns the intersection over union of boxes with others, float64 [N, M]."""
    a, b = np.asarray(boxes_N4, np.float64)[:, None], np.asarray(others_M4, np.float64)
    sides = np.minimum(a[..., 2:], b[:, 2:]) - np.maximum(a[..., :2], b[:, :2])
    common = np.prod(np.maximum(sides, 0), axis=-1)
    areas = [np.prod(np.maximum(x[..., 2:] - x[..., :2], 0), axis=-1) for x in (a, b)]
    union = areas[0] + areas[1] - common
    return common / np.where(union > 0, union, 1)


def _precision(scores: np.ndarray, right: np.ndarray, objects: int) -> float:
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(right[order])
    recall, precision = hits / objects, hits / np.arange(1, len(hits) + 1)
    precision = np.maximum.accumulate(precision[::-1])[::-1]
    at = np.searchsorted(recall, np.linspace(0, 1, 101), side="left")
    return float(np.append(precision, 0.0)[np.minimum(at, len(precision))].mean())
