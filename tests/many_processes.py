# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Simulates the control traffic of many processes: no device, no training.

Process 0 runs here, with the package's own rendezvous, links and agreement on stops, so its
processor time is that of a real one. Process 1 is real too, in a thread. All others are sockets of
one child process, which answer as a process does but decode nothing. As a program, this module is
that child. Start from `control_traffic`.
"""

import concurrent.futures
import contextlib
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ports import free_port

from vit_jax.runtime import peer_links, rendezvous
from vit_jax.runtime.coordinated_stop import STOP, Agreement
from vit_jax.runtime.process_identity import ProcessIdentity

MOST_SECS = 300.0  # of each wait
# Part -> the value of each process: none at a barrier, else as long as a digest or as the row that
# describes the local tier of a host.
VALUES = {"barrier": "", "gather 64 B": "x" * 64, "gather 200 B": "x" * 200}
FACTS = {"code": "0" * 12, "jax": "0.10.2"}


def others(address: tuple[str, int], first: int, count: int, repeats: int) -> None:
    """Plays the processes from `first` on until process 0 tells them that the run ends."""
    exchanges = [(f"{part} {n}", value) for part, value in VALUES.items() for n in range(repeats)]
    # What process 0 sends -> what a process answers, in this order.
    lines = [(b'{"hosts"', _line({"gather": "met", "value": "", "secs": MOST_SECS}))]
    for name, value in [*exchanges, ("idle", "")]:
        lines.append((b'{"gathered"', _line({"gather": name, "value": value, "secs": MOST_SECS})))
    lines += [
        (b'{"gathered"', b""),
        (b'{"topic": "hold"', _line({"topic": "passed", "said": [STOP, 1, False]})),
        (b'{"topic": "due"', _line({"gather": "stopped", "value": "", "secs": MOST_SECS})),
        (b'{"gathered"', b""),
        (b'{"code"', b""),
    ]
    selector = selectors.DefaultSelector()
    for index in range(first, count):
        connection = socket.create_connection(address, timeout=MOST_SECS)
        connection.sendall(_line({"vit_jax": index, "count": count, "host": f"host-{index}",
                                  "facts": FACTS}))  # fmt: skip
        selector.register(connection, selectors.EVENT_READ, [index, 0, b""])
    left = count - first
    while left:
        for key, _ in selector.select(MOST_SECS):
            one, connection = key.data, key.fileobj
            assert isinstance(connection, socket.socket)
            data = one[2] + connection.recv(1 << 20)
            *whole, one[2] = data.split(b"\n")
            for line in whole:
                expected, answer = lines[one[1]]
                if not line.startswith(expected):
                    continue  # a sign of life
                one[1] += 1
                if answer:
                    connection.sendall(answer)
                dies = one[0] == count - 1 and one[1] == len(lines) - 1
                if dies or one[1] == len(lines):
                    left -= 1
                    selector.unregister(connection)
                    connection.close()
                    break


def _line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


class _Links(peer_links.PeerLinks):
    """The links of a simulated process, which notes how it would end."""

    first: threading.Thread | None = None  # of process 0

    def __init__(self, *args: Any):
        self.told, self.verdict = threading.Event(), ""
        super().__init__(*args)
        if self.index == 0:
            _Links.first = self._thread

    def _tell(self, code: int, text: str, hung: bool = False) -> None:
        super()._tell(code, text, hung)
        self.verdict, self._leaving = text, True
        self.told.set()


def _cpu_secs() -> float:
    """Returns the processor time of the threads of process 0: this one, and that of its links."""
    links = _Links.first.ident if _Links.first else None
    return time.thread_time() + (
        time.clock_gettime(time.pthread_getcpuclockid(links)) if links else 0.0
    )


class _Socket:
    """A socket that counts what it sends."""

    sent_bytes = 0

    def __init__(self, connection: socket.socket):
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def sendall(self, data: bytes) -> None:
        if threading.current_thread() in (_Links.first, threading.main_thread()):
            _Socket.sent_bytes += len(data)
        self._connection.sendall(data)


class _Channel(peer_links.Channel):
    """A channel of process 0."""

    def __init__(self, connection: socket.socket):
        super().__init__(connection)
        self.socket: Any = _Socket(connection)


def _real(who: ProcessIdentity, repeats: int, idle_secs: float, part: Any) -> str:
    """Runs process 0, or 1, with the package's code; returns how the run would end."""
    with part("connect"):
        links = rendezvous.meet(who, who.address, FACTS, MOST_SECS)
        assert isinstance(links, _Links)
        links.gather("met", "", MOST_SECS)
    links.silent_secs = 100  # the default of processes.heartbeat_secs
    for name, value in VALUES.items():
        with part(name, repeats):
            for n in range(repeats):
                values = links.gather(f"{name} {n}", value, MOST_SECS)
                assert values == [value] * who.count, f"{name} of process {who.index}"
    with part("signs of life"):
        time.sleep(idle_secs)
    agreement = Agreement()
    agreement.pass_point()
    with agreement.including(links):
        links.gather("idle", "", MOST_SECS)
        with part("stop"):
            if who.index == 0:
                agreement.request(STOP, "a notice")
            end = time.monotonic() + MOST_SECS
            while STOP not in agreement._due:
                assert time.monotonic() < end
                time.sleep(0.01)
    links.gather("stopped", "", MOST_SECS)
    with part("loss"):
        assert links.told.wait(MOST_SECS)
    return links.verdict


