# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Table 3 and appendix B.1.2 of arXiv:2010.11929, and BiT (arXiv:1912.11370, section 3.3).

The values of Table 3 are stated here, as the recipes use them. `vit_jax table 3` compares them with
vit_paper_tables.json, which nothing here reads for them. Start from `table_3`, `masked` or `bit`.
"""

import dataclasses

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


# Model -> epochs and rate on JFT-300M; decay is linear, weight decay 0.1, no dropout.
_JFT = {
    "B/16": ((7,), 8e-4),
    "B/32": ((7,), 8e-4),
    "L/32": ((7,), 6e-4),
    "L/16": ((7, 14), 4e-4),
    "H/14": ((14,), 3e-4),
    "BiT-R50x1": ((7,), 1e-3),
    "BiT-R50x2": ((7,), 1e-3),
    "BiT-R101x1": ((7,), 8e-4),
    "BiT-R152x1": ((7,), 6e-4),
    "BiT-R152x2": ((7,), 6e-4),
    "R50+B/16": ((7,), 8e-4),
    "R50+B/32": ((7,), 8e-4),
    "R50+L/32": ((7,), 2e-4),
    "R50+L/16": ((7, 14), 4e-4),
}
_I21K = {"B/16": (90,), "B/32": (90,), "L/16": (30, 90), "L/32": (30, 90)}
_TABLE_3 = {
    "jft": {name: Row(epochs, lr, "linear", 0.1, 0.0) for name, (epochs, lr) in _JFT.items()},
    "imagenet21k": {name: Row(epochs, 1e-3, "linear", 0.03, 0.1) for name, epochs in _I21K.items()},
    "imagenet": {name: Row((300,), 3e-3, "cosine", 0.3, 0.1) for name in _I21K},
}


def table_3() -> dict[str, dict[str, Row]]:
    """Returns dataset (`jft`, `imagenet21k`, `imagenet`) -> variant -> row."""
    return _TABLE_3


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
    return Common(4096, 10_000, 224, {"imagenet": 1.0, "imagenet21k": 0.0, "jft": 0.0})


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
