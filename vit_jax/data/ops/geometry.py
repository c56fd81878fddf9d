# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Moves the mask and the boxes of an example with its image.

A geometric op states where each pixel of its result comes from. From that statement its mask (the
nearest pixel) and its boxes follow; the op's call makes the image. Start from `Geometric`.
"""

from typing import Any, ClassVar, NamedTuple

from vit_jax.data.example import FIELDS, SPATIAL
from vit_jax.data.tensorflow import Tensor, tf

LEAST = 1e-3  # pixels; narrower boxes are the rounding errors of boxes outside the image


class Placement(NamedTuple):
    """Where the pixels of a result come from.

    Attributes:
      sides: int32 [2], rows and columns of the result.
      source: float32 [6], (a, b, x, c, d, y): pixel (i, j), across and down, comes from
        (a i + b j + x, c i + d j + y).
    """

    sides: Any
    source: Tensor


def of_box(begin: Any, extent: Any, sides: Any) -> Placement:
    """Returns the placement of a box of the image that is resized to `sides`.

    Args:
      begin: row and column of its first pixel.
      extent: its rows and columns; equal to `sides` for a crop.
      sides: rows and columns of the result.
    """
    scale = tf.cast(extent, tf.float32) / tf.cast(sides, tf.float32)
    start = tf.cast(begin, tf.float32) + (scale - 1.0) / 2.0  # centres of pixels
    source = tf.stack([scale[1], 0.0, start[1], 0.0, scale[0], start[0]])
    return Placement(sides, source)


class Geometric:
    """An op that moves pixels, and mask and boxes with them."""

    changes: ClassVar[tuple[str, ...]] = ("image", *SPATIAL)

    def placement(self, sides: Tensor, seed: Tensor) -> Placement:
        """Returns where the op takes pixels from, in an image of `sides`, int32 [2]."""
        raise NotImplementedError

    def follow(self, fields: dict[str, Tensor], sides: Tensor, seed: Tensor) -> dict[str, Tensor]:
        """Returns the fields of `SPATIAL` after the op; `sides` are those of the image before."""
        place = self.placement(sides, seed)
        moved = {}
        if "mask" in fields:
            moved["mask"] = tf.raw_ops.ImageProjectiveTransformV3(
                images=fields["mask"][None, :, :, None],
                transforms=tf.concat([place.source, [0.0, 0.0]], axis=0)[None],
                output_shape=place.sides,
                interpolation="NEAREST",
                fill_mode="CONSTANT",
                fill_value=float(FIELDS["mask"].missing),
            )[0, :, :, 0]
        if "boxes" in fields:
            moved["boxes"] = _placed(fields["boxes"], place)
        return without_empty_boxes(fields | moved)


def _placed(boxes: Tensor, place: Placement) -> Tensor:
    """Returns the boxes about the moved corners, clipped; those outside have no area."""
    a, b, x, c, d, y = tf.unstack(place.source)
    left, top, right, bottom = (side - 0.5 for side in tf.unstack(boxes, axis=1))
    across = tf.stack([left, right, left, right]) - x
    down = tf.stack([top, top, bottom, bottom]) - y
    determinant = a * d - b * c
    ends = []
    for values, side in (
        ((d * across - b * down) / determinant + 0.5, place.sides[1]),
        ((a * down - c * across) / determinant + 0.5, place.sides[0]),
    ):
        clipped = tf.clip_by_value(values, 0.0, tf.cast(side, tf.float32))
        ends.append((tf.reduce_min(clipped, axis=0), tf.reduce_max(clipped, axis=0)))
    (left, right), (top, bottom) = ends
    return tf.stack([left, top, right, bottom], axis=1)


def without_empty_boxes(fields: dict[str, Tensor], dropped: Tensor | None = None) -> dict[str, Any]:
    """Returns the fields with boxes that have no area, or are to be dropped, marked as missing.

    Args:
      fields: fields of an example.
      dropped: bool [M], further boxes to drop.
    """
    if "boxes" not in fields:
        return fields
    boxes, classes = fields["boxes"], fields.get("box_classes")
    kept = tf.reduce_all(boxes[:, 2:] - boxes[:, :2] > LEAST, axis=1)
    kept = kept if classes is None else kept & (classes >= 0)
    kept = kept if dropped is None else kept & ~dropped
    kept_boxes = {"boxes": tf.where(kept[:, None], boxes, float(FIELDS["boxes"].missing))}
    if classes is not None:
        kept_boxes["box_classes"] = tf.where(kept, classes, FIELDS["box_classes"].missing)
    return fields | kept_boxes
