# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Masked patch prediction (arXiv:2010.11929, appendix B.1.2): corruption, targets and sums.

Half of the patch embeddings of an image are corrupted. The model's output for these patches is
compared with their colours. Images are those of the batch: augmented, not normalised, uint8.
Axes: B batch, H W C image, L patches, O outputs of a patch, Q colours of a patch, Y the 512 colours
that 3 bits per channel distinguish. Start from `make`.
"""

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vit_jax.config.sections import Target
from vit_jax.errors import BadInput
from vit_jax.step import losses, metrics
from vit_jax.step.objective import Batch, Network, Objective, PyTree, Sums

COLOURS = 512
LEVEL = 32  # values of a channel in each of its 8 levels
CELLS = {"mean": 1, "small": 4, "l2": 1}  # cells per side into which a patch is averaged
_CORRUPTION = 2**31 + 1  # stands for a micro-batch's number in the key of corruption


class Corruption(NamedTuple):
    """The corruption of every patch embedding of a batch.

    Attributes:
      source: int32 [B, L], the patch whose embedding is used at this place; -1: the mask token.
      corrupted: bool [B, L], True where the loss counts the patch, also if it keeps its embedding.
    """

    source: jax.Array
    corrupted: jax.Array


@dataclasses.dataclass(frozen=True)
class Masked(Objective):
    """The objective for images of one size. It ignores labels.

    Attributes:
      target: `mean`: the mean colour; `small`: the colours of the patch averaged to 4 x 4; `l2`:
        every pixel, in [0, 1].
      rate: share of the patches that are corrupted.
      patches: L.
      side: P, pixels of a patch's side.
    """

    target: Target
    rate: float
    patches: int
    side: int

    METRICS = ("loss", "top1")
    EVALUATED = ("top1", "top5", "loss")
    SECTIONS = ("masked",)

    def model(self, cfg: Any) -> Any:
        return cfg.for_patches(self.outputs)

    @property
    def corrupted(self) -> int:
        """The number of corrupted patches per image: rate * L, to the nearest, halves up."""
        return math.floor(self.rate * self.patches + 0.5)

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of patches that get the mask token, another patch's embedding, and their own.

        The shares are 80, 10 and 10 %. The tenths are rounded to the nearest, halves up, and the
        mask token gets the rest.
        """
        tenth = (self.corrupted + 5) // 10
        return self.corrupted - 2 * tenth, tenth, tenth

    @property
    def outputs(self) -> int:
        """O: the logits of each colour, or the pixels row by row."""
        return 3 * self.side**2 if self.target == "l2" else COLOURS * CELLS[self.target] ** 2

    def draw(self, batch: Batch, key: jax.Array) -> tuple[Batch, None]:
        keys_B = jax.random.split(jax.random.fold_in(key, _CORRUPTION), len(batch["_mask"]))
        return batch | {"corruption": self.corruption(keys_B)}, None

    def sums(
        self,
        network: Network,
        params: PyTree,
        kept: PyTree,
        batch: Batch,
        drawn: None,
        key: jax.Array,
    ) -> Sums:
        totals = self._predicted(network, params, batch, train=True, key=key)
        return {"loss": totals["loss"], "top1": totals["top1"]}

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        """Returns `compared` of a batch; an image is corrupted the same way every time."""
        batch = batch | {"corruption": self.corruption(image_keys(batch["image"]))}
        return self._predicted(network, params, batch, train=False, key=None)

    def _predicted(
        self, network: Network, params: PyTree, batch: Batch, *, train: bool, key: Any
    ) -> Sums:
        source_BL, corrupted_BL = batch["corruption"]
        images_BHWC = network.normalise(batch["image"])
        predicted_BLO = network.apply(
            params, images_BHWC, train=train, key=key, source_BL=source_BL
        )
        return self.compared(predicted_BLO, batch["image"], corrupted_BL, batch["_mask"])

    def corruption(self, keys_B: jax.Array) -> Corruption:
        """Draws the corruption of each image from its key: `counts` patches in every image.

        The other patch is any patch of the same image except itself, corrupted or not. It lends
        its embedding from before the corruption (the paper is silent).
        """
        return Corruption(*jax.vmap(self._draw)(keys_B))

    def _draw(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        by_mask, by_other, _ = self.counts
        order_key, other_key = jax.random.split(key)
        own_L = jnp.arange(self.patches)
        rank_L = jax.random.permutation(order_key, self.patches)
        away_L = jax.random.randint(other_key, (self.patches,), 1, self.patches)
        other_L = (own_L + away_L) % self.patches
        source_L = jnp.where(rank_L < by_mask + by_other, other_L, own_L)
        return jnp.where(rank_L < by_mask, -1, source_L), rank_L < self.corrupted

    def compared(
        self,
        predicted_BLO: jax.Array,
        images_BHWC: jax.Array,
        corrupted_BL: jax.Array,
        mask_B: jax.Array,
    ) -> dict[str, jax.Array]:
        """Returns sums over the real images of the means over their corrupted patches.

        Every image has the same number of corrupted patches, so the mean over images equals the
        mean over all patches.

        Args:
          predicted_BLO: float32 [B, L, O].
          images_BHWC: uint8 [B, H, W, 3].
          corrupted_BL: bool [B, L].
          mask_B: bool [B], False for padding rows.

        Returns:
          float32 [] `loss`, and `top1` and `top5` of the colours; int32 [] `examples`. For `l2`,
          the predicted colour is the one nearest to the mean of the predicted pixels.
        """
        colours_BLQ = colours(images_BHWC, self.side, CELLS[self.target])
        if self.target == "l2":
            loss_BL = losses.squared_error(predicted_BLO, pixels(images_BHWC, self.side) / 255)
            scores_BLQY = _nearness(predicted_BLO)[:, :, None]
        else:
            scores_BLQY = predicted_BLO.reshape(*colours_BLQ.shape, COLOURS)
            hot_BLQY = jax.nn.one_hot(colours_BLQ, COLOURS)
            loss_BL = jnp.mean(losses.softmax_xent(scores_BLQY, hot_BLQY), axis=-1)
        counted_BL1 = (corrupted_BL & mask_B[:, None])[..., None]
        labels, scores = colours_BLQ.reshape(-1, 1), scores_BLQY.reshape(-1, COLOURS)

        def share(k: int) -> jax.Array:
            right_BLQ = metrics.in_top_k(scores, labels, k).reshape(colours_BLQ.shape)
            right = jnp.sum(right_BLQ & counted_BL1, dtype=jnp.int32)
            return right / (self.corrupted * colours_BLQ.shape[-1])

        loss = jnp.sum(jnp.where(counted_BL1[..., 0], loss_BL, 0.0)) / self.corrupted
        examples = jnp.sum(mask_B, dtype=jnp.int32)
        return {"top1": share(1), "top5": share(5), "loss": loss, "examples": examples}


def make(cfg: Any, variant: str, height: int, width: int, *, target: str, rate: float) -> Masked:
    """Returns the objective that a configuration names.

    Args:
      cfg: the model, with a head of any kind.
      variant: its name, for messages.
      height: pixels of an image.
      width: pixels of an image.
      target: see `Masked`.
      rate: above 0, up to 1 (0.5 in the paper, which also tried 0.15).

    Raises:
      BadInput: the model has no patch embeddings or no final patch representations, or the rate
        corrupts no patch.
    """
    if not cfg.predicts_patches:
        pool = "pool=map" if getattr(cfg, "pool", "") == "map" else variant
        raise BadInput(
            f"masked.target={target} is for ViT and hybrids with pool=token or gap, not for "
            f"{pool}; give another model, or leave masked.target out."
        )
    rows, columns = cfg.patch_grid(height, width)
    objective = Masked(target, rate, rows * columns, cfg.stride)  # type: ignore[arg-type]
    if objective.corrupted < 1:
        least = math.ceil(50 / (rows * columns)) / 100
        raise BadInput(
            f"masked.rate={rate} of {rows * columns} patches; give a share from {least} up to 1."
        )
    return objective


def image_keys(images_BHWC: jax.Array) -> jax.Array:
    """Returns a typed key for every image, [B], derived from its pixels alone.

    So evaluation corrupts an image the same way every time, in any batch and at any place.
    """
    flat_BN = images_BHWC.reshape(images_BHWC.shape[0], -1).astype(jnp.uint32)
    weights_N = jnp.arange(flat_BN.shape[1], dtype=jnp.uint32) * jnp.uint32(2654435761) | 1
    sums_B = jnp.sum((flat_BN + 1) * weights_N[None], axis=1, dtype=jnp.uint32)
    return jax.vmap(functools.partial(jax.random.fold_in, jax.random.key(0)))(sums_B)


def colours(images_BHWC: jax.Array, side: int, cells: int) -> jax.Array:
    """Returns the 3-bit colours of all patches: floor(mean / 32) per channel, in integers.

    Args:
      images_BHWC: uint8 [B, H, W, 3].
      side: P; where `cells` does not divide it, a pixel between cells counts partly for each.
      cells: the number of cells per side of a patch; 1 for its mean.

    Returns:
      int32 [B, L, cells^2], row by row: 64 * red + 8 * green + blue, each in 0..7.
    """
    times = cells // math.gcd(side, cells)  # this many copies of each pixel fill the cells exactly
    cell = side * times // cells
    batch, height, width, _ = images_BHWC.shape
    rows, columns = height // side, width // side
    values = images_BHWC.astype(jnp.int32)
    if times > 1:
        values = jnp.repeat(jnp.repeat(values, times, axis=1), times, axis=2)
    values = values.reshape(batch, rows * cells, cell, columns * cells, cell, 3)
    levels = jnp.sum(values, axis=(2, 4)) // (LEVEL * cell**2)
    numbers = 64 * levels[..., 0] + 8 * levels[..., 1] + levels[..., 2]
    numbers = numbers.reshape(batch, rows, cells, columns, cells).swapaxes(2, 3)
    return numbers.reshape(batch, rows * columns, cells**2)


def pixels(images_BHWC: jax.Array, side: int) -> jax.Array:
    """Returns every pixel of all patches [B, L, P * P * 3]: rows, columns, channels."""
    batch, height, width, channels = images_BHWC.shape
    rows, columns = height // side, width // side
    patches = images_BHWC.reshape(batch, rows, side, columns, side, channels).swapaxes(2, 3)
    return patches.reshape(batch, rows * columns, side * side * channels)


def _nearness(predicted_BLO: jax.Array) -> jax.Array:
    """Returns [B, L, Y]: closeness of each colour to the mean of predicted pixels in [0, 1]."""
    means_BLC = 255 * jnp.mean(predicted_BLO.reshape(*predicted_BLO.shape[:2], -1, 3), axis=2)
    means_BLC += 1e-4  # a mean between two levels belongs to the upper one, despite rounding
    levels_YC = jnp.stack(jnp.unravel_index(jnp.arange(COLOURS), (8, 8, 8)), axis=-1)
    middles_11YC = (LEVEL * levels_YC + LEVEL / 2)[None, None]
    return -jnp.sum((means_BLC[:, :, None] - middles_11YC) ** 2, axis=-1)
