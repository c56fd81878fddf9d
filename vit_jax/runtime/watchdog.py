# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Notices when this process makes no progress any more, and records the stack of every thread.

The program marks its progress: a step, a batch of an evaluation, a phase. A thread checks the age
of the last mark, so it works whatever the main thread waits for, in Python or in C. Only code that
never releases Python's lock stops the watchdog too. This module must not import jax. Start from
`Watchdog`.
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

LEAST_SECS = 600.0  # the shortest time that counts as a hang, unless the user sets one
STEPS = 40  # steps that count as a hang: hosts run up to 32 ahead of the devices, then wait
LONG = 6  # start-up, evaluating and saving may take so many times as long as steps without a mark
FOLDER = "stacks"  # in a workdir
_KEPT = 50  # steps over which the time per step is averaged


class Watchdog:
    """Calls `hung` once when nothing was marked for too long.

    Args:
      hang_secs: the longest time without a mark while training; 0: the longer of 10 minutes and
        40 steps.
      hung: called in the thread of the watchdog, with the seconds without a mark.
      clock: returns seconds; for tests.
    """

    def __init__(
        self,
        hang_secs: float,
        hung: Callable[[float], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._hang_secs, self._hung, self._clock = hang_secs, hung, clock
        self._marked = clock()
        self._long = 1  # nested phases that take longer; start-up is one
        self._steps: deque[float] = deque(maxlen=_KEPT)  # times of dispatch
        self._ended = threading.Event()

    def mark(self) -> None:
        """Marks progress."""
        self._marked = self._clock()

    def step(self) -> None:
        """Marks that a step was dispatched, which ends the start-up."""
        if not self._steps:
            self._long -= 1
        self.mark()
        self._steps.append(self._marked)

    @contextlib.contextmanager
    def longer(self) -> Iterator[None]:
        """Allows the block more time, such as an evaluation, whose batches are marked."""
        self._long += 1
        self.mark()
        try:
            yield
        finally:
            self.mark()
            self._long -= 1

    @property
    def limit_secs(self) -> float:
        """The longest time without a mark that is allowed now."""
        limit = self._hang_secs
        if not limit:
            pairs = len(self._steps) - 1
            step_secs = (self._steps[-1] - self._steps[0]) / pairs if pairs > 0 else 0.0
            limit = max(LEAST_SECS, STEPS * step_secs)
        return limit * (LONG if self._long else 1)

    def look(self) -> bool:
        """Calls `hung` if nothing was marked for too long; returns True if it did."""
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
        """Checks the marks regularly while the block runs."""
        every_secs = min(5.0, (self._hang_secs or LEAST_SECS) / 10)
        thread = threading.Thread(
            target=self._watch, args=(every_secs,), name="watchdog", daemon=True
        )
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()


_now = Watchdog(0, lambda _: None)  # has no thread


@contextlib.contextmanager
def watching(hang_secs: float, hung: Callable[[float], None]) -> Iterator[None]:
    """Runs a `Watchdog` for the block; `mark`, `step` and `longer` then act on it."""
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
    """Returns the stacks of all threads of this process."""
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
