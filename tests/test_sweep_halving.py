# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Successive halving: the rule, and sweeps with it whose runs are shell scripts."""

import csv
import itertools
import json
import random
import signal

import pytest
from test_sweep_runner import PRELUDE, interrupt, starts

from vit_jax.config import timeline
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps import halving
from vit_jax.experiments.sweeps import points as sweep_points
from vit_jax.experiments.sweeps import runner as sweep_runner
from vit_jax.experiments.sweeps import stage as sweep_stage
from vit_jax.experiments.sweeps.halving import Halving
from vit_jax.experiments.sweeps.stage import Stopped

RULE = {"metric": "val/top1", "eta": 2, "rungs": (25, 50)}


# ---------------------------------------------------------------- the rule


def lengths(total, every):
    return timeline.Steps(
        total=total, epoch=1.0, warmup=0, cooldown=0, drops=(), checkpoint=0, keep_every=0,
        local=0, report=1, evals={"val": every},
    )  # fmt: skip


@pytest.mark.parametrize(
    "total, every, rungs, steps",
    [
        (100, 10, (10, 30), (10, 30)),
        (1234, 123, (10, 30), (123, 369)),  # 30 percent are 370 steps; 369 has an evaluation
        (100, 30, (25, 50), (30, 60)),  # 50 is nearer to 60, by Python's rounding of 1.67
    ],
)
def test_a_rung_is_the_nearest_evaluation(total, every, rungs, steps):
    assert Halving("val/top1", 2, rungs).steps("r", lengths(total, every)) == steps


@pytest.mark.parametrize(
    "total, every, rungs",
    [(100, 0, (25,)), (100, 50, (20, 50)), (100, 50, (50, 60)), (100, 50, (99,)), (100, 10, (2,))],
)
def test_rungs_without_evaluations_are_refused(total, every, rungs):
    with pytest.raises(BadInput, match=r"^r: the rungs .*Set evals\.val\.every\."):
        Halving("val/top1", 2, rungs).steps("r", lengths(total, every))


def test_a_metric_of_no_evaluation_is_refused_with_those_that_there_are():
    with pytest.raises(BadInput, match=r"by vall/top1, and the run has no .* vall, only val\."):
        Halving("vall/top1", 2, (25,)).steps("r", lengths(100, 10))


