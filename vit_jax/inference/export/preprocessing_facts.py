# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Describes how images become a model's input, as far as an export can express it.

Start from `describe`.
"""

import math
from typing import Any

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import decode
from vit_jax.data.ops import resize as resize_ops
from vit_jax.data.ops.naflex import NaFlex
from vit_jax.weights import loading
from vit_jax.weights.convert import ORIGINAL, Weights
from vit_jax.weights.formats.json_config import FILTERS, Images

_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}  # timm's defaults


def describe(weights: Weights, size: tuple[int, int]) -> tuple[Images | None, str]:
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
    settings = dict(weights.images)
    if weights.format in ("npz", "big_vision") and not settings:
        return ORIGINAL, ""
    if not settings:
        return None, "no file beside the weights says how to prepare images"
    loading.reader(weights, size)  # checks all values
    antialias: bool | None = True  # like Pillow
    any_shape = getattr(weights.config, "naflex", 0) > 0
    if "ops" in settings:
        shorter, antialias, kind = _chain_resizing(settings["ops"], size, any_shape)
        mean, std, words = settings["mean"], settings["std"], f"the chain {settings['ops']}"
    elif weights.format == "timm":
        settings |= {"crop_mode": "squash", "crop_pct": 1.0} if any_shape else {}
        shorter, kind, mean, std = _timm_values(settings, size)
        words = f"timm's crop_mode={settings.get('crop_mode')}, crop_pct={settings.get('crop_pct')}"
    else:
        shorter, kind, mean, std = _transformers_values(settings, size)
        words = "the resizing in preprocessor_config.json"
    images = Images(
        tuple(map(float, mean)), tuple(map(float, std)), kind, shorter or 0, antialias=antialias
    )
    return images, words if shorter is None else ""


def _chain_resizing(
    chain: str, size: tuple[int, int], any_shape: bool
) -> tuple[int | None, bool | None, str]:
    """Returns how a chain resizes, for a model of images of one size or of `any_shape`.

    Returns:
      The shorter side before the central crop, 0 if resized straight or to the largest grid of
      patches of an image of any shape, None for any other way; whether shrinking averages over
      pixels, None if nothing is resized; and the name of the filter.
    """
    ops = [
        op
        for op in preprocess.parse("data.eval_ops", chain, size)
        if not isinstance(op, decode.Decode) or op.low or op.high
    ]
    if any_shape:
        known = len(ops) == 1 and isinstance(ops[0], NaFlex) and ops[0].enlarge
        return (0, True, "bilinear") if known else (None, None, "bilinear")
    match ops:
        case []:  # images already have the size
            return 0, None, "bilinear"
        case [resize_ops.Resize(size=n) | resize_ops.BvResize(size=n) as resize] if (
            resize_ops.rows_columns(n) == size
        ):
            return 0, *_filter(resize)
        case [
            resize_ops.ResizeSmall(size=int(n)) | resize_ops.BvResizeSmall(size=int(n)) as resize,
            resize_ops.CentralCrop(size=to),
        ] if resize_ops.rows_columns(to) == size:
            return n, *_filter(resize)
    return None, None, "bicubic" if any(getattr(op, "cubic", False) for op in ops) else "bilinear"


def _filter(op: Any) -> tuple[bool, str]:
    """Returns whether an op that resizes averages over pixels, and the name of its filter."""
    if getattr(op, "cubic", False):
        return True, "bicubic"
    return getattr(op, "antialias", isinstance(op, resize_ops.BvResizeSmall)), "bilinear"


def _timm_values(
    settings: dict[str, Any], size: tuple[int, int]
) -> tuple[int | None, str, Any, Any]:
    settings = {key: value for key, value in settings.items() if value is not None}
    share, mode = settings.get("crop_pct", 0.875), settings.get("crop_mode", "center")
    shorter = None
    if size[0] == size[1] and mode == "center":
        shorter = math.floor(size[0] / share)
    elif mode == "squash" and share == 1:
        shorter = 0
    values = _IMAGENET | settings
    return shorter, settings.get("interpolation", "bicubic"), values["mean"], values["std"]


def _transformers_values(
    settings: dict[str, Any], size: tuple[int, int]
) -> tuple[int | None, str, Any, Any]:
    """Expresses optional rescaling and normalisation as a normalisation of values in [0, 1]."""
    deit = str(settings.get("image_processor_type", "")).startswith("DeiT")
    settings = ({"do_center_crop": True, "resample": 3} if deit else {}) | {
        key: value for key, value in settings.items() if value is not None
    }
    shorter, edge, sides = 0, settings.get("size"), {"height": size[0], "width": size[1]}
    if not settings.get("do_resize", True):
        shorter = None
    elif settings.get("do_center_crop") and settings.get("crop_size") in (sides, size[0]):
        shorter = edge.get("shortest_edge") if isinstance(edge, dict) else None
    factor = settings.get("rescale_factor", 1 / 255) if settings.get("do_rescale", True) else 1.0
    mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)
    if settings.get("do_normalize", True):
        mean, std = (
            settings.get("image_mean", ORIGINAL.mean),
            settings.get("image_std", ORIGINAL.std),
        )
    scale = 1 / (255 * factor)
    kind = FILTERS[settings.get("resample", 2)]
    return shorter, kind, [m * scale for m in mean], [s * scale for s in std]
