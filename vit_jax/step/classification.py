# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The objective of learning classes: logits against labels, with smoothing, mixup and CutMix.

Axes: B batch, H W C image, K labels of an example, Y classes.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from vit_jax.step import losses, metrics
from vit_jax.step.objective import Batch, Network, Objective, PyTree, Sums

if TYPE_CHECKING:
    from vit_jax.step import mixing

_MIXING = 2**31  # stands for a micro-batch's number in the key of mixing


@dataclasses.dataclass(frozen=True)
class Classification(Objective):
    """The objective of learning the labels of images.

    Attributes:
      classes: Y.
      loss: see `losses.find`.
      label_smoothing: see `losses.multi_hot`; only in training.
      mixup: alpha of mixup, see `mixing.draw`; 0 is off. `top1` then counts the labels of the
        larger part of an image.
      cutmix: alpha of CutMix, likewise.
    """

    classes: int
    loss: str = "softmax"
    label_smoothing: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0

    METRICS = ("loss", "top1")
    EVALUATED = ("top1", "top5", "loss")
    LABELLED = True
    ANY_SHAPE = True
    PACKS = True
    SECTIONS = ("loss", "mixup")

    def model(self, cfg: Any) -> Any:
        return cfg

    def draw(self, batch: Batch, key: jax.Array) -> "tuple[Batch, mixing.Mix | None]":
        if not self.mixup and not self.cutmix:
            return batch, None
        from vit_jax.step import mixing

        sides, mixing_key = batch["image"].shape[1:3], jax.random.fold_in(key, _MIXING)
        mix = mixing.draw(mixing_key, sides, self.mixup, self.cutmix)
        return mixing.with_partners(batch), mix

    def sums(
        self,
        network: Network,
        params: PyTree,
        kept: PyTree,
        batch: Batch,
        drawn: "mixing.Mix | None",
        key: jax.Array,
    ) -> Sums:
        images_BHWC = self._images(network, batch, drawn)
        logits_BY = network.apply(params, images_BHWC, train=True, key=key)
        loss_B = losses.find(self.loss)(logits_BY, self._targets(batch, drawn))
        sums = metrics.sums(logits_BY, batch["labels"], batch["_mask"], loss_B)
        return {"loss": sums["loss"], "top1": sums["top1"].astype(jnp.float32)}

    @staticmethod
    def _images(network: Network, batch: Batch, drawn: "mixing.Mix | None") -> Any:
        """Returns the input of a model, float32 [B, H, W, C]: normalised by it and mixed."""
        if drawn is None:
            return network.input_of(batch)
        images_BHWC = network.normalise(batch["image"])
        from vit_jax.step import mixing

        partners_BHWC = network.normalise(batch[mixing.PARTNER + "image"])
        return mixing.mixed(images_BHWC, partners_BHWC, drawn.pixels)

    def _targets(self, batch: Batch, drawn: "mixing.Mix | None") -> jax.Array:
        """Returns the smoothed and mixed labels, float32 [B, Y]."""
        smoothing = self.label_smoothing
        targets_BY = losses.multi_hot(batch["labels"], self.classes, smoothing=smoothing)
        if drawn is None:
            return targets_BY
        from vit_jax.step import mixing

        labels_BK = batch[mixing.PARTNER + "labels"]
        partners_BY = losses.multi_hot(labels_BK, self.classes, smoothing=smoothing)
        return mixing.mixed(targets_BY, partners_BY, drawn.share)

    def eval_sums(self, network: Network, params: PyTree, kept: PyTree, batch: Batch) -> Sums:
        return self._measured(network, params, batch)[0]

    def scores(
        self, network: Network, params: PyTree, kept: PyTree, batch: Batch
    ) -> dict[str, Any]:
        """Returns `eval_sums` with `scores`: `logits` float32 [B, Y], `labels` and `_mask`."""
        sums, logits_BY = self._measured(network, params, batch)
        scores = {"logits": logits_BY, "labels": batch["labels"], "_mask": batch["_mask"]}
        return sums | {"scores": scores}

    def _measured(self, network: Network, params: PyTree, batch: Batch) -> tuple[Sums, jax.Array]:
        """Returns `metrics.sums`, without label smoothing, and the logits, float32 [B, Y].

        A batch with `columns` (see `metrics.of_columns`) belongs to a data set of other classes:
        its labels and the predictions are numbers of columns.
        """
        images = network.input_of(batch)
        logits_BY, known = network.apply(params, images, train=False, key=None), self.classes
        if "columns" in batch:
            logits_BY = metrics.of_columns(logits_BY, batch["columns"])
            known = logits_BY.shape[1]
        targets_BY = losses.multi_hot(batch["labels"], known)
        loss_B = losses.find(self.loss)(logits_BY, targets_BY)
        return metrics.sums(logits_BY, batch["labels"], batch["_mask"], loss_B), logits_BY
