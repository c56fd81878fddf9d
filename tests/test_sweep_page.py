# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What the runs of a sweep cost, and the page of a sweep that goes on or has ended."""

import csv
import dataclasses
import json

import pytest
from test_pages import check
from test_sweep_folder import made
from workdirs import lines, rows, turns

from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import provenance
from vit_jax.experiments.sweeps import cost, page
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.hardware import topology
from vit_jax.preflight.plan import plan as plan_lib
from vit_jax.runtime import goodput

DEVICES = "4 x TPU v5 lite (tpu), 1 process"


def begun(folder, steps, *, life=None, devices=DEVICES):
    """Lets a run have come to a step of 1,000, in a minute."""
    lines(folder / "metrics.jsonl", [row for row in rows() if row["step"] <= steps])
    lines(folder / goodput.FILE, turns(steps) if life is None else life)
    provenance.write(folder, None, devices, "32000 (1a2b)")


@pytest.fixture
def sweep(tmp_path):
    """A sweep with a run that is done, one half-way, one stopped, one failed, one not begun."""
    overrides = ("--config.length=1000 steps",)
    whole = made({"": [{"seed": seed} for seed in range(5)]}, *overrides)
    points = sweep_folder.settled(whole.points(""), tmp_path)
    sweep_folder.write(whole, "", points, tmp_path)
    done, half, stopped, failed, _ = (tmp_path / point.run for point in points)
    begun(done, 1000)
    (done / "results.json").write_text(json.dumps({"step": 1000, "val": {"top1": 0.9}}))
    begun(half, 500)
    begun(stopped, 200)
    sweep_folder.stop(tmp_path, stopped.name, 200, "val/top1 0.1 is number 2 of 2, and 1 go on")
    sweep_folder.fail(tmp_path, failed.name, 1, "loss is <nan>")
    return tmp_path


# ---------------------------------------------------------------- cost


@pytest.mark.parametrize(
    "devices, chips",
    [
        (DEVICES, 4),
        ("8 x TPU v3 (tpu), 1 process, jax 0.10.2", 4),  # two devices to a chip
        ("2 x NVIDIA H100 80GB HBM3 (gpu), 1 process", 2),
        ("1 x cpu (cpu), 1 process", 1),
        ("", 1),
    ],
)
def test_chip_hours_are_those_of_goodput(tmp_path, devices, chips):
    begun(tmp_path, 1000, devices=devices)
    assert cost.of_run(tmp_path) == cost.Cost(60.0, pytest.approx(60 / 3600 * chips))


def test_time_between_two_starts_costs_nothing(tmp_path):
    first, second = turns(500), turns(1000, begin=1.8e9 + 1000)
    first[-1]["code"] = 42
    begun(tmp_path, 1000, life=first + second)
    assert cost.of_run(tmp_path).secs == 120.0


def test_a_run_that_has_not_begun_has_no_cost(tmp_path):
    assert cost.of_run(tmp_path) is None
    lines(tmp_path / goodput.FILE, [{"step": 0, "event": "exit", "time": 1.0, "code": 0}])
    assert cost.of_run(tmp_path) is None


