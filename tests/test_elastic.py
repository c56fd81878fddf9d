# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Who trains while slices are missing: processes as threads, with a clock that they share."""

import errno
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from test_train import QUICKSTART, run

from vit_jax.config import frozen, validation
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, Stopped
from vit_jax.runtime import elastic
from vit_jax.runtime.process_identity import ProcessIdentity

SECS = 60
UNFINISHED = Path("no results")


class Clock:
    """Seconds that pass only while every thread sleeps; threads that end are left out."""

    def __init__(self):
        self._changed, self._now, self._wakes, self.threads = threading.Condition(), 0.0, {}, 0

    def monotonic(self):
        return self._now

    def sleep(self, secs):
        me = threading.get_ident()
        with self._changed:
            self._wakes[me] = self._now + secs
            self._pass()
            assert self._changed.wait_for(lambda: self._wakes[me] <= self._now, 600)
            del self._wakes[me]

    def ended(self):
        with self._changed:
            self.threads -= 1
            self._pass()

    def _pass(self):
        """Goes on to the next time at which a thread wakes."""
        asleep = [time for time in self._wakes.values() if time > self._now]
        if asleep and len(asleep) == self.threads:
            self._now = min(asleep)
            self._changed.notify_all()


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(elastic, "time", clock)
    return clock


def meeting(folder, index, count, slices=None):
    who = ProcessIdentity("127.0.0.1:1", count, index, "the test")
    return elastic._Meeting(folder, who, slices or count)