def control_traffic(count: int, *, repeats: int = 5, idle_secs: float = 10.0) -> dict[str, Any]:
    """Simulates a run of `count` processes, from their meeting to the loss of the last one.

    Args:
      count: number of processes, at least 3.
      repeats: number of exchanges of each kind.
      idle_secs: time without an exchange; every 10 s a process gives a sign of life.

    Returns:
      `verdicts`, what the real processes say at the end, and for each part the mean of one
      exchange: `secs` (wall time), `cpu_secs` and `sent_bytes` (of process 0).
    """
    address = "127.0.0.1", free_port()
    parts: dict[str, Any] = {}

    @contextlib.contextmanager
    def part(name: str, times: int = 1) -> Iterator[None]:
        began, cpu, sent = time.monotonic(), _cpu_secs(), _Socket.sent_bytes
        yield
        parts[name] = {
            "secs": (time.monotonic() - began) / times,
            "cpu_secs": (_cpu_secs() - cpu) / times,
            "sent_bytes": (_Socket.sent_bytes - sent) / times,
        }

    def unmeasured(*_: Any) -> Any:
        return contextlib.nullcontext()

    _Links.first = None
    who = [ProcessIdentity(f"127.0.0.1:{address[1]}", count, i, "simulation") for i in range(2)]
    words = [sys.executable, __file__, str(address[1]), str(count), str(repeats)]
    path = str(Path(__file__).resolve().parent.parent)
    with _replaced(), concurrent.futures.ThreadPoolExecutor(1) as pool:
        one = pool.submit(_real, who[1], repeats, idle_secs, unmeasured)
        child = subprocess.Popen(words, env=os.environ | {"PYTHONPATH": path})
        try:
            verdicts = [_real(who[0], repeats, idle_secs, part), one.result()]
            assert child.wait(MOST_SECS) == 0
        finally:
            child.kill()
    return {"verdicts": verdicts} | parts


@contextlib.contextmanager
def _replaced() -> Iterator[None]:
    """Lets `rendezvous` make the links of this module while the block runs."""
    before = rendezvous.Channel, rendezvous.PeerLinks
    rendezvous.Channel, rendezvous.PeerLinks = _Channel, _Links  # type: ignore[misc]
    try:
        yield
    finally:
        rendezvous.Channel, rendezvous.PeerLinks = before  # type: ignore[misc]


if __name__ == "__main__":
    port, whole, often = map(int, sys.argv[1:])
    deadline = time.monotonic() + MOST_SECS
    while True:  # until process 0 listens
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    others(("127.0.0.1", port), 2, whole, often)
