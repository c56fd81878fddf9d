# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""AugReg, "How to train your ViT?" (arXiv:2106.10270): augmentation levels and pre-training.

Start from `levels` or `pretraining`.
"""

import dataclasses
import functools
import re

from vit_jax import paper
from vit_jax.errors import unknown
from vit_jax.paper import replications, results

# The recommended AugReg file of each model, its best on ImageNet-21k: model -> pre-training,
# fine-tuning on ImageNet. Augmentation is spelled as in the file names; for light, the number is
# one lower than in the paper (light1 is the paper's light2).
RECOMMENDED = {
    "R+Ti/16": ("none-wd_0.03-do_0.0-sd_0.0", "lr_0.03-res_384"),
    "Ti/16": ("none-wd_0.03-do_0.0-sd_0.0", "lr_0.03-res_384"),
    "S/32": ("none-wd_0.1-do_0.0-sd_0.0", "lr_0.01-res_384"),
    "S/16": ("light1-wd_0.03-do_0.0-sd_0.0", "lr_0.03-res_384"),
    "R26+S/32": ("light1-wd_0.1-do_0.0-sd_0.0", "lr_0.01-res_384"),
    "B/32": ("light1-wd_0.1-do_0.0-sd_0.0", "lr_0.01-res_384"),
    "B/16": ("medium1-wd_0.1-do_0.0-sd_0.0", "lr_0.03-res_384"),
    "B/8": ("medium2-wd_0.1-do_0.0-sd_0.0", "lr_0.03-res_224"),
    "L/16": ("strong1-wd_0.1-do_0.0-sd_0.0", "lr_0.01-res_384"),
    "R50+L/32": ("medium1-wd_0.1-do_0.1-sd_0.1", "lr_0.01-res_384"),
}
_LIGHT = {"light0": "light1", "light1": "light2"}  # in file names -> in the paper


def column(dataset: str, epochs: int) -> str:
    """Returns the column of Figure 4 of a pre-training, e.g. `i21k_300ep`."""
    return f"{_DATASETS[dataset][1]}_{epochs}ep"


def stem(variant: str, setting: str, column: str = "i21k_300ep") -> str:
    """Returns the file name, without .npz, of a checkpoint.

    Args:
      variant: the model, e.g. `R50+L/32`, which is `R50_L_32` in files.
      setting: augmentation, weight decay and rates as in files.
      column: pre-training data and epochs, as in Figure 4.
    """
    model = variant.replace("+", "_").replace("/", "_")
    return f"{model}-{column.replace('_', '-')}-lr_0.001-aug_{setting}"


def best(variant: str, dataset: str, epochs: int) -> list[tuple[str, float, float]]:
    """Returns (level, rate, weight decay) of the checkpoints that may be a model's best.

    From ImageNet-21k at 300 epochs it is the recommended one. Otherwise Figure 4 has whole
    percents, so several settings may be the best, and no weight decay, so both values may; that of
    the recommended file is first (inference). Figure 4 lacks B/8, so any may be. Empty for models,
    data and lengths that AugReg does not have.
    """
    of_files, drawn = pretraining("imagenet21k"), paper.table("augreg")["figure_4"]["values"]
    decay = of_files.default_decay.get(variant)
    name = column(dataset, epochs) if dataset in _DATASETS else ""
    if decay is None or name not in drawn:
        return []
    if name == "i21k_300ep":
        return [(of_files.default_level[variant], of_files.default_rate[variant], decay)]
    known = [(level, rate) for level in levels() for rate in of_files.rates]
    if variant in drawn[name]:
        known = results.augreg_best(variant, name)
    decays = sorted(of_files.weight_decays, key=lambda other: other != decay)
    return [(level, rate, decay) for decay in decays for level, rate in known]


def best_file(variant: str, dataset: str, epochs: int) -> str:
    """Returns the file name, without .npz, of the first of `best`."""
    level, rate, decay = best(variant, dataset, epochs)[0]
    light = {level: name for name, level in _LIGHT.items()}
    setting = f"{light.get(level, level)}-wd_{decay}-do_{rate}-sd_{rate}"
    return stem(variant, setting, column(dataset, epochs))


def is_recommended(file: str) -> bool:
    """Returns True if a file name is that of a recommended pre-training."""
    return file in {f"{stem(model, of)}.npz" for model, (of, _) in RECOMMENDED.items()}


def best_column(file: str) -> str:
    """Returns the `column` of a published pre-training that may be its model's `best`, else ""."""
    named = re.fullmatch(
        r"(\w+)_(\d+)-(i1k|i21k)-(\d+)ep-lr_0\.001-aug_(\w+)-wd_([\d.]+)-do_([\d.]+)-sd_[\d.]+\.npz",
        file,
    )
    if named is None:
        return ""
    size, patch, data, epochs, level, decay, rate = named.groups()
    dataset = next(name for name, (_, short) in _DATASETS.items() if short == data)
    settings = best(f"{size.replace('_', '+')}/{patch}", dataset, int(epochs))
    chosen = (_LIGHT.get(level, level), float(rate), float(decay)) in settings
    return column(dataset, int(epochs)) if chosen else ""


