# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Other test sets of ImageNet models: their sources, and ImageNet-C's mean error.

A typed view of robustness.json. Start from `sets` and `corruption_errors`.
"""

import dataclasses
from collections.abc import Mapping

from vit_jax import paper


@dataclasses.dataclass(frozen=True)
class EvaluationSet:
    """A test set; the first four fields are keys of `evals.NAME` in docs/config.md.

    Attributes:
      source: `kind:rest`; "" is ImageNet itself.
      split: split of the source.
      labels: file with other labels; "" keeps the source's own.
      classes: classes to predict among: all or present.
      about: description in one line.
      citation: origin of the set.
    """

    source: str
    split: str
    labels: str
    classes: str
    about: str
    citation: str


def sets() -> dict[str, EvaluationSet]:
    """Returns the sets by name: real, v2, a, r, sketch, c, objectnet, and V2's other two."""
    return {name: EvaluationSet(**row) for name, row in paper.table("robustness")["sets"].items()}


def alexnet_errors() -> dict[str, float]:
    """Returns corruption -> AlexNet's top-1 error in [0, 1], the mean over severities."""
    return paper.table("robustness")["imagenet_c"]["alexnet_error"]


def severities() -> list[int]:
    """Returns the severities, 1 to 5."""
    return paper.table("robustness")["imagenet_c"]["severities"]


def parts(source: str) -> dict[str, str]:
    """Returns the sources for `{corruption}` and `{severity}`, by `CORRUPTION_SEVERITY`.

    A source without these placeholders is its own only part, "".
    """
    if "{corruption}" not in source and "{severity}" not in source:
        return {"": source}
    return {
        f"{c}_{s}": source.replace("{corruption}", c).replace("{severity}", str(s))
        for c in alexnet_errors()
        for s in severities()
    }


def corruption_errors(top1: Mapping[str, float]) -> dict[str, float]:
    """Computes ImageNet-C's errors (arXiv:1903.12261, section 4.2) as shares: 0.5 is 50 %.

    Args:
      top1: `CORRUPTION_SEVERITY` -> accuracy in [0, 1], for every part.

    Returns:
      `error_CORRUPTION`, the mean error over severities; `mean_error`, the mean of those; and
      `mce`, their mean after division by AlexNet's errors.
    """
    alexnet = alexnet_errors()
    errors = {
        c: sum(1 - top1[f"{c}_{s}"] for s in severities()) / len(severities()) for c in alexnet
    }
    return {
        "mce": sum(errors[c] / alexnet[c] for c in alexnet) / len(alexnet),
        "mean_error": sum(errors.values()) / len(errors),
    } | {f"error_{c}": error for c, error in errors.items()}
