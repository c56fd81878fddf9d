# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Notices that nothing goes on any more in this process, and says what every thread is doing.

The program marks what it has done: a step, a batch of an evaluation, a phase. A thread looks at the
age of the last mark, so it works whatever the main thread waits for, in Python or in C; only code
that never gives up Python's lock stops it too. Must not import jax. Start from `Watchdog`.
"""

import contextlib
import faulthandler
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from vit_jax.storage import files as storage

LEAST_SECS = 600.0  # the shortest time that is called a hang unless the user says otherwise
STEPS = 40  # as long as so many steps: hosts run up to 32 ahead of the devices, then wait for them
LONG = 6  # start-up, evaluating and saving may take so many times as long as steps without a mark
FOLDER = "stacks"  # of a workdir
_KEPT = 50  # steps over which their time is averaged


class Watchdog:
    """Calls `hung` once when nothing was marked for too long.

    Args:
      hang_secs: without a mark while steps are trained; 0: the longer of 10 minutes and 40 steps.
      hung: called in the thread of the watchdog, with the seconds without a mark.
      clock: in seconds; for tests.
    """

    def __init__(
        self,
        hang_secs: float,
        hung: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._hang_secs, self._hung, self._clock = hang_secs, hung, clock
        self._marked = clock()
        self._long = 1  # depth of phases that take longer; start-up is one
        self._steps: deque[float] = deque(maxlen=_KEPT)  # when they were dispatched
        self._ended = threading.Event()

    def mark(self) -> None:
        """Something was done."""
        self._marked = self._clock()

    def step(self) -> None:
        """A step was dispatched: start-up is over."""
        if not self._steps:
            self._long -= 1
        self.mark()
        self._steps.append(self._marked)

    @contextlib.contextmanager
    def longer(self) -> Iterator[None]:
        """A phase that takes longer than steps, such as an evaluation, whose batches are marked."""
        self._long += 1
        self.mark()
        try:
            yield
        finally:
            self.mark()
            self._long -= 1

    @property
    def limit_secs(self) -> float:
        """How long nothing may be marked, as it is now."""
        limit = self._hang_secs
        if not limit:
            pairs = len(self._steps) - 1
            step_secs = (self._steps[-1] - self._steps[0]) / pairs if pairs > 0 else 0.0
            limit = max(LEAST_SECS, STEPS * step_secs)
        return limit * (LONG if self._long else 1)

    def look(self) -> bool:
        """Calls `hung` if nothing was marked for too long; returns whether it did."""
        secs = self._clock() - self._marked
        if secs > self.limit_secs:
            self._hung(secs)
            return True
        return False

    def _watch(self, every_secs: float) -> None:
        while not self._ended.wait(every_secs):
            if self.look():
                return

    @contextlib.contextmanager
    def watching(self) -> Iterator["Watchdog"]:
        """Looks again and again as long as the block lasts."""
        every_secs = min(5.0, (self._hang_secs or LEAST_SECS) / 10)
        thread = threading.Thread(
            target=self._watch, args=(every_secs,), name="watchdog", daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()


_now = Watchdog(0, lambda _: None)  # nobody looks


@contextlib.contextmanager
def watching(hang_secs: float, hung: Callable[[float], None]) -> Iterator[None]:
    """A `Watchdog` as long as the block lasts: `mark`, `step` and `longer` are its own."""
    global _now
    before, _now = _now, Watchdog(hang_secs, hung)
    try:
        with _now.watching():
            yield
    finally:
        _now = before


def mark() -> None:
    """See `Watchdog.mark`."""
    _now.mark()


def step() -> None:
    """See `Watchdog.step`."""
    _now.step()


def longer() -> contextlib.AbstractContextManager[None]:
    """See `Watchdog.longer`."""
    return _now.longer()


def stacks() -> str:
    """Where every thread of this process is."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read()


def write_stacks(workdir: Path, index: int, why: str) -> Path:
    """Writes the stacks of this process into a workdir; returns the file."""
    file = workdir / FOLDER / f"process-{index}.txt"
    storage.make_folder(file.parent)
    storage.write(file, f"{time.strftime('%Y-%m-%d %H:%M:%S')} {why}\n\n{stacks()}")
    return file
