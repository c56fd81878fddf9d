# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Other test sets of ImageNet models: their sources, and ImageNet-C's mean error.

A typed view of robustness.json. Start from `sets` and `corruption_errors`.
"""

import dataclasses
import re
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


# Images that count in each whole set; C: 50,000 at 15 x 5 corruptions; ReaL: those with a label;
# ObjectNet: those of its 113 classes that are ImageNet's.
IMAGES = {
    "imagenet": 50_000, "real": 46_837, "v2": 10_000, "v2_threshold": 10_000,
    "v2_topimages": 10_000, "a": 7_500, "r": 30_000, "sketch": 50_889, "c": 3_750_000,
    "objectnet": 18_574,
}  # fmt: skip
_HELD_OUT = r"(/\d[\d.*]*)?([-_/](val|test|images)[^/]*)*"  # a version, a split
_NAMES = {  # a source, from the last part of its path with a name on -> its test set
    r"imagenet[-_]?v2(.*[-_/])?thresh.*": "v2_threshold",
    r"imagenet[-_]?v2(.*[-_/])?top-?images.*": "v2_topimages",
    r"imagenet[-_]?v2([-_/](matched|val|test|images).*)?": "v2",
    rf"imagenet[-_]?sketch{_HELD_OUT}": "sketch",
    rf"imagenet[-_]?a{_HELD_OUT}": "a",
    rf"imagenet[-_]?r{_HELD_OUT}": "r",
    rf"(imagenet|ilsvrc|imagenet/ilsvrc)(2012|[-_]?1k)?(/data/cls-loc)?{_HELD_OUT}": "imagenet",
}


def name_of(source: str, labels: str) -> str:
    """Returns the name of a test set, a key of `IMAGES`, by its source; "" for any other source.

    Args:
      source: `kind:rest`; a path has to contain the usual name, such as `imagenet-a`.
      labels: a file of other labels: with one, ImageNet is ReaL.
    """
    if "{corruption}" in source:
        return "c"
    if source.startswith("objectnet:"):
        return "objectnet"
    parts = re.split("[:/]", source.lower().rstrip("/"))
    named = [i for i, part in enumerate(parts) if "imagenet" in part]
    named = named or [i for i, part in enumerate(parts) if "ilsvrc" in part]
    last = named[-1] if named else len(parts)
    text = "/".join(parts[last:])
    name = next((name for words, name in _NAMES.items() if re.fullmatch(words, text)), "")
    if labels:
        return "real" if name == "imagenet" or not text else ""
    return name


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
