# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Applies chains of ops to numpy arrays. Start from `apply`.

An op of a user's package has a method `in_numpy(image, seed)`; `APPLY` holds those of this package.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from vit_jax.data.example import GRID
from vit_jax.data.numpy_ops import (
    augment,
    color,
    decode,
    draws,
    geometry,
    randaugment,
    resize,
    scale,
)
from vit_jax.data.numpy_ops import naflex as numpy_naflex
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.numpy_ops.geometry import Fields
from vit_jax.data.ops import augment as augment_ops
from vit_jax.data.ops import color as color_ops
from vit_jax.data.ops import crops as crop_ops
from vit_jax.data.ops import decode as decode_ops
from vit_jax.data.ops import erasing as erasing_ops
from vit_jax.data.ops import randaugment as randaugment_ops
from vit_jax.data.ops import resize as resize_ops
from vit_jax.data.ops import scale as scale_ops
from vit_jax.data.ops.chain import FIXED, SIZELESS, Op, moves
from vit_jax.data.ops.naflex import NaFlex
from vit_jax.errors import BadInput

# Class of an op -> (op, image, seed) -> uint8 [H, W, C].
APPLY: dict[type, Callable[[Any, Any, Seed], np.ndarray]] = {
    decode_ops.Decode: decode.decode,
    resize_ops.Resize: resize.resize,
    resize_ops.ResizeSmall: resize.resize_small,
    resize_ops.CentralCrop: resize.central_crop,
    resize_ops.BvResize: resize.bv_resize,
    resize_ops.BvResizeSmall: resize.bv_resize_small,
    scale_ops.ResizeInside: scale.resize_inside,
    scale_ops.Pad: scale.pad,
    scale_ops.ScaleJitter: scale.scale_jitter,
    NaFlex: numpy_naflex.naflex,
    augment_ops.RandomCrop: augment.random_crop,
    augment_ops.InceptionCrop: augment.inception_crop,
    crop_ops.FastInceptionCrop: augment.inception_crop,
    augment_ops.FlipLr: augment.flip_lr,
    augment_ops.Shift: augment.shift,
    augment_ops.Affine: augment.affine,
    randaugment_ops.RandAugment: randaugment.randaug,
    color_ops.ColorJitter: color.color_jitter,
    color_ops.ThreeAugment: color.three_augment,
    color_ops.Grayscale: color.grayscale,
    color_ops.Solarize: color.solarize,
    color_ops.GaussianBlur: color.gaussian_blur,
    erasing_ops.RandomErasing: augment.random_erasing,
}


def check(ops: tuple[Op, ...]) -> None:
    """Raises BadInput for an op that has no form in numpy; the message names it."""
    for op in ops:
        if type(op) not in APPLY and not hasattr(op, "in_numpy"):
            raise BadInput(
                f"data.reader=python: the op {type(op).__name__} is written for TensorFlow alone; "
                "give it a method in_numpy(image, seed), or set --config.data.reader=tf."
            )


def check_files(ops: tuple[Op, ...]) -> None:
    """Raises BadInput for an op that needs the sides of images, where files have any."""
    known = False
    for op in ops:
        if isinstance(op, color_ops.GaussianBlur) and not known:
            raise BadInput(color_ops.SIZELESS)
        scales = isinstance(op, SIZELESS)
        known |= type(op) not in APPLY or (hasattr(op, "size") and not scales)


def apply(ops: tuple[Op, ...], image: bytes | np.ndarray, seed: Seed) -> np.ndarray:
    """Returns an image after the ops, uint8 [H, W, C]; see `apply_to_fields`."""
    return apply_to_fields(ops, {"image": image}, seed)["image"]


def apply_to_fields(ops: tuple[Op, ...], fields: Fields, seed: Seed) -> Fields:
    """Returns the fields after the ops; each op draws from its own stream of the example's seed.

    Args:
      ops: the chain.
      fields: `image`, the bytes of a file or uint8 [H, W, C], and what moves with it: `mask`, int32
        [H, W], `boxes`, float32 [M, 4], and `box_classes`, int32 [M].
      seed: the seed of the example.

    Returns:
      The fields; `naflex` adds the grid of the image.

    Raises:
      BadImage: a file cannot be decoded.
      BadInput: the chain takes no files, and the image is one; or an op moves the image alone.
      Unsuitable: an op cannot take the image.
    """
    at = 0
    while at < len(ops):
        op, image = ops[at], fields["image"]
        own = seed if isinstance(op, FIXED) else draws.fold_in(seed, at)
        if isinstance(op, decode_ops.Decode) and isinstance(image, bytes) and ops[at + 1 :]:
            crop = ops[at + 1]
            if isinstance(crop, augment_ops.InceptionCrop):
                moves(op, fields)
                drawn, size = draws.fold_in(seed, at + 1), resize_ops.rows_columns(crop.size)
                box, sides = decode.decode_box(op, crop, image, drawn)
                if moves(crop, fields):
                    fields = geometry.follow(crop, fields, sides, drawn)
                pixels = resize.resized(box, *size, antialias=False, cubic=crop.cubic)
                fields = fields | {"image": pixels}
                at += 2
                continue
        if isinstance(image, bytes) and not isinstance(op, decode_ops.Decode):
            raise BadInput(
                f"the chain begins with {type(op).__name__}, and images are files; begin with "
                "decode."
            )
        moving, known = moves(op, fields), APPLY.get(type(op))
        made = known(op, image, own) if known else op.in_numpy(image, own)  # type: ignore[attr-defined]
        if moving:  # after the op has checked the sides of the image
            fields = geometry.follow(op, fields, fields["image"].shape[:2], own)
        if isinstance(op, NaFlex):
            grid = numpy_naflex.grid(op, fields["image"].shape[:2])
            fields = fields | {GRID: np.array(grid, np.int32)}
        fields = fields | {"image": made}
        at += 1
    if isinstance(fields["image"], bytes):
        raise BadInput("the chain has no decode, and images are files; begin with decode.")
    return fields
