# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What each position of a pyramid learns of the boxes of an image, and which boxes they find.

The rules are those of FCOS (arXiv:1904.01355, 2006.09214). Axes: B batch, M boxes, L positions of
all levels, K candidates, N detections, Y classes. Start from `targets`, `losses` and `detections`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from vit_jax.models import fcos
from vit_jax.step import boxes
from vit_jax.step.objective import Batch, Sums

DETECTIONS = 100  # of an image at most, as COCO counts
_RADIUS = 1.5  # strides from the centre of a box within which positions learn it (2006.09214)
_REACH = 8.0  # strides: a level learns boxes whose longest side from a position is up to this
_ALPHA, _GAMMA = 0.25, 2  # of the focal loss (arXiv:1708.02002)
_LEAST = 0.05  # probability of a class from which a position is a candidate
_CANDIDATES = 1000  # of each level
_OVERLAP = 0.6  # IoU above which the worse of two boxes of a class is dropped


class Targets(NamedTuple):
    """What the positions of a batch learn.

    Attributes:
      classes_BL: int32, -1 for no object.
      boxes_BL4: float32, the box to learn; about the position where there is no object.
      centre_BL: float32, the centre-ness, 0 where there is no object (arXiv:1904.01355, eq. 3).
      real_B: bool, False for padding rows.
    """

    classes_BL: jax.Array
    boxes_BL4: jax.Array
    centre_BL: jax.Array
    real_B: jax.Array


def assigned(boxes_M4: jax.Array, classes_M: jax.Array, places: fcos.Places) -> jax.Array:
    """Returns which box each position learns, int32 [L]; -1: none.

    A position learns the smallest box that holds it, whose centre is within 1.5 strides in both
    directions, and whose size suits the level (arXiv:1904.01355, section 3.2; 2006.09214 samples
    around centres). An object between the positions of its level is not learned. Rows without a
    class or an area are no boxes. Everything is reduced over [L, M] at once; XLA keeps none of
    these tables, which would be 26 MB each for 300 boxes at 1024 pixels.
    """
    x, y = places.xy_L2[:, 0, None], places.xy_L2[:, 1, None]
    stride = places.stride_L[:, None]
    left, top, right, bottom = (boxes_M4[None, :, n] for n in range(4))
    sides = (x - left, y - top, right - x, bottom - y)
    shortest = jnp.minimum(jnp.minimum(sides[0], sides[1]), jnp.minimum(sides[2], sides[3]))
    longest = jnp.maximum(jnp.maximum(sides[0], sides[1]), jnp.maximum(sides[2], sides[3]))
    far = jnp.maximum(abs(x - (left + right) / 2), abs(y - (top + bottom) / 2))
    finest, coarsest = places.stride_L[0], places.stride_L[-1]
    suits = (longest > _REACH * stride / 2) | (stride == finest)
    suits &= (longest <= _REACH * stride) | (stride == coarsest)
    learns = (shortest > 0) & (far < _RADIUS * stride) & suits & (classes_M >= 0)[None]
    area = jnp.where(learns, boxes.area(boxes_M4)[None], jnp.inf)
    best_L = jnp.argmin(area, axis=1).astype(jnp.int32)
    return jnp.where(jnp.min(area, axis=1) < jnp.inf, best_L, -1)


def targets(batch: Batch, places: fcos.Places) -> Targets:
    """Returns what the positions learn of `boxes` and `box_classes` of a batch."""
    number_BL = jax.vmap(lambda b, c: assigned(b, c, places))(batch["boxes"], batch["box_classes"])
    number_BL = jnp.where(batch["_mask"][:, None], number_BL, -1)
    there, at = number_BL >= 0, jnp.maximum(number_BL, 0)
    classes_BL = jnp.where(there, jnp.take_along_axis(batch["box_classes"], at, axis=1), -1)
    boxes_BL4 = jnp.take_along_axis(batch["boxes"], at[..., None], axis=1)
    xy_L2 = jnp.asarray(places.xy_L2)
    boxes_BL4 = jnp.where(
        there[..., None], boxes_BL4, jnp.concatenate([xy_L2 - 1, xy_L2 + 1], axis=1)[None]
    )
    begin, end = xy_L2[None] - boxes_BL4[..., :2], boxes_BL4[..., 2:] - xy_L2[None]
    ratio = jnp.prod(jnp.minimum(begin, end) / jnp.maximum(begin, end), axis=-1)
    centre_BL = jnp.where(there, jnp.sqrt(ratio), 0.0)
    return Targets(classes_BL, boxes_BL4, centre_BL, batch["_mask"])


