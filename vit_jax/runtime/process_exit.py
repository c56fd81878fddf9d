# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ends a process that cannot wait for its main thread, from any thread.

Python's exit hooks do not run: those of jax and TensorFlow wait for events that may never come.
Actions that must run all the same are registered with `before_exit`. Start from `end`.
"""

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

is_command = False  # True in a command of this package: nothing follows the run but the exit
LAST_SECS = 2.0  # for each action that is registered with `before_exit`
_actions: list[Callable[[], None]] = []


@contextlib.contextmanager
def before_exit(action: Callable[[], None]) -> Iterator[None]:
    """Makes `end` run `action` first, while the block lasts; the action must be quick."""
    _actions.append(action)
    try:
        yield
    finally:
        _actions.remove(action)


def say(text: str) -> None:
    """Prints why the process ends; ignores a closed stream."""
    with contextlib.suppress(OSError, ValueError):
        print(f"vit_jax: {text}", file=sys.stderr)


def ends_in_time(action: Callable[[], object], secs: float) -> bool:
    """Runs an action that may fail or wait for ever; returns True if it succeeded in time."""
    ended = threading.Event()

    def work() -> None:
        with contextlib.suppress(Exception):
            action()
            ended.set()

    thread = threading.Thread(target=work, name="at the end", daemon=True)
    thread.start()
    thread.join(secs)
    return ended.is_set()


_code: int | None = None  # exit code of this process, once it ends


def end(code: int) -> None:
    """Ends the process with an exit code; does not return."""
    global _code
    _code = code
    for action in reversed(_actions):
        ends_in_time(action, LAST_SECS)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def code() -> int:
    """Returns the exit code of this process, if known; else 1."""
    return 1 if _code is None else _code


_threads: list[threading.Thread] = []


def do_not_wait_for(thread: threading.Thread, secs: float | None = None) -> None:
    """Makes the command of this package not wait for a thread that is still busy, see `finish`.

    A program that sets its own exit code does wait at its exit. Either comes before the exit hooks
    of jax, which would wait for such a thread or make it crash.

    Args:
      thread: a daemon thread.
      secs: how long such a program waits before it ends as by `end(1)`; None: for ever.
    """
    _threads.append(thread)
    atexit.register(_wait, thread, secs)


def _wait(thread: threading.Thread, secs: float | None) -> None:
    thread.join(secs)
    if thread.is_alive():
        say(f"the thread {thread.name!r} does not end: ended without it.")
        end(1)


def finish(code: int) -> int:
    """Returns the exit code of the command, as its last act.

    Ends the process here if a thread of `do_not_wait_for` is still busy.
    """
    if any(thread.is_alive() for thread in _threads):
        end(code)
    return code
