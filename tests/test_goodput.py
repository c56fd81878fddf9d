# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""goodput.jsonl: a row at each turn of a run's life, on a disk and in a bucket."""

import subprocess
import sys

import pytest

from vit_jax.errors import BadInput, PeerLost, Stopped
from vit_jax.runtime import goodput
from vit_jax.storage import files as storage
from vit_jax.storage import jsonl


@pytest.fixture(params=["disk", "bucket"])
def workdir(request, tmp_path):
    if request.param == "disk":
        return tmp_path
    request.getfixturevalue("store")
    return storage.path("gs://bucket/run")


def in_time(workdir):
    return sorted(jsonl.read_rows(workdir / goodput.FILE), key=lambda row: row["time"])


def events(workdir):
    return [(row["event"], row["step"]) for row in in_time(workdir)]


def one_start(workdir, first, end=None, seen=None):
    with goodput.recording(workdir, since=0.5, seen=seen):
        goodput.begin()
        goodput.event("initialised", first)
        goodput.event("save", first + 4)
        if end:
            raise end


def test_starts_follow_one_another_with_their_codes(workdir):
    for first, end in ((0, Stopped("STOP seen")), (4, PeerLost("")), (8, RuntimeError())):
        with pytest.raises(type(end)):
            one_start(workdir, first, end)
    one_start(workdir, 8, seen=5.0)
    found = in_time(workdir)
    assert [row["code"] for row in found if row["event"] == "exit"] == [42, 43, 1, 0]
    starts = [row for row in found if row["event"] == "start"]
    assert [row["restarts"] for row in starts] == [0, 1, 2, 3]
    assert [row.get("seen") for row in starts] == [None, None, None, 5.0]
    turns = [("initialised", 0), ("save", 4), ("exit", 4)]
    assert events(workdir)[4:7] == turns  # the starts began at the same time


def test_run_that_never_began_leaves_nothing(workdir):
    with pytest.raises(BadInput), goodput.recording(workdir, since=0.5, seen=None):
        raise BadInput("")
    assert storage.listed(workdir) == []


def test_start_again_is_written_at_once(workdir):
    one_start(workdir, 0)
    with goodput.recording(workdir, since=0.5, seen=None):
        goodput.event("initialised", 4)
    assert events(workdir)[5:] == [("initialised", 4), ("exit", 4)]


def test_only_the_process_that_records_writes(tmp_path):
    with goodput.recording(tmp_path, since=0.5, seen=None, write=False):
        goodput.begin()
        goodput.event("save", 4)
    goodput.event("save", 4)
    assert not list(tmp_path.iterdir())


LOST = """
import sys, threading, time
from vit_jax.runtime import process_exit as ending, goodput
from vit_jax.storage import files as storage
real = storage.write
storage.write = lambda *args: (time.sleep(0.2), real(*args))
end_soon = threading.Thread(target=lambda: (time.sleep(0.5), ending.end(43))).start
try:
    with goodput.recording(storage.path(sys.argv[1]), since=0.5, seen=None, alone=False):
        goodput.begin()
        goodput.event("save", 4)
        {then}
except ValueError:
    end_soon()
    time.sleep(60)  # as `coordination.session`, which waits to know which process is gone
"""


@pytest.mark.integration
@pytest.mark.parametrize("then", ["end_soon(); time.sleep(60)", "raise ValueError('peer gone')"])
def test_exit_from_another_thread_is_a_row(workdir, then):
    words = [sys.executable, "-c", LOST.replace("{then}", then), str(workdir)]
    assert subprocess.run(words, stderr=subprocess.DEVNULL).returncode == 43
    found = in_time(workdir)
    assert [row["event"] for row in found] == ["start", "save", "exit"]
    assert found[-1]["code"] == 43


@pytest.mark.parametrize("error", [BadInput("no memory"), RuntimeError("bug")])
def test_file_that_cannot_be_closed_hides_no_error(tmp_path, monkeypatch, error, caplog):
    def full(self):
        self._file.close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jsonl._File, "close", full)
    with pytest.raises(type(error), match=str(error)):
        one_start(tmp_path, 0, error)
    assert "No space left" in caplog.text


def test_file_that_cannot_be_read_does_not_end_a_run(tmp_path, caplog):
    (tmp_path / goodput.FILE).mkdir()
    one_start(tmp_path, 0)
    assert "cannot read" in caplog.text


@pytest.mark.parametrize("number", ["NaN", "1e999"])
def test_row_that_is_damaged_does_not_end_a_run(tmp_path, number):
    (tmp_path / goodput.FILE).write_text(f'{{"step": 3, "event": "save", "time": {number}}}\n')
    one_start(tmp_path, 0)
    assert [row["event"] for row in in_time(tmp_path)] == ["start", "initialised", "save", "exit"]


def test_row_that_json_cannot_hold_does_not_end_a_run(tmp_path, caplog):
    with goodput.recording(tmp_path, since=0.5, seen=None):
        goodput.begin()
        goodput.event("save", 4, secs=float("inf"))
        goodput.event("save", 8)
    assert events(tmp_path)[1:] == [("save", 8), ("exit", 8)]
    assert "cannot write" in caplog.text


def test_bad_input_of_a_later_start_is_a_row(tmp_path):
    one_start(tmp_path, 0)

    with pytest.raises(BadInput), goodput.recording(tmp_path, since=0.5, seen=None):
        raise BadInput("")
    assert in_time(tmp_path)[-1]["code"] == 2


def test_disk_that_takes_no_row_does_not_end_a_run(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jsonl, "open_for_append", full)
    one_start(tmp_path, 0)
    assert "cannot write" in caplog.text
    assert "No space left" in caplog.text


def test_step_that_two_starts_ago_was_reported_is_not_new(tmp_path):
    def start(first, last):
        with goodput.recording(tmp_path, since=0.5, seen=None):
            known = goodput.reached()
            goodput.begin()
            metrics = jsonl.open_for_append(tmp_path / jsonl.METRICS_FILE, first)
            metrics.add({"step": last})
            metrics.close()
        return known

    assert [start(0, 100), start(50, 60), start(50, 70)] == [0, 100, 100]
    assert goodput.reached() == 0
    starts = [row for row in in_time(tmp_path) if row["event"] == "start"]
    assert [row.get("reached") for row in starts] == [None, 100, 100]
