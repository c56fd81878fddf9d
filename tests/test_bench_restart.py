# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax bench restart`: what it measures, and that it leaves no process."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vit_jax.cli import main
from vit_jax.errors import RunFailed
from vit_jax.preflight.bench import restart
from vit_jax.runtime import recovery

pytestmark = pytest.mark.integration


@pytest.mark.slow
def test_restart_of_the_quickstart(monkeypatch):
    monkeypatch.setattr(restart, "RUNS", {"quickstart": restart.RUNS["quickstart"]})
    begin = time.monotonic()
    (row,) = restart.measure(rounds=1)["rows"]
    assert row["secs"]["median"] < time.monotonic() - begin
    assert min(row["parts"][part] for part in ("imports", "data", "restore")) > 0


RESTARTING = """
import sys, time
from pathlib import Path
from vit_jax.preflight.bench import restart
with restart._Launched(Path(sys.argv[1]), 2, []) as run:
    while len(run._children()) < 2:
        time.sleep(0.02)
    print(run._process.pid, *run._children(), flush=True)
    sys.stdin.read()
"""


def runs(pid):
    """False for a process that has ended, also if nobody has read its exit code."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"  # its command line would be empty for a moment of its start too
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("end", [None, signal.SIGKILL])
def test_bench_restart_leaves_no_process(tmp_path, end):
    words = [sys.executable, "-c", RESTARTING, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as bench_:
        pids = [int(word) for word in bench_.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(runs, pids))
        if end:
            bench_.send_signal(end)
    assert ended(pids)


def ended(pids):
    """Whether all have ended, at most 30 s later: a kill takes effect after the call."""
    until = time.monotonic() + 30
    while any(map(runs, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(runs, pids))


def launched(folder, script):
    """A run whose launcher is a script of the shell."""
    run = restart._Launched(folder, 1, [])
    run._process = subprocess.Popen(["/bin/sh", "-c", script])
    (folder / "run").mkdir()
    (folder / "log.txt").write_text("the last words")
    return run


def test_time_until_the_launcher_saw_the_kill_is_a_part(tmp_path, monkeypatch):
    parts = [["noticing", 2.0], ["process_start", 1.0], ["imports", 3.0]]
    buckets = {recovery.PARTS["noticing"]: 3.0, recovery.PARTS["imports"]: 3.0}
    split = {"secs": 6.0, "parts": parts, "buckets": buckets}
    rows = [("save", 90.0, {}), ("new_step", 95.0, split), ("new_step", 110.0, split)]
    with contextlib.ExitStack() as stack:
        run = launched(tmp_path, "sleep 60 & wait; exec sleep 60")
        stack.push(run.__exit__)
        lines = [json.dumps({"step": 4, "event": e, "time": t, **more}) for e, t, more in rows]
        (tmp_path / "run" / "goodput.jsonl").write_text("\n".join(lines) + "\n")
        monkeypatch.setattr(time, "time", lambda: 100.0)
        while not run._children():
            time.sleep(0.02)
        (killed,) = run._children()
        found = run.restart()
        assert found["secs"] == 10.0
        assert found["parts"] == [("noticing", 6.0), *parts[1:]]
        assert list(found["buckets"].values()) == [7.0, 3.0]
        assert ended([killed])


def test_a_run_that_fails_leaves_the_figures_of_the_others(monkeypatch, capsys):
    class Run:
        def __init__(self, _, count, __):
            self.count = count

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def restart(self):
            if self.count == 2:
                raise RunFailed("no save in 300 s")
            return {"secs": 4.0, "parts": [["imports", 4.0]], "buckets": {}}

    monkeypatch.setattr(restart, "_Launched", Run)
    assert main.main(["bench", "restart"]) == 1
    said = capsys.readouterr().out
    assert "quickstart: 4.0 s" in said
    assert said.count("not measured: no save in 300 s") == 2


@pytest.mark.parametrize(
    "script, message",
    [("exit 3", r"no save until its launcher ended with code 3; measure again .*:\nthe last words"),
     ("exec sleep 60", "no process of the run to kill")],
)  # fmt: skip
def test_run_that_cannot_be_killed_is_no_figure(tmp_path, script, message):
    run = launched(tmp_path, script)
    try:
        if "sleep" in script:
            (tmp_path / "run" / "goodput.jsonl").write_text(
                '{"step": 4, "event": "save", "time": 90.0}\n'
            )
        with pytest.raises(RunFailed, match=message):
            run.restart()
    finally:
        run.__exit__()
