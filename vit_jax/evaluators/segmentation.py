# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures predicted masks: counts of pixels, added up over images. Start from `Pixels`.

Axes: H W image, Y classes.
"""

import math

import numpy as np
from scipy import ndimage

from vit_jax.step import segmentation

_BOUNDARY = 0.02  # share of an image's diagonal (arXiv:2103.16562, section 4)
_OUTSIDE, _HIGHEST = -2, np.int32(2**30)  # of an image; above every class


class Pixels:
    """The counts of all images so far; the order of images does not matter.

    Attributes:
      counts_YY: int64 [Y, Y], pixels of each class (rows) that are taken for each (columns).
      common_Y: int64 [Y], pixels of the boundaries of a class in both masks.
      either_Y: int64 [Y], pixels of its boundaries in one mask or both.
      images: number of images.
    """

    def __init__(self, classes: int):
        self.counts_YY = np.zeros((classes, classes), np.int64)
        self.common_Y = np.zeros(classes, np.int64)
        self.either_Y = np.zeros(classes, np.int64)
        self.images = 0

    def add(self, mask_HW: np.ndarray, predicted_HW: np.ndarray) -> float:
        """Counts an image; returns its mean IoU, for lists of the worst.

        Args:
          mask_HW: true classes, int [H, W]; -1 where none counts.
          predicted_HW: predicted classes, int [H, W].
        """
        classes = len(self.counts_YY)
        predicted_HW = np.where(mask_HW >= 0, predicted_HW, -1)
        counts_YY = confusion(mask_HW, predicted_HW, classes)
        edges = boundary(mask_HW), boundary(predicted_HW)
        of_class = [
            np.bincount(m[e & (m >= 0)], minlength=classes)
            for m, e in zip((mask_HW, predicted_HW), edges, strict=True)
        ]
        both = edges[0] & edges[1] & (mask_HW == predicted_HW) & (mask_HW >= 0)
        common_Y = np.bincount(mask_HW[both], minlength=classes)
        self.counts_YY += counts_YY
        self.common_Y += common_Y
        self.either_Y += of_class[0] + of_class[1] - common_Y
        self.images += 1
        return segmentation.figures(counts_YY).miou

    @property
    def figures(self) -> segmentation.Figures:
        """IoU, accuracy and pixel accuracy of all images together."""
        return segmentation.figures(self.counts_YY)

    @property
    def boundary_iou(self) -> np.ndarray:
        """Boundary IoU of each class (arXiv:2103.16562, equation 4), float64 [Y]; may be nan."""
        return segmentation.ratio(self.common_Y, self.either_Y)


def confusion(mask_HW: np.ndarray, predicted_HW: np.ndarray, classes: int) -> np.ndarray:
    """Returns int64 [Y, Y], as `segmentation.confusion` does for arrays of any size."""
    counted = mask_HW >= 0
    at = mask_HW[counted].astype(np.int64) * classes + predicted_HW[counted]
    return np.bincount(at, minlength=classes**2).reshape(classes, classes)


def boundary(mask_HW: np.ndarray) -> np.ndarray:
    """Returns True for pixels near another class or the edge of the image; bool [H, W].

    Near is a distance, in rows and columns, of at most 2 % of the diagonal, and at least 1, as in
    the authors' code. Beside void (-1) there is no boundary, since it is not known what lies there.
    """
    reach = 2 * max(1, round(_BOUNDARY * math.hypot(*mask_HW.shape))) + 1
    low, high = np.where(mask_HW < 0, _HIGHEST, mask_HW), mask_HW
    for axis in (0, 1):
        options = {"size": reach, "axis": axis, "mode": "constant", "cval": _OUTSIDE}
        low = ndimage.minimum_filter1d(low, **options)
        high = ndimage.maximum_filter1d(high, **options)
    return low != high
