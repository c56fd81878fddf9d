# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One open connection from each process to process 0, from before jax starts to the end of the run.

`meet` lets the processes find each other, and says who is missing or does not fit, which jax's
client answers with an abort. The connections then stay open: the kernel closes those of a process
that dies, so its end is noticed at once, whatever the others wait for, on every kind of device. A
process that fails tells the others why before it leaves. Must not import jax. Start from `meet`.
"""

import contextlib
import json
import logging
import os
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from vit_jax.errors import BadInput, PeerLost
from vit_jax.processes import Who

HELLO_SECS = 5  # for a connection to say who it is: a port scanner says nothing
LATE_SECS = 30  # for the rest to come, where one does not fit, to be told
GRACE_SECS = 3  # for a process to end by its own error, before that of another ends it
LAST_SECS = 2  # that process 0 outlives the others: jax aborts a process that has lost process 0
log = logging.getLogger("vit_jax")
_Facts = Mapping[str, str]
_HELLO = {"vit_jax", "count", "host", "facts"}  # what a process says first; "vit_jax" is its number


def mismatch(who: Who, facts: list[_Facts], hosts: list[str]) -> str:
    """What the first process that differs has, and what process 0 has; "" if none differs."""
    for index, mine in enumerate(facts):
        keys = [k for k in {**facts[0], **mine} if facts[0].get(k) != mine.get(k)]
        if keys:
            have, expected = (
                ", ".join(f"{k}={f.get(k, '(none)')}" for k in keys[:5]) for f in (mine, facts[0])
            )
            return (
                f"process {index} of {who.count} ({hosts[index]}) has {have}; "
                f"process 0 ({hosts[0]}) has {expected}."
            )
    return ""


class Channel:
    """Lines of JSON over a socket."""

    def __init__(self, connection: socket.socket):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):  # a machine without power closes nothing: ask it
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.socket = connection
        self._read = b""

    def send(self, message: Any) -> None:
        """Sends one message; a peer that is gone is found when reading."""
        with contextlib.suppress(OSError):
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, most_bytes: int = 65536) -> list[Any] | None:
        """The messages that have arrived, waiting for some; None at the end, or if not ours."""
        try:
            more = self.socket.recv(most_bytes)
        except OSError as e:
            if isinstance(e, TimeoutError) and e.errno is None:  # of `settimeout`
                raise
            more = b""  # ETIMEDOUT too, which has the same class: keepalive has given up
        if not more:
            return None
        *lines, self._read = (self._read + more).split(b"\n")
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            return None

    def ended(self) -> bool:
        """Whether the other end is known to be gone; neither waits nor reads."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def first(self, timeout_secs: float) -> Any:
        """The first message; None if none comes in time, or it is not one of ours."""
        end = time.monotonic() + timeout_secs
        with contextlib.suppress(TimeoutError):
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                messages = self.receive(1)  # not a byte of what follows: `_watch` reads that
                if messages is None or len(self._read) > 1 << 20:
                    return None
                if messages:
                    self.socket.settimeout(None)
                    return messages[0]
        return None


def meet(who: Who, address: tuple[str, int], facts: _Facts, timeout_secs: float) -> "Lifeline":
    """Waits until all processes are here and checks that they fit together.

    Args:
      who: this process.
      address: of process 0.
      facts: what must be equal on all processes.
      timeout_secs: the longest wait.

    Raises:
      BadInput: the port is taken, or a process does not fit: another count, number or fact.
      PeerLost: not all came in time; names those that are missing.
    """
    meeting = _receive_all if who.index == 0 else _call
    channels, hosts = meeting(who, address, facts, timeout_secs)
    return Lifeline(who, channels, hosts)


