# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads what the authors published beside their papers: replications of fine-tuning, and evidence.

A typed view of replications.json. Start from `readme`, `big_vision`, `choices` or `spread`.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from vit_jax import paper

# The mean range of five values of a normal distribution with deviation 1.
_RANGE_OF_FIVE = 2.326


@dataclasses.dataclass(frozen=True)
class Replication:
    """A published fine-tuning.

    Attributes:
      model: variant, e.g. `B/16`.
      dataset: dataset of configs/transfer.py.
      upstream: pre-training data.
      dropout: dropout of the fine-tuning.
      rate: peak learning rate.
      top1: accuracy on test, in percent.
      std: estimated standard deviation between its runs, in points; 0: one run.
      runs: number of runs that `top1` is the mean of.
    """

    model: str
    dataset: str
    upstream: str
    dropout: float
    rate: float
    top1: float
    std: float = 0.0
    runs: int = 1


def _section(name: str) -> Any:
    return paper.table("replications")[name]


def readme() -> list[Replication]:
    """Returns the table of the vision_transformer README: 15 fine-tunings, two dropout rates."""
    section = _section("vision_transformer_readme")
    others = {(model, dataset): rate for model, dataset, rate in section["rate_exceptions"]}
    return [
        Replication(
            row["model"], row["dataset"], "imagenet21k", dropout,
            others.get((row["model"], row["dataset"]), section["rate"]), row[f"dropout_{dropout}"],
        )
        for row in section["rows"]
        for dropout in (0.0, 0.1)
    ]  # fmt: skip


def big_vision() -> list[Replication]:
    """Returns big_vision's results of AugReg's B/32: means of five runs."""
    return [
        Replication("B/32", row["dataset"], "imagenet21k", 0.0, row["lr"], row["mean"],
                    (row["range"][1] - row["range"][0]) / _RANGE_OF_FIVE, 5)
        for row in _section("big_vision_transfer")["rows"]
    ]  # fmt: skip


def mixer() -> list[Replication]:
    """Returns the Mixer table of the vision_transformer README, on CIFAR-10 at 224 pixels."""
    section, data = _section("mixer"), {"ImageNet": "imagenet", "ImageNet-21k": "imagenet21k"}
    rate = section["config"]["base_lr"]
    return [
        Replication(row["model"], row["dataset"], data[row["upstream"]], 0.0, rate,
                    row["top1_percent"])
        for row in section["rows"]
    ]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Recommended:
    """AugReg's recommended checkpoint of a model, from ImageNet-21k.

    Attributes:
      level: augmentation level, by the paper's name.
      weight_decay: decay, multiplied by the rate.
      rate: rate of dropout and of stochastic depth.
      imagenet_top1: percent after fine-tuning on ImageNet.
    """

    level: str
    weight_decay: float
    rate: float
    imagenet_top1: float


def recommended() -> dict[str, Recommended]:
    """Returns variant -> AugReg's recommended checkpoint."""
    return {
        row["model"]: Recommended(
            row["level"], row["weight_decay"], row["rate"], row["imagenet_top1"]
        )
        for row in _section("augreg_recommended")["rows"]
    }


@dataclasses.dataclass(frozen=True)
class Choice:
    """An argument of configs/transfer.py that the paper leaves open.

    Attributes:
      name: the argument, e.g. `dropout=0.1`.
      default_for: the fine-tunings that use it by default.
      evidence: who says so, in sentences.
      status: of the default: verified, single-source or inference.
    """

    name: str
    default_for: str
    evidence: str
    status: str


def choices() -> list[Choice]:
    """Returns the choices that a fine-tuning has, with their evidence."""
    return [Choice(**row) for row in _section("choices")]


# ---------------------------------------------------------------- noise between runs


def two_runs() -> list[tuple[str, str, tuple[float, float]]]:
    """Returns (model, dataset, two accuracies in percent) of an earlier README."""
    rows = _section("two_runs")["rows"]
    return [(row["model"], row["dataset"], tuple(row["runs"])) for row in rows]


@functools.cache
def spread(dataset: str = "") -> float:
    """Returns the standard deviation, in points, that fine-tunings are assumed to have at least.

    Pools the published repetitions of one fine-tuning by the same people: pairs of runs, with one
    degree of freedom each, and ranges of five, with four. The result is that of the dataset or that
    of all datasets, the larger one: a small spread in a few runs may be luck.

    Args:
      dataset: dataset of configs/transfer.py; one without repetitions takes that of all.
    """
    variances = [(name, (a - b) ** 2 / 2, 1) for _, name, (a, b) in two_runs()]
    variances += [(row.dataset, row.std**2, row.runs - 1) for row in big_vision()]
    own = [(value, freedom) for name, value, freedom in variances if name == dataset]
    return max(_pooled(own), _pooled([row[1:] for row in variances]))


def _pooled(variances: Sequence[tuple[float, int]]) -> float:
    total = sum(freedom for _, freedom in variances)
    return math.sqrt(sum(v * freedom for v, freedom in variances) / total) if total else 0.0
