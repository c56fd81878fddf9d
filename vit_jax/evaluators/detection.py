# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures detections: COCO's figures by pycocotools, and the AP50 of Pascal VOC.

Axes: N detections, M true boxes, K classes, R recalls. Start from `Objects`.
"""

import contextlib
import dataclasses
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vit_jax.data.formats.boxes import ImageId, Truth
from vit_jax.errors import BadInput
from vit_jax.step import average_precision
from vit_jax.step.detection import Detections

# COCO's twelve figures, in the order of `COCOeval.summarize`.
COCO = (
    "AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large", "AR_1", "AR_10", "AR_100",
    "AR_small", "AR_medium", "AR_large",
)  # fmt: skip
VOC = "VOC_AP50"
OVERLAP = 0.5  # IoU from which on a detection is right, for AP50 and for drawings
_ALL, _MOST = 0, -1  # positions in pycocotools's axes of areas and of detections per image


@dataclasses.dataclass(frozen=True)
class Figures:
    """The figures of all images together; nan where nothing defines one.

    Attributes:
      coco: the figures of `COCO` by name.
      voc: the AP50 of Pascal VOC; mean over the classes that occur.
      ap_K: COCO's AP of each class, float64 [K].
      ap50_K: COCO's AP50 of each class, float64 [K].
      voc_K: the AP50 of Pascal VOC of each class, float64 [K].
      counts_K: true boxes of each class that count, int64 [K].
      recalls_R: recalls, float64 [101].
      precision_KR: precision of each class at those recalls, IoU 0.5, float64 [K, R].
    """

    coco: Mapping[str, float]
    voc: float
    ap_K: np.ndarray
    ap50_K: np.ndarray
    voc_K: np.ndarray
    counts_K: np.ndarray
    recalls_R: np.ndarray
    precision_KR: np.ndarray


class Objects:
    """The true boxes and the detections of all images so far; the order of images does not matter.

    Raises:
      BadInput: pycocotools is not installed.
    """

    def __init__(self, classes: int):
        self._classes = classes
        self._images: dict[ImageId, tuple[Truth, Detections]] = {}
        check_installed()

    def __len__(self) -> int:
        return len(self._images)

    def add(self, truth: Truth, found: Detections) -> float:
        """Keeps an image; returns the mean AP50 of its own classes, for lists of the worst.

        Where no true box counts, that is 0 with a wrong detection, and nan without one.

        Raises:
          BadInput: another image has its id.
        """
        if truth.id in self._images:
            raise BadInput(f"two images are called {truth.id}; an evaluation counts each once.")
        self._images[truth.id] = truth, found
        labels = np.union1d(truth.classes, found.classes).tolist()
        own = np.array([_voc_class([(truth, found)], label) for label in labels])
        if not np.isnan(own).all():
            return mean(own)
        wrong = any((_marked(truth, found, label)[1] == 0).any() for label in labels)
        return 0.0 if wrong else math.nan

    def figures(self) -> Figures:
        """Returns the figures of all images."""
        images = [self._images[key] for key in sorted(self._images, key=_order)]
        with _silent():
            evaluated = _coco_eval(images, self._classes)
        precision = _known(evaluated.eval["precision"])  # [IoU, R, K, area, most]
        found_KR = precision[0, :, :, _ALL, _MOST].T
        voc_K = voc_ap50(images, self._classes)
        counts = [np.bincount(t.classes[~t.ignored], minlength=self._classes) for t, _ in images]
        return Figures(
            coco=dict(zip(COCO, _known(evaluated.stats).tolist(), strict=True)),
            voc=mean(voc_K),
            ap_K=_mean_of_known(precision[:, :, :, _ALL, _MOST], (0, 1)),
            ap50_K=_mean_of_known(found_KR, (1,)),
            voc_K=voc_K,
            counts_K=np.array(counts).sum(axis=0),
            recalls_R=evaluated.params.recThrs,
            precision_KR=found_KR,
        )


def check_installed() -> None:
    """Raises BadInput unless pycocotools is installed."""
    try:
        import pycocotools.mask  # noqa: F401
    except ImportError as e:
        raise BadInput(
            "to measure boxes as COCO does, pip install 'vit_jax[coco]' (pycocotools)."
        ) from e


def mean(values: np.ndarray) -> float:
    """Returns the mean of the values that are not nan; nan if all are."""
    return float(_mean_of_known(values, None))


def _order(key: ImageId) -> tuple[bool, Any]:
    return isinstance(key, str), key


def _known(values: np.ndarray) -> np.ndarray:
    """Returns pycocotools's values with nan in place of its -1."""
    return np.where(values > -1, values, np.nan)


def _mean_of_known(values: np.ndarray, axes: tuple[int, ...] | None) -> np.ndarray:
    known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return np.where(known, values, 0).sum(axes) / known.sum(axes)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Swallows what pycocotools prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


# ---------------------------------------------------------------- COCO


