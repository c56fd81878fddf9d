# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes all processes stop, or save, together, at an agreed point that none of them has passed.

A point is a place that all processes pass equally often: each request for the next batch, both of
training and of evaluations (`feed`). A process that is asked to stop tells process 0. Process 0
asks every process how many points it has passed. A process that has answered passes no further
point until process 0 announces the agreed one: two after the newest, so no process can be beyond
it. There `Stopped` is raised. Two cases are quicker. If a process has passed no point, nothing
unsaved was trained, and all end at once. If all wait for the same batch, they stop waiting.

This module must not import jax. Start from `Agreement`.
"""

import contextlib
import functools
import logging
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from vit_jax.errors import BadInput, Stopped
from vit_jax.runtime import goodput, process_exit, recovery, signals, watchdog
from vit_jax.runtime.process_identity import ProcessIdentity
from vit_jax.storage import files as storage

if TYPE_CHECKING:
    from vit_jax.runtime.peer_links import PeerLinks

AHEAD = 2  # distance of the agreed point from the newest point passed
GRACE_SECS = 3.0  # for the main thread to end by itself when nothing is to be saved
STORAGE_SECS = 60.0  # for a batch that is no longer needed, before a program ends without it
_TICK_SECS = 0.2  # interval of checks of the agreement while a batch is awaited
STOP, SAVE, SAVE_NEAR = "stop", "save", "save near"
_T = TypeVar("_T")
log = logging.getLogger("vit_jax")


class Agreement:
    """This process's knowledge of the agreement between all processes, and of points passed.

    Attributes:
      line: the connection to the other processes; None for a process alone.
      stop_file: the STOP file as it was when this start began; None if not known.
    """

    def __init__(self) -> None:
        self.stop_file: signals.StopFile | None = None
        self.line: PeerLinks | None = None
        self._changed = threading.Condition(threading.RLock())
        self._passed = 0  # points
        self._idle = False  # waiting for a batch
        self._requested: dict[str, str] = {}  # by this process: kind -> why
        self._held: dict[str, str] = {}  # requested, not yet agreed: kind -> why
        self._due: dict[str, int] = {}  # agreed: kind -> point
        self._why: dict[str, str] = {}
        self._answers: dict[str, dict[int, tuple[int, bool]]] = {}  # on process 0: kind -> answers

    # ---------------------------------------------------------------- asking

    def request(self, kind: str, why: str) -> None:
        """Makes all processes stop or save at their next common point; called in any thread.

        Args:
          kind: `STOP`, `SAVE` or `SAVE_NEAR`.
          why: what was seen or received; the name of this process is added.
        """
        self._requested[kind] = why
        line = self.line
        by = line.name(line.index) if line else "this process"
        if line is None or line.index == 0:
            self._hold(kind, f"{why} by {by}")
        else:
            line.send("ask", [kind, f"{why} by {by}"])

    @contextlib.contextmanager
    def including(self, line: "PeerLinks") -> Iterator[None]:
        """Includes other processes in the agreement while the block runs."""
        with self._changed:
            self.line, self._requested, earlier = line, {}, self._requested
            self._due.clear()
        line.listen(self._hear)
        for kind, why in earlier.items():  # from before the others were connected
            self.request(kind, why)
        try:
            yield
        finally:
            self.line = None

    def _hear(self, index: int, topic: str, message: Any) -> None:
        """Handles a message of another process; called in the thread of the peer links."""
        if topic == "ask":
            self._hold(*message)
        elif topic == "hold":
            self._hold(*message)
        elif topic == "passed":
            kind, passed, idle = message
            self._count(index, kind, passed, idle)
        elif topic == "due":
            self._agreed(*message)

    def _hold(self, kind: str, why: str) -> None:
        """Holds this process at its current point until the agreed point is known."""
        with self._changed:
            if kind in self._due or kind in self._held:
                return
            self._held[kind] = why
            answer = self._passed, self._idle
            if self.line is None:
                self._count(0, kind, *answer)
                return
        if self.line.index == 0:
            self.line.send("hold", [kind, why])
            self._count(0, kind, *answer)
        else:
            self.line.send("passed", [kind, *answer])

    def _count(self, index: int, kind: str, passed: int, idle: bool) -> None:
        """Counts one more answer, on process 0; announces the point once all have answered."""
        with self._changed:
            answers = self._answers.setdefault(kind, {})
            answers[index] = passed, idle
            if len(answers) < (self.line.count if self.line else 1):
                return
            del self._answers[kind]
            counts = [n for n, _ in answers.values()]
            if all(idle for _, idle in answers.values()) and min(counts) == max(counts):
                due = counts[0]
            else:
                due = max(counts) + (AHEAD if self.line else 1)
            if kind == STOP and not min(counts):
                due = 0
            why = self._held[kind]
        if self.line:
            self.line.send("due", [kind, due, why])
        self._agreed(kind, due, why)

    def _agreed(self, kind: str, due: int, why: str) -> None:
        with self._changed:
            self._held.pop(kind, None)
            self._due[kind], self._why[kind] = due, why
            self._changed.notify_all()
        if kind == STOP:
            log.info("stop: %s", why)
            goodput.event("stop", why=why)
            if not due:
                threading.Thread(target=self._end, args=(why,), daemon=True).start()

    def _end(self, why: str) -> None:
        """Ends a process that has nothing to save, whatever its main thread is doing."""
        time.sleep(GRACE_SECS)
        if self._due.get(STOP) == 0:
            text, code = str(_stopped(why)), Stopped.exit_code
            process_exit.say(text)
            self.line.end_all(code, text) if self.line else process_exit.end(code)

    # ---------------------------------------------------------------- points

    def check(self) -> None:
        """Raises Stopped, between phases of the start, if the run stops with nothing to save."""
        with self._changed:
            if self._due.get(STOP) == 0:
                raise _stopped(self._why[STOP])

    def pass_point(self) -> None:
        """Passes a point; raises Stopped if it is the last. Waits while one is being agreed on."""
        watchdog.mark()
        with self._changed:
            self._changed.wait_for(lambda: not self._held)
            self._passed += 1
            self._raise_if_due()

    def _raise_if_due(self) -> None:
        due = self._due.get(STOP)
        if due is not None and self._passed >= due:
            raise _stopped(self._why[STOP], save=due > 0)

    def wait_for_batch(self, get: Callable[[], _T]) -> _T:
        """Waits for a batch; raises Stopped if all stop while all wait for the same batch.

        Args:
          get: returns a batch; raises queue.Empty while there is none.
        """
        with self._changed:
            self._idle = True
        try:
            batches: list[_T] = []
            while not batches:
                with contextlib.suppress(queue.Empty):
                    batches.append(get())
                with self._changed:
                    if batches:  # the others may have agreed on a point because this one waits
                        self._changed.wait_for(lambda: not self._held)
                    self._raise_if_due()
                    if not batches and self.line is None and STOP in self._due:
                        # A process alone: no other process goes on to the point that is due.
                        raise _stopped(self._why[STOP], save=True)
                    self._idle = not batches
            return batches[0]
        finally:
            self._idle = False

    def take_save(self, kind: str) -> bool:
        """Returns True, after a step, if all save now because `request` was called with `kind`."""
        with self._changed:
            if kind not in self._due or self._passed < self._due[kind]:
                return False
            del self._due[kind]
            return True


def _stopped(why: str, *, save: bool = False) -> Stopped:
    return Stopped(f"stopped: {why}; run again to continue.", save=save)


# ---------------------------------------------------------------- this process

_now = Agreement()
_began = time.time()  # this start


def began() -> float:
    """Returns the time at which this start began, in seconds since 1970."""
    return _began


@contextlib.contextmanager
def listening(workdir: str = "") -> Iterator[None]:
    """Stops the run on a signal while the block runs: orderly on the first, at once on a second.

    Args:
      workdir: the folder of the run, whose STOP file is looked at now; "": looked at when
        `watching` begins.
    """
    global _now, _began
    agreement = _now = Agreement()
    _began = time.time()
    with contextlib.suppress(BadInput):  # reported when the workdir is used
        agreement.stop_file = signals.StopFile(storage.path(workdir)) if workdir else None

    def first(number: signal.Signals) -> None:
        log.warning(
            "%s received: stopping; a second SIGTERM or Ctrl-C ends this process at once",
            number.name,
        )
        agreement.request(STOP, f"{number.name} received")

    def again(number: signal.Signals) -> None:
        process_exit.say(f"{number.name} received again: ended without saving.")
        process_exit.end(128 + number)

    try:
        with signals.heard(first, again):
            yield
    finally:
        _now = Agreement()


@contextlib.contextmanager
def watching(workdir: Path, who: ProcessIdentity | Literal["tpu"] | None = None) -> Iterator[None]:
    """Also stops the run on a STOP file in the workdir or a notice of the machine's end.

    Args:
      workdir: the folder of the run.
      who: this process, if it is not yet connected to the others: only process 0 watches the file.
    """
    agreement = _now
    index = who.index if isinstance(who, ProcessIdentity) else 0

    def act(why: str) -> None:
        log.warning("%s: stopping", why)
        agreement.request(STOP, f"{why} seen")

    with contextlib.ExitStack() as stack:
        if (agreement.line.index if agreement.line else index) == 0:
            file = agreement.stop_file = agreement.stop_file or signals.StopFile(workdir)
            stack.enter_context(file.watched(functools.partial(act, str(file))))
        stack.enter_context(signals.maintenance(act))
        yield


def accepted() -> None:
    """Removes an old STOP file: the start cannot be refused any more."""
    if _now.stop_file is not None:
        _now.stop_file.remove_old()


def request(why: str) -> None:
    """Stops the run as on a signal; called in any thread, see `Agreement.request`."""
    _now.request(STOP, why)


def including(line: "PeerLinks") -> contextlib.AbstractContextManager[None]:
    """See `Agreement.including`."""
    return _now.including(line)


def check() -> None:
    """See `Agreement.check`."""
    _now.check()


_END: Any = object()


def feed(batches: Iterator[_T]) -> Iterator[_T]:
    """Yields the same batches, made in another thread, so that a wait for one can be interrupted.

    Each request is a point, which may raise `Stopped`. The thread makes one batch in advance while
    other threads compute.
    """
    agreement = _now
    wanted: queue.SimpleQueue[bool] = queue.SimpleQueue()
    # Not a SimpleQueue: its `get` waits for ever if a signal arrives as the timeout ends.
    ready: queue.Queue[tuple[_T, BaseException | None]] = queue.Queue()

    def work() -> None:
        while wanted.get():
            try:
                ready.put((next(batches, _END), None))
            except BaseException as e:
                ready.put((_END, e))

    thread = threading.Thread(target=work, name="batches", daemon=True)
    thread.start()
    try:
        wanted.put(True)
        while True:
            agreement.pass_point()
            wanted.put(True)
            batch, error = agreement.wait_for_batch(lambda: ready.get(timeout=_TICK_SECS))
            if error is not None:
                raise error
            if batch is _END:
                return
            recovery.passed("data")
            yield batch
    finally:
        wanted.put(False)
        thread.join(1)
        if thread.is_alive():  # it waits for storage
            process_exit.do_not_wait_for(thread, STORAGE_SECS)


class Backstop:
    """Makes all processes save when the newest checkpoint is too old, by the clock of process 0.

    Args:
      minutes: the greatest age of a checkpoint; 0: never.
      clock: returns seconds; for tests.
      kind: `SAVE` into the workdir, or `SAVE_NEAR` into the local tier.
    """

    def __init__(
        self, minutes: float, clock: Callable[[], float] = time.monotonic, kind: str = SAVE
    ):
        self._secs, self._clock, self._kind = minutes * 60, clock, kind
        self.saved()

    def saved(self) -> None:
        """Notes that a save has just started."""
        self._since, self._requested = self._clock(), False

    def due(self) -> bool:
        """Returns True, after a step, if all save now."""
        first = _now.line is None or _now.line.index == 0
        late = self._secs and self._clock() - self._since > self._secs
        if late and first and not self._requested:
            self._requested = True
            _now.request(self._kind, f"a checkpoint older than {self._secs / 60:g} minutes seen")
        return _now.take_save(self._kind)
