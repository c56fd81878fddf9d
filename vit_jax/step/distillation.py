# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The objective of learning from a teacher, by default with the same crop and mix for both models.

"Patient and consistent" teaching (arXiv:2106.05237), and the soft and hard losses of DeiT
(arXiv:2012.12877, section 4), whose distillation token learns from the teacher and whose class
token from labels. Axes: B batch, H W C image, Y classes.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput
from vit_jax.step import losses, metrics, mixing
from vit_jax.step.classification import Classification
from vit_jax.step.objective import Batch, Network, PyTree, ReadModel, Sums


@dataclasses.dataclass(frozen=True)
class Distillation(Classification):
    """The objective of predicting what a teacher predicts, and the labels.

    It is evaluated as a classifier, without the teacher.

    Attributes:
      teacher: the teacher. The state keeps its parameters, which no update changes.
      kind: `soft`: KL(teacher || model) of the probabilities at `temperature`, times its square;
        `hard`: the cross-entropy against the teacher's first class.
      temperature: T, which divides the logits of both.
      share: the teacher's share of the loss. The rest is that of labels, as in `Classification`.
      view: the field with the teacher's images, uint8 like `image`. "": it sees what the model
        sees, mixed too. A view that draws nothing is the fixed teacher of 2106.05237, section 3.1.
      token: whether the teacher's part is that of the head of the model's distillation token, and
        that of labels that of its class token. Otherwise both are of the one output.
    """

    teacher: ReadModel = dataclasses.field(kw_only=True)
    kind: str = "soft"
    temperature: float = 1.0
    share: float = 1.0
    view: str = ""
    token: bool = False

    METRICS = ("loss", "top1", "agreement", "teacher_top1")
    SECTIONS = ("loss", "mixup", "distillation")
    ANY_SHAPE = False  # its teacher may have other patches

    def __post_init__(self) -> None:
        if self.kind == "hard" and self.temperature != 1.0:
            raise BadInput(
                f"distillation.temperature={self.temperature} has no use with kind=hard; leave it "
                "out."
            )
        if self.view and (self.mixup or self.cutmix):
            raise BadInput(
                f"distillation.view={self.view!r} shows the teacher images that are not mixed, and "
                "the model sees mixed ones; give --config.mixup.alpha=0 --config.mixup.cutmix=0, "
                "or leave the view out."
            )
        if self.token and self.share == 1:
            raise BadInput(
                "distillation.share=1 leaves nothing to learn for the class token of a model with "
                "a distillation token; give --config.distillation.share=0.5, or "
                "--config.model.distillation=False."
            )
        labels = {"loss.name": self.loss != "softmax", "loss.label_smoothing": self.label_smoothing}
        if unused := [key for key, differs in labels.items() if differs and self.share == 1]:
            raise BadInput(
                f"{unused[0]} has no use with distillation.share=1, which learns no labels; give "
                "a smaller share, or --config.loss.name=softmax --config.loss.label_smoothing=0."
            )

    def in_run(self, cfg: Any, in_steps: Any) -> "Distillation":
        if cfg.classes != self.teacher.cfg.classes:
            raise BadInput(
                f"distillation.teacher={self.teacher.name} has {self.teacher.cfg.classes} classes, "
                f"and the data {cfg.classes}; give a teacher that was trained on these classes."
            )
        return self

    def batch(self, height: int, width: int, channels: int) -> dict[str, jax.ShapeDtypeStruct]:
        fields = super().batch(height, width, channels)
        return fields | ({self.view: fields["image"]} if self.view else {})

    def step_flops(self, cfg: Any, height: int, width: int) -> int:
        teacher = self.teacher.cfg.forward_flops(height, width)
        return super().step_flops(cfg, height, width) + teacher

    def sums(
        self,
        network: Network,
        params: PyTree,
        kept: PyTree,
        batch: Batch,
        drawn: "mixing.Mix | None",
        key: jax.Array,
    ) -> Sums:
        teacher = network.others["teacher"]
        if self.view:
            shown_BHWC = teacher.normalise(batch[self.view])
        else:
            shown_BHWC = self._images(teacher, batch, drawn)
        taught_BY = teacher.apply(kept["teacher"], shown_BHWC, train=False)
        taught_BY = jax.lax.stop_gradient(taught_BY.astype(jnp.float32))
        images_BHWC = self._images(network, batch, drawn)
        options = {"train": True, "key": key} | ({"apart": True} if self.token else {})
        logits_BY = labelled_BY = told_BY = network.apply(params, images_BHWC, **options)
        if self.token:
            labelled_BY, told_BY = logits_BY[:, 0], logits_BY[:, 1]
            logits_BY = (labelled_BY + told_BY) / 2
        loss_B = self.share * self._taught(told_BY, taught_BY)
        if self.share < 1:
            targets_BY = self._targets(batch, drawn)
            loss_B += (1 - self.share) * losses.find(self.loss)(labelled_BY, targets_BY)
        labels, mask_B = batch["labels"], batch["_mask"]
        own = metrics.sums(logits_BY, labels, mask_B, loss_B)
        agree_B = jnp.argmax(logits_BY, axis=-1) == jnp.argmax(taught_BY, axis=-1)
        right = metrics.sums(taught_BY, labels, mask_B, loss_B)["top1"]
        return {
            "loss": own["loss"],
            "top1": own["top1"].astype(jnp.float32),
            "agreement": jnp.sum(agree_B & mask_B, dtype=jnp.float32),
            "teacher_top1": right.astype(jnp.float32),
        }

    def _taught(self, logits_BY: jax.Array, taught_BY: jax.Array) -> jax.Array:
        """Returns the teacher's part of the loss, float32 [B]."""
        if self.kind == "hard":
            first_BY = jax.nn.one_hot(jnp.argmax(taught_BY, axis=-1), self.classes)
            return losses.softmax_xent(logits_BY, first_BY)
        log_p_BY = jax.nn.log_softmax(taught_BY / self.temperature)
        log_q_BY = jax.nn.log_softmax(logits_BY.astype(jnp.float32) / self.temperature)
        difference_B = jnp.sum(jnp.exp(log_p_BY) * (log_p_BY - log_q_BY), axis=-1)
        return self.temperature**2 * difference_B
