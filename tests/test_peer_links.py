# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""How processes notice each other's end, and what they tell each other on the way."""

import errno
import queue
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from ports import free_port

from vit_jax.errors import PeerLost
from vit_jax.runtime import peer_links
from vit_jax.runtime.process_identity import ProcessIdentity

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("linger_secs", [None, 0])
def test_whether_the_other_end_is_gone(linger_secs):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        channel = peer_links.Channel(listener.accept()[0])
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


def test_what_follows_the_first_message_is_not_lost():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours = listener.accept()[0]
    with ours, theirs:
        theirs.sendall(b'{"hosts": []}\n{"bye": true}\n')
        channel = peer_links.Channel(ours)
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
    monkeypatch.setattr(peer_links.PeerLinks, "_exit", lambda self, code: codes.put(code))
    line = peer_links.PeerLinks(
        ProcessIdentity("127.0.0.1:1", 2, 0, "test"),
        {1: peer_links.Channel(Stub(result))},
        ["a", "b"],
    )
    assert codes.get(timeout=5) == PeerLost.exit_code
    line.close()
    said = capsys.readouterr().err
    assert "process 1 of 2 (b) is gone: " in said
    assert why in said


def test_silence_within_the_time_is_no_end():
    """The timeout of a socket and that of keepalive have one class."""
    channel = peer_links.Channel(Stub(TimeoutError("timed out")))
    with pytest.raises(TimeoutError):
        channel.receive()
    channel.socket.close()


def test_hint_that_fails_does_not_keep_a_process(monkeypatch, capsys):
    codes = []
    monkeypatch.setattr(peer_links.PeerLinks, "_exit", lambda self, code: codes.append(code))
    line = peer_links.PeerLinks(ProcessIdentity("127.0.0.1:1", 2, 0, "test"), {}, ["a", "b"])
    line.hint = lambda: str(1 / 0)
    line._end(PeerLost.exit_code, "process 1 is gone.")
    line.close()
    assert codes == [PeerLost.exit_code]
    assert "process 1 is gone. Run again." in capsys.readouterr().err


def connected():
    """Returns the two ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return socket.create_connection(listener.getsockname()), listener.accept()[0]


@pytest.mark.parametrize("pieces", [1, 3])
def test_first_message_is_read_at_once_and_what_follows_is_left(pieces):
    sender, receiver = connected()
    hosts = ["h" * 20] * 1000
    sent = peer_links.encoded({"hosts": hosts}) + peer_links.encoded({"alive": True})
    channel, reads = peer_links.Channel(receiver), []
    real, channel.receive = channel.receive, lambda most=0: reads.append(most) or real(most)
    with ThreadPoolExecutor(1) as pool, sender, receiver:
        first = pool.submit(channel.first, 10)
        for n in range(pieces):
            sender.sendall(sent[n * len(sent) // pieces : (n + 1) * len(sent) // pieces])
            time.sleep(0.05)
        assert first.result() == {"hosts": hosts}
        assert len(reads) < 10  # not one for each byte
        assert real() == [{"alive": True}]


def test_process_0_encodes_a_message_once_for_all(monkeypatch):
    texts, real = [], peer_links.encoded
    monkeypatch.setattr(peer_links, "encoded", lambda m: texts.append(m) or real(m))
    ends = [connected() for _ in range(3)]
    channels = {i + 1: peer_links.Channel(end) for i, (end, _) in enumerate(ends)}
    line = peer_links.PeerLinks(ProcessIdentity("127.0.0.1:1", 4, 0, "test"), channels, ["a"] * 4)
    line.send("x", 1)
    line.close()
    assert [other.recv(100).split(b"\n")[0] for _, other in ends] == [real(texts[0])[:-1]] * 3
    assert texts == [{"topic": "x", "said": 1}, {"bye": True}]
    for _, other in ends:
        other.close()


@pytest.fixture
def pair():
    """The links of processes 0 and 1, in this process."""
    ends = connected()
    lines = [
        peer_links.PeerLinks(
            ProcessIdentity("127.0.0.1:1", 2, i, "test"),
            {1 - i: peer_links.Channel(end)},
            ["a", "b"],
        )
        for i, end in enumerate(ends)
    ]
    yield lines
    for line in lines:
        line._closing = True
    for line in lines:
        line.close()


def test_both_processes_get_the_values_of_both(pair):
    with ThreadPoolExecutor(1) as other:
        later = other.submit(pair[1].gather, "x", "b", 5)
        assert pair[0].gather("x", "a", 5) == ["a", "b"] == later.result()
        long = "a" * 300_000  # several packets
        first = other.submit(pair[0].gather, "y", long, 5)
        assert pair[1].gather("y", "", 5) == [long, ""] == first.result()


@pytest.mark.parametrize("present, values", [(0, ["a", None]), (1, [None, "a"])])
def test_a_process_that_does_not_come_in_time_has_no_value(pair, present, values):
    start = time.monotonic()
    assert pair[present].gather("x", "a", 0.1) == values
    assert 0.1 <= time.monotonic() - start < peer_links.GRACE_SECS


CHILD = """
import sys, threading, time
from vit_jax.runtime import rendezvous as meeting
from vit_jax.runtime.process_identity import ProcessIdentity
index, coordinator = int(sys.argv[1]), sys.argv[2]
who = ProcessIdentity(coordinator, 3, index, "test")
line = meeting.meet(who, who.address, {}, 20)
line.hint = lambda: "Run again."
print("met", flush=True)
order = sys.stdin.readline().split()
if order[0] == "leave":
    line.end_all(int(order[1]), "the reason")
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
    assert secs < 2 * peer_links.GRACE_SECS
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
