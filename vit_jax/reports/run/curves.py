# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws curves over the steps of one run or of several: narrow charts with captions.

Start from `run_charts` or `comparison_charts`.
"""

from collections.abc import Mapping, Sequence

from vit_jax.reports import charts
from vit_jax.reports.charts import Series
from vit_jax.reports.run.history import History

Figure = tuple[str, str]  # SVG, caption
_KNOWN = {"loss", "top1", "top5", "mce", "examples", "step", "lr", "skipped_updates"}


def run_charts(run: History) -> list[Figure]:
    """Draws the metrics of the objective, learning rate, throughput and waiting for images."""
    names = ["train", *(name for name, metrics in run.evaluations.items() if "loss" in metrics)]
    shots = {
        f"{name} {metric}": (run, f"{name}/{metric}")
        for name, metrics in run.evaluations.items()
        for metric in metrics
        if metric.endswith("shot") and len(run.series(f"{name}/{metric}")) > 1
    }
    loss, top1 = ({name: (run, f"{name}/{key}") for name in names} for key in ("loss", "top1"))
    return [
        _chart("loss", loss, "Loss of training batches and of each evaluation."),
        _chart("top-1 in %", top1, "Top-1 accuracy on training batches and evaluations.", 100),
        *(_chart(key, lines, f"Metric {key} of training batches and evaluations.")
          for key, lines in _own(run).items()),
        _chart("few-shot top-1 in %", shots, "Few-shot top-1 accuracy.", 100),
        _chart("learning rate", {"": (run, "train/lr")}, "Learning rate."),
        _chart("images a second", {"": (run, "perf/img_per_sec")},
               "Images a second, without evaluation and saving."),
        _chart("MFU in %", {"": (run, "perf/mfu")},
               "Model FLOPs utilisation: the share of the devices' peak that training uses.", 100),
        _chart("waiting in %", {"": (run, "perf/input_wait")},
               "The share of the time that the devices waited for images.", 100),
    ]  # fmt: skip


def _own(run: History) -> dict[str, dict[str, tuple[History, str]]]:
    """Returns metrics of an objective or evaluator that have no chart of their own.

    They are metric -> name of the line -> run and key; metrics of a single row are left out.
    """
    lines: dict[str, dict[str, tuple[History, str]]] = {}
    for key in run.metrics:
        name, _, metric = key.rpartition("/")
        known = metric in _KNOWN or metric.endswith("shot")
        if (name == "train" or name in run.evaluations) and not known and len(run.series(key)) > 1:
            lines.setdefault(metric, {})[name] = (run, key)
    return lines


def comparison_charts(runs: Sequence[History]) -> list[Figure]:
    """Draws training loss, each evaluation, learning rate and throughput, one line per run."""
    evaluations = list(dict.fromkeys(
        (name, key) for run in runs for name, metrics in run.evaluations.items() for key in metrics
    ))  # fmt: skip
    charts_of: list[tuple[str, str, str, float]] = [
        ("train/loss", "training loss", "Loss of training batches.", 1),
        *((f"{name}/top1", f"{name} top-1 in %", f"Top-1 accuracy on {name}.", 100)
          for name, key in evaluations if key == "top1"),
        *((f"{name}/{key}", f"{key} top-1 in %", f"{name}: {key} top-1 accuracy.", 100)
          for name, key in evaluations if key.endswith("shot")),
        *((key, key, f"Metric {key}.", 1)
          for key in dict.fromkeys(
              key for run in runs for lines in _own(run).values() for _, key in lines.values()
          )),
        ("train/lr", "learning rate", "Learning rate.", 1),
        ("perf/img_per_sec", "images a second", "Images a second.", 1),
    ]  # fmt: skip
    return [
        _chart(title, {run.name: (run, metric) for run in runs}, caption, factor)
        for metric, title, caption, factor in charts_of
        if any(len(run.series(metric)) > 1 for run in runs)
    ]


def _chart(
    title: str, metrics: Mapping[str, tuple[History, str]], caption: str, factor: float = 1
) -> Figure:
    """Draws metrics of runs over steps, by the names of the lines; empty if there are no points."""
    series = []
    for i, (name, (run, metric)) in enumerate(metrics.items()):
        points = [(step, factor * value) for step, value in run.series(metric)]
        if metric.startswith("perf/") and len(points) > 1:
            del points[0]  # its step waited for the first images
        if points:
            series.append(Series(name, points, True, i < len(charts.COLOURS), i))
    return charts.chart(series, "step", title, size=(charts.NARROW, charts.LOW)), caption
