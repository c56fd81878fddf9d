# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Other test sets of ImageNet models: where they are read from, and ImageNet-C's mean error.

What robustness.json says, typed. Start from `sets` and `corruption_errors`.
"""

import dataclasses
from collections.abc import Mapping

from vit_jax import paper


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """One test set; the first four are keys of `evals.<name>` in configs/base.py.

    Attributes:
      source: `kind:rest`; "" is ImageNet itself.
      split: of it.
      labels: file of other labels; "": the source's own.
      classes: all | present, what is predicted among.
      about: one line.
      citation: where it comes from.
    """

    source: str
    split: str
    labels: str
    classes: str
    about: str
    citation: str


def sets() -> dict[str, EvaluationSet]:
    """By name: real, v2, a, r, sketch, c, objectnet, and V2's other two."""
    return {name: EvaluationSet(**row) for name, row in paper.table("robustness")["sets"].items()}


def alexnet_errors() -> dict[str, float]:
    """Corruption -> AlexNet's top-1 error, the mean of the severities, in [0, 1]."""
    return paper.table("robustness")["imagenet_c"]["alexnet_error"]


def severities() -> list[int]:
    """1 to 5."""
    return paper.table("robustness")["imagenet_c"]["severities"]


def parts(source: str) -> dict[str, str]:
    """The sources that `{corruption}` and `{severity}` stand for, by `CORRUPTION_SEVERITY`.

    A source without them is its own only part, "".
    """
    if "{corruption}" not in source and "{severity}" not in source:
        return {"": source}
    return {
        f"{c}_{s}": source.replace("{corruption}", c).replace("{severity}", str(s))
        for c in alexnet_errors()
        for s in severities()
    }


def corruption_errors(top1: Mapping[str, float]) -> dict[str, float]:
    """ImageNet-C's figures (arXiv:1903.12261, section 4.2), as shares: 0.5 is 50 %.

    Args:
      top1: of every part, `CORRUPTION_SEVERITY` -> accuracy in [0, 1].

    Returns:
      `error_CORRUPTION`, the mean error of the severities; `mean_error`, their mean; and `mce`,
      the mean after each was divided by AlexNet's.
    """
    alexnet = alexnet_errors()
    errors = {
        c: sum(1 - top1[f"{c}_{s}"] for s in severities()) / len(severities()) for c in alexnet
    }
    return {
        "mce": sum(errors[c] / alexnet[c] for c in alexnet) / len(alexnet),
        "mean_error": sum(errors.values()) / len(errors),
    } | {f"error_{c}": error for c, error in errors.items()}
