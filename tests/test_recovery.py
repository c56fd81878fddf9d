# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The time from the end of a start to the first new step: made-up times, by hand."""

import pytest

from vit_jax.runtime import recovery

MARKS = [
    ("noticing", 105.0), ("process_start", 105.5), ("imports", 108.5), ("connecting", 109.0),
    ("data", 110.0), ("program", 112.0), ("data", 112.5), ("restore", 113.0), ("compile", 114.0),
    ("data", 114.25), ("first_step", 115.0), ("repeated", 121.0),
]  # fmt: skip


def test_parts_add_up_to_the_time_from_the_end_to_the_new_step():
    found = recovery.split(100.0, MARKS)
    assert found["secs"] == sum(secs for _, secs in found["parts"]) == 21.0
    assert sum(found["buckets"].values()) == 21.0
    assert found["parts"][:2] == [("noticing", 5.0), ("process_start", 0.5)]
    assert found["buckets"] == {
        "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION": 5.5,
        "TRAINING_PREP": 3.0 + 2.0,
        "TPU_INITIALIZATION": 0.5,
        "DATA_LOADING_SYNC": 1.0 + 0.5 + 0.25,
        "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME": 0.5,
        "PROGRAM_STARTUP": 1.0 + 0.75,
        "WASTED_PROGRESS_FROM_DISRUPTION": 6.0,
    }


def test_clock_that_is_set_back_makes_no_time_negative():
    found = recovery.split(100.0, [("noticing", 101.0), ("imports", 51.0), ("restore", 53.0)])
    assert [secs for _, secs in found["parts"]] == [1.0, 0.0, 2.0]
    assert found["secs"] == 3.0


def test_buckets_have_the_names_of_the_public_package():
    """Those of `BadputType` in goodput_utils.py of ml-goodput-measurement 0.2.3."""
    assert set(recovery.PARTS.values()) <= {
        "TPU_INITIALIZATION", "TRAINING_PREP", "PROGRAM_STARTUP", "DATA_LOADING_SYNC",
        "DATA_LOADING_ASYNC", "UNPRODUCTIVE_CHECKPOINT_SAVE_TIME",
        "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME", "WASTED_PROGRESS_FROM_DISRUPTION",
        "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION", "CUSTOM_BADPUT_EVENTS", "OTHER",
    }  # fmt: skip


def row(time, event):
    return {"step": 0, "event": event, "time": time}


ROWS = [row(10.0, "start"), row(20.0, "first_step"), row(90.0, "save")]


@pytest.mark.parametrize(
    "rows, told, seen, end",
    [
        ([], "99.0", None, None),  # the first start
        (ROWS, "", None, 90.0),  # its last row
        (ROWS, "", 95.0, 95.0),  # the lock was renewed later
        ([*ROWS, row(97.0, "exit")], "", None, 97.0),
        ([*ROWS, row(97.0, "exit")], "93.5", None, 93.5),  # another process was killed before
        (ROWS, "5.0", 95.0, 95.0),  # about an earlier start
        (ROWS, "500.0", 95.0, 95.0),  # from a clock that is wrong
        (ROWS, "soon", 95.0, 95.0),
        (ROWS, "", 500.0, 90.0),
        ([*ROWS, row(104.0, "exit")], "", None, 100.0),  # this start waited for it
        ([*ROWS, {"step": 0, "event": "save", "time": "x"}], "", None, 90.0),
    ],
)
def test_end_of_the_last_start(monkeypatch, rows, told, seen, end):
    monkeypatch.setenv(recovery.ENDED, told)
    assert recovery.ended(rows, seen, since=100.0) == end


def test_command_counts_from_the_creation_of_its_process(monkeypatch):
    monkeypatch.setattr(recovery, "_age_secs", lambda: 2.0)
    monkeypatch.setattr(recovery.time, "time", lambda: 102.0)
    recovery.begin()
    try:
        assert recovery.began(7.0) == 100.0
        monkeypatch.setattr(recovery.time, "time", lambda: 103.0)
        recovery.passed("imports")
        found = recovery.of_this_start(90.0, recovery.began(7.0))
        assert found["parts"] == [("noticing", 10.0), ("process_start", 2.0), ("imports", 1.0)]
    finally:
        recovery.forget()
    assert recovery.began(7.0) == 7.0


def test_parts_before_a_start_without_a_command_do_not_count(monkeypatch):
    monkeypatch.setattr(recovery, "_created", None)
    monkeypatch.setattr(recovery, "_passed", [("compile", 50.0), ("connecting", 103.0)])
    since = recovery.began(100.0)
    recovery._passed.append(("first_step", 110.0))
    found = recovery.of_this_start(None, since)
    assert (found["secs"], found["parts"]) == (10.0, [("connecting", 3.0), ("first_step", 7.0)])
