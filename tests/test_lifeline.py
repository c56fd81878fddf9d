# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""How processes meet and notice each other's end; threads and small children stand for them."""

import concurrent.futures
import contextlib
import errno
import queue
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

from vit_jax import lifeline
from vit_jax.errors import BadInput, PeerLost
from vit_jax.processes import Who


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def meet(coordinator, indices, *, count=2, facts=lambda i: {}, counts=None, secs=5.0):
    """What each process gets from `meet`: host names, or the error that it raised."""

    def one(slot_and_index):
        slot, index = slot_and_index
        who = Who(coordinator, (counts or {}).get(slot, count), index, "test")
        try:
            line = lifeline.meet(who, who.address, facts(slot), secs)
        except (BadInput, PeerLost) as e:
            return e
        line.close()
        return line.hosts

    with concurrent.futures.ThreadPoolExecutor(len(indices)) as pool:
        return list(pool.map(one, enumerate(indices)))


def connected(coordinator):
    """A connection to process 0, as soon as it listens."""
    host, _, port = coordinator.partition(":")
    end = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.fixture
def coordinator():
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize("count", [2, 5])
def test_all_meet_and_know_the_hosts(coordinator, count):
    found = meet(coordinator, list(reversed(range(count))), count=count)
    assert found == [[socket.gethostname()] * count] * count


def test_meeting_on_every_address_when_the_coordinator_is_a_name():
    name = socket.gethostname()
    try:
        socket.create_server((name, 0)).close()
    except OSError as e:
        pytest.skip(f"the name of this machine, {name}, is not an address of it: {e}")
    found = meet(f"{name}:{free_port()}", [0, 1])
    assert found == [[name] * 2] * 2


def test_missing_processes_are_named(coordinator):
    start = time.monotonic()
    found = meet(coordinator, [0, 2], count=4, secs=1.0)
    assert time.monotonic() - start < 4
    for error in found:
        assert isinstance(error, PeerLost)
        assert "processes 1, 3 of 4 did not connect" in str(error)
        assert "1 s" in str(error)


def test_process_0_that_is_not_there(coordinator):
    (error,) = meet(coordinator, [1], secs=1.0)
    assert isinstance(error, PeerLost)
    assert f"process 1 of 2 cannot reach process 0 at {coordinator}" in str(error)
    assert "refused" in str(error)
    assert "loopback, which reaches this host alone: most likely process 0 is on" in str(error)


def test_process_0_that_is_not_there_on_another_host(monkeypatch):
    def refused(*_, **__):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    monkeypatch.setattr(socket, "create_connection", refused)
    (error,) = meet("10.0.0.1:7000", [1], secs=0.1)
    assert "no firewall is between" in str(error)
    assert "loopback" not in str(error)


def test_something_else_that_answers(coordinator):
    host, _, port = coordinator.partition(":")
    with socket.create_server((host, int(port))) as other:

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    with other.accept()[0] as caller:
                        caller.send(b"SSH-2.0-OpenSSH_9.2\n")

        threading.Thread(target=answer, daemon=True).start()
        (error,) = meet(coordinator, [1], secs=1.0)
        assert "not process 0 of a run" in str(error)
        other.shutdown(socket.SHUT_RDWR)


def test_strangers_do_not_disturb(coordinator, monkeypatch):
    monkeypatch.setattr(lifeline, "HELLO_SECS", 0.3)
    with concurrent.futures.ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as strangers:
        zero = pool.submit(meet, coordinator, [0], secs=20.0)
        for text in (b"GET / HTTP/1.1\n\n", b'{"a": 1}\n', b"[]\n", b'{"vit_jax": 1}\n', b""):
            strangers.enter_context(connected(coordinator)).sendall(text)
        assert meet(coordinator, [1], secs=20.0) == [[socket.gethostname()] * 2]
        assert zero.result() == [[socket.gethostname()] * 2]


def test_port_that_is_taken_is_bad_input(coordinator):
    host, _, port = coordinator.partition(":")
    with socket.create_server((host, int(port))):
        (error,) = meet(coordinator, [0])
    assert isinstance(error, BadInput)
    assert f"cannot listen on port {port}" in str(error)