def _coco_eval(images: Sequence[tuple[Truth, Detections]], classes: int) -> Any:
    """Returns pycocotools's evaluation, whose images and categories are numbered from 1."""
    from pycocotools.cocoeval import COCOeval

    evaluated = COCOeval(
        _dataset([_true(truth) for truth, _ in images], classes),
        _dataset([_found(found) for _, found in images], classes),
        "bbox",
    )
    evaluated.evaluate()
    evaluated.accumulate()
    evaluated.summarize()
    return evaluated


def _dataset(annotations: Sequence[Sequence[dict[str, Any]]], classes: int) -> Any:
    from pycocotools import coco

    listed = [one | {"image_id": i} for i, some in enumerate(annotations, 1) for one in some]
    made: Any = coco.COCO()
    made.dataset = {
        "images": [{"id": number} for number in range(1, len(annotations) + 1)],
        "categories": [{"id": number} for number in range(1, classes + 1)],
        "annotations": [one | {"id": number} for number, one in enumerate(listed, 1)],
    }
    made.createIndex()
    return made


def _true(truth: Truth) -> list[dict[str, Any]]:
    columns = zip(
        coco_boxes(truth.boxes), truth.classes.tolist(), truth.ignored.tolist(),
        truth.areas.tolist(), strict=True,
    )  # fmt: skip
    return [
        {"bbox": box, "category_id": label + 1, "iscrowd": int(ignored), "area": area}
        for box, label, ignored, area in columns
    ]


def _found(found: Detections) -> list[dict[str, Any]]:
    columns = zip(
        coco_boxes(found.boxes), found.classes.tolist(), found.scores.tolist(), strict=True
    )
    return [
        {"bbox": box, "category_id": label + 1, "score": score, "area": box[2] * box[3],
         "iscrowd": 0}
        for box, label, score in columns
    ]  # fmt: skip


def coco_boxes(boxes: np.ndarray) -> list[list[float]]:
    """Returns left, top, width, height of each box."""
    boxes = boxes.astype(np.float64).reshape(-1, 4)
    return np.concatenate([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], axis=1).tolist()


# ---------------------------------------------------------------- Pascal VOC


def voc_ap50(images: Sequence[tuple[Truth, Detections]], classes: int) -> np.ndarray:
    """Returns the AP50 of each class by the rule of VOC 2010 and later, float64 [K].

    It is the area under the precision-recall curve, whose precision is made to fall. A detection
    belongs to the true box that it overlaps most, and is right if that is half or more; a second
    one of the same box is wrong. Difficult objects, crowd regions and boxes without area, and what
    belongs to them, do not count. A class without true boxes has nan.
    """
    return np.array([_voc_class(images, label) for label in range(classes)])


def _voc_class(images: Sequence[tuple[Truth, Detections]], label: int) -> float:
    scores, right, total = list[np.ndarray](), list[np.ndarray](), 0
    for truth, found in images:
        total += int(((truth.classes == label) & ~_ignored(truth)).sum())
        if label in found.classes:
            scores_N, verdicts_N = _marked(truth, found, label)
            scores.append(scores_N[verdicts_N >= 0])
            right.append(verdicts_N[verdicts_N >= 0])
    if not total:
        return math.nan
    if not scores:
        return 0.0
    order = np.argsort(-np.concatenate(scores), kind="stable")
    right_N = np.concatenate(right)[order]
    recall = np.cumsum(right_N) / total
    precision = np.cumsum(right_N) / np.arange(1, len(right_N) + 1)
    falling = np.maximum.accumulate(precision[::-1])[::-1]
    return float((np.diff(recall, prepend=0) * falling).sum())


def _ignored(truth: Truth) -> np.ndarray:
    """Returns True for what does not count, also boxes without area; bool [M]."""
    return truth.ignored | (truth.boxes[:, 2:] <= truth.boxes[:, :2]).any(axis=1)


def _marked(truth: Truth, found: Detections, label: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns scores and verdicts, see `_verdicts`, of a class in an image, the surest first."""
    true, chosen = truth.classes == label, found.classes == label
    order = np.argsort(-found.scores[chosen], kind="stable")
    boxes_N4 = found.boxes[chosen][order]
    verdicts = _verdicts(boxes_N4, truth.boxes[true], _ignored(truth)[true])
    return found.scores[chosen][order], verdicts


def _verdicts(boxes_N4: np.ndarray, true_M4: np.ndarray, ignored_M: np.ndarray) -> np.ndarray:
    """Returns 1 for right, 0 for wrong, -1 for what does not count; the surest come first."""
    verdicts = np.zeros(len(boxes_N4), int)
    if not len(true_M4):
        return verdicts
    overlap_NM = average_precision.iou(boxes_N4, true_M4)
    taken = np.zeros(len(true_M4), bool)
    for number, (best, share) in enumerate(
        zip(overlap_NM.argmax(axis=1), overlap_NM.max(axis=1), strict=True)
    ):
        if share < OVERLAP:
            continue
        verdicts[number] = -1 if ignored_M[best] else int(not taken[best])
        taken[best] = True
    return verdicts