def totals(targets: Targets) -> Sums:
    """Returns how many positions learn a box, and the sum of their centre-ness, float32 []."""
    positions = jnp.sum(targets.classes_BL >= 0, dtype=jnp.float32)
    return {"positions": positions, "centred": jnp.sum(targets.centre_BL)}


def _boxes(found: fcos.Found, places: fcos.Places) -> jax.Array:
    """Returns the boxes that positions predict, [B, L, 4]."""
    xy_1L2, sides_BL4 = jnp.asarray(places.xy_L2)[None], found.sides_BL4
    ends = xy_1L2 - sides_BL4[..., :2], xy_1L2 + sides_BL4[..., 2:]
    return jnp.concatenate(ends, axis=-1)


def losses(found: fcos.Found, places: fcos.Places, targets: Targets) -> Sums:
    """Returns the sums over real images of the three losses, float32 [].

    They are the focal loss of each class at each position (arXiv:1708.02002, equation 5), 1 - GIoU
    times the centre-ness, and the cross-entropy of the centre-ness.
    """
    there = targets.classes_BL >= 0
    true_BLY = targets.classes_BL[..., None] == jnp.arange(found.logits_BLY.shape[-1])[None, None]
    right = jnp.where(true_BLY, found.logits_BLY, -found.logits_BLY)
    focal = jax.nn.sigmoid(-right) ** _GAMMA * jax.nn.softplus(-right)
    focal *= jnp.where(true_BLY, _ALPHA, 1 - _ALPHA)
    apart = 1 - boxes.giou(_boxes(found, places), targets.boxes_BL4)
    logit, wanted = found.centre_BL, targets.centre_BL
    centre = jax.nn.softplus(logit) - wanted * logit
    return {
        "class_loss": jnp.sum(jnp.where(targets.real_B[:, None, None], focal, 0.0)),
        "box_loss": jnp.sum(jnp.where(there, wanted * apart, 0.0)),
        "centre_loss": jnp.sum(jnp.where(there, centre, 0.0)),
    }


# ---------------------------------------------------------------- detections


def detections(
    found: fcos.Found, places: fcos.Places, size: tuple[int, int]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns boxes float32 [B, N, 4] in the image, scores [B, N] and classes int32 [B, N].

    N = 100. Scores descend, and are 0 where there are fewer detections. A score is the square root
    of the probability of the class times the centre-ness. The 1000 best candidates of each level
    remain, of those with a probability above 0.05; then `boxes.suppressed` does.
    """
    edges = jnp.asarray([size[1], size[0], size[1], size[0]], jnp.float32)
    boxes_BL4 = jnp.clip(_boxes(found, places), 0, edges[None, None])
    likely_BLY = jax.nn.sigmoid(found.logits_BLY)
    scores_BLY = jnp.sqrt(likely_BLY * jax.nn.sigmoid(found.centre_BL)[..., None])
    scores_BLY = jnp.where(likely_BLY > _LEAST, scores_BLY, 0.0)

    def of_image(boxes_L4: jax.Array, scores_LY: jax.Array) -> tuple[jax.Array, ...]:
        classes, start, best = scores_LY.shape[1], 0, []
        for count in places.counts:
            level = scores_LY[start : start + count]
            # A candidate is at one of as many positions, which are far fewer to sort. An export
            # for TensorFlow has no top_k.
            place_P = jnp.argsort(-jnp.max(level, axis=1))[:_CANDIDATES]
            flat = level[place_P].reshape(-1)
            at = jnp.argsort(-flat)[:_CANDIDATES]
            best.append((flat[at], start + place_P[at // classes], at % classes))
            start += count
        scores_K, place_K, class_K = (jnp.concatenate(x) for x in zip(*best, strict=True))
        boxes_K4 = boxes_L4[place_K]
        kept, scores_N = boxes.suppressed(
            boxes_K4, scores_K, class_K, most=DETECTIONS, overlap=_OVERLAP
        )
        return boxes_K4[kept], scores_N, class_K[kept].astype(jnp.int32)

    of_batch = jax.vmap(of_image)(boxes_BL4, scores_BLY)
    return of_batch[0], of_batch[1], of_batch[2]
