# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images of any aspect ratio: the places of patches in a sequence, and which patches attend.

NaFlex (SigLIP 2, arXiv:2502.14786, section 2.4.2) resizes an image to the largest grid of patches
within a budget. A canvas holds the patches in the order of its own cells, row by row; the rest is
padding. NaViT (arXiv:2307.06304) packs several images into one sequence, one after another. Axes: B
sequences, L tokens, S images of a sequence, G positions a side of the table, D width. Start from
`Canvas` and `layout`.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vit_jax.config.model_section import NaFlexFilter
from vit_jax.errors import BadInput
from vit_jax.models.attention import MASKED
from vit_jax.models.settings import Settings


class Canvas(NamedTuple):
    """The input of a model with `naflex`, in place of images of one size.

    Attributes:
      images_BHWC: float32 [B, H, W, C], the patches of the images in its cells, row by row.
      grids: int32 [B, 2], rows and columns of patches of each image; or [B, S, 2] for several
        images in a sequence, with 0 x 0 where there is none.
    """

    images_BHWC: Any
    grids: Any


class Unpacked(NamedTuple):
    """Images in rows of their own, which the model packs before it computes them.

    Attributes:
      canvas: the images, with grids [B, 2].
      members: int32 [G, R, S], the images of each of G * R rows: numbers within each G-th part of
        the images, -1 where there is none. The images without a row have logits of 0.
    """

    canvas: Canvas
    members: Any


class Layout(NamedTuple):
    """The image of each patch of a sequence, and its place there.

    Attributes:
      segments_BL: int32, the number of its image; -1 for padding.
      places_BL2: int32, its row and column in the image.
      grids_BL2: int32, rows and columns of that image, at least 1.
    """

    segments_BL: jax.Array
    places_BL2: jax.Array
    grids_BL2: jax.Array


def layout(grids_BS2: jax.Array, length: int) -> Layout:
    """Returns the image and place of each of `length` patches, for images one after another."""
    ends_BS = jnp.cumsum(grids_BS2[..., 0] * grids_BS2[..., 1], axis=1)
    number_L = jnp.arange(length)
    after_BLS = number_L[None, :, None] >= ends_BS[:, None]
    segments_BL = jnp.sum(after_BLS, axis=2)
    real_BL = segments_BL < grids_BS2.shape[1]
    segments_BL = jnp.where(real_BL, segments_BL, 0)
    starts_BS = jnp.pad(ends_BS, ((0, 0), (1, 0)))[:, :-1]
    inside_BL = number_L[None] - jnp.take_along_axis(starts_BS, segments_BL, axis=1)
    grids_BL2 = jnp.take_along_axis(grids_BS2, segments_BL[..., None], axis=1)
    grids_BL2 = jnp.maximum(grids_BL2, 1)
    inside_BL = jnp.where(real_BL, inside_BL, 0)
    places_BL2 = jnp.stack(jnp.divmod(inside_BL, grids_BL2[..., 1]), axis=-1)
    return Layout(jnp.where(real_BL, segments_BL, -1), places_BL2, grids_BL2)


def positions(
    table_GGD: jax.Array, of: Layout, by: NaFlexFilter = "bilinear", *, square: bool = False
) -> jax.Array:
    """Returns the position embedding of each patch, float32 [B, L, D].

    The table is resized to the grid of each image, between the centres of cells.

    Args:
      table_GGD: the table.
      of: the places of the patches.
      by: bilinear, as SigLIP 2 does, or bicubic (Keys, a = -0.5), both with means where the grid is
        smaller (antialias); linear: bilinear between the nearest cells at any size.
      square: whether the table is resized to a square of the longer side of the grid, whose first
        rows and columns the image takes (aspect preserving).
    """
    side = table_GGD.shape[0]
    grids_BL2 = of.grids_BL2.astype(jnp.float32)
    if square:
        grids_BL2 = jnp.max(grids_BL2, axis=-1, keepdims=True)
    scale_BL2 = side / grids_BL2
    centres_BL2 = (of.places_BL2 + 0.5) * scale_BL2 - 0.5
    distance_BL2G = jnp.abs(jnp.arange(side)[None, None, None] - centres_BL2[..., None])
    if by != "linear":
        distance_BL2G /= jnp.maximum(scale_BL2, 1.0)[..., None]
    shares_BL2G = cubic(distance_BL2G) if by == "bicubic" else 1.0 - distance_BL2G
    shares_BL2G = jnp.where(distance_BL2G < (2 if by == "bicubic" else 1), shares_BL2G, 0.0)
    shares_BL2G /= jnp.sum(shares_BL2G, axis=-1, keepdims=True)
    rows_BLG, columns_BLG = shares_BL2G[:, :, 0], shares_BL2G[:, :, 1]
    both_BLGG = rows_BLG[..., None] * columns_BLG[:, :, None]
    return jnp.einsum("blij,ijd->bld", both_BLGG, table_GGD, precision="highest")


