# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The objective of finding objects: boxes with a class, from a pyramid of feature maps.

Axes: B batch, H W image, N detections. Start from `Detection`.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from vit_jax.step.objective import Objective


class Detections(NamedTuple):
    """The objects that a model finds in an image, the surest first.

    Attributes:
      boxes: float32 [N, 4]: left, top, right, bottom, in pixels of the image as stored.
      scores: float32 [N], from 0 to 1, descending.
      classes: int32 [N].
    """

    boxes: np.ndarray
    scores: np.ndarray
    classes: np.ndarray


@dataclasses.dataclass(frozen=True)
class Detection(Objective):
    """The objective for images with boxes."""
