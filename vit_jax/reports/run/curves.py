# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws curves over the steps of one run or of several: narrow charts with captions.

Start from `of_one` or `of_several`.
"""

from collections.abc import Sequence

from vit_jax.reports import charts
from vit_jax.reports.charts import Series
from vit_jax.reports.run.history import History, Pairs

Figure = tuple[str, str]  # SVG, caption


def of_one(run: History) -> list[Figure]:
    """Draws loss, accuracy, learning rate, throughput, utilisation and waiting for images."""
    splits = [name for name, found in run.evaluations.items() if "loss" in found]
    few = {
        f"{name} {metric}": f"{name}/{metric}"
        for name, found in run.evaluations.items()
        for metric in found
        if metric.endswith("shot") and len(run.series(f"{name}/{metric}")) > 1
    }
    return [
        _lines(run, "loss", {name: f"{name}/loss" for name in ("train", *splits)},
               "Loss of training batches, and of each evaluation."),
        _lines(run, "top-1 in %", {name: f"{name}/top1" for name in ("train", *splits)},
               "Top-1 accuracy, likewise.", 100),
        _lines(run, "few-shot top-1 in %", few, "Few-shot top-1 accuracy.", 100),
        _lines(run, "learning rate", {"": "train/lr"}, "Learning rate."),
        _lines(run, "images a second", {"": "perf/img_per_sec"},
               "Images a second, without evaluating and saving."),
        _lines(run, "MFU in %", {"": "perf/mfu"},
               "Model FLOPs utilisation: the share of the devices' peak that trains.", 100),
        _lines(run, "waiting in %", {"": "perf/input_wait"},
               "The share of the time that the devices waited for images.", 100),
    ]  # fmt: skip


def _lines(
    run: History, title: str, metrics: dict[str, str], caption: str, factor: float = 1
) -> Figure:
    """Draws metrics of a run; the keys are the names of the lines."""
    lines = {name: _settled(metric, run.series(metric)) for name, metric in metrics.items()}
    return _drawn(title, lines, caption, factor)


def _settled(metric: str, points: Pairs) -> Pairs:
    """Drops the first row of a rate, because its step waits for the first images."""
    return points[1:] if metric.startswith("perf/") and len(points) > 1 else points


def of_several(runs: Sequence[History]) -> list[Figure]:
    """Draws training loss, each evaluation, learning rate and throughput, one line per run."""
    splits = list(dict.fromkeys(name for run in runs for name in run.evaluations))
    shots = list(dict.fromkeys(
        f"{name}/{metric}" for name in splits for run in runs
        for metric in run.evaluations.get(name, {}) if metric.endswith("shot")
    ))  # fmt: skip
    wanted: list[tuple[str, str, str, float]] = [
        ("train/loss", "training loss", "Loss of training batches.", 1)
    ]
    for name in splits:
        if any("top1" in run.evaluations.get(name, {}) for run in runs):
            caption = f"Top-1 accuracy on {name}."
            wanted.append((f"{name}/top1", f"{name} top-1 in %", caption, 100))
    for metric in shots:
        name, _, shot = metric.rpartition("/")
        wanted.append((metric, f"{shot} top-1 in %", f"{name}: {shot} top-1 accuracy.", 100))
    wanted += [
        ("train/lr", "learning rate", "Learning rate.", 1),
        ("perf/img_per_sec", "images a second", "Images a second.", 1),
    ]
    return [
        _drawn(title, {r.name: _settled(m, r.series(m)) for r in runs}, caption, factor)
        for m, title, caption, factor in wanted
        if any(len(run.series(m)) > 1 for run in runs)
    ]


def _drawn(title: str, lines: dict[str, Pairs], caption: str, factor: float) -> Figure:
    """Draws a chart over steps; empty if there are no points."""
    series = [
        Series(name, [(x, factor * y) for x, y in points], True, i < len(charts.COLOURS), i)
        for i, (name, points) in enumerate(lines.items())
        if points
    ]
    return charts.chart(series, "step", title, size=(charts.NARROW, charts.LOW)), caption
