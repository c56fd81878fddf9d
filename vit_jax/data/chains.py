# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published choices of preprocessing, by name, as text for configurations. Imports nothing heavy.

Start from `augreg`.
"""

from vit_jax.errors import unknown

# Table of section 3.3 in arXiv:2106.10270: (layers, magnitude) of RandAugment, alpha of mixup.
LEVELS: dict[str, tuple[int, int, float]] = {
    "none": (0, 0, 0.0),
    "light1": (2, 0, 0.0),
    "light2": (2, 10, 0.2),
    "medium1": (2, 15, 0.2),
    "medium2": (2, 15, 0.5),
    "strong1": (2, 20, 0.5),
    "strong2": (2, 20, 0.8),
}


def augreg(level: str) -> tuple[str, float]:
    """A level of AugReg: what to append to a training chain, and `mixup.alpha`.

    `none` appends nothing; `light1` is not nothing: RandAugment changes much at magnitude 0.

    Raises:
      BadInput: an unknown level (all are listed).
    """
    if level not in LEVELS:
        raise unknown("augmentation level", level, LEVELS)
    layers, magnitude, alpha = LEVELS[level]
    return f"|randaug({layers}, {magnitude})" if layers else "", alpha
