# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs that are asked to stop, in every phase, and those that hang: how they end and continue."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_coordinated_stop import wait_until
from test_processes import launch, outcome, wait_for_save
from test_train import QUICKSTART, TINY, logged, run, same_parameters

from vit_jax.build import program
from vit_jax.build import run as build
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.evaluators import classification
from vit_jax.runtime import coordinated_stop, signals
from vit_jax.storage.jsonl import read_rows
from vit_jax.training import train
from vit_jax.training.workdir import committed


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch):
    """A process that has nothing to save ends after a while, whatever its main thread is in."""
    monkeypatch.setattr(coordinated_stop, "GRACE_SECS", 1e6)


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """A run that was never interrupted."""
    workdir = tmp_path_factory.mktemp("quiet") / "run"
    assert run(workdir) == 0
    return workdir


def signalled(number=signal.SIGTERM):
    os.kill(os.getpid(), number)
    wait_until(lambda: coordinated_stop._now._due)


def at_call(monkeypatch, owner, name, number=1, act=signalled):
    """Does something just before the n-th call of a function."""
    real, calls = getattr(owner, name), []

    def replaced(*args, **kwargs):
        calls.append(name)
        if len(calls) == number:
            act()
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, replaced)


@pytest.mark.integration
def test_stopped_in_an_evaluation_and_in_training_equals_uninterrupted(
    quiet, tmp_path, monkeypatch, capsys
):
    with monkeypatch.context() as patch:
        at_call(patch, classification, "evaluate")  # at step 6, which is not a save's
        assert run(tmp_path) == 42
    assert committed(tmp_path)[-1] == 6
    assert {
        row["step"] for row in read_rows(tmp_path / "metrics.jsonl") if "val/top1" in row
    } == set()
    with monkeypatch.context() as patch:
        at_call(patch, train.Window, "add", 3, lambda: signalled(signal.SIGINT))  # of step 9
        assert run(tmp_path) == 42
    assert committed(tmp_path)[-1] == 9
    said = capsys.readouterr().err
    assert "vit_jax: stopped: SIGTERM received by this process; run again to continue." in said
    assert "vit_jax: stopped: SIGINT received" in said
    assert "Traceback" not in said
    assert not list(tmp_path.glob("*lock*"))
    assert run(tmp_path) == 0
    assert logged(tmp_path) == logged(quiet)
    assert same_parameters(tmp_path, quiet)


def test_stopped_before_there_is_anything_to_save(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        at_call(patch, build, "build")
        assert run(tmp_path / "run") == 42
    assert not (tmp_path / "run").exists()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["restore", "compile", "data", "last evaluation", "STOP"])
def test_stopped_in_another_phase_equals_uninterrupted(quiet, tmp_path, monkeypatch, phase):
    monkeypatch.setattr(signals, "POLL_SECS", 0.01)
    with monkeypatch.context() as patch:
        if phase == "restore":
            at_call(patch, train.Window, "add", 5)
            assert run(tmp_path) == 42
            at_call(patch, Checkpoints, "restore")
        elif phase == "compile":
            at_call(patch, program.Program, "lower_step")
        elif phase == "data":
            real = build.pipeline.Pipeline.train

            def blocked(*args, **kwargs):
                for number, batch in enumerate(real(*args, **kwargs)):
                    if number == 8:
                        signalled()
                        time.sleep(1)  # storage that does not answer
                    yield batch

            patch.setattr(build.pipeline.Pipeline, "train", blocked)
        elif phase == "last evaluation":
            at_call(patch, classification, "evaluate", 5)
        else:
            at_call(patch, train.Window, "add", 5, lambda: stop_file(tmp_path))
        assert run(tmp_path) == 42
    saved = {"compile": {0}, "data": {5, 6, 7, 8}, "last evaluation": {12}}.get(phase, {5})
    assert max(committed(tmp_path), default=0) in saved
    assert run(tmp_path) == 0
    assert logged(tmp_path) == logged(quiet)
    assert same_parameters(tmp_path, quiet)


def stop_file(workdir):
    (workdir / "STOP").touch()
    wait_until(lambda: coordinated_stop._now._due)