@dataclasses.dataclass(frozen=True)
class Level:
    """An augmentation level (section 3.3), in addition to Inception crop and mirroring.

    Attributes:
      layers: layers of RandAugment; 0 leaves it out.
      magnitude: magnitude of RandAugment, from 0 to 10 and beyond; 0 is not the identity.
      mixup: alpha; 0 leaves it out.
    """

    layers: int
    magnitude: int
    mixup: float

    @property
    def ops(self) -> str:
        """The operations after the crop and the mirroring in a chain, e.g. `|randaug(2, 15)`."""
        return f"|randaug({self.layers}, {self.magnitude})" if self.layers else ""


@functools.cache
def levels() -> dict[str, Level]:
    """Returns name -> level, from `none` to `strong2`."""
    return {k: Level(*v) for k, v in paper.table("augreg")["augmentation"]["levels"].items()}


@dataclasses.dataclass(frozen=True)
class Pretraining:
    """The recipe for one dataset (sections 3.1, 3.4; big_vision vit_i21k.py, vit_i1k.py).

    Attributes:
      batch_size: images.
      lr: peak rate of a cosine schedule.
      warmup_steps: steps of linear warm-up.
      clip: maximum global norm of the gradients.
      epochs: numbers of epochs in the paper, the longest last.
      weight_decays: values in the paper, multiplied by the rate.
      rates: rates for both dropout and stochastic depth.
      head_bias: initial bias of the head.
      default_level: variant -> level; on ImageNet-21k that of the recommended checkpoint, on
        ImageNet that of big_vision's configuration.
      default_decay: variant -> weight decay of the recommended checkpoint.
      default_rate: variant -> rate of dropout and stochastic depth, likewise.
    """

    batch_size: int
    lr: float
    warmup_steps: int
    clip: float
    epochs: tuple[int, ...]
    weight_decays: tuple[float, ...]
    rates: tuple[float, ...]
    head_bias: float
    default_level: dict[str, str]
    default_decay: dict[str, float] = dataclasses.field(default_factory=dict)
    default_rate: dict[str, float] = dataclasses.field(default_factory=dict)


_DATASETS = {"imagenet21k": ("ImageNet-21k", "i21k"), "imagenet": ("ImageNet-1k", "i1k")}


def pretraining(dataset: str) -> Pretraining:
    """Returns the recipe for `imagenet21k` or `imagenet`.

    Raises:
      BadInput: another dataset is given.
    """
    if dataset not in _DATASETS:
        raise unknown("dataset of AugReg", dataset, _DATASETS)
    long, short = _DATASETS[dataset]
    whole = paper.table("augreg")
    values, more = whole["pretraining"], whole["pretraining"]["big_vision_details"]
    regularization = whole["regularization"]
    chosen = replications.recommended() if dataset == "imagenet21k" else {}
    return Pretraining(
        values["batch_size"],
        values["peak_lr"],
        values["warmup_steps"],
        values["grad_clip_global_norm"],
        tuple(sorted(values["epochs"][long])),
        tuple(regularization["weight_decay"]),
        tuple(setting["dropout"] for setting in regularization["settings"]),
        more["init_head_bias"][short],
        {name: row.level for name, row in chosen.items()} or more["default_aug"][short],
        {name: row.weight_decay for name, row in chosen.items()},
        {name: row.rate for name, row in chosen.items()},
    )
