# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes how weights want images to be prepared as chains of ops. Start from `of`."""

import logging
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from vit_jax.errors import BadInput
from vit_jax.models import published
from vit_jax.weights import image_settings
from vit_jax.weights.formats.json_config import FILTERS

log = logging.getLogger("vit_jax")

_UPRIGHT = "decode(exif=True)|"


class Chains(NamedTuple):
    """Chains for training and for evaluation; both turn images upright, as cameras state it."""

    train: str
    evaluation: str


# Bilinear, without averaging, as the authors of the paper resize. The crop is milder than theirs.
PLAIN = Chains(
    f"{_UPRIGHT}inception_crop({{size}}, area_min=0.3)|flip_lr", f"{_UPRIGHT}resize({{size}})"
)
_RESIZES = "resize", "resize_small", "bv_resize_small"
_CUBIC = PLAIN.train.replace("0.3", "0.3, cubic=True")


def of_augreg(file: str) -> dict[str, Any]:
    """Returns what a file that AugReg fine-tuned wants of images; {} for any other file name.

    Evaluation takes the central 384 of 448 pixels (google-research/big_vision issue 60), at 224
    pixels of 256 (inferred, from its pre-training).
    """
    side = published.tuned_side(file)
    if not side:
        return {}
    longer = "8//7" if side == 224 else "7//6"
    chain = f"{_UPRIGHT}bv_resize_small({{size*{longer}}})|central_crop({{size}})"
    return {"mean": [0.5] * 3, "std": [0.5] * 3, "ops": chain}


def of(form: str, images: Mapping[str, Any]) -> Chains:
    """Returns the chains for weights: their filter, and in evaluation their resize and crop.

    The crop is a share of the image, so that it is right at any size. A run has its own chain again
    if that was `auto` too. Weights that tell nothing, or what no chain does, have `PLAIN`. Images
    fill the crop where a library would add borders. Training crops are cubic or not averaged.

    Args:
      form: the format of the weights.
      images: what their files say about images, see `image_settings`.
    """
    own = images.get("ops", "")
    if own.startswith(tuple(f"{_UPRIGHT}{op}({{size" for op in _RESIZES)):
        return Chains(_CUBIC if "cubic=True" in own else PLAIN.train, own)
    if form not in ("timm", "hf") or not images:
        return PLAIN
    try:
        op, share, kind = (_timm if form == "timm" else _hf)(images)
    except BadInput as e:
        log.info("images are prepared as for the paper's weights: %s", e)
        return PLAIN
    if kind not in ("bicubic", "bilinear"):
        log.info("no op resizes by %s, which these weights expect: images are bilinear", kind)
    side = "size" if share == 1 else f"size*{share.denominator}//{share.numerator}"
    crop = "" if op == "resize" and share == 1 else "|central_crop({size})"
    smooth = "cubic=True" if kind == "bicubic" else "antialias=True"
    return Chains(
        _CUBIC if kind == "bicubic" else PLAIN.train,
        f"{_UPRIGHT}{op}({{{side}}}, {smooth}){crop}",
    )


def _timm(images: Mapping[str, Any]) -> tuple[str, Fraction, str]:
    """Returns the op that resizes, the share of a side that the central crop keeps, the filter."""
    wanted = image_settings.timm(images)
    kind, share = wanted["interpolation"], _share(wanted["crop_pct"])
    if wanted["crop_mode"] == "center":
        return "resize_small", share, kind
    return "resize", share if wanted["crop_mode"] == "squash" else Fraction(1), kind


def _hf(images: Mapping[str, Any]) -> tuple[str, Fraction, str]:
    wanted = image_settings.hf(images)
    shortest = wanted["size"].get("shortest_edge")
    before, after = shortest or wanted["size"]["height"], wanted["crop_size"]["height"]
    share = _share(after / before) if wanted["do_center_crop"] else Fraction(1)
    return "resize_small" if shortest else "resize", share, FILTERS[wanted["resample"]]


def _share(number: float) -> Fraction:
    """Returns a share of at most 1 whose terms a chain can have."""
    return min(Fraction(number).limit_denominator(9999), Fraction(1))
