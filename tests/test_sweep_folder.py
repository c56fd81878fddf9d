# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a sweep: workdirs, states, sweep.csv, means over seeds and tasks."""

import csv
import dataclasses
import json
import statistics

import pytest
from test_step_folders import WHOLE, make

from configs import quickstart
from vit_jax.build import defaults
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import provenance, validation
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps import points as sweep
from vit_jax.experiments.sweeps.folder import Entry
from vit_jax.paper import vtab


def made(stages, *overrides):
    return sweep.Sweep("configs/quickstart.py", overrides, stages)


def written(points, workdir, stage="", *overrides):
    """A sweep of one stage in a folder, and its points."""
    whole = made({stage: points}, *overrides)
    ready = sweep_folder.settled(whole.points(stage), workdir)
    sweep_folder.write(whole, stage, ready, workdir)
    return ready


def finish(workdir, run, **splits):
    results = {"step": 1, "checkpoint": "checkpoints/1", **splits}
    (workdir / run / "results.json").write_text(json.dumps(results))


def rows(workdir):
    with open(workdir / "sweep.csv", newline="") as file:
        return list(csv.DictReader(file))


def entry(state="done", stage="", test=False, metrics=None, **keys):
    return Entry("r", stage, state, keys, metrics or {}, test)


# ---------------------------------------------------------------- workdirs


def test_a_workdir_has_its_whole_configuration_from_the_start(tmp_path):
    points = written([{"seed": 4}, {"schedule.lr": 0.25}], tmp_path)
    for point, (key, value) in zip(points, [("seed", 4), ("schedule.lr", 0.25)], strict=True):
        saved = config_lib.load(str(tmp_path / point.run / "config.yaml"))
        assert dict(config_lib.flatten(saved))[key] == value
        assert config_lib.differences(saved, defaults.settle(config_lib.changed(saved, {}))) == []


def test_a_run_of_a_sweep_knows_the_recipe_that_it_is_of(tmp_path):
    [point] = written([{"seed": 4}], tmp_path, "", "--config.batch_size=16")
    provenance.write(tmp_path / point.run, None, "1 x cpu")  # as its start from a config.yaml does
    found = provenance.read(tmp_path / point.run)
    assert found.recipe.config == "configs/quickstart.py"
    assert found.recipe.overrides == ("--config.batch_size=16",)
    assert found.recipe.values["seed"] == 0
    assert found.recipe.values["batch_size"] == 32


def say_init(folder, init):
    """Has a workdir say that its run started from other weights."""
    file = folder / "config.yaml"
    assert "\ninit: ''\n" in file.read_text()
    file.write_text(file.read_text().replace("\ninit: ''\n", f"\ninit: {init}\n"))


@pytest.mark.parametrize("begun", ["results", "checkpoint", ""])
def test_other_weights_under_a_run_that_has_begun_are_refused(tmp_path, begun, monkeypatch):
    checked = []
    monkeypatch.setattr(defaults, "check_weights", checked.append)
    (point,) = written([{"seed": 1}], tmp_path)
    say_init(tmp_path / point.run, "a.npz")
    if begun == "results":
        finish(tmp_path, point.run)
    elif begun:
        make(tmp_path / point.run, 4, WHOLE)
    other = made({"": [{"seed": 1}]}, "--config.init=b.npz").points("")
    if begun:
        with pytest.raises(BadInput, match=r"(?s)another run.*init: 'a.npz' there, now 'b.npz'"):
            sweep_folder.settled(other, tmp_path)
    else:
        assert sweep_folder.settled(other, tmp_path)[0].config.init == "b.npz"
        assert [config.init for config in checked] == ["b.npz"]  # and have to fit


@pytest.mark.parametrize("tail, same", [("first/000-a", True), ("first/001-b", False)])
def test_weights_that_moved_with_the_sweep_are_the_same(tmp_path, tail, same):
    (point,) = written([{"seed": 1}], tmp_path)
    say_init(tmp_path / point.run, "/elsewhere/first/000-a")
    finish(tmp_path, point.run)
    again = made({"": [{"seed": 1}]}, f"--config.init={tmp_path / tail}").points("")
    if same:
        assert sweep_folder.settled(again, tmp_path)
    else:
        with pytest.raises(BadInput, match="another run"):
            sweep_folder.settled(again, tmp_path)


def test_one_fault_of_many_points_is_said_once(tmp_path):
    points = made({"": [{"seed": i} for i in range(5)]}, "--config.init=/no/such.npz").points("")
    with pytest.raises(BadInput) as caught:
        sweep_folder.settled(points, tmp_path)
    assert str(caught.value).startswith("000-seed=0, 001-seed=1, 002-seed=2 and 2 more: ")
    assert str(caught.value).count("/no/such.npz") == 2  # the init, and the place


