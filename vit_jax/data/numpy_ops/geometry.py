# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Moves mask and boxes of an example with its image; see `ops/geometry.py` for the rules.

`PLACEMENTS` says for each op where pixels come from, with the draws that make its image. Start from
`follow`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vit_jax.data.example import FIELDS
from vit_jax.data.numpy_ops import augment, draws, resize, scale
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.ops import augment as augment_ops
from vit_jax.data.ops import crops as crop_ops
from vit_jax.data.ops import erasing as erasing_ops
from vit_jax.data.ops import geometry as ops
from vit_jax.data.ops import resize as resize_ops
from vit_jax.data.ops import scale as scale_ops
from vit_jax.data.ops.resize import rows_columns
from vit_jax.errors import BadInput

Fields = dict[str, Any]
Sides = tuple[int, int]
_half = np.float32(0.5)


class Placement(NamedTuple):
    """The place in the image of each pixel of a result; see `ops.geometry.Placement`.

    Attributes:
      sides: rows and columns of the result.
      source: float32 [6].
    """

    sides: Sides
    source: np.ndarray


def _straight(sides: Sides, scales: np.ndarray, start: np.ndarray) -> Placement:
    """Returns the placement of an op that does not turn, from rows and columns of each."""
    source = np.array([scales[1], 0, start[1], 0, scales[0], start[0]], np.float32)
    return Placement(sides, source)


def of_box(begin: Any, extent: Any, sides: Sides) -> Placement:
    """Returns the placement of a box of the image that is resized to `sides`."""
    scales = np.array(extent, np.float32) / np.array(sides, np.float32)
    start = np.array(begin, np.float32) + (scales - np.float32(1)) / np.float32(2)
    return _straight(sides, scales, start)


def _whole(after: Callable[[Any, Sides], Sides]) -> Callable[[Any, Sides, Seed], Placement]:
    """Returns the placement of ops that resize the whole image to `after`."""
    return lambda op, sides, _: of_box((0, 0), sides, after(op, sides))


def _stated(op: Any, _: Sides) -> Sides:
    return rows_columns(op.size)


