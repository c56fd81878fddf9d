# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One open connection from each process to process 0, from before jax starts to the end of the run.

The kernel closes the connections of a process that dies, so the others notice at once, whatever
they wait for, on every kind of device. A frozen process falls silent. A process that fails tells
the others why before it leaves. `rendezvous` opens the connections, which also carry agreements
(`gather`) and messages of other modules (`send`, `listen`). This module must not import jax. Start
from `PeerLinks`.
"""

import collections
import contextlib
import json
import logging
import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from vit_jax.errors import PeerLost
from vit_jax.runtime import process_exit, watchdog
from vit_jax.runtime.process_identity import ProcessIdentity

GRACE_SECS = 3  # for a process to end by its own error, before the error of another ends it
LAST_SECS = 2  # that process 0 outlives the others: jax aborts a process that has lost process 0
HINT_SECS = 1.5  # to find out where the run would continue
STACKS_SECS = 10  # replaces LAST_SECS when the others write their stacks first
log = logging.getLogger("vit_jax")
Handler = Callable[[int, str, Any], None]  # number of the sender, topic, message


def encoded(message: Any) -> bytes:
    """Returns a message as the line that `Channel.send_line` sends."""
    return json.dumps(message).encode() + b"\n"


class Channel:
    """A stream of JSON lines over a socket."""

    def __init__(self, connection: socket.socket):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):  # a machine without power closes no connection: probe it
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.socket = connection
        self._read = b""
        self._writing = threading.Lock()

    def send(self, message: Any) -> None:
        """Sends one message; a peer that is gone is only noticed when reading."""
        self.send_line(encoded(message))

    def send_line(self, line: bytes) -> None:
        """Sends a message from `encoded`, see `send`."""
        with contextlib.suppress(OSError), self._writing:
            self.socket.sendall(line)

    def receive(self, most_bytes: int = 65536) -> list[Any] | None:
        """Waits for messages and returns them; None at the end, or if they are not JSON."""
        try:
            more = self.socket.recv(most_bytes)
        except OSError as e:
            if isinstance(e, TimeoutError) and e.errno is None:  # raised by `settimeout`
                raise
            more = b""  # ETIMEDOUT has the same class: keepalive has given up
        if not more:
            return None
        *lines, self._read = (self._read + more).split(b"\n")
        try:
            return [json.loads(line) for line in lines]
        except ValueError:
            return None

    def ended(self) -> bool:
        """Returns True if the other end is known to be gone; neither waits nor reads."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def first(self, timeout_secs: float) -> Any:
        """Returns the first message; None if none comes in time or it is not JSON."""
        end = time.monotonic() + timeout_secs
        with contextlib.suppress(OSError):
            while (left := end - time.monotonic()) > 0:
                self.socket.settimeout(left)
                ahead = self.socket.recv(65536, socket.MSG_PEEK)
                line = ahead.find(b"\n") + 1  # `_watch` reads what follows
                messages = self.receive(line or len(ahead) or 1)
                if messages is None or len(self._read) > 1 << 20:
                    return None
                if messages:
                    self.socket.settimeout(None)
                    return messages[0]
        return None