def test_port_can_be_used_again_while_connections_are_open(coordinator):
    """jax's service binds the port of the meeting."""
    host, _, port = coordinator.partition(":")
    who = [Who(coordinator, 2, i, "test") for i in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        lines = list(pool.map(lambda w: lifeline.meet(w, w.address, {}, 5), who))
    socket.create_server((host, int(port))).close()
    for line in lines:
        line.close()


def test_two_with_the_same_number(coordinator, monkeypatch):
    monkeypatch.setattr(lifeline, "LATE_SECS", 1)
    errors = meet(coordinator, [0, 1, 1], count=3)
    assert all(isinstance(e, BadInput) for e in errors), errors
    assert all("have number 1 of 3" in str(e) for e in errors)


def test_process_that_died_while_others_are_awaited_may_come_again(coordinator):
    hosts = ["again" if i == 1 else socket.gethostname() for i in range(3)]
    with concurrent.futures.ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        zero = pool.submit(meet, coordinator, [0], count=3, secs=20.0)
        for host in ("gone", "again"):
            one = lifeline.Channel(stack.enter_context(connected(coordinator)))
            one.send({"vit_jax": 1, "count": 3, "host": host, "facts": {}})
            if host == "gone":
                one.socket.close()
        assert meet(coordinator, [2], count=3, secs=20.0) == [hosts]
        assert one.first(5) == {"hosts": hosts}
        assert zero.result() == [hosts]


@pytest.mark.parametrize("linger_secs", [None, 0])
def test_whether_the_other_end_is_gone(linger_secs):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        channel = lifeline.Channel(listener.accept()[0])
    with channel.socket, theirs:
        assert not channel.ended()
        theirs.sendall(b"x")
        assert not channel.ended()
        assert channel.socket.recv(2) == b"x"  # it was only looked at
        if linger_secs is not None:  # a reset
            linger = struct.pack("ii", 1, linger_secs)
            theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        theirs.close()
        assert channel.ended()


def test_another_number_of_processes(coordinator, monkeypatch):
    monkeypatch.setattr(lifeline, "LATE_SECS", 1)
    errors = meet(coordinator, [0, 1, 2], count=3, counts={1: 4})
    assert all(isinstance(e, BadInput) for e in errors), errors
    assert all("process 1" in str(e) and "there are 4 processes" in str(e) for e in errors)


def test_other_facts_are_told_to_all(coordinator):
    code = {0: "a", 1: "a", 2: "b"}
    errors = meet(coordinator, [0, 1, 2], count=3, facts=lambda i: {"code": code[i], "jax": "1"})
    name = socket.gethostname()
    for error in errors:
        assert isinstance(error, BadInput)
        assert f"process 2 of 3 ({name}) has code=b; process 0 ({name}) has code=a." in str(error)
        assert "jax" not in str(error)


def test_mismatch_names_what_is_missing_too():
    who = Who("h:1", 2, 0, "test")
    assert lifeline.mismatch(who, [{"a": "1"}, {"a": "1"}], ["x", "y"]) == ""
    text = lifeline.mismatch(who, [{"a": "1", "b": "2"}, {"a": "1"}], ["x", "y"])
    assert text == "process 1 of 2 (y) has b=(none); process 0 (x) has b=2."


def test_what_follows_the_first_message_is_not_lost():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours = listener.accept()[0]
    with ours, theirs:
        theirs.sendall(b'{"hosts": []}\n{"bye": true}\n')
        channel = lifeline.Channel(ours)
        assert channel.first(1) == {"hosts": []}
        ours.settimeout(2)
        assert channel.receive() == [{"bye": True}]


# ---------------------------------------------------------------- the end of a run


class Stub:
    """A connection that has something to read, and what reading it does."""

    def __init__(self, result):
        self.result = result
        self.ours, self.theirs = socket.socketpair()
        self.theirs.send(b"x")

    def recv(self, _):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def fileno(self):
        return self.ours.fileno()

    def setsockopt(self, *_): ...

    def sendall(self, _): ...

    def close(self):
        self.ours.close()
        self.theirs.close()


@pytest.mark.parametrize(
    "result, why",
    [
        (TimeoutError(errno.ETIMEDOUT, "Connection timed out"), "its host is silent"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "it ended or was killed"),
        (b"5\n", "cannot be read (TypeError"),
        (b"{}\n", "cannot be read (KeyError('code'))"),
        (RuntimeError("a bug"), "cannot be read (RuntimeError('a bug'))"),
    ],
)
def test_whatever_reading_does_the_process_is_missed(monkeypatch, capsys, result, why):
    codes = queue.Queue()
    monkeypatch.setattr(lifeline.Lifeline, "_exit", lambda self, code: codes.put(code))
    line = lifeline.Lifeline(
        Who("127.0.0.1:1", 2, 0, "test"), {1: lifeline.Channel(Stub(result))}, ["a", "b"]
    )
    assert codes.get(timeout=5) == PeerLost.exit_code
    line.close()
    said = capsys.readouterr().err
    assert "process 1 of 2 (b) is gone: " in said
    assert why in said


def test_silence_within_the_time_is_no_end():
    """The timeout of a socket and that of keepalive have one class."""
    channel = lifeline.Channel(Stub(TimeoutError("timed out")))
    with pytest.raises(TimeoutError):
        channel.receive()
    channel.socket.close()


def test_hint_that_fails_does_not_keep_a_process(monkeypatch, capsys):
    codes = []
    monkeypatch.setattr(lifeline.Lifeline, "_exit", lambda self, code: codes.append(code))
    line = lifeline.Lifeline(Who("127.0.0.1:1", 2, 0, "test"), {}, ["a", "b"])
    line.hint = lambda: str(1 / 0)
    line._end(PeerLost.exit_code, "process 1 is gone.")
    line.close()
    assert codes == [PeerLost.exit_code]
    assert "process 1 is gone. (What to do next is not known: ZeroDiv" in capsys.readouterr().err


CHILD = """
import sys, threading, time
from vit_jax import lifeline
from vit_jax.processes import Who
index, coordinator = int(sys.argv[1]), sys.argv[2]
who = Who(coordinator, 3, index, "test")
line = lifeline.meet(who, who.address, {}, 20)
line.hint = lambda: "Run again."
print("met", flush=True)
order = sys.stdin.readline().split()
if order[0] == "leave":
    line.leave(int(order[1]), "the reason")
elif order[0] == "close":
    line.close()
else:
    time.sleep(60)
"""


def three(orders):
    """Three small processes that meet and then do what they are told; (codes, what they said)."""
    coordinator = f"127.0.0.1:{free_port()}"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", CHILD, str(i), coordinator],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for i in range(3)
    ]  # fmt: skip
    assert [child.stdout.readline() for child in children] == ["met\n"] * 3
    start = time.monotonic()
    for child, order in zip(children, orders, strict=True):
        if order == "kill":
            child.kill()
        else:
            child.stdin.write(f"{order}\n")
            child.stdin.flush()
    said = [child.communicate(timeout=20)[1] for child in children]
    return [child.returncode for child in children], said, time.monotonic() - start


