# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published choices of preprocessing, by name, as text for configurations. Imports nothing heavy.

`{size}` is the image size, see `preprocess.parse`. Start from `CHAINS` and `augreg`.
"""

from vit_jax.errors import unknown

# At 224 and 384 pixels these are the sizes of the reference code: 256 and 448 before the crop.
CHAINS: dict[str, str] = {
    # google-research/vision_transformer, all evaluations; also the original VTAB code.
    "vit_eval": "decode|resize({size})",
    # google-research/big_vision: evaluation in pre-training (224) and in transfer (384), and the
    # three choices for training in transfer (384).
    "big_vision_eval": "decode|bv_resize_small({size*8//7})|central_crop({size})",
    "big_vision_transfer_eval": "decode|bv_resize_small({size*7//6})|central_crop({size})",
    "inception_crop": "decode|inception_crop({size})|flip_lr",
    "resmall_crop": "decode|bv_resize_small({size*7//6})|random_crop({size})|flip_lr",
    "resize_crop": "decode|bv_resize({size*7//6})|random_crop({size})|flip_lr",
}

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