class PeerLinks:
    """The open connections of this process, watched by a thread until `close` or the end.

    Attributes:
      hosts: hosts of all processes, by number.
      index: number of this process.
      count: number of processes.
      hint: returns the end of a message about a lost process.
      stacks: writes the stacks of this process's threads; called when the run hangs.
      silent_secs: the silence after which a process is given up; 0: never.
    """

    def __init__(self, who: ProcessIdentity, channels: dict[int, Channel], hosts: list[str]):
        self.hosts, self.index, self.count = hosts, who.index, who.count
        self.hint: Callable[[], str] = lambda: "Run again to continue."
        self.stacks: Callable[[str], object] = lambda why: None
        self.silent_secs = 0.0
        self._channels = dict(channels)
        self._last = dict.fromkeys(channels, time.monotonic())  # when each was last heard
        self._beat = 0.0  # when this process last sent a sign of life
        self._handler: Handler | None = None
        self._unheard: list[tuple[int, str, Any]] = []  # messages from before there was a handler
        self._meetings: dict[str, tuple[float, dict[int, str]]] = {}  # process 0: end, who came
        self._gathered: collections.defaultdict[str, queue.SimpleQueue[list[str | None]]]
        self._gathered = collections.defaultdict(queue.SimpleQueue)
        self._verdict: tuple[int, str] | None = None  # exit code, message
        self._hung = False  # the verdict is a hang
        self._heard = 0.0  # when the verdict arrived
        self._closing = self._leaving = False
        self._done: set[int] = set()  # processes that said goodbye
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._watch, name="peer links", daemon=True)
        self._thread.start()

    def name(self, index: int) -> str:
        """Returns e.g. `process 1 of 2 (host)`."""
        return f"process {index} of {self.count} ({self.hosts[index]})"

    def address(self) -> str:
        """Returns the address of this host in a connection, if possible one to another host."""
        names = [one.socket.getsockname()[0] for one in list(self._channels.values())]
        # "::ffff:" is IPv4 on a socket that is open to both.
        own = [name.removeprefix("::ffff:") for name in names]
        return min(own, key=lambda name: name.startswith("127.") or name == "::1")

    def send(self, topic: str, message: Any) -> None:
        """Sends a JSON value: process 0 to all others, the others to process 0."""
        self._send({"topic": topic, "said": message})

    def _send(self, message: Any) -> None:
        """Sends a message over all connections."""
        line = encoded(message)  # once: process 0 may have thousands of connections
        for channel in list(self._channels.values()):
            channel.send_line(line)

    def listen(self, handler: Handler) -> None:
        """Sets the handler of messages from `send`, earlier ones included; it must not wait."""
        with self._lock:
            self._handler, unheard, self._unheard = handler, self._unheard, []
            for one in unheard:
                handler(*one)

    def gather(self, name: str, value: str, timeout_secs: float) -> list[str | None]:
        """Returns the values of all processes, by number, once all have come or the time is up.

        The time starts when the first process comes. A process that did not come in time has the
        value None, and all others get the same answer.

        Args:
          name: the name of the exchange, which no other exchange of the run has.
          value: the value of this process.
          timeout_secs: the longest wait.
        """
        with self._lock:
            answer = self._gathered[name]
            if self.index == 0:
                self._arrive(0, name, value, timeout_secs)
        if self.index:
            self._send({"gather": name, "value": value, "secs": timeout_secs})
        try:
            values = answer.get(timeout=timeout_secs + GRACE_SECS)
        except queue.Empty:  # process 0, which answers, is slow
            values = [None, *[""] * (self.count - 1)]
        self._gathered.pop(name, None)
        return values

    def _arrive(self, index: int, name: str, value: str, timeout_secs: float) -> None:
        """Notes the value of a process, as process 0, and answers once all have come."""
        end = time.monotonic() + timeout_secs
        _, came = self._meetings.setdefault(name, (end, {}))
        came[index] = value
        if len(came) == self.count:
            self._answer(name)

    def _answer(self, name: str) -> None:
        """Sends the values that came to all processes, as process 0."""
        _, came = self._meetings.pop(name)
        values = [came.get(i) for i in range(self.count)]
        self._send({"gathered": name, "values": values})
        self._gathered[name].put(values)

    def close(self) -> None:
        """Says goodbye: no process is missed from here on. All processes have agreed to end."""
        self._closing = True
        channels = list(self._channels.values())
        self._send({"bye": True})
        self._thread.join()
        for channel in channels:
            channel.socket.close()

    def end_all(self, code: int, text: str) -> None:
        """Ends this process, which has failed, and with it the others; does not return."""
        with self._lock:
            self._leaving = True
            if self._verdict is None:
                self._tell(code, f"{self.name(self.index)} failed: {text}")
        self._exit(code)

    def end_all_hung(self, text: str) -> None:
        """Ends all processes because this one hangs; all write their stacks first."""
        with self._lock:
            if self._verdict is None:
                self._tell(PeerLost.exit_code, text, hung=True)

    def _tell(self, code: int, text: str, hung: bool = False) -> None:
        """Notes how the run ends, and passes it on."""
        self._verdict, self._heard, self._hung = (code, text), time.monotonic(), hung
        self._send({"code": code, "text": text, "hung": hung})

    def _watch(self) -> None:
        with selectors.DefaultSelector() as selector:
            for index, channel in self._channels.items():
                selector.register(channel.socket, selectors.EVENT_READ, index)
            while not self._closing:
                for key, _ in selector.select(0.2):
                    channel = self._channels.get(key.data)
                    if channel is None:  # given up for its silence
                        selector.unregister(key.fileobj)
                        continue
                    try:
                        still_open = self._hear(key.data)
                    except Exception as e:  # without this thread no lost process would be noticed
                        still_open = False
                        self._miss(key.data, f"what it sent cannot be read ({e!r})")
                    if not still_open:
                        selector.unregister(channel.socket)
                        channel.socket.close()
                self._keep_in_touch()
                with self._lock:
                    now = time.monotonic()
                    for name in [n for n, (end, _) in self._meetings.items() if now > end]:
                        self._answer(name)
                if self._verdict and not self._leaving:
                    code, text = self._verdict
                    lost = code == PeerLost.exit_code
                    if lost or time.monotonic() - self._heard > GRACE_SECS:
                        self._leaving = True
                        threading.Thread(target=self._end, args=(code, text), daemon=True).start()

    def _keep_in_touch(self) -> None:
        """Sends a sign of life, and gives up processes that were silent for too long."""
        now = time.monotonic()
        if not self.silent_secs or self._closing or now - self._beat < self.silent_secs / 10:
            return
        late = self._beat and now - self._beat > self.silent_secs / 2  # this process itself slept
        self._beat = now
        self._send({"alive": True})
        for index in list(self._channels):
            if late:
                self._last[index] = now
            elif now - self._last[index] > self.silent_secs and index not in self._done:
                with self._lock:
                    self._channels.pop(index)  # the end does not wait for it
                    why = f"was silent for {self.silent_secs:g} s: it, or its host, is frozen"
                    if self._verdict is None:
                        self._tell(PeerLost.exit_code, f"{self.name(index)} {why}.")

    def _hear(self, index: int) -> bool:
        """Reads from a process; returns True if its connection is still open."""
        messages = self._channels[index].receive()
        self._last[index] = time.monotonic()
        with self._lock:
            for message in messages or []:
                if "bye" in message:
                    self._done.add(index)
                elif "topic" in message:
                    one = index, message["topic"], message["said"]
                    self._handler(*one) if self._handler else self._unheard.append(one)
                elif "gather" in message:
                    self._arrive(index, message["gather"], message["value"], message["secs"])
                elif "gathered" in message:
                    self._gathered[message["gathered"]].put(message["values"])
                elif "alive" not in message and self._verdict is None:
                    self._tell(message["code"], message["text"], message["hung"])
        if messages is None:
            self._miss(index, "it ended or was killed without a message, or its host is silent")
        return messages is not None

    def _miss(self, index: int, why: str) -> None:
        """Handles a closed connection: a process without a goodbye is lost."""
        with self._lock:
            self._channels.pop(index, None)
            if self._verdict is None and index not in self._done and not self._closing:
                self._tell(PeerLost.exit_code, f"{self.name(index)} is gone: {why}; see its log.")

    def _end(self, code: int, text: str) -> None:
        """Prints why the run ends, and ends this process, whatever goes wrong while printing."""
        hints = [] if code == PeerLost.exit_code else [""]
        if not hints:
            process_exit.ends_in_time(lambda: hints.append(self.hint()), HINT_SECS)
        if self._hung and not process_exit.ends_in_time(lambda: self.stacks(text), STACKS_SECS / 2):
            process_exit.say(f"the stacks cannot be written:\n{watchdog.stacks()}")
        process_exit.say(f"{text} {hints[0] if hints else 'Run again.'}")
        self._exit(code)

    def _exit(self, code: int) -> None:
        """Ends the process without jax's exit barrier, which waits for processes that are gone."""
        if self.index == 0:
            secs = LAST_SECS if code == PeerLost.exit_code else 2 * GRACE_SECS
            end = self._heard + (STACKS_SECS if self._hung else secs)
            while self._channels and time.monotonic() < end:
                time.sleep(0.01)
        if self._hung and self._channels:
            silent = ", ".join(map(self.name, self._channels))
            process_exit.say(f"no stacks of {silent}: it does not answer.")
        process_exit.end(code)
