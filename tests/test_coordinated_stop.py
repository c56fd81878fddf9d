# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""All processes stop at the same point, whoever is asked and whatever each is at."""

import os
import queue
import random
import signal
import threading
import time

import pytest
from test_train import QUICKSTART, TINY

from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, PeerLost, Stopped
from vit_jax.runtime import coordinated_stop, coordination, process_exit, rendezvous, signals
from vit_jax.runtime.coordinated_stop import SAVE, STOP, Agreement
from vit_jax.runtime.process_identity import ProcessIdentity
from vit_jax.training import train


class Lines:
    """Peer links of one process after another, whose messages come late and in threads."""

    def __init__(self, count, agreements):
        self.count, self.agreements, self.left = count, agreements, []
        self.inbox = [queue.SimpleQueue() for _ in range(count)]

    def of(self, index):
        lines = self

        class Line:
            count = lines.count

            def __init__(self):
                self.index = index

            def name(self, i):
                return f"process {i} of {lines.count}"

            def send(self, topic, said):
                others = range(1, lines.count) if index == 0 else [0]
                for other in others:
                    lines.inbox[other].put((index, topic, said))

            def listen(self, handler):
                def deliver():
                    draw = random.Random(index)
                    while (message := lines.inbox[index].get()) is not None:
                        time.sleep(draw.random() / 200)
                        handler(*message)

                threading.Thread(target=deliver, daemon=True).start()

            def end_all(self, code, text):
                lines.left.append((index, code, text))

        return Line()

    def close(self):
        for inbox in self.inbox:
            inbox.put(None)


def together(count, act, ask=lambda agreements: None):
    """What `act(agreement, index)` returns or raises in each of several processes: threads."""
    agreements = [Agreement() for _ in range(count)]
    lines = Lines(count, agreements)
    found = [None] * count

    def one(index):
        with agreements[index].including(lines.of(index)):
            try:
                found[index] = act(agreements[index], index)
            except Stopped as e:
                found[index] = e

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(count)]
    for thread in threads:
        thread.start()
    ask(agreements)
    for thread in threads:
        thread.join(30)
    lines.close()
    assert not any(thread.is_alive() for thread in threads)
    return found, agreements, lines