def _central_crop(op: resize_ops.CentralCrop, sides: Sides, _: Seed) -> Placement:
    size = rows_columns(op.size)
    return of_box([(a - b) // 2 for a, b in zip(sides, size, strict=True)], size, size)


def _pad(op: scale_ops.Pad, _: Sides, __: Seed) -> Placement:
    size = rows_columns(op.size)
    return of_box((0, 0), size, size)


def _scale_jitter(op: scale_ops.ScaleJitter, sides: Sides, seed: Seed) -> Placement:
    after, begin = scale.jittered(op, sides, seed)
    scales = np.array(sides, np.float32) / np.array(after, np.float32)
    start = (np.array(begin, np.float32) + _half) * scales - _half
    return _straight(rows_columns(op.size), scales, start)


def _random_crop(op: augment_ops.RandomCrop, sides: Sides, seed: Seed) -> Placement:
    size = rows_columns(op.size)
    return of_box(augment.begin(sides[0] - size[0], sides[1] - size[1], seed), size, size)


def _inception_crop(op: augment_ops.InceptionCrop, sides: Sides, seed: Seed) -> Placement:
    box = augment.crop_box(op, *sides, seed)
    begin, extent = [part.start for part in box], [part.stop - part.start for part in box]
    return of_box(begin, extent, rows_columns(op.size))


def _flip_lr(_: augment_ops.FlipLr, sides: Sides, seed: Seed) -> Placement:
    flipped = draws.uniform(seed, 1)[0] < 0.5
    source = [-1, 0, sides[1] - 1, 0, 1, 0] if flipped else [1, 0, 0, 0, 1, 0]
    return Placement(sides, np.array(source, np.float32))


def _shift(op: augment_ops.Shift, sides: Sides, seed: Seed) -> Placement:
    begin = augment.begin(2 * op.pixels, 2 * op.pixels, seed)
    return of_box([at - op.pixels for at in begin], sides, sides)


def _affine(op: augment_ops.Affine, sides: Sides, seed: Seed) -> Placement:
    return Placement(sides, np.array(augment.affine_matrix(op, *sides, seed), np.float32))


# Class of an op -> (op, rows and columns of the image before, seed) -> where pixels come from.
PLACEMENTS: dict[type, Callable[[Any, Sides, Seed], Placement]] = {
    resize_ops.Resize: _whole(_stated),
    resize_ops.BvResize: _whole(_stated),
    resize_ops.ResizeSmall: _whole(resize.covering),
    resize_ops.BvResizeSmall: _whole(resize.bv_covering),
    scale_ops.ResizeInside: _whole(scale.inside),
    resize_ops.CentralCrop: _central_crop,
    scale_ops.Pad: _pad,
    scale_ops.ScaleJitter: _scale_jitter,
    augment_ops.RandomCrop: _random_crop,
    augment_ops.InceptionCrop: _inception_crop,
    crop_ops.FastInceptionCrop: _inception_crop,
    augment_ops.FlipLr: _flip_lr,
    augment_ops.Shift: _shift,
    augment_ops.Affine: _affine,
}


def follow(op: Any, fields: Fields, sides: Sides, seed: Seed) -> Fields:
    """Returns the fields of an example with mask and boxes as they are after an op that moves them.

    Args:
      op: the op.
      fields: `mask`, int32 [H, W]; `boxes`, float32 [M, 4]; `box_classes`, int32 [M]; or some.
      sides: rows and columns of the image before the op.
      seed: the seed of the op.

    Raises:
      BadInput: the op moves them with TensorFlow alone.
      Unsuitable: the mask has another size than the image.
    """
    if "mask" in fields and fields["mask"].shape != sides:
        raise resize.Unsuitable("the mask has another size than the image")
    if isinstance(op, erasing_ops.RandomErasing):
        return _erased(op, fields, sides, seed)
    if type(op) not in PLACEMENTS:
        raise BadInput(
            f"data.reader=python: the op {type(op).__name__} moves masks and boxes with TensorFlow "
            "alone; set --config.data.reader=tf, or leave it out of the chain."
        )
    place, moved = PLACEMENTS[type(op)](op, sides, seed), dict(fields)
    if "mask" in fields:
        at = augment.coordinates(place.source, *place.sides)
        moved["mask"] = augment.nearest(fields["mask"], *at, FIELDS["mask"].missing)
    if "boxes" in fields:
        moved["boxes"] = _placed(fields["boxes"], place)
    return _without_empty_boxes(moved)


def _erased(op: erasing_ops.RandomErasing, fields: Fields, sides: Sides, seed: Seed) -> Fields:
    area = augment.erased_area(op, *sides, seed)
    if area is None:
        return _without_empty_boxes(fields)
    moved, dropped = dict(fields), None
    if "mask" in fields:
        moved["mask"] = fields["mask"].copy()
        moved["mask"][area] = FIELDS["mask"].missing
    if "boxes" in fields:
        begin, end = ([getattr(part, at) for part in area[::-1]] for at in ("start", "stop"))
        boxes = fields["boxes"]
        dropped = ((boxes[:, :2] >= begin) & (boxes[:, 2:] <= end)).all(axis=1)
    return _without_empty_boxes(moved, dropped)


def _placed(boxes: np.ndarray, place: Placement) -> np.ndarray:
    """Returns the boxes about the moved corners, clipped; those outside have no area."""
    a, b, x, c, d, y = place.source
    left, top, right, bottom = (boxes - _half).T
    across = np.stack([left, right, left, right]) - x
    down = np.stack([top, top, bottom, bottom]) - y
    determinant = a * d - b * c
    at = np.stack([(d * across - b * down) / determinant, (a * down - c * across) / determinant])
    ends = np.array(place.sides[::-1], np.float32)[:, None, None]
    clipped = np.clip(at + _half, np.float32(0), ends)  # [2, 4 corners, M]
    return np.concatenate([clipped.min(axis=1), clipped.max(axis=1)]).T


def _without_empty_boxes(fields: Fields, dropped: np.ndarray | None = None) -> Fields:
    if "boxes" not in fields:
        return fields
    boxes, classes = fields["boxes"], fields.get("box_classes")
    kept = (boxes[:, 2:] - boxes[:, :2] > np.float32(ops.LEAST)).all(axis=1)
    kept = kept if classes is None else kept & (classes >= 0)
    kept = kept if dropped is None else kept & ~dropped
    missing = np.float32(FIELDS["boxes"].missing)
    moved = fields | {"boxes": np.where(kept[:, None], boxes, missing)}
    if classes is not None:
        moved["box_classes"] = np.where(kept, classes, np.int32(FIELDS["box_classes"].missing))
    return moved