def test_file_that_is_no_record_of_a_sweep_is_said(tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    with pytest.raises(BadInput, match="is not the folder of a sweep"):
        sweep_folder.entries(tmp_path)


def test_another_value_in_the_place_of_a_run_is_refused(tmp_path):
    written([{"seed": 1}, {"seed": 2}], tmp_path)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    changed = made({"": [{"seed": 1}, {"seed": 2}]}, "--config.batch_size=8")
    with pytest.raises(BadInput) as caught:
        sweep_folder.settled(changed.points(""), tmp_path)
    for part in ("000-seed=1", "001-seed=2", "batch_size: 32 there, now 8", "another --workdir"):
        assert part in str(caught.value)
    assert before == {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}


def test_a_point_that_moves_the_others_is_refused(tmp_path):
    written([{"seed": 1}, {"seed": 2}], tmp_path)
    with pytest.raises(BadInput, match=r"001-seed=2 holds another run:\s+seed: 2 there, now 3"):
        sweep_folder.settled(made({"": [{"seed": 1}, {"seed": 3}]}).points(""), tmp_path)


def test_points_may_be_added_at_the_end_and_none_is_forgotten(tmp_path):
    written([{"seed": 1}], tmp_path)
    written([{"seed": 1}, {"seed": 2}], tmp_path)
    assert [e.run for e in sweep_folder.entries(tmp_path)] == ["000-seed=1", "001-seed=2"]
    written([{"seed": 1}], tmp_path)
    assert [e.run for e in sweep_folder.entries(tmp_path)] == ["000-seed=1", "001-seed=2"]


def test_what_only_says_where_may_change_while_a_run_is_not_finished(tmp_path):
    written([{"seed": 1}, {"seed": 2}], tmp_path)
    finish(tmp_path, "000-seed=1")
    written([{"seed": 1}, {"seed": 2}], tmp_path, "", "--config.data.workers=3")
    runs = [tmp_path / name / "config.yaml" for name in ("000-seed=1", "001-seed=2")]
    assert [config_lib.load(str(run)).data.workers for run in runs] == [8, 3]


def test_values_are_checked_in_all_points(tmp_path):
    with pytest.raises(BadInput, match=r"(?s)000-batch_size=-1: .*002-lr=-1\.0: "):
        made({"": [{"batch_size": -1}, {"seed": 1}, {"schedule.lr": -1.0}]}).points("")
    points = made({"": [{"accumulation": 7}, {"seed": 1}, {"accumulation": 9}]}).points("")
    with pytest.raises(BadInput, match=r"(?s)000-accumulation=7: .*002-accumulation=9: "):
        sweep_folder.settled(points, tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_finished_run_does_not_need_its_weights_any_more(tmp_path):
    (point,) = written([{"seed": 1}], tmp_path)
    say_init(tmp_path / point.run, "/no/such/run")
    finish(tmp_path, point.run)
    gone = made({"": [{"seed": 1}]}, "--config.init=/no/such/run").points("")
    assert sweep_folder.settled(gone, tmp_path)[0].config.init == "/no/such/run"


# ---------------------------------------------------------------- states and sweep.csv


@pytest.fixture
def four(tmp_path):
    """A run of each state."""
    for number in range(4):
        written([{"seed": s, "data.mean": (0.5, 0.5, 0.4)} for s in range(number + 1)], tmp_path)
    runs = [e.run for e in sweep_folder.entries(tmp_path)]
    split = {"top1": 0.5, "loss": 1.5, "kind": "text"}
    finish(tmp_path, runs[0], val=split, skipped=[])
    sweep_folder.fail(tmp_path, runs[1], 2, "no such data")
    (tmp_path / runs[2] / "metrics.jsonl").write_text("")
    return tmp_path


def test_states_and_columns(four, capsys):
    assert main.main(["sweep", "--collect", f"--workdir={four}"]) == 0
    found = rows(four)
    assert list(found[0]) == ["run", "state", "seed", "data.mean", "val/top1", "val/loss"]
    assert [row["state"] for row in found] == ["done", "failed", "running", "pending"]
    assert [row["seed"] for row in found] == ["0", "1", "2", "3"]
    assert found[0]["data.mean"] == "(0.5, 0.5, 0.4)"
    assert [row["val/top1"] for row in found] == ["0.5", "", "", ""]
    assert "no such data" in capsys.readouterr().out


def test_the_runner_knows_what_runs(four):
    assert [e.state for e in sweep_folder.entries(four, ())][2:] == ["pending", "pending"]
    last = sweep_folder.entries(four)[3].run
    assert [e.state for e in sweep_folder.entries(four, [last])][2:] == ["pending", "running"]


def test_the_next_stage_sees_keys_metrics_and_workdir(four):
    row = sweep_folder.entries(four)[0].row(four)
    assert row == {
        "run": "000-seed=0_mean=0.5+0.5+0.4", "workdir": str(four / "000-seed=0_mean=0.5+0.5+0.4"),
        "seed": 0, "data.mean": (0.5, 0.5, 0.4), "val/top1": 0.5, "val/loss": 1.5,
    }  # fmt: skip


# ---------------------------------------------------------------- test is not for selecting


@pytest.mark.parametrize(
    "source, splits, read",
    [
        ("tfds:cifar10", {"val": "train[98%:]", "test": "test"}, ["test"]),
        ("tfds:imagenet2012", {"val": "train[99%:]", "late": "validation"}, ["late"]),
        ("tfds:imagenet2012", {"val": "val"}, ["val"]),  # another name of validation
        ("tfds:dtd", {"val": "validation", "more": "test[:10%]"}, ["more"]),
        ("vtab:dtd", {"val": "val200"}, []),
        ("digits", {"seen": "train[:10]", "val": "val"}, []),
    ],
)
def test_evaluations_that_read_test(source, splits, read):
    config = quickstart.get_config()
    config.data.source = source
    section = config.evals.val
    with config.unlocked():
        config.evals = {k: {**section.to_dict(), "split": v} for k, v in splits.items()}
    assert validation.evaluations_of_test(config) == read
    assert not validation.uses_test_data(config)
    config.recipe.stage = "select"
    assert validation.uses_test_data(config) == bool(read)


@pytest.mark.parametrize(
    "metric, looked", [("val/top1", False), ("test_raw/top1", True), ("", False)]
)
def test_a_best_step_chosen_on_test_has_looked_at_it(metric, looked):
    config = quickstart.get_config()
    config.checkpoint.keep_best = metric
    assert validation.uses_test_data(config) == looked


def test_few_shot_tasks_score_test():
    config = quickstart.get_config()
    config.fewshot.sources = (("d", "digits"),)
    assert validation.evaluations_of_test(config) == ["fewshot_d", "test"]
    assert not validation.uses_test_data(config)
    config.checkpoint.keep_best = "fewshot_d/5shot"
    assert validation.uses_test_data(config)


def test_runs_that_looked_at_test_are_marked(tmp_path):
    whole = made({"a": [{"seed": 1}], "b": lambda rows: [{"seed": 2}]})
    for stage in ("a", "b"):
        ready = sweep_folder.settled(whole.points(stage), tmp_path)
        sweep_folder.write(whole, stage, ready, tmp_path)
    found = sweep_folder.entries(tmp_path)
    sweep_folder.write_csv(tmp_path, found)
    assert [row["looked_at_test"] for row in rows(tmp_path)] == ["true", "false"]
    assert "looked_at_test" in sweep_folder.table(found)
    assert "looked_at_test" not in sweep_folder.table(found[1:])


# ---------------------------------------------------------------- table


def line(text, start):
    return next(line for line in text.splitlines() if line.startswith(start))


def test_mean_and_deviation_over_seeds():
    values = [0.50, 0.51, 0.55]
    found = [
        entry(metrics={"val/top1": v, "val/loss": 1.0}, seed=s, lr=0.1)
        for s, v in enumerate(values)
    ]
    found += [entry("pending", seed=3, lr=0.1), entry(metrics={"val/top1": 0.25}, seed=0, lr=0.2)]
    text = sweep_folder.table(found)
    mean, spread = 100 * statistics.mean(values), 100 * statistics.stdev(values)
    assert f"3/4  {mean:.2f} +- {spread:.2f} %" in line(text, "lr=0.1")
    assert line(text, "lr=0.2").split()[1:] == ["1/1", "25.00", "%"]
    assert "loss" not in text


def test_mean_of_vtab_is_over_all_tasks_and_its_deviation_over_seeds():
    slugs = [task.slug for task in vtab.tasks()]
    value = {(slug, seed): i / 100 + seed / 50 for i, slug in enumerate(slugs) for seed in range(3)}
    found = [
        entry(stage="final", metrics={"test/top1": v}, seed=seed, **{":dataset": f"vtab/{slug}"})
        for (slug, seed), v in value.items()
    ]
    means = [statistics.mean(value[slug, seed] for slug in slugs) for seed in range(3)]
    expected = f"{100 * statistics.mean(means):.2f} +- {100 * statistics.stdev(means):.2f} %"
    assert line(sweep_folder.table(found), "mean of 19 tasks: final").endswith(f"57/57  {expected}")
    of_dtd = f"{100 * statistics.mean(value['dtd', s] for s in range(3)):.2f} +- 2.00 %"
    assert line(sweep_folder.table(found), "final :dataset=vtab/dtd").endswith(of_dtd)
    waiting = [dataclasses.replace(e, state="pending", metrics={}) for e in found[:3]]
    missing = line(sweep_folder.table(waiting + found[3:]), "mean of 19 tasks: final")
    assert missing.split()[-2:] == ["54/57", "n/a"]
    two = [dataclasses.replace(e, state="pending", metrics={}) for e in found[:1]] + found[1:]
    assert line(sweep_folder.table(two), "mean of 19 tasks: final").split()[-4] == (
        f"{100 * statistics.mean(means[1:]):.2f}"
    )


def test_some_tasks_of_vtab_have_no_mean():
    found = [entry(metrics={"test/top1": 0.5}, seed=0, **{":dataset": "vtab/dtd"})]
    assert "mean" not in sweep_folder.table(found)