@pytest.mark.parametrize("eta", [2, 3, 4])
@pytest.mark.parametrize("count", [1, 2, 9, 27, 81])
def test_as_many_go_on_as_in_the_paper(eta, count):
    """Algorithm 1 of arXiv:1502.07943 halves; with eta, floor(n / eta) are left, at least one."""
    points = {str(i): {} for i in range(count)}
    values = {run: random.Random(7).random() for run in points}
    verdicts = Halving("val/top1", eta, (50,)).best(points, values)
    go_on = [run for run, (rank, kept, _) in verdicts.items() if rank <= kept]
    assert len(go_on) == max(1, count // eta)
    assert min(values[run] for run in go_on) >= max(
        (values[run] for run in points if run not in go_on), default=-1
    )


def test_the_least_loss_is_best_and_the_first_of_equals():
    points = {"a": {}, "b": {}, "c": {}}
    losses = {"a": 2.0, "b": 1.0, "c": 1.0}
    assert Halving("val/loss", 3, (50,)).best(points, losses)["b"] == (1, 1, 3)
    assert Halving("val/top1", 3, (50,)).best(points, losses)["a"] == (1, 1, 3)


def test_runs_are_ranked_within_their_group():
    datasets = {run: {":dataset": run[0], "seed": 1} for run in ("a0", "a1", "b0", "b1")}
    values = {"a0": 0.9, "a1": 0.8, "b0": 0.1, "b1": 0.2}
    verdicts = Halving("val/top1", 2, (50,), (":dataset",)).best(datasets, values)
    assert {run for run, (rank, kept, _) in verdicts.items() if rank <= kept} == {"a0", "b1"}


@pytest.mark.parametrize(
    "rule, said",
    [
        ({}, r"halving has the keys \[\]"),
        (RULE | {"etta": 3}, "'etta'"),
        (RULE | {"eta": 1}, "eta=1"),
        (RULE | {"eta": "2"}, "eta='2'"),
        (RULE | {"metric": "top1"}, "metric='top1'"),
        (RULE | {"rungs": ()}, r"rungs=\(\)"),
        (RULE | {"rungs": 25}, "rungs=25"),
        (RULE | {"rungs": (50, 25)}, r"rungs=\(50, 25\)"),
        (RULE | {"rungs": (50, 100)}, r"rungs=\(50, 100\)"),
        (RULE | {"within": ":dataset"}, "within=':dataset'"),
        (3, r"the keys \['points', 'halving'\]"),
    ],
)
def test_a_rule_that_cannot_be_is_refused(rule, said):
    with pytest.raises(BadInput, match=f"stage 'a'.*{said}"):
        halving.read("stage 'a'", {"points": [{}], "halving": rule})


def test_a_stage_without_a_rule_is_left_as_it_is():
    points = [{"seed": 1}]
    assert halving.read("", points) == (points, None)
    with pytest.raises(BadInput, match=r"dict with the keys \['seed'\]"):
        halving.read("", points[0])


def test_a_recipe_holds_the_rule(tmp_path):
    file = tmp_path / "recipe.py"
    file.write_text(
        "from configs.quickstart import get_config\n"
        "def sweep():\n"
        f"    return {{'a': {{'points': [{{'seed': 1}}], 'halving': {RULE}}},\n"
        "            'b': lambda rows: [{'seed': 2}]}\n"
    )
    whole = sweep_points.read(str(file))
    assert whole.rules == {"a": Halving("val/top1", 2, (25, 50))}
    assert [len(points) for points in whole.expected.values()] == [1, 1]


# ---------------------------------------------------------------- sweeps

# A script trains 100 steps, 25 at a time, with the seed as its accuracy, and saves on SIGTERM, for
# which it waits at both rungs. Where a file `quick` is, it neither waits nor hears.
TRAIN = """
seed=${PWD##*seed=}; seed=${seed%%_*}
at=$(cat step 2>/dev/null || echo 0)
trap 'echo $at > step; echo $at >> ends; exit 42' TERM
[ ! -e ../quick ] || trap '' TERM
while [ $at -lt 100 ]; do
    at=$((at + 25)); echo $at >> trained
    echo '{"step": '$at', "val/top1": 0.'$seed'}' >> metrics.jsonl
    for i in $(seq 400); do [ $at -gt 50 ] || [ -e ../quick ] || sleep 0.02; done
done
finish 0.$seed
"""
FIVE = [{"seed": seed} for seed in (3, 1, 5, 2, 4)]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a sweep of `TRAIN` whose only stage, or `select`, has the rule."""
    for name in ("POLL_SECS", "LOOK_SECS"):
        monkeypatch.setattr(sweep_stage, name, 0.01)
    monkeypatch.setattr(sweep_runner.Page, "write", lambda *_, **__: None)  # it draws curves
    overrides = ("--config.length=100 steps", "--config.evals.val.every=25 steps")
    names = itertools.count()

    def started(points=FIVE, script=TRAIN, rule=RULE, then=None, **given):
        file = tmp_path / f"{next(names)}.sh"
        file.write_text(PRELUDE + script)
        stages = {"select": points, "final": then} if then else {"": points}
        rules = {next(iter(stages)): Halving(**rule)} if rule else {}
        whole = sweep_points.Sweep("configs/quickstart.py", overrides, stages, rules)
        command = lambda folder: ["/bin/sh", str(file), str(folder)]  # noqa: E731
        return sweep_runner.run(whole, tmp_path / "sweep", command=command, **given)

    started.dir = tmp_path / "sweep"
    return started


def stopped(entries):
    return {entry.keys["seed"]: entry.stopped_at for entry in entries}


EXPECTED = {3: 25, 1: 25, 5: None, 2: 25, 4: 50}  # by hand: of five two go on, then one


@pytest.mark.parametrize("parallel", [pytest.param(1, marks=pytest.mark.integration), 3])
def test_weaker_runs_stop_at_their_rung(run, parallel, capsys):
    found = run(parallel=parallel)
    assert stopped(found) == EXPECTED
    assert [entry.state for entry in found] == ["stopped", "stopped", "done", "stopped", "stopped"]
    trained = [(run.dir / e.run / "trained").read_text().split() for e in found]
    assert trained[2] == ["25", "50", "75", "100"]  # each step once
    assert all(len(steps) < 4 for i, steps in enumerate(trained) if i != 2)
    with open(run.dir / "sweep.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["stopped_at"] for row in rows] == ["25", "25", "", "25", "50"]
    assert [row["val/top1"] for row in rows] == ["", "", "0.5", "", ""]
    shown = sweep_folder.report(run.dir, found)
    assert "4 stopped early:" in shown
    assert "004-seed=4, at step 50: val/top1 0.4000 is number 2 of 2, and 1 go on" in shown
    assert "failed" not in shown


def test_a_run_that_ends_before_the_others_reach_the_rung_is_stopped_all_the_same(run):
    run.dir.mkdir()
    (run.dir / "quick").touch()
    found = run()
    assert stopped(found) == EXPECTED
    assert all((run.dir / e.run / "results.json").exists() for e in found if e.keys["seed"] == 3)
    assert [entry.metrics for entry in found if entry.state == "stopped"] == [{}] * 4


@pytest.mark.integration
def test_a_finished_sweep_starts_nothing_again(run):
    first = run()
    before = {e.run: starts(run.dir / e.run) for e in first}
    assert run() == first
    assert {e.run: starts(run.dir / e.run) for e in first} == before


def test_a_sweep_that_is_stopped_between_ends_with_the_same_runs(run):
    script = "[ ${PWD##*=} != 4 ] || touch ready\n" + TRAIN
    interrupt(run.dir, signal.SIGTERM)
    with pytest.raises(Stopped):
        run(script=script)
    assert not list(run.dir.glob("*/results.json"))
    found = run()
    assert stopped(found) == EXPECTED
    assert (run.dir / "002-seed=5" / "trained").read_text().split() == ["25", "50", "75", "100"]


@pytest.mark.integration
def test_a_point_that_is_added_is_ranked_with_the_others(run):
    run(FIVE[:2])
    found = run([*FIVE[:2], {"seed": 6}, {"seed": 2}])
    assert stopped(found) == {3: 50, 1: 25, 6: None, 2: 25}


@pytest.mark.integration
def test_another_rule_or_none_takes_a_stop_back(run):
    assert stopped(run()) == EXPECTED
    assert stopped(run(rule=RULE | {"rungs": (50,)})) == {3: 50, 1: 50, 5: None, 2: 50, 4: None}
    assert stopped(run(rule=None)) == dict.fromkeys(EXPECTED)


@pytest.mark.integration
def test_a_failed_run_decides_nothing_until_it_reaches_the_rung(run):
    found = run(script="[ ${PWD##*=} != 2 ] || exit 1\n" + TRAIN)
    assert [entry.state for entry in found] == ["pending"] * 3 + ["failed", "pending"]
    assert stopped(run()) == EXPECTED


@pytest.mark.integration
def test_the_next_stage_is_made_of_runs_that_are_done(run):
    seen = []

    def final(rows):
        seen.append([row["seed"] for row in rows])
        return [{"seed": 9, "schedule.lr": 0.5}]

    found = run(script="case $PWD in */final/*) touch ../quick;; esac\n" + TRAIN, then=final)
    assert seen[-1] == [5]
    assert found[-1].state == "done"


def test_what_the_runs_do_not_measure_is_said(run):
    with pytest.raises(BadInput, match="no evaluation few, only test, val"):
        run(rule=RULE | {"metric": "few/5shot"})
    assert not run.dir.exists()
    run.dir.mkdir()
    (run.dir / "quick").touch()
    with pytest.raises(BadInput, match=r"has no val/best at step 25"):
        run(rule=RULE | {"metric": "val/best"})


def test_damaged_verdict_is_said(run):
    found = run()
    (run.dir / found[0].run / "stopped.json").write_text(json.dumps({"step": 1}))
    with pytest.raises(BadInput, match=r"stopped\.json"):
        sweep_folder.entries(run.dir)