@pytest.mark.parametrize("by", [0, 1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_all_stop_at_the_same_point_two_after_the_newest(by, seed):
    passed = [0, 0, 0]

    def act(agreement, index):
        draw = random.Random(seed * 3 + index)
        for n in range(1, 100_000):
            agreement.pass_point()
            passed[index] = n
            time.sleep(draw.random() / 200)
        return None

    def ask(agreements):
        while min(passed) < 3:
            time.sleep(0.001)
        at.append(max(passed))
        agreements[by].request(STOP, "SIGTERM received")

    at = []
    found, agreements, _ = together(3, act, ask)
    assert all(isinstance(e, Stopped) and e.save for e in found), found
    assert len({a._passed for a in agreements}) == 1
    assert agreements[0]._passed >= at[0] + 2
    assert passed == [agreements[0]._passed - 1] * 3  # the last point is not passed by anybody
    assert all(f"SIGTERM received by process {by} of 3" in str(e) for e in found)


def test_two_that_ask_at_once_are_one_stop():
    def act(agreement, index):
        for n in range(100_000):
            agreement.pass_point()
            if n == 5:
                agreement.request(STOP, "SIGTERM received")
            time.sleep(0.001)

    found, agreements, _ = together(3, act)
    assert all(isinstance(e, Stopped) for e in found)
    assert len({str(e) for e in found}) == 1
    assert len({a._passed for a in agreements}) == 1


def test_all_that_wait_for_the_same_batch_stop_there():
    waiting = threading.Barrier(4)

    def act(agreement, index):
        def never():
            if index not in came:
                came.add(index)
                waiting.wait()
            time.sleep(0.002)
            raise queue.Empty

        for _ in range(4):
            agreement.pass_point()
        agreement.wait_for_batch(never)

    def ask(agreements):
        waiting.wait()
        agreements[1].request(STOP, "SIGTERM received")

    came = set()
    found, agreements, _ = together(3, act, ask)
    assert all(isinstance(e, Stopped) and e.save for e in found)
    assert [a._passed for a in agreements] == [4, 4, 4]


def test_batch_that_comes_while_the_stop_is_agreed_on_is_not_trained_on():
    """Process 0 has said that it waits; the others stop where it said."""
    agreement = Agreement()
    for _ in range(3):
        agreement.pass_point()

    def get():
        agreement.request(STOP, "SIGTERM received")  # a process alone: agreed at once
        return "a batch"

    with pytest.raises(Stopped) as stopped:
        agreement.wait_for_batch(get)
    assert stopped.value.save


@pytest.mark.parametrize("behind", [0, 2])
def test_nothing_is_saved_where_one_has_not_begun(monkeypatch, behind):
    """It may compile for long; the others wait in their first step and save nothing."""
    monkeypatch.setattr(coordinated_stop, "GRACE_SECS", 0.05)
    begun = threading.Barrier(3)

    def act(agreement, index):
        if index == behind:
            begun.wait()
            time.sleep(0.5)  # in C
            return "was ended"
        agreement.pass_point()
        begun.wait()
        time.sleep(0.5)  # blocked in the collective
        return "was ended"

    found, _, lines = together(3, act, lambda agreements: agreements[1].request(STOP, "x received"))
    assert found == ["was ended"] * 3
    assert sorted((i, code) for i, code, _ in lines.left) == [(0, 42), (1, 42), (2, 42)]


def test_between_phases_of_the_start_the_main_thread_ends_by_itself():
    agreement = Agreement()
    agreement.check()
    agreement._end = lambda why: None
    agreement.request(STOP, "SIGTERM received")
    with pytest.raises(Stopped, match="SIGTERM received by this process") as stopped:
        agreement.check()
    assert not stopped.value.save


def test_request_from_before_the_others_were_there_reaches_them(monkeypatch):
    monkeypatch.setattr(coordinated_stop, "GRACE_SECS", 0.01)
    monkeypatch.setattr(process_exit, "end", lambda code: None)
    agreements = [Agreement(), Agreement()]
    lines = Lines(2, agreements)
    agreements[1].request(STOP, "SIGTERM received")
    with agreements[0].including(lines.of(0)), agreements[1].including(lines.of(1)):
        end = time.monotonic() + 20
        while len(lines.left) < 2 and time.monotonic() < end:
            time.sleep(0.01)
    assert all("SIGTERM received by process 1 of 2" in text for _, _, text in lines.left)
    assert {index for index, _, _ in lines.left} == {0, 1}


def test_all_save_after_the_same_step_when_the_newest_checkpoint_is_old(monkeypatch):
    saved = [[], [], []]

    def act(agreement, index):
        for n in range(1, 40):
            agreement.pass_point()
            time.sleep(0.002)
            if n in (5, 20) and index == 0:
                agreement.request(SAVE, "an old checkpoint seen")
            if agreement.take_save(SAVE):
                saved[index].append(n)

    together(3, act)
    assert saved[0] == saved[1] == saved[2]
    assert len(saved[0]) == 2


def test_backstop_goes_by_the_time_since_the_last_save(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(coordinated_stop, "_now", Agreement())
    backstop = coordinated_stop.Backstop(10, clock=lambda: now[0])

    def steps(count):
        due = []
        for _ in range(count):
            coordinated_stop._now.pass_point()
            due.append(backstop.due())
        return due

    assert steps(5) == [False] * 5
    now[0] = 601.0
    assert steps(3) == [False, True, False]  # asked at one step, saved at the next
    backstop.saved()
    now[0] = 1200.0
    assert steps(3) == [False] * 3
    now[0] = 1202.0
    assert steps(2) == [False, True]
    assert not coordinated_stop.Backstop(0, clock=lambda: 1e9).due()


# ---------------------------------------------------------------- of this process


@pytest.mark.parametrize("number", signals.NUMBERS)
def test_signal_stops_at_the_next_batch(number, caplog):
    seen = []
    said = f"{number.name} received"
    with coordinated_stop.listening(), pytest.raises(Stopped, match=said) as stopped:  # noqa: PT012
        for n in coordinated_stop.feed(iter(range(1000))):
            seen.append(n)
            if n == 3:
                os.kill(os.getpid(), number)
                wait_until(lambda: coordinated_stop._now._due)
    assert seen == [0, 1, 2, 3]
    assert stopped.value.save
    assert f"{number.name} received: stopping" in caplog.text


def test_second_signal_ends_the_process_at_once(monkeypatch):
    codes = queue.SimpleQueue()
    monkeypatch.setattr(process_exit, "end", codes.put)
    monkeypatch.setattr(signals, "SAME_SECS", 0.0)
    with coordinated_stop.listening():
        coordinated_stop._now.pass_point()
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(lambda: coordinated_stop._now._due)
        os.kill(os.getpid(), signal.SIGINT)
        assert codes.get(timeout=20) == 130


@pytest.mark.parametrize("signals_a_second", [0, 99])
def test_batch_that_never_comes_does_not_keep_a_run_from_stopping(monkeypatch, signals_a_second):
    """Nor do signals that come while it waits and as its time is up."""
    never, ended = threading.Event(), []

    def batches():
        yield 1
        never.wait(20)
        ended.append(True)
        yield 2

    def busy(*_):
        time.sleep(0.002)

    monkeypatch.setattr(coordinated_stop, "_TICK_SECS", 0.01)
    before = signal.signal(signal.SIGALRM, busy)
    try:
        with coordinated_stop.listening(), pytest.raises(Stopped) as stopped:  # noqa: PT012
            for _ in coordinated_stop.feed(batches()):
                if signals_a_second:
                    signal.setitimer(signal.ITIMER_REAL, *[1 / signals_a_second] * 2)
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped.value.save
    assert not ended
    never.set()


def test_run_that_is_asked_on_its_way_into_waiting_does_not_wait(monkeypatch):
    """Between a point and the wait for its batch: it was not waiting, and no later point comes."""
    never, ended, passed = threading.Event(), [], []

    def batches():
        yield 1
        never.wait(20)
        ended.append(True)
        yield 2

    with coordinated_stop.listening(), pytest.raises(Stopped) as stopped:  # noqa: PT012
        pass_point = coordinated_stop._now.pass_point

        def asked():
            pass_point()
            passed.append(True)
            if len(passed) == 2:
                coordinated_stop._now.request(coordinated_stop.STOP, "STOP seen")

        monkeypatch.setattr(coordinated_stop._now, "pass_point", asked)
        for _ in coordinated_stop.feed(batches()):
            pass
    assert stopped.value.save
    assert not ended
    never.set()


def test_feed_hands_on_batches_and_errors_as_they_are():
    def batches():
        yield from "ab"
        raise BadInput("train/red/3.jpg cannot be decoded")

    feed = coordinated_stop.feed(batches())
    assert [next(feed), next(feed)] == ["a", "b"]
    with pytest.raises(BadInput, match="train/red/3"):
        next(feed)
    assert list(coordinated_stop.feed(iter("xyz"))) == ["x", "y", "z"]


def test_one_batch_more_than_was_asked_for_is_made():
    made = []

    def batches():
        for n in range(5):
            made.append(n)
            yield n

    feed = coordinated_stop.feed(batches())
    assert next(feed) == 0
    wait_until(lambda: len(made) == 2)
    assert next(feed) == 1
    wait_until(lambda: len(made) == 3)
    feed.close()


def test_stop_file_stops_and_one_from_before_is_removed(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(signals, "POLL_SECS", 0.01)
    (tmp_path / "STOP").touch()
    caplog.set_level("INFO", "vit_jax")
    with coordinated_stop.listening(str(tmp_path)), coordinated_stop.watching(tmp_path):
        feed = coordinated_stop.feed(iter("abc"))
        next(feed)
        coordinated_stop.accepted()
        assert not (tmp_path / "STOP").exists()
        assert not coordinated_stop._now._due
        (tmp_path / "STOP").touch()
        wait_until(lambda: coordinated_stop._now._due)
        with pytest.raises(Stopped, match="STOP"):
            next(feed)
    assert "older than this start" in caplog.text
    assert (tmp_path / "STOP").exists()  # the next start removes it


@pytest.mark.parametrize("index", [0, 1])
def test_stop_file_counts_for_process_0_that_still_waits_for_the_others(
    tmp_path, monkeypatch, index
):
    ends, seen = [], []
    monkeypatch.setattr(coordinated_stop, "GRACE_SECS", 0.0)
    monkeypatch.setattr(process_exit, "end", ends.append)
    monkeypatch.setattr(signals, "POLL_SECS", 0.01)

    def meet(*_):
        seen.append([t.name for t in threading.enumerate()].count("STOP"))
        (tmp_path / "STOP").touch()
        os.utime(tmp_path / "STOP", (time.time() + 60,) * 2)  # whatever the disk's clock says
        if index == 0:
            wait_until(lambda: ends)
        raise PeerLost("nobody came")

    monkeypatch.setattr(rendezvous, "meet", meet)
    who = ProcessIdentity("127.0.0.1:1", 2, index, "test")
    with coordinated_stop.listening(), pytest.raises(PeerLost):
        train.train(config_lib.load(QUICKSTART, TINY), tmp_path, who)
    assert (seen, ends) == ([1 - index], [42] * (1 - index))


def test_host_of_a_tpu_looks_for_the_stop_file_once_jax_has_counted(tmp_path, monkeypatch):
    def checked(_):
        assert "STOP" in [t.name for t in threading.enumerate()]
        raise BadInput("enough")

    def initialized(*_):
        assert "STOP" not in [t.name for t in threading.enumerate()]
        return False  # of one host

    monkeypatch.setattr(coordination, "_initialize", initialized)
    monkeypatch.setattr(coordination, "check_shared", checked)
    with coordinated_stop.listening(), pytest.raises(BadInput, match="enough"):
        train.train(config_lib.load(QUICKSTART, TINY), tmp_path, "tpu")


def wait_until(true, secs=20):
    end = time.monotonic() + secs
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)