def together(clock, *jobs) -> list[Any]:
    """Runs functions in threads, and returns their results."""
    results = {}

    def work(number, job):
        try:
            results[number] = job()
        finally:
            clock.ended()

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(jobs)]
    clock.threads = len(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    return [results.get(i) for i in range(len(jobs))]


@pytest.mark.parametrize(
    "present, count, slices, members",
    [
        ([0, 1, 2, 3], 4, 4, [0, 1, 2, 3]),
        ([0, 1, 3], 4, 4, [0, 1]),  # 3 of 4 would not divide what 4 divide
        ([1, 3], 4, 4, [1, 3]),
        ([0, 1, 2, 3, 4], 6, 6, [0, 1, 2]),
        ([0, 2, 3], 4, 2, [2, 3]),  # the first slice lacks a process
        ([0, 2], 4, 2, []),
    ],
)
def test_members_are_whole_slices_whose_number_divides_all(present, count, slices, members):
    assert elastic.members_of(present, count, slices) == members


def test_processes_that_are_all_there_do_not_wait(tmp_path, clock):
    everyone = [meeting(tmp_path, i, 3) for i in range(3)]
    found = together(clock, *(lambda one=one: one.wait(SECS, UNFINISHED) for one in everyone))
    assert [members for members, _ in found] == [[0, 1, 2]] * 3
    assert len({address for _, address in found}) == 1
    assert clock.monotonic() <= 3 * elastic.BEAT_SECS


@pytest.mark.parametrize("there, members", [([0, 1, 2], [0, 1]), ([1, 3], [1, 3])])
def test_missing_processes_are_waited_for_and_then_left_out(
    tmp_path, clock, monkeypatch, there, members
):
    """Without process 0, the first that is there leads. One that cannot take part waits."""
    everyone = {i: meeting(tmp_path, i, 4) for i in there}
    ended = threading.Event()

    def check():
        if ended.is_set():
            raise Stopped("the end of the test")

    monkeypatch.setattr(elastic.coordinated_stop, "check", check)

    def end_of_run():
        """Keeps the run going for a while, as its leader does, and ends it."""
        one = everyone[members[0]]
        found = one.wait(SECS, UNFINISHED)
        assert SECS <= clock.monotonic() <= SECS + 5 * elastic.BEAT_SECS
        for _ in range(40):
            clock.sleep(elastic.BEAT_SECS)
            assert one.look() is None
        one.leave()
        ended.set()
        return found

    def wait(i):
        try:
            return everyone[i].wait(SECS, UNFINISHED)
        except Stopped:
            return None

    found = together(clock, end_of_run, *(lambda i=i: wait(i) for i in there if i != members[0]))
    assert [m for m, _ in filter(None, found)] == [members] * len(members)


def test_process_that_returns_ends_the_run_and_starts_with_the_others(tmp_path, clock):
    left = {"token": "left by a kill", "count": 2, "coordinator": "", "members": {}}
    (tmp_path / "1.json").write_text(json.dumps(left))
    returned = []

    def first():
        one = meeting(tmp_path, 0, 2)
        alone = one.wait(SECS, UNFINISHED)
        while (number := one.look()) is None:
            clock.sleep(elastic.BEAT_SECS)
        returned.append(number)
        for _ in range(SECS):  # until it has saved
            one.look()
            clock.sleep(elastic.BEAT_SECS)
        one.leave()
        clock.sleep(15)  # the supervisor starts it again
        return alone, meeting(tmp_path, 0, 2).wait(SECS, UNFINISHED)

    def second():
        clock.sleep(3 * SECS)
        return meeting(tmp_path, 1, 2).wait(SECS, UNFINISHED)

    (alone, both), other = together(clock, first, second)
    assert (alone[0], returned) == ([0], [1])
    assert both == other
    assert both[0] == [0, 1]


def test_process_without_its_slice_ends_with_the_run(tmp_path, clock):
    """Of two slices of two processes, the second has lost one while the first trained."""
    results = tmp_path / "results.json"

    def first(index):
        one = meeting(tmp_path, index, 4, slices=2)
        members, _ = one.wait(SECS, results)
        for _ in range(30 if index == 0 else 0):
            one.look()
            clock.sleep(elastic.BEAT_SECS)
        if index == 0:
            results.touch()
        one.leave()
        return members

    def third():
        return meeting(tmp_path, 2, 4, slices=2).wait(SECS, results)

    *both, alone = together(clock, lambda: first(0), lambda: first(1), third)
    assert both == [[0, 1]] * 2
    assert alone == ([2], "")


@pytest.mark.parametrize("fault", ["fails", "hangs"])
def test_storage_that_does_not_answer_does_not_make_two_groups(tmp_path, clock, monkeypatch, fault):
    begin, end, over = 2 * SECS, 4 * SECS, 6 * SECS
    real = elastic.storage.write

    def write(place, text):
        own = place.name == "1.json"
        if begin <= clock.monotonic() < end and fault == "hangs":
            clock.sleep(end + (0 if own else 1) - clock.monotonic())
        elif begin <= clock.monotonic() < end and own:
            raise OSError(errno.ESTALE, "Stale file handle")
        real(place, text)

    monkeypatch.setattr(elastic.storage, "write", write)

    def first():
        one = meeting(tmp_path, 0, 2)
        one.wait(SECS, UNFINISHED)
        while clock.monotonic() < over:
            one.look()
            clock.sleep(elastic.BEAT_SECS)
        one.leave()

    def second():
        clock.sleep(1.5 * SECS)
        members, _ = meeting(tmp_path, 1, 2).wait(SECS, UNFINISHED)
        return members, clock.monotonic()

    _, (members, when) = together(clock, first, second)
    assert members == [1]
    assert when >= over + SECS - elastic.BEAT_SECS


def test_other_number_of_processes_is_refused(tmp_path, clock):
    def first():
        with pytest.raises(BadInput, match=r"process 1 was told that there are 3.*0 that there"):
            meeting(tmp_path, 0, 2).wait(SECS, UNFINISHED)
        return True

    def second():
        one = meeting(tmp_path, 1, 3)
        for _ in range(3):
            one._write()
            clock.sleep(elastic.BEAT_SECS)
        return True

    assert together(clock, first, second) == [True, True]


# ---------------------------------------------------------------- the configuration


def config(*more):
    return config_lib.load(QUICKSTART, ["--config.elastic.secs=60", *more])


def test_global_batch_is_kept_by_accumulation():
    fitted = elastic.Group(None, 1, 4).fitted(config("--config.accumulation=3"), 2)
    assert fitted.accumulation == 12
    assert fitted.batch_size == config().batch_size
    whole = config("--config.mesh.replica=4", "--config.mesh.data=2")
    fitted = elastic.Group(None, 2, 4).fitted(whole, 4)
    assert (fitted.accumulation, fitted.mesh.replica, fitted.mesh.data) == (2, 2, 2)
    assert elastic.Group(None, 4, 4).fitted(whole, 8) == whole


@pytest.mark.parametrize("more", ["mesh.fsdp=4", "mesh.tensor=4", "mesh.replica=2"])
def test_slice_without_a_whole_copy_of_the_state_is_refused(more):
    with pytest.raises(BadInput, match="whole copy of the state on the 2 devices"):
        elastic.Group(None, 4, 4).fitted(config(f"--config.{more}"), 8)


@pytest.mark.parametrize(
    "more, message",
    [
        (["--config.elastic.secs=5"], "elastic.secs=5 is less than.*30 seconds or more"),
        (["--config.mesh.data=4"], "mesh.data=4 fixes their number; give mesh.data=-1"),
        (["--config.elastic.slices=1"], "slices=1 leaves nothing to train on.*give 2 or more"),
        (["--config.elastic.secs=0", "--config.elastic.slices=2"], "without elastic.secs; give"),
    ],
)
def test_settings_that_cannot_work_are_refused(more, message):
    with pytest.raises(BadInput, match=message):
        validation.check_together(config(*more), ())


def test_settings_are_refused_before_a_process_waits_for_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(elastic, "joined", None)
    told = ["--coordinator=127.0.0.1:1", "--num_processes=2", "--process_id=0"]
    assert run(tmp_path / "run", "--config.elastic.secs=5", *told) == 2
    assert "elastic.secs=5 is less than" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "who, slices, message",
    [
        ("tpu", 0, "for GPUs and CPUs"),
        (ProcessIdentity("a:1", 4, 0, ""), 3, "elastic.slices=3 does not divide the 4 processes"),
    ],
)
def test_processes_that_cannot_be_split_are_refused(tmp_path, who, slices, message):
    settings = frozen.replaced(config().elastic, "slices", slices)
    with pytest.raises(BadInput, match=message):
        with elastic.joined(tmp_path, who, settings, UNFINISHED):
            pass
