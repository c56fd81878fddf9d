# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""goodput.jsonl: a row at each turn of a run's life, on a disk and in a bucket."""

import subprocess
import sys

import pytest

from vit_jax import goodput, rows, storage
from vit_jax.errors import BadInput, PeerLost, Stopped


@pytest.fixture(params=["disk", "bucket"])
def workdir(request, tmp_path):
    if request.param == "disk":
        return tmp_path
    request.getfixturevalue("store")
    return storage.path("gs://bucket/run")


def in_time(workdir):
    return sorted(rows.read_rows(workdir / goodput.FILE), key=lambda row: row["time"])


def events(workdir):
    return [(row["event"], row["step"]) for row in in_time(workdir)]


def one_start(workdir, first, end=None, seen=None):
    with goodput.recording(workdir, seen, write=True):
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
    turns = [("start", 0), ("initialised", 0), ("save", 4), ("stop", 4), ("exit", 4)]
    assert events(workdir)[:5] == turns
    assert found[3]["why"] == "STOP seen"


@pytest.mark.parametrize("began", [False, True])
def test_run_that_never_began_leaves_nothing(workdir, began):
    def refused():
        with goodput.recording(workdir, None, write=True):
            if began:
                goodput.begin()
                goodput.forget()
                storage.remove(rows.place(workdir / goodput.FILE))
            raise BadInput("")

    with pytest.raises(BadInput):
        refused()
    assert storage.listed(workdir) == []


def test_start_again_is_written_at_once(workdir):
    one_start(workdir, 0)
    with goodput.recording(workdir, None, write=True):
        goodput.event("initialised", 4)
    assert events(workdir)[4:] == [("start", 0), ("initialised", 4), ("exit", 4)]


def test_only_the_process_that_records_writes(tmp_path):
    with goodput.recording(tmp_path, None, write=False):
        goodput.begin()
        goodput.event("save", 4)
    goodput.event("save", 4)
    assert not list(tmp_path.iterdir())


def test_exit_from_another_thread_is_a_row(tmp_path):
    code = (
        "import sys, pathlib; from vit_jax import ending, goodput\n"
        "with goodput.recording(pathlib.Path(sys.argv[1]), None, write=True):\n"
        "    goodput.begin(); goodput.event('save', 4); ending.end(43)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path]).returncode == 43
    found = in_time(tmp_path)
    assert [row["event"] for row in found] == ["start", "save", "exit"]
    assert found[-1]["code"] == 43


def test_disk_that_takes_no_row_does_not_end_a_run(tmp_path, monkeypatch, caplog):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rows, "cut", full)
    one_start(tmp_path, 0)
    assert "cannot write" in caplog.text
    assert "No space left" in caplog.text
