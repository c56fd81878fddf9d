# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The end of a process that cannot wait for its main thread, from whatever thread.

Python's exit hooks are not run: those of jax and TensorFlow wait for what may never come. What must
be done all the same is registered with `last`. Start from `end`.
"""

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

# A closed terminal, a scheduler's warning (Slurm's --signal), a used-up limit on processor time.
# They may be sent again and again, and SIGTERM may follow while the run saves.
NOTICES = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
LAST_SECS = 2.0  # for each of what is registered with `last`
_last: list[Callable[[], None]] = []


@contextlib.contextmanager
def last(action: Callable[[], None]) -> Iterator[None]:
    """Has `end` do something first, as long as the block lasts; it must be quick."""
    _last.append(action)
    try:
        yield
    finally:
        _last.remove(action)


def say(text: str) -> None:
    """Prints why the process ends, if anybody reads it."""
    with contextlib.suppress(OSError, ValueError):
        print(f"vit_jax: {text}", file=sys.stderr)


def briefly(action: Callable[[], object], secs: float) -> bool:
    """Does what may fail, or wait for storage for ever; whether it ended well and in time."""
    ended = threading.Event()

    def work() -> None:
        with contextlib.suppress(Exception):
            action()
            ended.set()

    thread = threading.Thread(target=work, name="at the end", daemon=True)
    thread.start()
    thread.join(secs)
    return ended.is_set()


_code: int | None = None  # of this process, once it ends


def end(code: int) -> None:
    """Ends the process with an exit code; does not return."""
    global _code
    _code = code
    for action in reversed(_last):
        briefly(action, LAST_SECS)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def code() -> int:
    """What the process returns, as far as it is known; else 1."""
    return 1 if _code is None else _code


_left: list[threading.Thread] = []


def not_for(thread: threading.Thread, secs: float | None = None) -> None:
    """Has the command of this package not wait for a thread that is still at work, see `returns`.

    A program whose exit code is its own business does wait at its exit. Either comes before the
    exit hooks of jax, under which such a thread would crash, or which would wait for it.

    Args:
      thread: a daemon.
      secs: how long such a program waits, before it ends as by `end(1)`; None: for ever.
    """
    _left.append(thread)
    atexit.register(_wait, thread, secs)


def _wait(thread: threading.Thread, secs: float | None) -> None:
    thread.join(secs)
    if thread.is_alive():
        say(f"the thread {thread.name!r} does not end: ended without it.")
        end(1)


def returns(code: int) -> int:
    """Returns the exit code of the command, as its last act.

    Ends the process here if a thread of `not_for` is still at work. Notices change nothing from
    here on: Python takes a moment to end, and a scheduler may send them again.
    """
    for number in NOTICES:
        signal.signal(number, signal.SIG_IGN)
    if any(thread.is_alive() for thread in _left):
        end(code)
    return code