def cubic(x: jax.Array) -> jax.Array:
    """Returns the cubic kernel of Keys with a = -0.5 at distances from 0 to 2."""
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return jnp.where(x < 1, near, far)


def slots(images: float) -> int:
    """Returns S, the most images of a row in training, for rows of `images` images on average."""
    return math.ceil(2 * images)


def in_rows(unpacked: Unpacked, patch: int) -> Canvas:
    """Returns the packed rows: images [G * R, H, W, C], grids of S images.

    Args:
      unpacked: the images and the rows that they are for.
      patch: pixels a side of a patch.
    """
    canvas, members = unpacked
    groups, rows, images = members.shape
    _, height, width, channels = canvas.images_BHWC.shape
    down, across = height // patch, width // patch
    cells = canvas.images_BHWC.reshape(-1, down, patch, across, patch, channels)
    cells = jnp.swapaxes(cells, 2, 3).reshape(groups, -1, down * across, patch**2 * channels)

    def of_group(cells_bLX: jax.Array, grids_b2: jax.Array, members_RS: jax.Array) -> Any:
        grids_RS2 = jnp.where(members_RS[..., None] < 0, 0, grids_b2[members_RS])
        of = layout(grids_RS2, down * across)
        inside_RL = of.places_BL2[..., 0] * of.grids_BL2[..., 1] + of.places_BL2[..., 1]
        image_RL = jnp.take_along_axis(members_RS, jnp.maximum(of.segments_BL, 0), axis=1)
        real_RL1 = of.segments_BL[..., None] >= 0
        return jnp.where(real_RL1, cells_bLX[image_RL, inside_RL], 0), grids_RS2

    grids = canvas.grids.reshape(groups, -1, 2)
    cells, grids = jax.vmap(of_group)(cells, grids, members)
    cells = cells.reshape(-1, down, across, patch, patch, channels)
    packed = jnp.swapaxes(cells, 2, 3).reshape(-1, height, width, channels)
    return Canvas(packed, grids.reshape(groups * rows, images, 2))


def of_images(logits_RSY: jax.Array, unpacked: Unpacked) -> jax.Array:
    """Returns the logits of the images, float32 [B, Y], from those of the packed rows."""
    canvas, members = unpacked
    groups, each = len(members), len(canvas.grids) // len(members)

    def of_group(logits_nY: jax.Array, members_n: jax.Array) -> jax.Array:
        none_bY = jnp.zeros((each, logits_nY.shape[1]), logits_nY.dtype)
        return none_bY.at[jnp.where(members_n < 0, each, members_n)].set(logits_nY, mode="drop")

    logits = logits_RSY.reshape(groups, -1, logits_RSY.shape[-1])
    return jax.vmap(of_group)(logits, members.reshape(groups, -1)).reshape(groups * each, -1)


def apart(queries_BQ: jax.Array, memory_BL: jax.Array) -> jax.Array:
    """Returns what to add to scores, float32 [B, Q, L]: `MASKED` between different segments."""
    same_BQL = queries_BQ[:, :, None] == memory_BL[:, None]
    return jnp.where(same_BQL, 0.0, MASKED).astype(jnp.float32)


def of_prefix(batch: int, images: int, prefix: int) -> jax.Array:
    """Returns the segments of tokens without a patch, [B, S * prefix]: an image's lie together."""
    numbers_P = jnp.arange(images * prefix) // max(prefix, 1)
    return jnp.broadcast_to(numbers_P, (batch, images * prefix))


def check(wanted: Settings, hybrid: bool) -> None:
    """Raises BadInput for options that have no meaning with `model.naflex`."""
    if hybrid:
        raise BadInput(
            f"model.naflex={wanted.naflex!r}: {wanted.variant} has no naflex, as its patches are "
            "not of pixels; leave it out."
        )
    clashes = {
        "one head: distillation=False": wanted.distillation,
        "a table of positions at the stem: posemb=learned1d and posemb_at=stem": (
            wanted.posemb != "learned1d" or wanted.posemb_at != "stem"
        ),
        "positions of its table alone: rope=none": wanted.rope != "none",
        "every patch where it is: patch_dropout=0, merge=0 and window=0": (
            max(wanted.patch_dropout, wanted.merge, wanted.window) > 0
        ),
    }
    if wrong := [needed for needed, clash in clashes.items() if clash]:
        raise BadInput(
            f"model {wanted.variant}: naflex={wanted.naflex} needs {wrong[0]}; leave one of them "
            "out."
        )
