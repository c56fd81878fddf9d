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


# ---------------------------------------------------------------- restarts


def split_start(begin, at, *rest, down=None):
    """A start of 10 s until its first step, with the split that a run writes."""
    noticing = [] if down is None else [["noticing", down]]
    parts = [["process_start", 0.5], ["imports", 2.5], ["data", 2.0], ["restore", 2.0],
             ["data", 1.0], ["compile", 2.0]]  # fmt: skip
    repeated = [["repeated", 4.0]] if noticing else []
    new = row(begin + 14, "new_step", at + 3, parts=noticing + parts + repeated)
    return [*start(begin, at), new, *rest]


KILLED = [
    *split_start(100, 0, row(150, "save", 40)),  # killed, last seen at 195
    *split_start(300, 40, row(340, "exit", 110, code=0), down=105.0)[:1],
]
KILLED[-1]["seen"] = 195.0
KILLED += split_start(300, 40, row(340, "save", 110), row(340, "exit", 110, code=0), down=105.0)[1:]


def test_restart_is_read_with_its_parts():
    first, second = time_accounting.restarts(KILLED)
    assert (first.again, first.secs) == (False, 10.0)
    assert (second.again, second.step, second.secs) == (True, 43, 105.0 + 10.0 + 4.0)
    assert second.parts["data"] == 3.0
    assert list(second.parts)[:3] == ["noticing", "process_start", "imports"]


@pytest.mark.parametrize(
    "parts", [None, [], [["noticing"]], [["naps", 1.0]], [["data", -1.0]], [["data", "x"]], 3]
)
def test_split_that_is_damaged_is_left_out(parts):
    assert time_accounting.restarts([row(1, "new_step", 4, parts=parts)]) == []


def test_details_add_up_and_have_the_names_of_the_public_package():
    spent = time_accounting.spent(KILLED, 0.0, alive=False)
    found = time_accounting.details(KILLED, spent)
    assert found["badput_time"] == {
        "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION": 105.0 + 0.5 + 0.5,
        "TRAINING_PREP": 2.5 + 2.5,
        "TPU_INITIALIZATION": 0.0,
        "DATA_LOADING_SYNC": 3.0 + 3.0,
        "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME": 2.0 + 2.0,
        "PROGRAM_STARTUP": 2.0 + 2.0,
        "WASTED_PROGRESS_FROM_DISRUPTION": 45.0,
        "OTHER": 0.0,
    }
    whole = found["goodput_time"]["TOTAL"] + sum(found["badput_time"].values())
    assert whole == found["total_elapsed_time"] == 240.0
    assert (found["max_productive_step"], found["disruption_count"]) == (110, 1)
    assert set(found) <= {  # fields of `WorkloadMetricDetails` in its version 0.2.3
        "goodput_time", "badput_time", "max_productive_step", "total_elapsed_time",
        "disruption_count", "step_time_deviation", "ideal_step_time", "total_excluded_time",
    }  # fmt: skip


def test_start_that_wrote_no_split_is_other():
    rows = start(100, 0, row(150, "save", 40), row(200, "exit", 90, code=0))
    found = time_accounting.details(rows, time_accounting.spent(rows, 0.0, alive=False))
    assert found["badput_time"].pop("OTHER") == 10.0
    assert set(found["badput_time"].values()) == {0.0}
