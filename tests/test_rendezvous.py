# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""How processes meet; threads stand for them."""

import concurrent.futures
import contextlib
import errno
import socket
import threading
import time

import pytest
from ports import free_port

from vit_jax.errors import BadInput, PeerLost
from vit_jax.runtime import peer_links, rendezvous
from vit_jax.runtime.process_identity import ProcessIdentity


def meet(coordinator, indices, *, count=2, facts=lambda i: {}, counts=None, secs=5.0):
    """What each process gets from `meet`: host names, or the error that it raised."""

    def one(slot_and_index):
        slot, index = slot_and_index
        who = ProcessIdentity(coordinator, (counts or {}).get(slot, count), index, "test")
        try:
            line = rendezvous.meet(who, who.address, facts(slot), secs)
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


def test_process_0_says_now_and_then_for_whom_it_waits(coordinator, monkeypatch, caplog):
    monkeypatch.setattr(rendezvous, "WAITING_SECS", 0.1)
    caplog.set_level("INFO", "vit_jax")

    def told(text):
        end = time.monotonic() + 20
        while not any(text in line for line in caplog.messages[-1:]):
            assert time.monotonic() < end, caplog.messages
            time.sleep(0.01)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        zero = pool.submit(meet, coordinator, [0], count=3, secs=20.0)
        told(f"waiting for processes 1, 2 of 3 at {coordinator}")
        one = peer_links.Channel(connected(coordinator))
        one.send({"vit_jax": 1, "count": 3, "host": "h", "facts": {}})
        told("waiting for process 2 of 3")
        one.socket.close()  # it has ended
        told("waiting for processes 1, 2 of 3")
        again = peer_links.Channel(connected(coordinator))
        again.send({"vit_jax": 1, "count": 3, "host": "h", "facts": {}})
        told("waiting for process 2 of 3")
        [hosts] = meet(coordinator, [2], count=3, secs=20.0)
        assert zero.result() == [hosts]
        again.socket.close()


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
    monkeypatch.setattr(rendezvous, "HELLO_SECS", 0.3)
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


def test_process_0_that_may_not_open_enough_connections(coordinator, monkeypatch):
    monkeypatch.setattr(rendezvous.storage, "allow_open", lambda files: 1024)
    (error,) = meet(coordinator, [0], count=500)
    assert isinstance(error, BadInput)
    assert "process 0 of 500 needs up to 1100 open connections and files" in str(error)
    assert "allows it 1024" in str(error)


def test_port_can_be_used_again_while_connections_are_open(coordinator):
    """jax's service binds the port of the meeting."""
    host, _, port = coordinator.partition(":")
    who = [ProcessIdentity(coordinator, 2, i, "test") for i in range(2)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        lines = list(pool.map(lambda w: rendezvous.meet(w, w.address, {}, 5), who))
    socket.create_server((host, int(port))).close()
    for line in lines:
        line.close()


def test_two_with_the_same_number(coordinator, monkeypatch):
    monkeypatch.setattr(rendezvous, "LATE_SECS", 1)
    errors = meet(coordinator, [0, 1, 1], count=3)
    assert all(isinstance(e, BadInput) for e in errors), errors
    assert all("have number 1 of 3" in str(e) for e in errors)


def test_process_that_died_while_others_are_awaited_may_come_again(coordinator):
    hosts = ["again" if i == 1 else socket.gethostname() for i in range(3)]
    with concurrent.futures.ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
        zero = pool.submit(meet, coordinator, [0], count=3, secs=20.0)
        for host in ("gone", "again"):
            one = peer_links.Channel(stack.enter_context(connected(coordinator)))
            one.send({"vit_jax": 1, "count": 3, "host": host, "facts": {}})
            if host == "gone":
                one.socket.close()
        assert meet(coordinator, [2], count=3, secs=20.0) == [hosts]
        assert one.first(5) == {"hosts": hosts}
        assert zero.result() == [hosts]


def test_another_number_of_processes(coordinator, monkeypatch):
    monkeypatch.setattr(rendezvous, "LATE_SECS", 1)
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
    who = ProcessIdentity("h:1", 2, 0, "test")
    assert rendezvous.mismatch(who, [{"a": "1"}, {"a": "1"}], ["x", "y"]) == ""
    text = rendezvous.mismatch(who, [{"a": "1", "b": "2"}, {"a": "1"}], ["x", "y"])
    assert text == "process 1 of 2 (y) has b=(none); process 0 (x) has b=2."


def test_code_version_is_that_of_the_source_files(tmp_path, monkeypatch):
    monkeypatch.delenv("VIT_JAX_CODE", raising=False)
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "__pycache__").mkdir()
    first = rendezvous.code_version(tmp_path)
    (tmp_path / "__pycache__" / "a.pyc").write_text("1")
    assert rendezvous.code_version(tmp_path) == first
    (tmp_path / "configs").mkdir()  # of a wheel
    (tmp_path / "configs" / "base.py").write_text("x = 1")
    assert rendezvous.code_version(tmp_path) == first
    (tmp_path / "a.py").write_text("2")
    assert rendezvous.code_version(tmp_path) != first
    monkeypatch.setenv("VIT_JAX_CODE", "v1.2")
    assert rendezvous.code_version(tmp_path) == "v1.2"
