# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Text summaries of a run: results, verdict, parameters, devices.

Start from `results_table`.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax

from vit_jax import console, tree
from vit_jax.config import sections, validation

RESULTS_FILE = "results.json"
PAGE_FILE = "report.html"


def parameter_table(params: Any) -> str:
    """Returns path, shape and size of every parameter, and the total."""
    rows = [
        [path, "x".join(map(str, leaf.shape)), f"{math.prod(leaf.shape):,}"]
        for path, leaf in tree.leaves_with_paths(params)
    ]
    return console.table(
        ["parameter", "shape", "size"], [*rows, ["total", "", f"{tree.size(params):,}"]]
    )


def evaluation_line(names: Iterable[str], measured: Mapping[str, float | int]) -> str:
    """Returns a line such as `val top-1 93.10% loss 0.2110  fewshot_pets 1shot 40.00%`."""
    parts = []
    for name in names:
        own = {k.partition("/")[2]: v for k, v in measured.items() if k.startswith(f"{name}/")}
        shown = [k for k in _columns(own) if k not in ("top5", "examples", "mce")]
        values = [f"{_TITLES.get(key, key)} {written(key, own[key])}" for key in shown]
        parts.append(" ".join([name, *values]))
    return "  ".join(parts)


def results_table(results: Mapping[str, Any]) -> str:
    """Returns a line per split, with ImageNet-C's mCE but not its parts; then few-shot tasks."""
    evaluations = {
        name: {key: measured[key] for key in _columns(measured)}
        for name, measured in results.items()
        if isinstance(measured, dict)
    }
    return "\n\n".join(console.table(*table) for table in tables(evaluations))


def _columns(measured: Iterable[str]) -> list[str]:
    """Returns the metrics that text shows, in order; the parts of ImageNet-C's mCE have no room."""
    return sorted(filter(re.compile(r"(?!mean_error$|error_)").match, measured), key=_place)


_TITLES = {"top1": "top-1", "top5": "top-5", "mce": "mCE", "miou": "mIoU", "ap50": "AP50"}
_TITLES["pixel_accuracy"] = "pixel accuracy"
_ORDER = ("top1", "top5", "miou", "pixel_accuracy", "ap50", "loss", "shot", "examples", "mce")
_ORDER += ("own", "step")


def tables(
    evaluations: Mapping[str, Mapping[str, float]],
) -> list[tuple[list[str], list[list[str]]]]:
    """Returns (header, rows) of a table of splits and of one of few-shot tasks, if there are any.

    A column is a metric; those of a user's own evaluator come last, but for the step.
    """
    groups: dict[str, dict[str, Mapping[str, float]]] = {}
    for name, measured in sorted(evaluations.items(), key=lambda item: "loss" not in item[1]):
        shots = all(key.endswith("shot") or key in ("examples", "step") for key in measured)
        groups.setdefault("few-shot" if shots else "split", {})[name] = measured
    content = []
    for title, group in groups.items():
        keys = list(dict.fromkeys(key for measured in group.values() for key in measured))
        keys.sort(key=_place)
        header = [title, *(_TITLES.get(key, key) for key in keys)]
        content.append(
            (header, [[name, *(written(k, m.get(k)) for k in keys)] for name, m in group.items()])
        )
    return content


def _place(metric: str) -> int:
    kind = "shot" if metric.endswith("shot") else metric
    return _ORDER.index(kind if kind in _ORDER else "own")


def written(metric: str, value: float | None) -> str:
    """Formats a value of a metric: a share in percent, a count, or another number."""
    if value is None:
        return ""
    if metric in ("examples", "step"):
        return f"{value:,.0f}"
    is_share = metric != "loss" and validation.MEASURED.fullmatch(metric)
    return f"{value:.2%}" if is_share else f"{value:.4f}"


def collapse(rows: Iterable[tuple[int, Mapping[str, float]]], total: int) -> str:
    """Says that a model has collapsed, and what helps; "" if it has not.

    An objective measures `collapsed`, 0 or 1. The first tenth of a run does not count, because a
    model tells images apart only after some steps.

    Args:
      rows: (step, metrics) in order; the last with `train/collapsed` decides.
      total: steps of the run.
    """
    known = [(step, row) for step, row in rows if "train/collapsed" in row]
    if not known or known[-1][0] < total / 10 or not known[-1][1]["train/collapsed"]:
        return ""
    good = [step for step, row in known if not row["train/collapsed"]]
    since = next(step for step, row in known if not good or step > good[-1])
    last = known[-1][1]
    return (
        f"The model has collapsed: at least since step {since:,}, all images get nearly the same "
        f"output (information {last['train/information']:.4f}, std {last['train/std']:.4f}). It "
        "learns nothing more. Centring, a lower learning rate, a slower teacher (ema.decay nearer "
        "to 1) or a lower temperature of the teacher usually helps; start anew."
    )


def verdict(
    results: Mapping[str, Any], expected: sections.Expected, changed: Sequence[str] = ()
) -> str:
    """Compares results with the recipe's expectation, in one line; "" if it expects nothing.

    It names the keys of the recipe that were `changed`, see `provenance.changed`.
    """
    split, _, name = expected.metric.partition("/")
    measured = results.get(split, {}).get(name) if expected.metric else None
    if measured is None:
        return ""
    gap = measured - expected.value
    origin = "; ".join(filter(None, (expected.source, expected.hardware)))
    place = "within" if abs(gap) <= expected.tolerance else ("ABOVE" if gap > 0 else "BELOW")
    return (
        f"{expected.metric}: measured {measured:.4f}, expected {expected.value:.4f} +- "
        f"{expected.tolerance:.4f} ({origin}): "
        f"{gap:+.4f}, {place} the tolerance"
        f"{'; the expectation is for other values of ' if changed else ''}{', '.join(changed)}"
    )


def device_summary(devices: list[Any]) -> str:
    """Describes the devices, e.g. `8 x TPU v4 (tpu), 2 processes, jax 0.10.0`."""
    kinds = {d.device_kind for d in devices}
    processes = jax.process_count()
    return (
        f"{len(devices)} x {', '.join(sorted(kinds))} ({devices[0].platform}), "
        f"{processes} process{'es' if processes > 1 else ''}, jax {jax.__version__}"
    )
