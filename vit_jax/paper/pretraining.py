# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Table 3 and appendix B.1.2 of arXiv:2010.11929, and BiT (arXiv:1912.11370, section 3.3).

Start from `table_3`, `masked` or `bit`.
"""

import dataclasses
import functools

from vit_jax import paper

# Names of datasets in the papers -> names in recipes.
DATASETS = {
    "JFT-300M": "jft",
    "JFT": "jft",
    "ImageNet-21k": "imagenet21k",
    "ImageNet": "imagenet",
    "ILSVRC-2012": "imagenet",
}


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of Table 3.

    Attributes:
      epochs: one number, or several if the paper does not say which one it used where.
      lr: peak rate.
      decay: linear or cosine.
      weight_decay: decay, multiplied by the rate.
      dropout: dropout rate.
    """

    epochs: tuple[int, ...]
    lr: float
    decay: str
    weight_decay: float
    dropout: float


def variant(name: str) -> str:
    """Returns the variant for a model of the paper (`ViT-B/16`, `R50+ViT-B/16`, `R50x1`)."""
    return name.replace("ViT-", "") if "ViT" in name else f"BiT-{name}"


@functools.cache
def table_3() -> dict[str, dict[str, Row]]:
    """Returns dataset (`jft`, `imagenet21k`, `imagenet`) -> variant -> row."""
    rows: dict[str, dict[str, Row]] = {}
    for row in paper.table("vit_paper_tables")["tables"]["table_3"]["rows"]:
        values = Row(
            tuple(row["epochs"]),
            row["base_lr"],
            row["lr_decay"],
            row["weight_decay"],
            row["dropout"],
        )
        dataset = rows.setdefault(DATASETS[row["dataset"]], {})
        dataset |= {variant(name): values for name in row["expanded"]}
    return rows


@dataclasses.dataclass(frozen=True)
class Common:
    """The values that the caption of Table 3 gives for all rows.

    Attributes:
      batch_size: images.
      warmup_steps: steps of linear warm-up.
      resolution: pixels per side.
      clip: dataset -> maximum global norm of the gradients; 0 disables clipping.
    """

    batch_size: int
    warmup_steps: int
    resolution: int
    clip: dict[str, float]


def common() -> Common:
    """Returns the values in the caption of Table 3."""
    values = paper.table("vit_paper_tables")["tables"]["table_3"]["common"]
    clips = values["grad_clip_global_norm"]
    return Common(
        values["batch_size"],
        values["warmup_steps"],
        values["resolution"],
        {DATASETS[name]: clip or 0.0 for name, clip in clips.items() if name in DATASETS},
    )


@dataclasses.dataclass(frozen=True)
class Bit:
    """BiT's pre-training on a dataset: SGD with a rate that falls in steps.

    Attributes:
      batch_size: images.
      lr: peak rate at that batch size.
      momentum: momentum of SGD.
      weight_decay: L2, added to the gradient.
      warmup_steps: steps of linear warm-up.
      epochs: length of training.
      drops: epochs at which the rate falls to a tenth.
    """

    batch_size: int
    lr: float
    momentum: float
    weight_decay: float
    warmup_steps: int
    epochs: int
    drops: tuple[int, ...]


def bit(dataset: str) -> Bit:
    """Returns the recipe of BiT-S (`imagenet`), BiT-M (`imagenet21k`) or BiT-L (`jft`)."""
    upstream = paper.table("bit_hyperrule")["upstream"]
    same = upstream["common"]
    rows = {DATASETS[row["dataset"]]: row for row in upstream["models"].values()}
    return Bit(
        same["batch_size"],
        same["initial_lr"] * same["batch_size"] / 256,
        same["momentum"],
        same["weight_decay"],
        same["warmup_steps"],
        rows[dataset]["epochs"],
        tuple(rows[dataset]["lr_decay_x0_1_at_epochs"]),
    )


@dataclasses.dataclass(frozen=True)
class Masked:
    """Masked patch prediction: appendix B.1.2, and section 4.6 for the accuracy.

    Attributes:
      model: variant of the model.
      dataset: `jft`.
      rate: share of corrupted patches.
      steps: training steps.
      batch_size: images.
      lr: peak rate.
      warmup_steps: steps of linear warm-up.
      decay: cosine.
      imagenet_percent: top-1 on ImageNet after fine-tuning.
    """

    model: str
    dataset: str
    rate: float
    steps: int
    batch_size: int
    lr: float
    warmup_steps: int
    decay: str
    imagenet_percent: float


def masked() -> Masked:
    """Returns the recipe of the paper's self-supervised model."""
    values = paper.table("vit_paper_tables")["text_details"]["self_supervision"]["value"]
    return Masked(
        variant(values["model"]),
        DATASETS[values["dataset"]],
        values["corruption_rate"],
        values["steps"],
        values["batch_size"],
        values["base_lr"],
        values["warmup_steps"],
        values["lr_decay"],
        values["imagenet_accuracy_percent"],
    )