@pytest.mark.slow
def test_checkpoint_that_was_saved_unmeasured_becomes_the_best(tmp_path, monkeypatch):
    keep = "--config.checkpoint.keep_best=val/loss", "--config.checkpoint.every=0"
    with monkeypatch.context() as patch:
        at_call(patch, classification, "evaluate")
        assert run(tmp_path, *keep) == 42
    with monkeypatch.context() as patch:
        at_call(patch, train.Window, "add", 2)
        assert run(tmp_path, *keep) == 42
    checkpoints = Checkpoints(tmp_path, read_only=True)
    assert checkpoints.best("val/loss") == 6
    checkpoints.close()


@pytest.mark.slow
def test_newest_checkpoint_is_never_older_than_so_many_minutes(tmp_path):
    each = "--config.checkpoint.every_minutes=1e-6", "--config.checkpoint.every=0"
    assert run(tmp_path, *each, "--config.checkpoint.keep_last=9") == 0
    assert len(committed(tmp_path)) > 4


# ---------------------------------------------------------------- real processes

LONG = (
    "--config.length=100000 steps",
    "--config.report.page=false", "--config.checkpoint.every=10 steps",
    "--config.evals.val.every=0",
)  # fmt: skip
# Process 1 is stuck after step 15.
STUCK = """
import ctypes, os, sys, time
from vit_jax.cli import main
from vit_jax.training import metric_window as window
real = window.Window.add
def add(self, step, metrics):
    real(self, step, metrics)
    if step == 15 and "--process_id=1" in sys.argv:
        stuck_here()
def stuck_here():
    print("stuck", flush=True)
    HOW
window.Window.add = add
sys.exit(main.main(sys.argv[1:]))
"""


def stuck(how):
    return ("-c", STUCK.replace("HOW", how))


def pair(workdir, *extra, **options):
    children = launch(2, workdir, *LONG, *extra, **options)
    wait_for_save(workdir, 10, children, timeout=400)
    return children


def wait_for_text(child, text, secs=400):
    end = time.monotonic() + secs
    while text not in Path(child.log.name).read_text():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.integration
def test_two_processes_of_which_one_gets_sigterm_stop_at_one_step(tmp_path):
    workdir = tmp_path / "run"
    light = (
        "--config.checkpoint.every=2 steps",
        "--config.report.writers=()",
        "--config.report.page=false",
    )
    children = launch(2, workdir, *LONG, *light, devices=2)
    wait_for_save(workdir, 2, children, timeout=400)
    children[1].send_signal(signal.SIGTERM)
    codes, texts = outcome(children, 60)
    assert codes == [42, 42], texts
    assert all("SIGTERM received by process 1" in text for text in texts)
    step = committed(workdir)[-1]
    assert f"stopped after step {step}, which is saved" in texts[0]
    assert read_rows(workdir / "metrics.jsonl")[-1]["step"] == step
    assert "Traceback" not in texts[0] + texts[1]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["SIGTERM of 0", "SIGTERM of 1", "both", "STOP"])
def test_two_processes_stop_at_one_step_and_continue_after_it(tmp_path, how):
    workdir = tmp_path / "run"
    children = pair(workdir)
    if how == "STOP":
        (workdir / "STOP").touch()
    elif how == "both":  # as a scheduler does
        for child in children:
            child.send_signal(signal.SIGTERM)
    else:
        children[int(how[-1])].send_signal(signal.SIGTERM)
    codes, texts = outcome(children, 200)
    assert codes == [42, 42], texts
    step = committed(workdir)[-1]
    said = "STOP seen by process 0" if how == "STOP" else f"SIGTERM received by process {how[-1]}"
    assert how == "both" or all(said in text for text in texts)
    assert f"stopped after step {step}, which is saved" in texts[0]
    assert "Traceback" not in texts[0] + texts[1]
    codes, texts = outcome(stopped_again(workdir), 200)
    assert codes == [42, 42], texts
    assert f"at step {step}" in texts[0]
    rows = {r["step"]: r["train/loss"] for r in read_rows(workdir / "metrics.jsonl")}
    assert sorted(rows) == list(range(1, max(rows) + 1))
    assert max(rows) > step


