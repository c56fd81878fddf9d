# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The objective of predicting the pixels of masked patches from the others (arXiv:2111.06377).

The encoder sees only the patches that are not masked. Images are those of the batch: augmented,
uint8. Axes: B batch, H W C image, L patches, O pixels of a patch. Start from `MAE`.
"""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp

from vit_jax.models import mae
from vit_jax.step import losses
from vit_jax.step.masked_patches import image_keys, pixels
from vit_jax.step.objective import Batch, Network, Objective, PyTree, Sums

_RANK = 2**31 + 2  # stands for a micro-batch's number in the key of the masks
_EPSILON = 1e-6  # added to the variance of a patch, as in the published code


@dataclasses.dataclass(frozen=True)
class MAE(Objective):
    """The objective of a masked autoencoder. It ignores labels.

    Attributes:
      masked: share of the patches that the encoder does not see (0.75 in the paper).
      depth: layers of the decoder (8 in the paper).
      width: its width (512).
      heads: its attention heads (16).
      normalised: whether the target is the patch minus its mean, over its standard deviation;
        otherwise the normalised image.
    """

    masked: float = 0.75
    depth: int = 8
    width: int = 512
    heads: int = 16
    normalised: bool = True

    def __post_init__(self) -> None:
        if type(self.masked) is not float or not 0 < self.masked < 1:
            raise ValueError(f"masked={self.masked!r}; give a share above 0 and below 1.")
        sizes = (self.depth, self.width, self.heads)
        if not all(type(n) is int and 0 < n < 2**16 for n in sizes):
            raise ValueError("depth, width and heads are whole numbers from 1 to 65535.")
        if not isinstance(self.normalised, bool):
            raise ValueError(f"normalised={self.normalised!r}; give True or False.")
        if self.width % (8 * self.heads):
            raise ValueError(
                f"width={self.width} is not divisible by 8 * heads = {8 * self.heads}; give heads "
                "of 8, 16, 24, ... numbers."
            )

    def model(self, cfg: Any) -> mae.MaskedAutoencoderConfig:
        return mae.config(
            cfg, masked=self.masked, depth=self.depth, width=self.width, heads=self.heads
        )

    def draw(self, batch: Batch, key: jax.Array) -> tuple[Batch, None]:
        keys_B = jax.random.split(jax.random.fold_in(key, _RANK), len(batch["_mask"]))
        return batch | {"key": keys_B}, None

    def sums(
        self, network: Network, params: PyTree, kept: PyTree, batch: Batch, drawn: None, key: Any
    ) -> Sums:
        loss_B = self._losses(network, params, batch, batch["key"], train=True, key=key)
        return {"loss": jnp.sum(jnp.where(batch["_mask"], loss_B, 0.0))}

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        """Returns the sums of a batch; an image is masked the same way every time."""
        keys_B = image_keys(batch["image"])
        loss_B = self._losses(network, params, batch, keys_B, train=False, key=None)
        examples = jnp.sum(batch["_mask"], dtype=jnp.int32)
        return {"loss": jnp.sum(jnp.where(batch["_mask"], loss_B, 0.0)), "examples": examples}

    def _losses(
        self, network: Network, params: PyTree, batch: Batch, keys_B: jax.Array, **options: Any
    ) -> jax.Array:
        """Returns the mean squared error over the masked patches of each image, float32 [B]."""
        images_BHWC = network.normalise(batch["image"])
        predicted_BLO = network.apply(params, images_BHWC, keys_B=keys_B, **options)
        patches, outputs = predicted_BLO.shape[1:]
        targets_BLO = pixels(images_BHWC, math.isqrt(outputs // images_BHWC.shape[-1]))
        if self.normalised:
            targets_BLO = normalised(targets_BLO)
        loss_BL = losses.squared_error(predicted_BLO, targets_BLO)
        seen = mae.visible(self.masked, patches)
        masked_BL = mae.ranks(keys_B, patches) >= seen
        return jnp.sum(jnp.where(masked_BL, loss_BL, 0.0), axis=1) / (patches - seen)


def normalised(pixels_BLO: jax.Array) -> jax.Array:
    """Returns the pixels of each patch with mean 0 and (unbiased) variance 1."""
    mean_BL1 = jnp.mean(pixels_BLO, axis=-1, keepdims=True)
    variance_BL1 = jnp.var(pixels_BLO, axis=-1, keepdims=True, ddof=1)
    return (pixels_BLO - mean_BL1) * jax.lax.rsqrt(variance_BL1 + _EPSILON)
