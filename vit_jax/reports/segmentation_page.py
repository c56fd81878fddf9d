# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reports an evaluation of predicted masks, as JSON, text, or a page with the worst images.

Start from `page`.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from PIL import Image

from vit_jax import console
from vit_jax.data.inspect import colours
from vit_jax.evaluators.segmentation import Pixels
from vit_jax.reports import drawing, pages
from vit_jax.step.segmentation import mean_of_known

_WIDTH = 360  # pixels of each of the three pictures of an image


@dataclasses.dataclass(frozen=True)
class Case:
    """An image with its masks.

    Attributes:
      example: its name.
      miou: mean IoU of this image alone.
      picture: the image, the image with its mask, and with the predicted mask; a PNG file.
    """

    example: str
    miou: float
    picture: bytes


@dataclasses.dataclass(frozen=True)
class Segmented:
    """The result of an evaluation, and its inputs.

    Attributes:
      weights: the run.
      data: the source, `kind:rest`.
      split: name or slice of the split.
      how: `windows` or `whole`, see `segmenter.Segmenter`.
      size: rows and columns of a window.
      names: names of the classes.
      pixels: counts over all images.
      worst: the images with the lowest mean IoU, the worst first.
      verdict: the comparison with the published result, in one line; "" without one.
    """

    weights: str
    data: str
    split: str
    how: str
    size: tuple[int, int]
    names: tuple[str, ...]
    pixels: Pixels
    worst: list[Case]
    verdict: str = ""


def case(
    example: str,
    miou: float,
    image: np.ndarray,
    mask: np.ndarray,
    predicted: np.ndarray,
    palette: np.ndarray,
) -> Case:
    """Returns an image with its masks drawn beside each other, shrunk to fit on a page."""
    rows, columns = mask.shape
    scale = min(1.0, _WIDTH / columns)
    sides = max(1, round(columns * scale)), max(1, round(rows * scale))
    three = [
        image,
        colours.overlay(image, mask, palette),
        colours.overlay(image, predicted, palette),
    ]
    small = [np.asarray(Image.fromarray(one).resize(sides)) for one in three]
    return Case(example, miou, colours.png(np.concatenate(small, axis=1)))


def as_json(one: Segmented) -> dict[str, Any]:
    """Returns everything as plain values; an undefined share is None."""
    found, boundary = one.pixels.figures, one.pixels.boundary_iou
    counts_YY = one.pixels.counts_YY
    return {
        "weights": one.weights,
        "data": one.data,
        "split": one.split,
        "images_as": one.how,
        "window": list(one.size),
        "examples": one.pixels.images,
        "miou": found.miou,
        "pixel_accuracy": found.pixel_accuracy,
        "mean_accuracy": found.mean_accuracy,
        "boundary_iou": mean_of_known(boundary),
        "classes": [
            {
                "label": label,
                "name": name,
                "pixels": int(counts_YY[label].sum()),
                "iou": _or_none(found.iou[label]),
                "accuracy": _or_none(found.accuracy[label]),
                "boundary_iou": _or_none(boundary[label]),
            }
            for label, name in enumerate(one.names)
        ],
        "verdict": one.verdict,
        "confusion": counts_YY.tolist(),
        "worst": [{"example": case.example, "miou": case.miou} for case in one.worst],
    }


def _or_none(share: float) -> float | None:
    return None if math.isnan(share) else float(share)


_HEADER = ["class", "pixels", "IoU", "accuracy", "boundary IoU"]


def _rows(one: Segmented) -> list[list[str]]:
    """Returns a row for each class, the lowest IoU first; those without any come last."""
    order = sorted(as_json(one)["classes"], key=lambda c: 2 if c["iou"] is None else c["iou"])
    shares = ("iou", "accuracy", "boundary_iou")
    return [
        [c["name"], f"{c['pixels']:,}", *("-" if c[k] is None else f"{c[k]:.1%}" for k in shares)]
        for c in order
    ]


def _summary(one: Segmented) -> str:
    found = as_json(one)
    return (
        f"mIoU {found['miou']:.2%}, pixel accuracy {found['pixel_accuracy']:.2%}, mean accuracy of "
        f"the classes {found['mean_accuracy']:.2%}, boundary IoU {found['boundary_iou']:.2%}, "
        f"{found['examples']:,} images"
    )


def as_text(one: Segmented) -> str:
    """Returns the figures of all classes together, and of each."""
    text = f"{_summary(one)}\n\n{console.table(_HEADER, _rows(one))}"
    return f"{text}\n\n{one.verdict}" if one.verdict else text


def page(one: Segmented) -> str:
    """Returns the whole HTML document."""
    counts_YY = one.pixels.counts_YY
    how = "in sliding windows" if one.how == "windows" else "as a whole"
    size = " x ".join(map(str, one.size))
    return pages.render(
        "segmentation.html",
        f"Segmentation by {one.weights}",
        notes=[
            f"{one.weights} on the split {one.split} of {one.data}, images {how}, {size} pixels.",
            _summary(one),
            *([one.verdict] if one.verdict else []),
        ],
        header=_HEADER,
        classes=_rows(one),
        matrix=drawing.confusions(one.names, counts_YY) if len(one.names) <= 50 else None,
        worst=one.worst,
    )
