# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The learning rates of muP (arXiv:2203.03466): a rate found at one width suits every width.

The model has the other half, see `ViTConfig.mup_base_width`. Start from `factors`.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.optim import muon

PyTree = Any

_HEAD = re.compile(r"(\w+_)?head(_\w+)?/(kernel|bias)")

# Optimizer -> power of the widening in the rate of (input, hidden, output), from Table 3. Lion and
# Adafactor take steps of a fixed size as Adam does. A matrix that Muon moves has singular values
# near rms * sqrt(max(M, N)), which grow with the root of the width.
_POWERS: dict[str, tuple[float, float, float]] = {
    "adamw": (0.0, -1.0, -1.0),
    "adafactor": (0.0, -1.0, -1.0),
    "lion": (0.0, -1.0, -1.0),
    "muon": (0.0, -0.5, -1.0),
    "sgd": (1.0, 0.0, -1.0),
}


def factors(params: PyTree, widening: float, name: str, options: Mapping[str, Any]) -> PyTree:
    """Returns the factor on the direction of each parameter; weight decay has none.

    Kernels between hidden layers are `hidden`, those of heads `output`. All other parameters have
    no width-sized input and are `input`, but for the bias of a head, whose factor is 1.

    Args:
      params: tree of arrays or shapes.
      widening: width of the model over that of the base model.
      name: the optimizer.
      options: the arguments of its direction.

    Raises:
      BadInput: there is no rule for the optimizer, or for parameters of the objective.
    """
    if name not in _POWERS:
        raise BadInput(
            f"model.mup_base_width has no rule for optimizer.name={name}; use one of "
            f"{', '.join(_POWERS)}, or leave it out."
        )
    into, hidden, out = _POWERS[name]
    if name == "muon" and not options["rms"]:
        hidden = 0.0  # the scale is then sqrt(max(1, N / M)), the same for every width

    def power(path: str, shape: tuple[int, ...]) -> float:
        if path.startswith("objective/"):
            raise BadInput(
                f"model.mup_base_width has no rule for {path} of the objective; leave it out."
            )
        if _HEAD.fullmatch(path):
            return out if path.endswith("kernel") else 0.0
        return hidden if muon.is_matrix(path, shape) else into

    return tree.map_with_path(lambda path, x: np.float32(widening ** power(path, x.shape)), params)
