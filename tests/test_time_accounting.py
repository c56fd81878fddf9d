# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Where the time of a run went: sums by hand, of runs that ended in every way."""

import json
import os
import time

import pytest

from vit_jax.errors import BadInput
from vit_jax.reports.run import time_accounting
from vit_jax.runtime import workdir_lock


def row(time, event, step=0, **more):
    return {"step": step, "event": event, "time": float(time), **more}


def start(begin, at, *rest, **more):
    """A start that needs 7 s to be built, and 3 s to its first step."""
    return [
        row(begin, "start", restarts=0, **more),
        row(begin + 7, "initialised", at),
        row(begin + 10, "first_step", at + 1),
        *rest,
    ]


def test_run_that_goes_through_is_productive_from_its_first_step():
    rows = start(100, 0, row(150, "save", 40), row(200, "exit", 90, code=0))
    found = time_accounting.spent(rows, 0.0, alive=False)
    assert found == time_accounting.Spent(0, 100.0, 90.0, 10.0, 0.0, 0.0, "done")
    assert found.goodput == 0.9


def test_what_a_killed_start_did_after_its_last_save_is_lost():
    rows = [
        *start(100, 0, row(150, "save", 40), row(180, "save", 70)),  # killed, last seen at 195
        *start(300, 70, row(340, "exit", 110, code=0), seen=195.0),
    ]
    found = time_accounting.spent(rows, 0.0, alive=False)
    assert (found.restarts, found.elapsed, found.state) == (1, 240.0, "done")
    assert (found.productive, found.startup) == (70.0 + 30.0, 10.0 + 10.0)
    assert (found.lost, found.down) == (15.0, 105.0)
    assert found.productive + found.startup + found.lost + found.down == found.elapsed


def test_saves_that_no_later_start_went_on_from_are_lost_too():
    """Three starts; the last goes on from the first save of the first."""
    rows = [
        *start(0, 0, row(50, "save", 40), row(80, "save", 70), row(90, "exit", 75, code=43)),
        *start(100, 70, row(140, "save", 100), row(150, "exit", 105, code=43)),
        *start(200, 40, row(230, "save", 60), row(230, "stop", 60), row(231, "exit", 60, code=42)),
    ]
    found = time_accounting.spent(rows, 0.0, alive=False)
    assert found.productive == 40 + 0 + 20
    assert found.lost == 40 + 40 + 1
    assert (found.startup, found.down, found.state) == (30.0, 60.0, "stopped")


def test_start_that_never_came_to_a_step_is_start_up_alone():
    rows = [
        *start(0, 0, row(50, "save", 40)),
        row(60, "start", restarts=1, seen=55.0),
        *start(100, 40, row(130, "exit", 60, code=1), seen=66.0),
    ]
    found = time_accounting.spent(rows, 0.0, alive=False)
    assert (found.productive, found.startup) == (40.0, 10 + 6 + 10)
    assert (found.lost, found.down) == (5 + 20, 5 + 34)
    assert (found.state, found.restarts) == ("exit 1", 2)


@pytest.mark.parametrize("alive, state, lost", [(True, "running", 0.0), (False, "dead", 50.0)])
def test_run_without_an_end_goes_on_or_was_last_seen(alive, state, lost):
    found = time_accounting.spent(start(0, 0, row(50, "save", 40)), 100.0, alive=alive)
    assert (found.state, found.lost, found.elapsed) == (state, lost, 100.0)
    assert found.productive == 90.0 - lost


def write(workdir, rows):
    workdir.mkdir()
    (workdir / "goodput.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def test_run_whose_process_lives_is_running(tmp_path):
    write(tmp_path / "a", start(time.time() - 100, 0))
    workdir_lock.acquire(tmp_path / "a")
    assert time_accounting.examine(tmp_path / "a").state == "running"
    assert time_accounting.examine(tmp_path / "a").elapsed == pytest.approx(100, abs=20)
    owner = json.loads((tmp_path / "a" / workdir_lock.FILE).read_text())
    owner |= {"started": "1", "beat": time.time() - 40, "pid": os.getpid()}
    (tmp_path / "a" / workdir_lock.FILE).write_text(json.dumps(owner))
    found = time_accounting.examine(tmp_path / "a")
    assert (found.state, found.elapsed) == ("dead", pytest.approx(60, abs=20))


@pytest.mark.parametrize(
    "more",
    [
        {"event": 3}, {"event": "exit"}, {"event": "exit", "code": [1]}, {"time": float("nan")},
        {"time": 1e18}, {"time": float("inf")}, {"time": "now"}, {"event": "start", "seen": "x"},
        {"event": None},
    ],
    ids=str,
)  # fmt: skip
def test_row_that_is_none_is_left_out(tmp_path, more):
    rows = start(0, 0, row(50, "save", 40), row(60, "exit", 50, code=0))
    write(tmp_path / "a", [*rows[:3], row(20, "save", 10) | more, *rows[3:]])
    assert time_accounting.examine(tmp_path / "a") == time_accounting.spent(rows, 0.0, alive=False)


def test_rows_that_follow_no_start_are_refused(tmp_path):
    write(tmp_path / "a", [row(1, "save", 4), *start(2, 0)])
    with pytest.raises(BadInput):
        time_accounting.read(tmp_path / "a")
