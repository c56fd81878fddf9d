# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""When a hang is a hang, by a clock of the test; and what is written then."""

import threading

import pytest

from vit_jax.runtime import watchdog
from vit_jax.runtime.watchdog import LEAST_SECS, LONG, STEPS, Watchdog
from vit_jax.training import train


class Watched:
    def __init__(self, hang_secs=0):
        self.now, self.hung = 0.0, []
        self.dog = Watchdog(hang_secs, self.hung.append, clock=lambda: self.now)

    def train(self, steps, secs):
        for _ in range(steps):
            self.now += secs
            self.dog.step()


def test_steps_that_end_are_no_hang_and_none_in_time_is():
    one = Watched(hang_secs=60)
    one.train(10, 59)
    assert not one.dog.look()
    one.now += 60
    assert not one.dog.look()
    one.now += 1
    assert one.dog.look()
    assert one.hung == [61]


@pytest.mark.parametrize(
    "step_secs, limit", [(0.1, LEAST_SECS), (10, LEAST_SECS), (100, STEPS * 100)]
)
def test_slow_steps_have_more_time(step_secs, limit):
    one = Watched()
    one.train(60, step_secs)
    assert one.dog.limit_secs == pytest.approx(limit)


def test_start_and_longer_phases_have_more_time_and_their_marks_count():
    one = Watched(hang_secs=60)
    assert one.dog.limit_secs == 60 * LONG
    one.now += 60 * LONG
    assert not one.dog.look()
    one.train(2, 10)
    assert one.dog.limit_secs == 60
    with one.dog.longer():
        for _ in range(100):  # batches of an evaluation
            one.now += 300
            assert not one.dog.look()
            one.dog.mark()
        one.now += 60 * LONG + 1
        assert one.dog.look()
        one.dog.mark()
    assert one.dog.limit_secs == 60


def test_an_evaluation_before_the_first_step_does_not_end_the_start():
    one = Watched(hang_secs=60)
    with one.dog.longer():
        one.dog.mark()
    assert one.dog.limit_secs == 60 * LONG


def test_each_step_that_the_loop_dispatches_is_marked(monkeypatch):
    one = Watched(hang_secs=60)
    monkeypatch.setattr(watchdog, "_now", one.dog)
    for step in (8, 9):
        one.now += 60 * LONG
        train.dispatched(step, 0, 0, None)
    assert one.dog.limit_secs == 60
    one.now += 60
    assert not one.dog.look()


def test_thread_calls_once_while_the_main_thread_waits():
    called = threading.Semaphore(0)
    with Watchdog(0.02, lambda secs: called.release()).watching() as dog:
        dog.step()
        assert called.acquire(timeout=20)
        assert not called.acquire(timeout=0.3)


def test_stacks_of_all_threads_are_written(tmp_path):
    ready, done = threading.Event(), threading.Event()

    def stuck_in_this_function():
        ready.set()
        done.wait(30)

    thread = threading.Thread(target=stuck_in_this_function)
    thread.start()
    ready.wait(20)
    file = watchdog.write_stacks(tmp_path / "not" / "yet", 3, "nothing was done for 5 s")
    done.set()
    thread.join()
    assert file == tmp_path / "not" / "yet" / "stacks" / "process-3.txt"
    text = file.read_text()
    assert "nothing was done for 5 s" in text
    assert "stuck_in_this_function" in text
    assert "test_stacks_of_all_threads_are_written" in text