def _receive_all(
    who: Who, address: tuple[str, int], facts: _Facts, timeout_secs: float
) -> tuple[dict[int, Channel], list[str]]:
    """The meeting as process 0 sees it."""
    end = time.monotonic() + timeout_secs
    channels: dict[int, Channel] = {}
    said: dict[int, dict[str, Any]] = {0: {"host": socket.gethostname(), "facts": dict(facts)}}
    wrong = ""
    with listen(who, address) as listener:
        while len(channels) < who.count - 1 and (left := end - time.monotonic()) > 0:
            listener.settimeout(left)
            try:
                channel = Channel(listener.accept()[0])
            except TimeoutError:
                break
            hello = channel.first(HELLO_SECS)
            if not isinstance(hello, dict) or not hello.keys() >= _HELLO:
                channel.socket.close()
                continue
            earlier = channels.get(hello["vit_jax"])
            if earlier and earlier.ended():  # died while others were awaited, and came again
                earlier.socket.close()
                del channels[hello["vit_jax"]], said[hello["vit_jax"]]
            misfit = _misfit(who, hello, said)
            if misfit:  # those that are still to come are told too, if they are quick
                wrong = wrong or misfit
                end = min(end, time.monotonic() + LATE_SECS)
                channels[-1 - len(channels)] = channel
            else:
                channels[hello["vit_jax"]], said[hello["vit_jax"]] = channel, hello
    missing = [i for i in range(who.count) if i not in said]
    if not wrong and not missing:
        everyone = [said[i] for i in range(who.count)]
        hosts = [s["host"] for s in everyone]
        wrong = mismatch(who, [s["facts"] for s in everyone], hosts)
        if not wrong:
            for channel in channels.values():
                channel.send({"hosts": hosts})
            return channels, hosts
        wrong += " All processes must run the same code with the same packages."
    error = (
        BadInput(wrong)
        if wrong
        else PeerLost(
            f"{_listed(missing)} of {who.count} did not connect to process 0 ({who.coordinator}) "
            f"within {timeout_secs:g} s; see their logs, and whether their hosts reach that "
            "address. Then run again."
        )
    )
    for channel in channels.values():
        channel.send({"error": str(error), "code": error.exit_code})
        channel.socket.close()
    raise error


def _misfit(who: Who, hello: dict[str, Any], said: dict[int, dict[str, Any]]) -> str:
    """What is wrong with a process that introduces itself to process 0; "" if nothing."""
    index, count, host = hello["vit_jax"], hello["count"], hello["host"]
    if count != who.count:
        return (
            f"process {index} ({host}) was told that there are {count} processes, process 0 that "
            f"there are {who.count}; start all with the same number."
        )
    if index in said:
        return (
            f"two processes ({said[index]['host']} and {host}) have number {index} of {count}; "
            "give each its own."
        )
    return ""


def _call(
    who: Who, address: tuple[str, int], facts: _Facts, timeout_secs: float
) -> tuple[dict[int, Channel], list[str]]:
    """The meeting as the other processes see it."""
    start = time.monotonic()
    hello = {"vit_jax": who.index, "count": who.count, "host": socket.gethostname()}
    why, told = "", False
    while (left := start + timeout_secs - time.monotonic()) > 0:
        try:
            channel = Channel(socket.create_connection(address, timeout=min(left, 10)))
        except OSError as e:
            why = e.strerror or str(e)
        else:
            channel.send({**hello, "facts": dict(facts)})
            answer = channel.first(left + HELLO_SECS)
            if isinstance(answer, dict) and "hosts" in answer:
                return {0: channel}, answer["hosts"]
            channel.socket.close()
            if isinstance(answer, dict) and "error" in answer:
                raise (BadInput if answer["code"] == BadInput.exit_code else PeerLost)(
                    answer["error"]
                )
            why = "something answers there, but it is not process 0 of a run"
        if not told and time.monotonic() - start > HELLO_SECS:
            told = True
            log.info("waiting for process 0 at %s: %s", who.coordinator, why)
        time.sleep(min(0.3, left))
    advice = (
        "That address is loopback, which reaches this host alone: most likely process 0 is on "
        "another; give the address of its host. If it is on this one, check that it runs"
        if who.loopback
        else "Check that process 0 runs, that the address is that of its host, and that no "
        "firewall is between"
    )
    raise PeerLost(
        f"process {who.index} of {who.count} cannot reach process 0 at {who.coordinator} "
        f"({who.origin}) within {timeout_secs:g} s: {why}. {advice}; then run again."
    )


def listen(who: Who, address: tuple[str, int]) -> socket.socket:
    """A listening socket of process 0: on loopback if that is its address, else on every address.

    Raises:
      BadInput: the port is taken.
    """
    try:
        if who.loopback:
            family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
            return socket.create_server(address, family=family, backlog=who.count)
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", address[1]), family=socket.AF_INET6, dualstack_ipv6=True, backlog=who.count
            )
        return socket.create_server(("", address[1]), backlog=who.count)
    except OSError as e:
        raise BadInput(
            f"process 0 cannot listen on port {address[1]} of {socket.gethostname()} "
            f"(coordinator {who.coordinator}, {who.origin}): {e.strerror}; another program, or an "
            "earlier run that has not ended, uses it. End that, or give another port."
        ) from e