def stopped_again(workdir):
    """The same run, stopped a few saves later."""
    newest = committed(workdir)[-1]
    children = launch(2, workdir, *LONG)
    wait_for_save(workdir, newest // 10 * 10 + 20, children, timeout=400)
    children[0].send_signal(signal.SIGTERM)
    return children


@pytest.mark.slow
def test_second_signal_ends_a_process_at_once(tmp_path):
    children = pair(tmp_path / "run", program=stuck("time.sleep(600)"))
    wait_for_text(children[1], "stuck")
    children[1].send_signal(signal.SIGTERM)
    wait_for_text(children[1], "SIGTERM received: stopping")
    children[1].send_signal(signal.SIGINT)
    codes, texts = outcome(children, 60)
    assert codes == [43, 130], texts
    assert "SIGINT received again: ended without saving" in texts[1]
    assert "process 1 of 2" in texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["time.sleep(600)", "ctypes.CDLL(None).sleep(600)"])
def test_process_that_is_stuck_is_shown_by_the_stacks_of_all(tmp_path, how):
    workdir = tmp_path / "run"
    children = pair(workdir, "--config.processes.hang_secs=40", program=stuck(how))
    wait_for_text(children[1], "stuck")
    codes, texts = outcome(children, 200)
    assert codes == [43, 43], texts
    stacks = [(workdir / "stacks" / f"process-{i}.txt").read_text() for i in range(2)]
    assert "stuck_here" in stacks[1]
    assert "stuck_here" not in stacks[0]
    assert "train.py" in stacks[0]
    assert "has done nothing for" in texts[0]
    assert "to continue from step" in texts[0]


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_process_that_is_frozen_is_named(tmp_path, victim):
    children = pair(tmp_path / "run", "--config.processes.heartbeat_secs=20")
    children[victim].send_signal(signal.SIGSTOP)
    codes, texts = outcome([children[1 - victim]], 90)
    children[victim].kill()
    outcome([children[victim]])
    assert codes == [43], texts
    name = f"process {victim} of 2 ({socket.gethostname()})"
    assert f"{name} was silent for 20 s" in texts[0]


ALONE = """
import ctypes, sys
from vit_jax.cli import main
from vit_jax.build import program
def compiling(self):
    print("compiling", flush=True)
    while True:  # a signal ends a sleep, but not a compilation
        ctypes.CDLL(None).sleep(600)
program.Program.lower_step = compiling
sys.exit(main.main(sys.argv[1:]))
"""


@pytest.fixture
def compiling(tmp_path):
    """Starts a run in `tmp_path / "run"` that compiles for ever."""
    with open(tmp_path / "run.log", "w") as said:

        def start(*extra):
            words = ["train", f"--config={QUICKSTART}", f"--workdir={tmp_path / 'run'}", *TINY]
            child = subprocess.Popen(
                [sys.executable, "-c", ALONE, *words, *extra], stdout=said, stderr=said
            )
            child.log = said
            children.append(child)
            wait_for_text(child, "compiling\n")
            return child

        children = []
        yield start
        for child in children:
            child.kill()
            child.wait()


@pytest.mark.integration
def test_compiling_in_c_does_not_keep_a_run_from_stopping(tmp_path, compiling):
    workdir = tmp_path / "run"
    child = compiling()
    lock = json.loads((workdir / "lock.json").read_text())
    assert lock["pid"] == child.pid
    assert run(workdir) == 2  # the second is refused
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 42
    assert not (workdir / "lock.json").exists()
    assert not committed(workdir)


@pytest.mark.slow
def test_run_alone_that_hangs_ends_with_its_stacks(tmp_path, compiling, capsys):
    workdir = tmp_path / "run"
    child = compiling("--config.processes.hang_secs=10")
    assert run(workdir) == 2
    said = capsys.readouterr().err
    assert f"process {child.pid} on {socket.gethostname()}" in said
    assert child.wait(200) == 43
    assert "compiling" in (workdir / "stacks" / "process-0.txt").read_text()
    assert "Run again to continue." in Path(child.log.name).read_text()


@pytest.mark.slow
def test_killed_run_leaves_no_lock_behind_that_counts(tmp_path, compiling):
    workdir = tmp_path / "run"
    child = compiling()
    child.kill()
    child.wait()
    assert (workdir / "lock.json").exists()
    assert run(workdir) == 0
    assert not (workdir / "lock.json").exists()
