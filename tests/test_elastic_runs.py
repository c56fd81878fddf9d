# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs on several machines that lose one, go on without it, and have it back: real processes.

The quick ones take steps without training; the slow one trains, and is compared with a run that
lost nothing.
"""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_train import QUICKSTART, TINY, logged, run

from vit_jax.runtime import goodput
from vit_jax.runtime.process_identity import VARIABLES
from vit_jax.runtime.rendezvous import free_address
from vit_jax.storage.jsonl import read_rows

PROGRAM = Path(__file__).with_name("elastic_process.py")
# Starts a process again, as a launcher does; ends with it when the exit code asks for that.
AGAIN = 'while :; do "$@"; code=$?; [ $code = 42 ] || [ $code = 43 ] || exit $code; done'
MOST_SECS = 900  # from one event to the next, on a busy machine
GIVEN = [
    *TINY, "--config.platform=cpu", "--config.checkpoint.every=20 steps", "--config.ema.decay=0",
    "--config.schedule.name=step", "--config.schedule.step.drops=()", "--config.evals.val.every=0",
    "--config.mixup.alpha=0.2", "--config.schedule.lr=1e-4",  # so low that rounding does not add up
]  # fmt: skip


def machine(index, count, folder):
    """Starts a machine whose process takes steps without training."""
    words = [sys.executable, str(PROGRAM), str(index), str(count), str(folder)]
    return subprocess.Popen(["/bin/bash", "-c", AGAIN, "machine", *words], start_new_session=True)


def kill(pid, number=signal.SIGKILL, whole_group=False):
    """Sends a signal to a process or a group of them; one that is gone is fine."""
    with contextlib.suppress(ProcessLookupError):
        (os.killpg if whole_group else os.kill)(pid, number)


def lose_power(machine):
    kill(machine.pid, whole_group=True)
    machine.wait()


def wait_for_groups(folder, *processes):
    """Waits until groups of so many processes have taken steps, one after another."""
    end, sizes = time.monotonic() + MOST_SECS, []
    while time.monotonic() < end and sizes != list(processes):
        time.sleep(0.05)
        if (file := folder / "groups.txt").exists():
            sizes = list(map(int, file.read_text().split()))
    assert sizes == list(processes)


@pytest.mark.integration
@pytest.mark.parametrize("count, lost", [(2, 0), (2, 1), (4, 2)])
def test_processes_go_on_without_one_and_with_it_when_it_returns(tmp_path, count, lost):
    """Of four, one more waits while two train."""
    machines = [machine(i, count, tmp_path) for i in range(count)]
    try:
        wait_for_groups(tmp_path, count)
        lose_power(machines[lost])
        wait_for_groups(tmp_path, count, count // 2)
        machines[lost] = machine(lost, count, tmp_path)
        wait_for_groups(tmp_path, count, count // 2, count)
    finally:
        for each in machines:
            lose_power(each)


class Machine:
    """A machine of its own: a launcher above one process of the run."""

    def __init__(self, root, folder, workdir, index, port):
        told = (f"127.0.0.1:{port}", "2", str(index))
        self._job = f"@{folder}/{index}/job.json"
        self.launcher = subprocess.Popen(
            [
                sys.executable, "-m", "launch", "local", "submit", f"--config={QUICKSTART}",
                f"--workdir={workdir}", "--accelerator=cpu-1", f"--out={folder}/{index}",
                *GIVEN, "--config.length=1000000 steps", "--config.elastic.secs=30",
            ],
            cwd=root, env={**os.environ, **dict(zip(VARIABLES.values(), told, strict=True))},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def processes(self, word=""):
        """Returns the processes that have the job of this machine, and the word, as arguments."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if {self._job, word or self._job} <= set(file.read().decode().split("\0")):
                        found.append(int(pid))
            except OSError:
                continue
        return found

    def lose_power(self):
        kill(self.launcher.pid)
        self.launcher.wait()
        while left := self.processes():  # one may start another before it is killed
            for pid in left:
                kill(pid)
            time.sleep(0.05)


def changes(rows, key):
    """Returns the values of the rows `slices`, equal ones in sequence once."""
    values = [row[key] for row in rows if row["event"] == "slices"]
    return [value for value, _ in itertools.groupby(values)]


def wait_for(workdir, machines, *slices):
    """Waits until the starts of a run had so many slices, and the last has saved a new step.

    On a busy machine, a process that starts again may be too slow, and the other starts twice.
    """
    end, starts = time.monotonic() + MOST_SECS, []
    while time.monotonic() < end:
        rows = read_rows(workdir / goodput.FILE)
        starts = [i for i, row in enumerate(rows) if row["event"] == "slices"]
        last = [row["event"] for row in rows[starts[-1] if starts else 0 :]]
        if changes(rows, "slices") == list(slices) and "new_step" in last[:-1]:
            if last[-1] == "save":
                return rows
        for machine in machines:
            assert machine.launcher.poll() is None
        time.sleep(0.1)
    raise AssertionError(f"the run had {len(starts)} starts")


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lost", [1, 0])
def test_run_goes_on_without_a_machine_and_with_it_when_it_returns(tmp_path, root, lost):
    workdir, port = tmp_path / "run", int(free_address().rpartition(":")[2])
    machines = [Machine(root, tmp_path, workdir, i, port) for i in range(2)]
    try:
        wait_for(workdir, machines, 2)
        machines[lost].lose_power()
        rows = wait_for(workdir, [machines[1 - lost]], 2, 1)
        parts = next(row["buckets"] for row in reversed(rows) if row["event"] == "new_step")
        assert parts["INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"] >= 30
        machines[lost] = Machine(root, tmp_path, workdir, lost, port)
        rows = wait_for(workdir, machines, 2, 1, 2)
        assert changes(rows, "accumulation") == [1, 2, 1]
        stops = [row["why"] for row in rows if row["event"] == "stop"]
        assert f"return of process {lost} seen" in stops[0]
        for machine in machines:
            for pid in machine.processes("--again"):
                kill(pid, signal.SIGTERM)
        assert [machine.launcher.wait(MOST_SECS) for machine in machines] == [42, 42]
    finally:
        for machine in machines:
            machine.lose_power()
    disturbed = logged(workdir)
    last = max(step for step, _ in disturbed)
    assert run(tmp_path / "whole", *GIVEN, f"--config.length={last} steps") == 0
    whole = logged(tmp_path / "whole", prefixes=("train/",))
    assert {step for step, _ in whole} == set(range(1, last + 1))
    for key, value in whole.items():
        assert disturbed[key] == pytest.approx(value, rel=1e-5, abs=1e-6), key