@pytest.mark.parametrize("victim", [0, 2])
def test_end_of_a_process_is_noticed_at_once(victim):
    orders = ["kill" if i == victim else "wait" for i in range(3)]
    codes, said, secs = three(orders)
    assert codes == [-9 if i == victim else 43 for i in range(3)]
    assert secs < 2
    for i in {0, 1, 2} - {victim}:
        assert f"process {victim} of 3 ({socket.gethostname()}) is gone" in said[i]
        assert said[i].count("Run again.") == 1


@pytest.mark.parametrize("victim, code", [(0, 1), (1, 2), (2, 43)])
def test_process_that_fails_tells_the_others_why(victim, code):
    codes, said, secs = three([f"leave {code}" if i == victim else "wait" for i in range(3)])
    assert codes == [code] * 3
    assert secs < 2 * lifeline.GRACE_SECS
    for i in {0, 1, 2} - {victim}:
        assert f"process {victim} of 3 ({socket.gethostname()}) failed: the reason" in said[i]


def test_own_error_comes_before_that_of_another():
    codes, said, _ = three(["leave 2", "leave 2", "leave 2"])
    assert codes == [2, 2, 2]
    assert said == ["", "", ""]  # each has printed its own


def test_goodbye_is_no_loss():
    codes, said, _ = three(["close", "close", "close"])
    assert codes == [0, 0, 0]
    assert said == ["", "", ""]
