# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reports an evaluation of predicted masks, as JSON, text, or a page with the worst images.

Start from `page`.
"""

import dataclasses
from typing import Any

import numpy as np

from vit_jax import console
from vit_jax.data.inspect import colours
from vit_jax.evaluators.segmentation import Pixels
from vit_jax.reports import dense_page, drawing, pages
from vit_jax.step.segmentation import mean_of_known

_WIDTH = 360  # pixels of each of the three pictures of an image


@dataclasses.dataclass(frozen=True)
class Segmented(dense_page.Result):
    """The result of an evaluation; `size` is that of a window.

    Attributes:
      how: `windows` or `whole`, see `segmenter.Segmenter`.
      pixels: counts over all images.
      palette: the colours of the classes, uint8 [Y, 3].
    """

    how: str
    pixels: Pixels
    palette: np.ndarray


def case(
    example: str,
    miou: float,
    image: np.ndarray,
    mask: np.ndarray,
    predicted: np.ndarray,
    palette: np.ndarray,
) -> dense_page.Case:
    """Returns an image with its masks drawn beside each other, shrunk to fit on a page."""
    _, sides = dense_page.fitting(mask.shape, _WIDTH)
    three = [
        image,
        colours.overlay(image, mask, palette),
        colours.overlay(image, predicted, palette),
    ]
    small = [dense_page.shrunk(one, sides) for one in three]
    return dense_page.Case(example, miou, dense_page.beside(small))


def as_json(one: Segmented) -> dict[str, Any]:
    """Returns everything as plain values; an undefined share is None."""
    found, boundary = one.pixels.figures, one.pixels.boundary_iou
    counts_YY = one.pixels.counts_YY
    return {
        **one.inputs(),
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
                "iou": pages.or_none(found.iou[label]),
                "accuracy": pages.or_none(found.accuracy[label]),
                "boundary_iou": pages.or_none(boundary[label]),
            }
            for label, name in enumerate(one.names)
        ],
        "verdict": one.verdict,
        "confusion": counts_YY.tolist(),
        "worst": one.worst_as_json("miou"),
    }


_HEADER = ["class", "pixels", "IoU", "accuracy", "boundary IoU"]


def _rows(one: Segmented) -> list[list[str]]:
    """Returns a row for each class, the lowest IoU first; those without any come last."""
    order = dense_page.lowest_first(as_json(one)["classes"], "iou")
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
    return "\n\n".join(one.lines(_summary(one), console.table(_HEADER, _rows(one))))


def page(one: Segmented) -> str:
    """Returns the whole HTML document."""
    counts_YY = one.pixels.counts_YY
    how = "in sliding windows" if one.how == "windows" else "as a whole"
    size = " x ".join(map(str, one.size))
    return one.page(
        "segmentation.html",
        "Segmentation",
        [
            f"{one.weights} on the split {one.split} of {one.data}, images {how}, {size} pixels.",
            _summary(one),
        ],
        header=_HEADER,
        classes=_rows(one),
        legend=colours.png(colours.legend(one.names, own=one.palette)),
        matrix=drawing.confusions(one.names, counts_YY) if len(one.names) <= 50 else None,
    )
