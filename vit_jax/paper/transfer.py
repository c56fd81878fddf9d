# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Table 4 of arXiv:2010.11929, parameter averaging, and the protocols of fine-tuning.

The values of Table 4 are stated here, as the recipe uses them. `vit_jax table 4` compares them with
vit_paper_tables.json, which nothing here reads for them. Start from `table_4` or `PROTOCOLS`.
"""

import dataclasses

from vit_jax import paper

# Names of datasets in the table -> names in recipes.
DATASETS = {
    "ImageNet": "imagenet",
    "CIFAR100": "cifar100",
    "CIFAR10": "cifar10",
    "Oxford-IIIT Pets": "pets",
    "Oxford Flowers-102": "flowers",
    "VTAB (19 tasks)": "vtab",
}
# VTAB's optional selection is "a small sweep over two learning rates and two schedules" (B.1.1).
# The first rate and the second length are from Table 4; the others are our choice.
VTAB_RATES, VTAB_STEPS = (0.01, 0.03), (500, 2500)


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of Table 4, with the values that its caption gives for all rows.

    Attributes:
      steps: training steps.
      rates: grid of peak learning rates.
      held_out_percent: percentage of train on which the rate is chosen; 0 for VTAB, which has
        val200.
      batch_size: images.
      momentum: momentum of SGD.
      clip: maximum global norm of the gradients.
      weight_decay: value in the paper, which uses no decay.
      resolution: pixels per side.
    """

    steps: int
    rates: tuple[float, ...]
    held_out_percent: int
    batch_size: int
    momentum: float
    clip: float
    weight_decay: float
    resolution: int


_CIFAR_RATES = (0.001, 0.003, 0.01, 0.03)
_TABLE_4 = {
    "imagenet": (20_000, (0.003, 0.01, 0.03, 0.06), 1),
    "cifar100": (10_000, _CIFAR_RATES, 2),
    "cifar10": (10_000, _CIFAR_RATES, 2),
    "pets": (500, _CIFAR_RATES, 10),
    "flowers": (500, _CIFAR_RATES, 10),
    "vtab": (2500, (0.01,), 0),
}


def table_4() -> dict[str, Row]:
    """Returns dataset (`imagenet`, `cifar10`, `cifar100`, `pets`, `flowers`, `vtab`) -> row."""
    return {
        name: Row(steps, rates, held_out, 512, 0.9, 1.0, 0.0, 384)
        for name, (steps, rates, held_out) in _TABLE_4.items()
    }


def polyak() -> float:
    """Returns the decay of parameter averaging in Table 2's ImageNet rows (section 4.1)."""
    details = paper.table("vit_paper_tables")["text_details"]["table_2_imagenet_resolution"]
    return details["value"]["polyak_averaging_factor"]
