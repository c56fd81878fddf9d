# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a workdir says: sums by hand, states, and messages for folders that are not runs."""

import json
from pathlib import Path

import pytest
from workdirs import lines, rows, turns, written

from vit_jax.errors import BadInput
from vit_jax.reports.run import history


def test_series_and_what_was_measured_last(tmp_path):
    run = history.read(written(tmp_path / "run"))
    assert run.name == "run"
    assert run.step == 1000
    assert run.series("val/top1") == [(500, 0.45), (1000, 0.9)]
    assert run.series("no/such") == []
    assert run.evaluations["val"] == {
        "loss": pytest.approx(2 / 3), "top1": 0.9, "top5": 0.95, "examples": 152, "step": 1000,
    }  # fmt: skip
    assert set(run.evaluations) == {"val", "test", "fewshot_pets"}
    assert (run.state, run.spent.elapsed, run.spent.startup) == ("done", 60.0, 10.0)


def test_rates_are_of_all_images_and_not_of_the_first_row(tmp_path):
    metrics = [
        {"step": 1, "perf/img_per_sec": 1.0, "perf/input_wait": 1.0},
        {"step": 101, "perf/img_per_sec": 3200.0, "perf/input_wait": 0.0},  # 1 s
        {"step": 201, "perf/img_per_sec": 1600.0, "perf/input_wait": 0.3},  # 2 s
    ]
    run = history.read(written(tmp_path / "run", metrics=metrics))
    assert run.img_per_sec == pytest.approx(200 * 32 / 3)
    assert run.input_wait == pytest.approx(0.2)
    assert run.step_secs == pytest.approx(3.0)
    short = history.read(written(tmp_path / "short", metrics=metrics[:1]))
    assert short.img_per_sec is None
    assert short.input_wait is None


def test_differences_are_from_the_recipe_or_else_from_base(tmp_path):
    given = ("--config.seed=3", "--config.optimizer.name=sgd")
    what, found = history.read(written(tmp_path / "a", *given)).compared
    assert what.endswith("quickstart.py")
    assert {key: pair for key, *pair in found} == {
        "seed": [0, 3], "optimizer.name": ["adamw", "sgd"],
        "optimizer.adamw.b1": [0.9, None], "optimizer.adamw.b2": [0.95, None],
        "optimizer.adamw.eps": [1e-8, None], "optimizer.adamw.mu_dtype": ["float32", None],
        "optimizer.sgd.momentum": [None, 0.9], "optimizer.sgd.nesterov": [None, False],
        "optimizer.sgd.accumulator_dtype": [None, "bfloat16"],
    }  # fmt: skip
    what, found = history.read(written(tmp_path / "b", recipe=False)).compared
    assert what == "vit_jax:base"
    assert ("batch_size", 512, 32) in found
    assert "seed" not in [key for key, *_ in found]


def test_state_is_that_of_its_last_start(tmp_path):
    life = turns()
    assert history.read(written(tmp_path / "a", life=life[:-1], done=False)).state == "dead"
    failed = [*life[:-1], life[-1] | {"code": 1}]
    assert history.read(written(tmp_path / "b", life=failed, done=False)).state == "exit 1"
    unknown = history.read(written(tmp_path / "c", life=[], done=False))
    assert (unknown.state, unknown.spent, unknown.turns) == ("not done", None, [])
    assert history.read(written(tmp_path / "d", life=[])).state == "done"


def test_run_that_ends_now_is_done(tmp_path):
    run = history.read(written(tmp_path / "a", life=turns()[:-1], done=False), ends=True)
    assert run.state == "done"
    assert run.turns[-1]["event"] == "exit"
    assert run.spent.lost == 0


@pytest.mark.parametrize(
    "spoil, said",
    [
        (lambda d: (d / "config.yaml").unlink(), "is not a run: it has no config.yaml"),
        (lambda d: (d / "metrics.jsonl").unlink(), "has no metrics yet; wait for its first row"),
        (lambda d: (d / "metrics.jsonl").write_text('{"step": 1, "tr'), "has no metrics yet"),
        (lambda d: (d / "metrics.jsonl").write_text('{"step": 1}\n{"st\n{"step": 3}\n'),
         "1 lines are not rows, the first is line 2"),
        (lambda d: (d / "config.yaml").write_text("seed: [\n"), "is not readable YAML"),
    ],
)  # fmt: skip
def test_what_is_no_run_is_bad_input(tmp_path, spoil, said):
    spoil(written(tmp_path / "run"))
    with pytest.raises(BadInput, match=said) as e:
        history.read(tmp_path / "run")
    assert str(tmp_path / "run") in str(e.value)


def test_number_that_no_chart_has_room_for_is_left_out(tmp_path):
    folder = written(tmp_path / "run")
    before = history.read(folder).series("train/loss")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write(f'{{"step": 1000, "train/loss": {10**400}}}\n')
    assert history.read(folder).series("train/loss") == before


def test_line_that_is_being_written_is_none_yet(tmp_path):
    folder = written(tmp_path / "run")
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"step": 2000, "train/lo')
    assert history.read(folder).step == 1000


def test_rows_that_a_later_row_repeats_count_once(tmp_path):
    folder = written(tmp_path / "run", metrics=[])
    lines(folder / "metrics.jsonl", [*rows(), {"step": 1000, "val/top1": 0.7}])
    assert history.read(folder).series("val/top1")[-1] == (1000, 0.7)


@pytest.mark.parametrize(
    "paths, names",
    [
        (["/a/b"], ["b"]),
        (["/a/b", "/a/c"], ["b", "c"]),
        (["/x/1/run", "/x/2/run"], ["1/run", "2/run"]),
        (["/x/1/run", "/y/1/run", "/y/1/z"], ["x/1/run", "y/1/run", "y/1/z"]),
    ],
)
def test_names_are_as_short_as_tells_them_apart(paths, names):
    assert history.short_names(list(map(Path, paths))) == names


def test_run_that_is_given_twice_is_bad_input():
    with pytest.raises(BadInput, match="/a/b is given twice"):
        history.short_names([Path("/a/b"), Path("/a/c"), Path("/a/b")])


def test_goodput_that_is_damaged_leaves_the_time_out(tmp_path):
    folder = written(tmp_path / "run")
    (folder / "goodput.jsonl").write_text(json.dumps({"step": 1, "event": "save", "time": 1.0}))
    assert history.read(folder).spent is None
