# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reports an evaluation of weights on a split, as JSON, text, or a page with figures.

Start from `page`.

Axes: N examples, K labels per example, Y classes.
"""

import dataclasses
import math
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
    """

    weights: str
    data: str
    split: str
    classes: tuple[str, ...]
    measured: Measured
    mistakes: list[Mistake]


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
    found = one.measured
    return {
        "weights": one.weights,
        "data": one.data,
        "split": one.split,
        "examples": found.examples,
        "top1": found.top1,
        "top5": found.top5,
        "mean_class_accuracy": found.mean_class_accuracy,
        "classes": [
            {
                "label": label,
                "name": name,
                "examples": int(found.counts_Y[label]),
                "accuracy": _or_none(found.accuracy[label]),
                "precision": _or_none(found.precision[label]),
            }
            for label, name in enumerate(one.classes)
        ],
        "confusion": None if found.confusion_YY is None else found.confusion_YY.tolist(),
    }


def _or_none(share: float) -> float | None:
    return None if math.isnan(share) else float(share)


def as_text(one: Evaluated) -> str:
    """Returns the accuracy, and the worst classes and confusions."""
    found = one.measured
    tables = [console.table(_HEADER, _classes(one, LISTED))]
    if pairs := _pairs(one, 5):
        tables.append(console.table(["class", "taken for", "examples"], pairs))
    return "\n\n".join([_summary(found), *tables])


def page(one: Evaluated) -> str:
    """Returns the whole HTML document."""
    found = one.measured
    shown, few, half = _worst_first(found), "", drawing.NAMED // 2
    if len(shown) > drawing.NAMED:
        few = f"; the {half} least and the {half} most accurate of {len(shown)} classes"
        shown = shown[:half] + shown[-half:]
    names = [one.classes[label] for label in shown]
    bars = drawing.accuracies(names, found.accuracy[shown], found.counts_Y[shown])
    body = [
        pages.paragraph(f"{one.weights} on the split {one.split} of {one.data}."),
        pages.paragraph(_summary(found)),
        pages.heading("Accuracy by class"),
        pages.image(bars, f"Share of the examples of each class that are taken for it{few}."),
        pages.heading("Confusions"),
    ]
    if found.confusion_YY is None:
        body.append(pages.paragraph(f"No matrix is drawn of more than {MOST:,} classes."))
    else:
        matrix = drawing.confusions(one.classes, found.confusion_YY)
        caption = "Each row is a class, each column what it is taken for; the colour is the share."
        body.append(pages.image(matrix, caption))
    if pairs := _pairs(one, LISTED):
        body.append(pages.table(["class", "taken for", "examples"], pairs, numbers=[2]))
    if one.mistakes:
        rows = [
            [
                mistake.example,
                ", ".join(one.classes[label] for label in mistake.labels) or "(none)",
                one.classes[mistake.taken_for],
                f"{mistake.probability:.1%}",
            ]
            for mistake in one.mistakes
        ]
        body += [
            pages.heading("Mistakes that the model is surest of"),
            pages.table(["example", "class", "taken for", "probability"], rows, numbers=[3]),
        ]
    body += [
        pages.heading("Every class"),
        pages.table(_HEADER, _classes(one, len(one.classes)), numbers=[1, 2, 3]),
    ]
    return pages.page(f"Evaluation of {one.weights}", body)


def _summary(found: Measured) -> str:
    return (
        f"top-1 {found.top1:.2%}, top-5 {found.top5:.2%}, mean accuracy of the classes "
        f"{found.mean_class_accuracy:.2%}, {found.examples:,} examples"
    )


def _worst_first(found: Measured) -> list[int]:
    """Returns the classes that have examples, the least accurate first."""
    order = np.argsort(found.accuracy, kind="stable").tolist()
    return [label for label in order if found.counts_Y[label]]


_HEADER = ["class", "examples", "accuracy", "precision"]


def _classes(one: Evaluated, most: int) -> list[list[str]]:
    """Returns table rows of the worst classes; those without examples come last."""
    found = one.measured
    order = _worst_first(found)
    order += [label for label in range(len(one.classes)) if not found.counts_Y[label]]
    return [
        [
            one.classes[label],
            f"{found.counts_Y[label]:,}",
            _percent(found.accuracy[label]),
            _percent(found.precision[label]),
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
