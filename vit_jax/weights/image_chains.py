# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes how weights want images to be prepared as chains of ops. Start from `of`."""

import logging
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from vit_jax.errors import BadInput
from vit_jax.weights import image_settings
from vit_jax.weights.formats.json_config import FILTERS

log = logging.getLogger("vit_jax")

_SMOOTH = {"bicubic": "cubic=True", "bilinear": "antialias=True"}


class Chains(NamedTuple):
    """Chains for training and for evaluation; both turn images upright, as cameras state it."""

    train: str
    evaluation: str


# As the authors of the paper: bilinear, without averaging. The crop is milder than theirs.
PLAIN = Chains(
    "decode(exif=True)|inception_crop({size}, area_min=0.3)|flip_lr",
    "decode(exif=True)|resize({size})",
)


def of(form: str, images: Mapping[str, Any]) -> Chains:
    """Returns the chains for weights: their filter in both, their resize and crop in evaluation.

    The crop is a share of the image, so that it is right at any size. Weights that tell nothing, or
    what no chain does, have `PLAIN`; a resize to borders is replaced by one that fills the image.

    Args:
      form: the format of the weights.
      images: what their files say about images, see `image_settings`.
    """
    if form not in ("timm", "hf") or not images:
        return PLAIN
    try:
        op, share, kind = (_timm if form == "timm" else _hf)(images)
    except BadInput as e:
        log.info("images are prepared as for the paper's weights: %s", e)
        return PLAIN
    if kind not in _SMOOTH:
        log.info("no op resizes by %s, which these weights expect: images are bilinear", kind)
        return PLAIN
    side = "size" if share == 1 else f"size*{share.denominator}//{share.numerator}"
    crop = "" if op == "resize" and share == 1 else "|central_crop({size})"
    cubic = f", {_SMOOTH[kind]}" if kind == "bicubic" else ""
    return Chains(
        f"decode(exif=True)|inception_crop({{size}}, area_min=0.3{cubic})|flip_lr",
        f"decode(exif=True)|{op}({{{side}}}, {_SMOOTH[kind]}){crop}",
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
