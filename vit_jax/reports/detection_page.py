# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reports an evaluation of detections, as JSON, text, or a page with the worst images.

Start from `page`.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_jax import console
from vit_jax.data.formats.boxes import Truth
from vit_jax.data.inspect import colours
from vit_jax.evaluators.detection import VOC, Figures, mean
from vit_jax.reports import charts, dense_page, pages
from vit_jax.step.detection import Detections

DRAWN = 0.3  # the lowest score that pictures show
_WIDTH = 480  # pixels of each of the two pictures of an image
_GAP = 8  # pixels between them
_CURVES = len(charts.COLOURS) - 1  # classes with a curve of their own, beside the mean
_MEANINGS = {
    "AP": "COCO's AP: precision at 101 recalls, at IoU 0.50, 0.55, ... 0.95; mean over classes",
    "AP50": "the same at IoU 0.50",
    "AP75": "the same at IoU 0.75",
    "AP_small": "AP of objects below 32 x 32 pixels",
    "AP_medium": "AP of objects up to 96 x 96 pixels",
    "AP_large": "AP of larger objects",
    "AR_1": "recall with one detection an image; mean over IoU and classes",
    "AR_10": "recall with 10 detections an image",
    "AR_100": "recall with 100 detections an image",
    "AR_small": "AR_100 of objects below 32 x 32 pixels",
    "AR_medium": "AR_100 of objects up to 96 x 96 pixels",
    "AR_large": "AR_100 of larger objects",
    VOC: "Pascal VOC's AP since 2010, at IoU 0.50: area under the precision-recall curve",
}


@dataclasses.dataclass(frozen=True)
class Detected(dense_page.Result):
    """The result of an evaluation; images are resized to fit `size`.

    Attributes:
      images: number of images.
      figures: the figures of all images.
    """

    images: int
    figures: Figures


def drawn(pixels: np.ndarray, found: Detections, names: Sequence[str]) -> np.ndarray:
    """Returns an image, uint8 [H, W, 3], with the detections of `DRAWN` or more."""
    shown = found.scores >= DRAWN
    labels = found.classes[shown].tolist()
    texts = [
        f"{names[k]} {score:.2f}" for k, score in zip(labels, found.scores[shown], strict=True)
    ]
    palette = colours.palette(len(names))
    return colours.framed(pixels, found.boxes[shown], palette[labels], texts)


def case(
    example: str,
    ap50: float,
    pixels: np.ndarray,
    truth: Truth,
    found: Detections,
    names: Sequence[str],
) -> dense_page.Case:
    """Returns an image with true boxes and detections beside each other, shrunk to fit on a page.

    Crowd regions and difficult objects are gray.
    """
    scale, sides = dense_page.fitting(pixels.shape, _WIDTH)
    small = dense_page.shrunk(pixels, sides)
    palette = np.concatenate([colours.palette(len(names)), [[128, 128, 128]]]).astype(np.uint8)
    labels = np.where(truth.ignored, len(names), truth.classes)
    texts = [names[int(k)] for k in truth.classes]
    left = colours.framed(small, truth.boxes * scale, palette[labels], texts)
    right = drawn(small, found._replace(boxes=found.boxes * scale), names)
    gap = np.full((len(small), _GAP, 3), 255, np.uint8)
    return dense_page.Case(example, ap50, dense_page.beside([left, gap, right]))


def as_json(one: Detected) -> dict[str, Any]:
    """Returns everything as plain values; an undefined figure is None."""
    figures = one.figures
    return {
        **one.inputs(),
        "size": list(one.size),
        "examples": one.images,
        **{name: pages.or_none(value) for name, value in figures.coco.items()},
        VOC: pages.or_none(figures.voc),
        "classes": [
            {
                "label": label,
                "name": name,
                "boxes": int(figures.counts_K[label]),
                "AP": pages.or_none(figures.ap_K[label]),
                "AP50": pages.or_none(figures.ap50_K[label]),
                VOC: pages.or_none(figures.voc_K[label]),
                "precision": [pages.or_none(p) for p in figures.precision_KR[label].tolist()],
            }
            for label, name in enumerate(one.names)
        ],
        "recall": figures.recalls_R.tolist(),
        "verdict": one.verdict,
        "worst": one.worst_as_json("ap50"),
    }


_HEADER = ["class", "boxes", "AP", "AP50", VOC]


def _rows(one: Detected) -> list[list[str]]:
    """Returns a row for each class, the lowest AP first; those without any come last."""
    return [
        [c["name"], f"{c['boxes']:,}", *(_percent(c[key]) for key in ("AP", "AP50", VOC))]
        for c in dense_page.lowest_first(as_json(one)["classes"], "AP")
    ]


def _figures(one: Detected) -> list[list[str]]:
    found = as_json(one)
    return [[name, _percent(found[name]), meaning] for name, meaning in _MEANINGS.items()]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def as_text(one: Detected) -> str:
    """Returns the figures of all classes together, and of each."""
    tables = (
        f"{one.images:,} images, {int(one.figures.counts_K.sum()):,} boxes",
        console.table(["figure", "value"], [row[:2] for row in _figures(one)]),
        console.table(_HEADER, _rows(one)),
    )
    return "\n\n".join(one.lines(*tables))


def _curves(one: Detected) -> tuple[str, str]:
    """Returns a chart of precision by recall at IoU 0.5, and what it shows."""
    figures = one.figures
    known = np.flatnonzero(figures.counts_K).tolist()
    lowest = sorted(known, key=lambda label: figures.ap50_K[label])[:_CURVES]
    some = len(lowest) < len(known)
    precision_R = [mean(column) for column in figures.precision_KR.T]
    lines = [("mean of the classes", precision_R)] if known[1:] else []
    lines += [(one.names[label], figures.precision_KR[label].tolist()) for label in lowest]
    series = [
        charts.Series(name, [*zip(figures.recalls_R.tolist(), line, strict=True)], True, colour=n)
        for n, (name, line) in enumerate(lines)
    ]
    which = f"The {_CURVES} classes of {len(known)} with the lowest AP50. " if some else ""
    drawn = charts.chart(series, "recall", "precision", shares=True)
    return drawn, f"{which}IoU 0.5, by COCO's rules."


def page(one: Detected) -> str:
    """Returns the whole HTML document."""
    curves, chosen = _curves(one)
    size = " x ".join(map(str, one.size))
    found = as_json(one)
    return one.page(
        "detection.html",
        "Detection",
        [
            f"{one.weights} on the split {one.split} of {one.data}, images resized to fit {size} "
            "pixels.",
            f"AP {_percent(found['AP'])}, AP50 {_percent(found['AP50'])}, {one.images:,} images, "
            f"{int(one.figures.counts_K.sum()):,} boxes.",
        ],
        figures=_figures(one),
        header=_HEADER,
        classes=_rows(one),
        curves=curves,
        chosen=chosen,
        least=DRAWN,
    )
