# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Trains on several images in a sequence (NaViT, arXiv:2307.06304), with exact gradients.

A micro-batch of images [B], each in a row of its own, is packed into fewer rows on the devices. The
images for which there is no room have their turn in another pass, so every image counts once. Data,
labels and losses know nothing of it: the model packs the images that a batch lists as `members`,
and returns the logits of every image. A device packs its own images, so none crosses devices. Axes:
B images, R rows, S images of a row, G groups. Start from `Packing`.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from vit_jax.models.naflex import slots
from vit_jax.step.objective import Batch, Sums

PyTree = Any
Gradients = Callable[[PyTree, Batch, jax.Array], tuple[PyTree, Sums]]


@dataclasses.dataclass(frozen=True)
class Packing:
    """How a micro-batch is packed.

    Attributes:
      images: images for each row on average, at least 1: a group of n images has n / `images` rows,
        rounded up.
      length: patches of a row, at least those of an image.
      groups: G, the parts of the batch on different devices.
    """

    PASSES: ClassVar[str] = "passes"  # name of the sum that counts passes
    FURTHER: ClassVar[str] = "further_passes"  # scope of the loop over all passes but the first

    images: float
    length: int
    groups: int = 1

    def in_passes(self, gradients: Gradients) -> Gradients:
        """Returns the same function of a micro-batch, computed on packed rows.

        The batch has `grid`, int32 [B, 2]. The sums get `PASSES`, float32 []. Each pass has draws
        of its own.
        """

        def all_passes(params: PyTree, batch: Batch, key: jax.Array) -> tuple[PyTree, Sums]:
            def one(left_B: jax.Array, number: jax.Array) -> tuple[jax.Array, Any]:
                members_GRS = self.members(batch["grid"], left_B)
                taken_B = _taken(members_GRS, len(left_B))
                packed = batch | {"members": members_GRS, "_mask": taken_B}
                found, sums = gradients(params, packed, jax.random.fold_in(key, number))
                return left_B & ~taken_B, (found, sums | {self.PASSES: jnp.ones(())})

            def more(carry: Any) -> Any:
                left_B, number, total = carry
                left_B, found = one(left_B, number)
                return left_B, number + 1, jax.tree.map(jnp.add, total, found)

            # Outside of the loop the first pass is 1.6 times as fast on a CPU.
            left_B, total = one(jnp.asarray(batch["_mask"]), jnp.int32(0))
            carry = left_B, jnp.int32(1), total
            with jax.named_scope(self.FURTHER):
                return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), more, carry)[2]

        return all_passes

    def measured(self, sums: Sums, micro_batches: int) -> Sums:
        """Returns the mean number of passes over a micro-batch, by name."""
        return {self.PASSES: sums[self.PASSES] / micro_batches}

    def members(self, grids_B2: jax.Array, left_B: jax.Array) -> jax.Array:
        """Returns the images of each row, int32 [G, R, S], by their number in the group; -1: none.

        Large images come first, and an image goes into the first row with room. At least one image
        of those that are left in a group is taken.

        Args:
          grids_B2: rows and columns of patches of each image, at most `length` patches together.
          left_B: bool, the images to pack.
        """
        lengths_B = jnp.clip(jnp.prod(grids_B2, axis=-1), 1, self.length) * left_B
        lengths_Gb = lengths_B.reshape(self.groups, -1)
        rows = math.ceil(lengths_Gb.shape[1] / self.images)
        return jax.vmap(lambda lengths_b: self._first_fit(lengths_b, rows))(lengths_Gb)

    def _first_fit(self, lengths_B: jax.Array, rows: int) -> jax.Array:
        most = slots(self.images)

        def place(used: Any, length: jax.Array) -> tuple[Any, Any]:
            patches_R, images_R = used
            room_R = (patches_R + length <= self.length) & (images_R < most) & (length > 0)
            row = jnp.argmax(room_R)
            there = jnp.any(room_R)
            after = patches_R.at[row].add(length * there), images_R.at[row].add(there)
            return after, (jnp.where(there, row, rows), images_R[row])

        none_R = jnp.zeros(rows, lengths_B.dtype)
        order_B = jnp.argsort(-lengths_B)
        _, (row_B, slot_B) = jax.lax.scan(place, (none_R, none_R), lengths_B[order_B])
        empty_RS = jnp.full((rows, most), -1, order_B.dtype)
        return empty_RS.at[row_B, slot_B].set(order_B, mode="drop")


def _taken(members_GRS: jax.Array, images: int) -> jax.Array:
    """Returns which of the images have a place, bool [B]."""
    groups = len(members_GRS)

    def of_group(members_RS: jax.Array) -> jax.Array:
        none_b = jnp.zeros(images // groups, bool)
        return none_b.at[jnp.where(members_RS < 0, len(none_b), members_RS)].set(True, mode="drop")

    return jax.vmap(of_group)(members_GRS).ravel()