def test_costs_are_columns_of_the_results(sweep, capsys):
    runs = [entry.run for entry in sweep_folder.entries(sweep)]
    cost.write_planned(sweep, {runs[0]: 0.05, runs[4]: 0.07})
    assert main.main(["sweep", "--collect", f"--workdir={sweep}"]) == 0
    with open(sweep / "sweep.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["secs"] for row in found] == ["60.0", "60.0", "60.0", "", ""]
    assert [row["chip_hours"] for row in found] == ["0.06667"] * 3 + ["", ""]  # 4 x 60 / 3600
    assert [row["planned_chip_hours"] for row in found] == ["0.05", "", "", "", "0.07"]
    shown = capsys.readouterr().out
    assert "0.2 chip-hours of 3 runs; planned were 0.12 for 2 runs" in shown
    assert f"page        {sweep / 'sweep.html'}" in shown


def test_damaged_plans_are_no_plans(tmp_path):
    (tmp_path / cost.PLANNED_FILE).write_text("[")
    assert cost.planned(tmp_path) == {}


def test_runs_that_need_the_same_are_planned_once(monkeypatch):
    asked = []

    def plan(config, accelerator):
        asked.append(config.batch_size)
        measured = dataclasses.make_dataclass("Measured", ["peak_bytes"])(7)
        fields = ["measured", "fits", "chip_hours", "estimated_chip_hours"]
        return dataclasses.make_dataclass("Plan", fields)(measured, True, 2.0, None)

    monkeypatch.setattr(plan_lib, "plan", plan)
    planner, one = cost.Planner(), config_lib.load("configs/quickstart.py")
    for changes in ({}, {"seed": 3}, {"schedule.lr": 0.5}, {"batch_size": 8}):
        config = config_lib.changed(one, changes)
        need = planner(config, topology.find("v5e-1"))
        assert (need.peak_bytes, need.fits) == (7, True)
        assert planner.chip_hours[config_lib.fingerprint(config)] == 2.0
    assert asked == [32, 8]
    planner(one, topology.find("v5e-4"))
    assert asked == [32, 8, 32]


# ---------------------------------------------------------------- page


def test_the_page_shows_states_progress_and_costs(sweep):
    runs = [entry.run for entry in sweep_folder.entries(sweep)]
    found = page.Page(sweep)
    found.write(sweep_folder.entries(sweep, [runs[1]]), goes_on=True)
    text = (sweep / "sweep.html").read_text()
    parsed = check(text)
    assert ("meta", {"http-equiv": "refresh", "content": "30"}) in parsed.seen
    assert (
        "2 of 5 runs are over: 1 done, 1 running, 1 stopped, 1 failed, 1 pending." in parsed.words
    )
    header, *table = parsed.table("Runs")
    shown = [dict(zip(header, row, strict=True)) for row in table]
    assert [row["state"] for row in shown] == ["done", "running", "stopped", "failed", "pending"]
    steps = ["1,000 of 1,000", "500 of 1,000", "200 of 1,000", "", ""]
    assert [row["step"] for row in shown] == steps
    assert [row["val top1"] for row in shown] == ["90.00%", "45.00%", "", "", ""]
    assert [row["time"] for row in shown] == ["1:00"] * 3 + ["", ""]
    assert ["001", "loss is <nan>"] not in parsed.table("Stopped early or failed")
    reasons = dict(parsed.table("Stopped early or failed")[1:])
    assert reasons[runs[3]] == "loss is <nan>"
    assert reasons[runs[2]].endswith("number 2 of 2, and 1 go on")
    assert text.count("<svg") >= 2


def test_the_time_left_is_by_the_steps_so_far(sweep):
    """By hand: whole runs take 60, 120 and 300 s, 160 on average; 60 + 160 s are left for one."""
    runs = [entry.run for entry in sweep_folder.entries(sweep)]
    entries = sweep_folder.entries(sweep, [runs[1]])
    page.Page(sweep).write(entries, goes_on=True)
    words = check((sweep / "sweep.html").read_text()).words
    assert "about 3:40 for these runs, if none is stopped" in words


def test_the_last_page_is_not_loaded_again(sweep):
    page.Page(sweep).write(sweep_folder.entries(sweep, ()), goes_on=False)
    text = (sweep / "sweep.html").read_text()
    assert "refresh" not in text
    assert "Time left" not in text


def test_a_sweep_without_rows_has_a_page(tmp_path):
    whole = made({"": [{"seed": 1}]})
    points = sweep_folder.settled(whole.points(""), tmp_path)
    sweep_folder.write(whole, "", points, tmp_path)
    page.Page(tmp_path).write(sweep_folder.entries(tmp_path, ()), goes_on=True)
    assert "0 of 1 runs are over: 1 pending." in check((tmp_path / "sweep.html").read_text()).words


def test_a_page_is_written_now_and_then(sweep, monkeypatch):
    now, written = [100.0], []
    monkeypatch.setattr(page.time, "monotonic", lambda: now[0])
    found = page.Page(sweep)

    def write(entries, *, goes_on):
        written.append(now[0])
        now[0] += 3  # it takes long

    monkeypatch.setattr(found, "write", write)
    for now[0] in (100.0, 131.0, 159.0, 160.5, 161.0):
        found.refresh([])
    assert written == [100.0, 160.5]  # 20 times the 3 seconds later


def test_a_page_that_cannot_be_written_ends_nothing(sweep, caplog):
    (sweep / "sweep.html").mkdir()
    page.Page(sweep).write(sweep_folder.entries(sweep, ()), goes_on=True)
    assert "sweep.html is not written" in caplog.text
