# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Curves: a line for each evaluation or run, and no chart without points."""

import xml.etree.ElementTree as ET

import pytest
from workdirs import rows, written

from vit_jax.reports.run import curves, history


def titles(figures):
    labels = [ET.fromstring(svg).get("aria-label") for svg, _ in figures if svg]
    return [label.removesuffix(" by step") for label in labels]


def listed(svg, names):
    """The names that the legend lists, in order."""
    texts = [e.text for e in ET.fromstring(svg).iter() if e.tag.endswith("text")]
    return [text for text in texts if text in names]


@pytest.mark.integration
def test_of_one_run_everything_that_it_has_is_drawn(tmp_path):
    metrics = [row | {"perf/mfu": 0.3} if "perf/img_per_sec" in row else row for row in rows()]
    metrics.insert(3, {"step": 500, "fewshot_pets/5shot": 0.3})
    run = history.read(written(tmp_path / "a", metrics=metrics))
    assert titles(curves.run_charts(run)) == [
        "loss", "top-1 in %", "few-shot top-1 in %", "learning rate", "images a second",
        "MFU in %", "waiting in %",
    ]  # fmt: skip
    plain = history.read(written(tmp_path / "b"))
    assert "MFU in %" not in titles(curves.run_charts(plain))
    assert "few-shot top-1 in %" not in titles(curves.run_charts(plain))  # it was measured once
    (loss, _), (top1, _) = curves.run_charts(plain)[:2]
    for svg in (loss, top1):
        assert listed(svg, {"train", "val", "test", ""}) == ["train", "val", "test"]


def test_metrics_of_an_objective_of_ones_own_are_drawn(tmp_path):
    metrics = rows()
    for i, row in enumerate(row for row in metrics if "train/loss" in row):
        row["train/entropy"] = 1.0 + i
    metrics.append({"step": 500, "val/entropy": 2.0, "val/once": 1.0})
    metrics.append({"step": 600, "val/entropy": 2.0})
    run = history.read(written(tmp_path / "a", metrics=metrics))
    figures = curves.run_charts(run)
    assert titles(figures)[2] == "entropy"
    assert "once" not in titles(figures)
    assert listed(figures[2][0], {"train", "val", "test"}) == ["train", "val"]
    assert titles(curves.comparison_charts([run]))[2:4] == ["train/entropy", "val/entropy"]


def test_of_several_runs_each_is_a_line_and_what_nobody_has_is_left_out(tmp_path):
    runs = [history.read(written(tmp_path / name)) for name in ("first", "second")]
    figures = curves.comparison_charts(runs)
    expected = ["training loss", "val top-1 in %", "learning rate", "images a second"]
    assert titles(figures) == expected
    for svg, _ in figures:
        assert listed(svg, {"first", "second"}) == ["first", "second"]