def _listed(indices: list[int]) -> str:
    shown = ", ".join(map(str, indices[:10])) + (" ..." if len(indices) > 10 else "")
    return f"process{'es' if len(indices) > 1 else ''} {shown}"


class Lifeline:
    """The open connections of this process, watched by a thread until `close` or the end.

    Attributes:
      hosts: of all processes, by number.
      hint: what a message about a lost process ends with.
    """

    def __init__(self, who: Who, channels: dict[int, Channel], hosts: list[str]):
        self.hosts = hosts
        self.hint: Callable[[], str] = lambda: "run again to continue."
        self._who, self._channels = who, dict(channels)
        self._verdict: tuple[int, str] | None = None  # exit code, message
        self._heard = 0.0  # when
        self._closing = self._leaving = False
        self._done: set[int] = set()  # processes that said goodbye
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._watch, name="lifeline", daemon=True)
        self._thread.start()

    def name(self, index: int) -> str:
        """`process 1 of 2 (host)`."""
        return f"process {index} of {self._who.count} ({self.hosts[index]})"

    def close(self) -> None:
        """Says goodbye: from here on nobody is missed. All processes have agreed to end."""
        self._closing = True
        channels = list(self._channels.values())
        for channel in channels:
            channel.send({"bye": True})
        self._thread.join()
        for channel in channels:
            channel.socket.close()

    def leave(self, code: int, text: str) -> None:
        """Ends this process, which has failed, and with it the others; does not return."""
        with self._lock:
            self._leaving = True
            if self._verdict is None:
                self._tell(code, f"{self.name(self._who.index)} failed: {text}")
        self._exit(code)

    def _tell(self, code: int, text: str) -> None:
        """Notes how the run ends, and passes it on."""
        self._verdict, self._heard = (code, text), time.monotonic()
        for channel in list(self._channels.values()):
            channel.send({"code": code, "text": text})

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for index, channel in self._channels.items():
                selector.register(channel.socket, selectors.EVENT_READ, index)
            while not self._closing:
                for key, _ in selector.select(0.2):
                    channel = self._channels[key.data]
                    try:
                        still_open = self._hear(key.data)
                    except Exception as e:  # without this thread nobody would be missed any more
                        still_open = False
                        self._miss(key.data, f"what it sent cannot be read ({e!r})")
                    if not still_open:
                        selector.unregister(channel.socket)
                        channel.socket.close()
                if self._verdict and not self._leaving:
                    code, text = self._verdict
                    lost = code == PeerLost.exit_code
                    if lost or time.monotonic() - self._heard > GRACE_SECS:
                        self._leaving = True
                        threading.Thread(target=self._end, args=(code, text), daemon=True).start()

    def _hear(self, index: int) -> bool:
        """Reads from a process; whether its connection is still open."""
        messages = self._channels[index].receive()
        with self._lock:
            for message in messages or []:
                if "bye" in message:
                    self._done.add(index)
                elif self._verdict is None:
                    self._tell(message["code"], message["text"])
        if messages is None:
            self._miss(index, "it ended or was killed without a word, or its host is silent")
        return messages is not None

    def _miss(self, index: int, why: str) -> None:
        """The connection to a process is at its end: without a goodbye, it is lost."""
        with self._lock:
            self._channels.pop(index, None)
            if self._verdict is None and index not in self._done and not self._closing:
                self._tell(PeerLost.exit_code, f"{self.name(index)} is gone: {why}; see its log.")

    def _end(self, code: int, text: str) -> None:
        """Says why the run ends, and ends this process, whatever goes wrong with the saying."""
        try:
            hint = self.hint() if code == PeerLost.exit_code else ""
        except Exception as e:
            hint = f"(What to do next is not known: {e!r})"
        with contextlib.suppress(OSError, ValueError):  # nobody reads it, or it is closed
            print(f"\nvit_jax: {text} {hint}", file=sys.stderr)
        self._exit(code)

    def _exit(self, code: int) -> None:
        """Ends the process without jax's exit barrier, which waits for those that are gone."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        if self._who.index == 0:
            end = self._heard + (LAST_SECS if code == PeerLost.exit_code else 2 * GRACE_SECS)
            while self._channels and time.monotonic() < end:
                time.sleep(0.01)
        os._exit(code)
