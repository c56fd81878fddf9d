# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs beside each other: which are drawn, who is best, in what they differ."""

import pytest
from test_pages import check
from test_run_page import table
from workdirs import rows, turns, written

from vit_jax.reports.run import comparison, history


def read(folder, *overrides, **given):
    return history.read(written(folder, *overrides, **given))


def test_results_and_the_best_of_each_column(tmp_path):
    runs = [
        read(tmp_path / "a", metrics=rows(top1=0.9)),
        read(tmp_path / "b", metrics=rows(top1=0.8, steps=500), life=turns(500)[:-1], done=False),
    ]
    page = check(comparison.page(runs))
    header, first, second = page.table("Results")
    assert header == [
        "run", "state", "step", "val top-1", "test top-1", "fewshot_pets 5shot", "training loss",
        "images a second", "waiting", "time",
    ]  # fmt: skip
    assert first == [
        "a", "done", "1,000", "90.00% ★", "90.00% ★", "40.00% ★", "1.0000", "800", "1.0%", "1:00",
    ]  # fmt: skip
    assert second[:5] == ["b", "dead", "500", "80.00%", "80.00%"]
    assert [a.get("class") for tag, a in page.seen if tag == "tr"][:3] == [None, None, "bad"]


def test_keys_in_which_they_differ(tmp_path):
    runs = [
        read(tmp_path / "a"),
        read(
            tmp_path / "b", "--config.seed=3", "--config.ema.decay=0", "--config.report.page=false"
        ),
    ]
    assert table(comparison.page(runs), "Where they differ") == [
        ["key", "a", "b"], ["ema.decay", "0.99", "0.0"], ["seed", "0", "3"],
    ]  # fmt: skip
    runs.append(read(tmp_path / "c", "--config.seed=4"))
    assert table(comparison.page(runs), "Where they differ") == [
        ["run", "ema.decay", "seed"], ["a", "0.99", "0"], ["b", "0.0", "3"], ["c", "0.99", "4"],
    ]  # fmt: skip
    assert "In no key." in comparison.page(runs[:1] * 2)


def test_key_that_only_one_has_is_a_dash(tmp_path):
    runs = [read(tmp_path / "a"), read(tmp_path / "b", "--config.optimizer.name=sgd")]
    assert ["optimizer.sgd.momentum", "–", "0.9"] in table(
        comparison.page(runs), "Where they differ"
    )


@pytest.mark.integration
def test_of_many_runs_the_best_are_drawn(tmp_path):
    runs = [read(tmp_path / f"{i:02}", metrics=rows(top1=0.5 + i / 100)) for i in range(14)]
    drawn, sentence = comparison.chosen(runs)
    assert [run.name for run in drawn] == [f"{i:02}" for i in range(2, 14)]
    assert sentence == "Curves are those of the 12 runs of 14 with the best test/top1."
    assert comparison.chosen(runs[:12]) == (runs[:12], "")
    page = check(comparison.page(runs))
    assert "13" in page.all("text", "Curves")
    assert "01" not in page.all("text", "Curves")
    assert len(page.table("Results")) == 15


@pytest.mark.parametrize("count", [13])
def test_without_an_accuracy_the_first_are_drawn(tmp_path, count):
    metrics = [{"step": 1, "train/loss": 1.0}, {"step": 2, "train/loss": 0.5}]
    runs = [read(tmp_path / f"{i:02}", metrics=metrics) for i in range(count)]
    assert comparison.metric(runs) == ""
    drawn, sentence = comparison.chosen(runs)
    assert drawn == runs[:12]
    assert sentence == "Curves are those of the first 12 of 13 runs."


def test_metric_is_of_test_or_else_of_val_or_else_of_most(tmp_path):
    def run(name, split):
        return read(tmp_path / name, metrics=[{"step": 1, f"{split}/top1": 0.5}])

    assert comparison.metric([run("a", "val"), run("b", "test")]) == "test/top1"
    assert comparison.metric([run("c", "v2"), run("d", "val")]) == "val/top1"
    assert comparison.metric([run("e", "v2"), run("f", "real"), run("g", "real")]) == "real/top1"
