# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""BiT-HyperRule (arXiv:1912.11370, section 3.3): fine-tuning without a search. Start from `rule`.

The number of examples and the area of the images determine length, resolution and mixup. The module
also has the deviations of the published code.
"""

import dataclasses

from vit_jax import paper
from vit_jax.paper import vtab

SMALL, LARGE = 20_000, 500_000  # labelled examples: small is below the first, large from the second
FEWEST_PIXELS = 96 * 96  # images with fewer pixels are resized to smaller sides

# Dataset -> number of training images, and a side in pixels that stands for their area. Sizes come
# from TFDS, sides from the published code (bit_hyperrule.json); there, 224 stands for any large
# side.
DATASETS = {
    "cifar10": (50_000, 32),
    "cifar100": (50_000, 32),
    "pets": (3_680, 224),
    "flowers": (1_020, 224),
    "imagenet": (1_281_167, 224),
}
VTAB_EXAMPLES = 1_000
VTAB_SIDES = {"cifar100": 32, "svhn": 32, "eurosat": 64, "dspr_loc": 64, "dspr_ori": 64}


@dataclasses.dataclass(frozen=True)
class Rule:
    """The rule's hyperparameters for one dataset.

    Attributes:
      steps: training steps.
      warmup_steps: steps of linear warm-up; 0 in the paper, which has no warm-up.
      drops: durations after which the rate falls to a tenth.
      mixup: alpha; 0 leaves it out.
      resize: pixels per side, before a crop.
      crop: pixels per side; evaluation resizes to it.
      lr: learning rate.
      momentum: momentum of SGD.
      batch_size: images.
      weight_decay: value in the paper, which uses no decay.
    """

    steps: int
    warmup_steps: int
    drops: tuple[str, ...]
    mixup: float
    resize: int
    crop: int
    lr: float
    momentum: float
    batch_size: int
    weight_decay: float


def size(dataset: str) -> tuple[int, int]:
    """Returns (labelled examples, pixels per side).

    `dataset` is a dataset or `vtab/TASK`; the result is (0, 0) if it is unknown.
    """
    if dataset.startswith("vtab/"):
        slug = vtab.find(dataset.removeprefix("vtab/")).slug
        return VTAB_EXAMPLES, VTAB_SIDES.get(slug, 224)
    return DATASETS.get(dataset, (0, 0))


def rule(*, examples: int, side: int, model: str = "", code: bool = False) -> Rule:
    """Returns the rule for a dataset.

    Args:
      examples: number of labelled examples.
      side: side of the images in pixels, the root of their area.
      model: variant; `BiT-R152x4` has its own resolution.
      code: whether to follow the published code: a warm-up, other drops on small datasets, 480
        pixels.
    """
    tables = paper.table("bit_hyperrule")
    printed, coded = tables["hyperrule_paper"], tables["hyperrule_code"]
    level = 0 if examples < SMALL else 1 if examples < LARGE else 2
    regime, schedule = (
        printed["dataset_size_regimes"][level],
        list(coded["schedule"].values())[level],
    )
    low, usual, largest = printed["resolution"]
    if code:
        usual = coded["resolution"][1] | {"resize": coded["resolution"][1]["precrop"]}
    elif model == "BiT-R152x4":
        usual = largest
    shape = low if side * side < FEWEST_PIXELS else usual
    drops = tuple(f"{step} steps" for step in schedule["decay_at"])
    return Rule(
        steps=regime["steps"],
        warmup_steps=schedule["warmup_steps"] if code else 0,
        drops=drops if code else ("30 percent", "60 percent", "90 percent"),
        mixup=regime["mixup_alpha"],
        resize=shape["resize"],
        crop=shape["crop"],
        lr=printed["base_lr"],
        momentum=printed["momentum"],
        batch_size=printed["batch_size"],
        weight_decay=printed["weight_decay"],
    )
