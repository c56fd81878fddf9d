# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Geometry of boxes: left, top, right, bottom in pixels. All functions are for arrays of jax.

Start from `suppressed`, which keeps the best of overlapping boxes.
"""

import jax
import jax.numpy as jnp


def area(boxes: jax.Array) -> jax.Array:
    """Returns the areas of boxes [..., 4]; 0 where right or bottom is before left or top."""
    width, height = boxes[..., 2] - boxes[..., 0], boxes[..., 3] - boxes[..., 1]
    return jnp.maximum(width, 0) * jnp.maximum(height, 0)


def _intersection_and_union(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    begin, end = jnp.maximum(a[..., :2], b[..., :2]), jnp.minimum(a[..., 2:], b[..., 2:])
    both = area(jnp.concatenate([begin, end], axis=-1))
    return both, area(a) + area(b) - both


def iou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns intersection over union of boxes whose shapes broadcast; 0 for empty boxes."""
    both, either = _intersection_and_union(a, b)
    return both / jnp.where(either > 0, either, 1)


def giou(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns the generalised IoU (arXiv:1902.09630, equation 6), from -1 to 1.

    The boxes must have an area.
    """
    both, either = _intersection_and_union(a, b)
    begin, end = jnp.minimum(a[..., :2], b[..., :2]), jnp.maximum(a[..., 2:], b[..., 2:])
    hull = area(jnp.concatenate([begin, end], axis=-1))
    return both / either - (hull - either) / hull


def suppressed(
    boxes_K4: jax.Array, scores_K: jax.Array, classes_K: jax.Array, *, most: int, overlap: float
) -> tuple[jax.Array, jax.Array]:
    """Returns the numbers of the boxes that remain, the best first, and their scores.

    This is greedy non-maximum suppression: the best box drops every box of its class whose IoU with
    it is above `overlap`, then the best of the others does so. It takes N = `most` passes over the
    K boxes, and never holds the IoUs of all pairs.

    Returns:
      int32 [N] and float32 [N]; scores of 0 where fewer remain.
    """

    def one(scores_K: jax.Array, _: None) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        best = jnp.argmax(scores_K)
        alike = (classes_K == classes_K[best]) & (iou(boxes_K4, boxes_K4[best][None]) > overlap)
        dropped = alike | (jnp.arange(len(scores_K)) == best)
        return jnp.where(dropped, 0.0, scores_K), (best.astype(jnp.int32), scores_K[best])

    _, remaining = jax.lax.scan(one, scores_K, None, length=most)
    return remaining
