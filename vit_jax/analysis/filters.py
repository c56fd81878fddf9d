# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Principal components of the filters on pixels (Figure 7, left, of arXiv:2010.11929).

Start from `of_model`; `components` does the arithmetic.
"""

import dataclasses
from typing import Any

import numpy as np

from vit_jax.errors import BadInput
from vit_jax.models import variants

COUNT = 28  # number that the paper shows


@dataclasses.dataclass(frozen=True)
class Components:
    """Directions in which filters differ, the most important first.

    Attributes:
      images_ChwI: float64 [C, h, w, I], I channels, each of length 1.
      shares_C: float64 [C], shares of the variance of all filters; in (0, 1].
    """

    images_ChwI: np.ndarray
    shares_C: np.ndarray


def of_model(cfg: variants.Config, params: dict[str, Any]) -> Components:
    """Returns the `components` of the filters on pixels of a model, see `pixel_filters`.

    The filters of a ResNet are standardised, as in the model.
    """
    filters = cfg.pixel_filters(params)
    if filters is None:
        raise BadInput(f"{cfg.in_words()} has no pixel_filters; see docs/extending_model.md.")
    return components(filters[0])


def components(kernel_hwID: Any, count: int = COUNT) -> Components:
    """Returns the principal components of D filters around their mean.

    Args:
      kernel_hwID: float [h, w, I, D].
      count: largest number of components; the rank of the filters limits it too.

    Returns:
      Components whose largest entry is positive.
    """
    filters_DF = np.asarray(kernel_hwID, np.float64).reshape(-1, kernel_hwID.shape[-1]).T
    centred_DF = filters_DF - filters_DF.mean(axis=0)
    _, values, directions_CF = np.linalg.svd(centred_DF, full_matrices=False)
    least = 1e-6 * max(values[0], np.abs(filters_DF).max())  # float32 has no more digits
    kept = min(count, int(np.sum(values > least)))
    directions_CF = directions_CF[:kept]
    largest = np.abs(directions_CF).argmax(axis=1)
    directions_CF *= np.sign(directions_CF[np.arange(kept), largest])[:, None]
    shares = np.square(values[:kept]) / max(np.square(values).sum(), 1e-300)
    return Components(directions_CF.reshape(kept, *kernel_hwID.shape[:3]), shares)
