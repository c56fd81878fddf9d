# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What is done before a process ends without its main thread."""

import os
import subprocess
import sys
import threading

import pytest

from vit_jax.runtime import process_exit


def test_what_is_registered_is_done_once_whatever_fails(monkeypatch):
    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", end)
    done = []
    with (
        process_exit.before_exit(lambda: done.append("first")),
        process_exit.before_exit(lambda: 1 / 0),
    ):
        with pytest.raises(SystemExit) as ended:
            process_exit.end(43)
        assert ended.value.code == 43
    with pytest.raises(SystemExit):
        process_exit.end(1)
    assert done == ["first"]


def test_saying_to_nobody_does_not_fail(monkeypatch, capsys):
    process_exit.say("stopped")
    assert capsys.readouterr().err == "vit_jax: stopped\n"
    with open(os.devnull) as closed:
        pass
    monkeypatch.setattr("sys.stderr", closed)
    process_exit.say("stopped")


def test_what_fails_or_waits_for_ever_does_not_keep_the_process(monkeypatch):
    done, never = [], threading.Event()
    assert process_exit.ends_in_time(lambda: done.append(1), 20)
    assert not process_exit.ends_in_time(lambda: 1 / 0, 20)
    assert not process_exit.ends_in_time(never.wait, 0.05)
    monkeypatch.setattr(process_exit, "LAST_SECS", 0.05)
    monkeypatch.setattr(os, "_exit", done.append)
    with (
        process_exit.before_exit(lambda: done.append("first")),
        process_exit.before_exit(never.wait),
    ):
        process_exit.end(43)
    never.set()
    assert done == [1, "first", 43]


PROGRAM = """
import signal, sys, threading, time
from vit_jax.runtime import process_exit as ending
def work():
    time.sleep({secs})
    print("done")
thread = threading.Thread(target=work, name="batches", daemon=True)
thread.start()
"""


def ended(program, secs):
    """(exit code, what was printed, errors) of a program whose thread is at work for so long."""
    command = [sys.executable, "-uc", PROGRAM.format(secs=secs) + program]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return found.returncode, found.stdout, found.stderr


def test_the_command_does_not_wait_at_exit_for_a_thread():
    program = "ending.do_not_wait_for(thread); sys.exit(ending.finish(2))"
    assert ended(program, 1000) == (2, "", "")


FAILING = """
import concurrent.futures
from vit_jax import __main__
from vit_jax.hardware import host_memory
from vit_jax.cli import main
from vit_jax.runtime import coordinated_stop as stopping
from vit_jax.errors import BadInput
host_memory.start_with_large_pages = lambda: None
def batches():
    yield 1
    yield concurrent.futures.ThreadPoolExecutor().submit(threading.Event().wait).result()
def run(args, rest):
    for batch in stopping.feed(batches()):
        raise {error}
main.COMMANDS["train"].run = run
sys.argv[1:] = ["train", "--config=a", "--workdir=b"]
sys.exit(__main__.program())
"""


@pytest.mark.parametrize(
    "error, code, said",
    [
        ("RuntimeError('a bug')", 1, "RuntimeError: a bug"),
        ("BadInput('not so.')", 2, "vit_jax: not so."),
        ("KeyboardInterrupt", 130, "vit_jax: interrupted; run the same command again."),
    ],
)
def test_the_command_that_fails_does_not_wait_for_storage(error, code, said):
    """Nor for a pool of the standard library, which Python waits for before any hook of exits."""
    found, _, errors = ended(FAILING.format(error=error), 0)
    assert found == code
    assert errors.endswith(f"{said}\n")


@pytest.mark.integration
def test_a_script_that_used_the_command_ends_with_its_own_code():
    program = """
from vit_jax.cli import main
assert main.main(["models"]) == 0
ending.do_not_wait_for(thread)
sys.exit(3)
"""
    code, printed, _ = ended(program, 2)
    assert (code, "done\n" in printed) == (3, True)


@pytest.mark.parametrize("secs", [None, 30], ids=str)
def test_another_program_waits_and_ends_with_its_own_code(secs):
    assert ended(f"ending.do_not_wait_for(thread, {secs}); sys.exit(3)", 1) == (3, "done\n", "")


def test_another_program_does_not_wait_for_ever():
    code, printed, errors = ended("ending.do_not_wait_for(thread, 0.1); 1 / 0", 1000)
    assert (code, printed) == (1, "")
    assert "ZeroDivisionError" in errors
    assert errors.endswith("vit_jax: the thread 'batches' does not end: ended without it.\n")


@pytest.mark.integration
def test_a_batch_that_never_comes_does_not_keep_another_program():
    program = """
from vit_jax.runtime import coordinated_stop as stopping
stopping.STORAGE_SECS = 0.1
feed = stopping.feed(iter(lambda: thread.join(), 0))
def used():
    try:
        next(feed)
    finally:
        feed.close()
signal.signal(signal.SIGALRM, lambda *_: sys.exit(3))
signal.alarm(2)
used()
"""
    code, _, errors = ended(program, 1000)
    assert code == 1
    assert errors.endswith("vit_jax: the thread 'batches' does not end: ended without it.\n")


@pytest.mark.parametrize(
    "within", ["signals.heard(lambda n: 0, lambda n: 0)", "signals.collected()"]
)
def test_notices_after_the_end_leave_the_exit_code(within):
    """A scheduler repeats its signal while a command leaves the block that listens, and after."""
    program = f"""
import os, signal, sys, threading
from vit_jax.runtime import process_exit, signals
process_exit.is_command = True
def send(numbers=signals.NOTICES):
    for number in numbers:
        os.kill(os.getpid(), number)
real = signal.signal
def set_and_send(number, handler):  # at the worst moment: a default handler is there
    before = real(number, handler)
    if handler == signal.SIG_DFL or handler == signal.SIG_IGN:
        send([number] if number in signals.NOTICES else [])
    return before
with {within}:
    send()
    signal.signal = set_and_send
send()
sys.exit(process_exit.finish(42))
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 42
