# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A process of its own: what it answers, what it raises, how it ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from vit_jax.errors import BadInput, RunFailed
from vit_jax.runtime.worker_process import Child


def adding(first):
    """Adds to what is asked; 0 is bad, -1 fails, -2 dies, -3 tells who it is."""

    def answer(second):
        if second == 0:
            raise BadInput("zero.")
        if second == -1:
            raise RunFailed("one.")
        if second == -2:
            os._exit(9)
        if second == -3:
            print("nothing of this on stdout")
            return os.getpid()
        return first + second

    return answer


def test_answers_one_question_after_another():
    with Child(adding, 10) as child:
        assert child.ask(1) == 11
        with pytest.raises(BadInput, match="zero"):
            child.ask(0)
        with pytest.raises(RunFailed, match="one"):
            child.ask(-1)
        assert child.ask(5) == 15


def test_death_is_reported_in_the_words_of_the_caller():
    with Child(adding, 10, died="no memory.") as child, pytest.raises(RunFailed, match="no memory"):
        child.ask(-2)


def test_signals_to_the_whole_group_leave_the_process_to_its_caller():
    with Child(adding, 10) as child:
        pid = child.ask(-3)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        assert child.ask(1) == 11
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()).isdisjoint({signal.SIGTERM, signal.SIGINT})


def test_is_gone_after_the_block():
    with Child(adding, 10) as child:
        pid = child.ask(-3)
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ends_with_its_caller_and_leaves_stdout_alone():
    code = f"""
import sys, time
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_worker_process import adding
from vit_jax.runtime.worker_process import Child
child = Child(adding, 1)
print(child.ask(-3), flush=True)
time.sleep(60)
"""
    caller = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    pid = int(caller.stdout.readline())  # the child's own words would come first
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    caller.stdout.close()
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and os.path.exists(f"/proc/{pid}"):
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}")
