# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reports an evaluation of weights on a split, as JSON, text, or a page with figures.

Start from `page`.

Axes: N examples, K labels per example, Y classes.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from vit_jax import console
from vit_jax.analysis.confusion import MOST, Measured
from vit_jax.data.splits.split import Split
from vit_jax.reports import drawing, pages

LISTED = 20  # length of the lists of worst cases


@dataclasses.dataclass(frozen=True)
class Mistake:
    """An example whose predicted class is not among its labels.

    Attributes:
      example: its name.
      labels: its labels.
      taken_for: its likeliest class.
      probability: probability of that class, in [0, 1].
    """

    example: str
    labels: tuple[int, ...]
    taken_for: int
    probability: float


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation, and its inputs.

    Attributes:
      weights: FILE_OR_RUN.
      data: the source, `kind:rest`.
      split: name or slice of the split.
      classes: names of the classes, by label.
      measured: figures of all examples.
      mistakes: wrong predictions, the surest first.
      errors: see `robustness.corruption_errors`; {} unless the test set is ImageNet-C.
      labels: file of other labels, such as ReaL's; "" if the labels are the source's.
      among: the classes that the model chose among: all or present.
      model: further facts about the weights, by name.
    """

    weights: str
    data: str
    split: str
    classes: tuple[str, ...]
    measured: Measured
    mistakes: list[Mistake]
    errors: Mapping[str, float] = dataclasses.field(default_factory=dict)
    labels: str = ""
    among: str = "all"
    model: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def mistakes(
    split: Split, labels_NK: np.ndarray, best_N: np.ndarray, likely_N: np.ndarray
) -> list[Mistake]:
    """Returns the wrong predictions that the model is surest of, the surest first.

    Args:
      split: the N examples.
      labels_NK: int32 [N, K], padded with -1.
      best_N: int [N], likeliest classes.
      likely_N: float [N], their probabilities.
    """
    wrong = np.flatnonzero((labels_NK != best_N[:, None]).all(axis=1))
    surest = wrong[np.argsort(-likely_N[wrong], kind="stable")][:LISTED]
    return [
        Mistake(
            split.name(i),
            tuple(label for label in labels_NK[i].tolist() if label >= 0),
            int(best_N[i]),
            float(likely_N[i]),
        )
        for i in surest.tolist()
    ]


def as_json(one: Evaluated) -> dict[str, Any]:
    """Returns everything as plain values; an undefined share is None."""
    measured = one.measured
    return {
        "weights": one.weights,
        "data": one.data,
        "split": one.split,
        "labels": one.labels,
        "among": one.among,
        "model": dict(one.model),
        "examples": measured.examples,
        "top1": measured.top1,
        "top5": measured.top5,
        "mean_class_accuracy": measured.mean_class_accuracy,
        **one.errors,
        "classes": [
            {
                "label": label,
                "name": name,
                "examples": int(measured.counts_Y[label]),
                "accuracy": pages.or_none(measured.accuracy[label]),
                "precision": pages.or_none(measured.precision[label]),
            }
            for label, name in enumerate(one.classes)
        ],
        "confusion": None if measured.confusion_YY is None else measured.confusion_YY.tolist(),
    }


def as_text(one: Evaluated) -> str:
    """Returns the accuracy, and the worst classes and confusions."""
    tables = [console.table(_HEADER, _classes(one, LISTED))]
    if pairs := _pairs(one, 5):
        tables.append(console.table(["class", "taken for", "examples"], pairs))
    return "\n\n".join([_summary(one), *tables])


def page(one: Evaluated) -> str:
    """Returns the whole HTML document."""
    measured = one.measured
    shown, which, half = _worst_first(measured), "", drawing.NAMED // 2
    if len(shown) > drawing.NAMED:
        which = f"; the {half} least and the {half} most accurate of {len(shown)} classes"
        shown = shown[:half] + shown[-half:]
    names = [one.classes[label] for label in shown]
    counts_YY = measured.confusion_YY
    return pages.render(
        "evaluation.html",
        f"Evaluation of {one.weights}",
        notes=[f"{one.weights} on the split {one.split} of {one.data}.", _summary(one)],
        bars=drawing.accuracies(names, measured.accuracy[shown], measured.counts_Y[shown]),
        chosen=which,
        matrix=None if counts_YY is None else drawing.confusions(one.classes, counts_YY),
        most=f"{MOST:,}",
        confusions=_pairs(one, LISTED),
        mistakes=[
            (
                mistake.example,
                ", ".join(one.classes[label] for label in mistake.labels) or "(none)",
                one.classes[mistake.taken_for],
                f"{mistake.probability:.1%}",
            )
            for mistake in one.mistakes
        ],
        header=_HEADER,
        classes=_classes(one, len(one.classes)),
    )


def _summary(one: Evaluated) -> str:
    measured = one.measured
    mce = f"mCE {one.errors['mce']:.2%}, " if one.errors else ""
    return (
        f"{mce}top-1 {measured.top1:.2%}, top-5 {measured.top5:.2%}, mean accuracy of the classes "
        f"{measured.mean_class_accuracy:.2%}, {measured.examples:,} examples"
    )


def _worst_first(measured: Measured) -> list[int]:
    """Returns the classes that have examples, the least accurate first."""
    order = np.argsort(measured.accuracy, kind="stable").tolist()
    return [label for label in order if measured.counts_Y[label]]


_HEADER = ["class", "examples", "accuracy", "precision"]


def _classes(one: Evaluated, most: int) -> list[list[str]]:
    """Returns table rows of the worst classes; those without examples come last."""
    measured = one.measured
    order = _worst_first(measured)
    order += [label for label in range(len(one.classes)) if not measured.counts_Y[label]]
    return [
        [
            one.classes[label],
            f"{measured.counts_Y[label]:,}",
            _percent(measured.accuracy[label]),
            _percent(measured.precision[label]),
        ]
        for label in order[:most]
    ]


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{share:.1%}"


def _pairs(one: Evaluated, most: int) -> list[list[str]]:
    return [
        [one.classes[row], one.classes[column], f"{count:,}"]
        for row, column, count in one.measured.worst(most)
    ]
