# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Describes how images become a model's input, as far as an export can express it.

Start from `found`.
"""

import math
from typing import Any

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import decode
from vit_jax.data.ops import resize as resize_ops
from vit_jax.weights import loading
from vit_jax.weights.convert import ORIGINAL, Weights
from vit_jax.weights.formats.json_config import FILTERS, Images

_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}  # timm's defaults


def found(weights: Weights, size: tuple[int, int]) -> tuple[Images | None, str]:
    """Returns what an export can say about images, and in words what it cannot.

    Args:
      weights: the weights to export.
      size: rows and columns of the model's input.

    Returns:
      The preprocessing in numbers, None if the normalisation is unknown; and the preprocessing in
      words if it differs from the numbers, else "".

    Raises:
      BadInput: the configuration beside the weights is not understood.
    """
    if weights.format in ("npz", "big_vision"):
        return ORIGINAL, ""
    given = weights.images
    if not given:
        return None, "nothing beside the weights says how images are prepared"
    loading.reader(weights, size)  # checks all values
    antialias: bool | None = True  # like Pillow
    if weights.format == "run":
        (shorter, antialias), kind = _of_chain(given["ops"], size[0]), "bilinear"
        mean, std, words = given["mean"], given["std"], f"the chain {given['ops']}"
    elif weights.format == "timm":
        shorter, kind, mean, std = _of_timm(given, size)
        words = f"timm's crop_mode={given.get('crop_mode')}, crop_pct={given.get('crop_pct')}"
    else:
        shorter, kind, mean, std = _of_transformers(given, size)
        words = "the resizing in preprocessor_config.json"
    said = Images(
        tuple(map(float, mean)), tuple(map(float, std)), kind, shorter or 0, antialias=antialias
    )
    return said, words if shorter is None else ""


def _of_chain(chain: str, side: int) -> tuple[int | None, bool | None]:
    """Returns how a chain resizes.

    Returns:
      The shorter side before the central crop, 0 if resized straight, None for any other way; and
      whether shrinking averages over pixels, None if nothing is resized.
    """
    ops = [
        op
        for op in preprocess.parse("data.eval_ops", chain, side)
        if not isinstance(op, decode.Decode)
    ]
    match ops:
        case []:  # images already have the size
            return 0, None
        case [resize_ops.Resize(size=n) | resize_ops.BvResize(size=n) as resize] if n == side:
            return 0, getattr(resize, "antialias", False)
        case [
            resize_ops.ResizeSmall(size=n) | resize_ops.BvResizeSmall(size=n) as resize,
            resize_ops.CentralCrop(size=to),
        ] if to == side:
            return n, getattr(resize, "antialias", True)
    return None, None


def _of_timm(given: dict[str, Any], size: tuple[int, int]) -> tuple[int | None, str, Any, Any]:
    given = {key: value for key, value in given.items() if value is not None}
    share, mode = given.get("crop_pct", 0.875), given.get("crop_mode", "center")
    shorter = None
    if size[0] == size[1] and mode == "center":
        shorter = math.floor(size[0] / share)
    elif mode == "squash" and share == 1:
        shorter = 0
    values = _IMAGENET | given
    return shorter, given.get("interpolation", "bicubic"), values["mean"], values["std"]


def _of_transformers(
    given: dict[str, Any], size: tuple[int, int]
) -> tuple[int | None, str, Any, Any]:
    """Expresses optional rescaling and normalisation as a normalisation of values in [0, 1]."""
    deit = str(given.get("image_processor_type", "")).startswith("DeiT")
    given = ({"do_center_crop": True, "resample": 3} if deit else {}) | {
        key: value for key, value in given.items() if value is not None
    }
    shorter, edge, sides = 0, given.get("size"), {"height": size[0], "width": size[1]}
    if not given.get("do_resize", True):
        shorter = None
    elif given.get("do_center_crop") and given.get("crop_size") in (sides, size[0]):
        shorter = edge.get("shortest_edge") if isinstance(edge, dict) else None
    factor = given.get("rescale_factor", 1 / 255) if given.get("do_rescale", True) else 1.0
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if given.get("do_normalize", True):
        mean, std = given.get("image_mean", ORIGINAL.mean), given.get("image_std", ORIGINAL.std)
    scale = 1 / (255 * factor)
    kind = FILTERS[given.get("resample", 2)]
    return shorter, kind, [m * scale for m in mean], [s * scale for s in std]
