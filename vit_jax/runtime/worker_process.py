# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A fresh process that answers questions, for work that needs its own platform, memory or clock.

Start from `Child`.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from vit_jax.errors import BadInput, RunFailed


class Child:
    """A process that calls `make(*args)`, and then applies that function to each question.

    It lasts until the end of a `with` block, or of this process. `make`, the questions and the
    answers are pickled.
    """

    def __init__(self, make: Callable[..., Callable[[Any], Any]], *args: Any, died: str = ""):
        """Starts the process.

        Args:
          make: a function of a module that can be imported.
          args: its arguments.
          died: the message for the user if the process ends by itself.
        """
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._died = died or "a process of its own ended; its last words are above."
        self._process = context.Process(target=_serve, args=(theirs, make, args), daemon=True)
        with _blocked():
            self._process.start()
        theirs.close()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()

    def ask(self, question: Any) -> Any:
        """Returns the answer of the function in the process.

        Raises:
          BadInput, RunFailed: the function raised it, or the process ended (RunFailed).
        """
        try:
            self._ours.send(question)
            answer = self._ours.recv()
        except (EOFError, ConnectionError) as e:
            raise RunFailed(self._died) from e
        if isinstance(answer, Exception):
            raise answer
        return answer


def end_with_parent(number: signal.Signals) -> None:
    """Lets this process get a signal when the thread that started it ends; only on Linux."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def _blocked() -> Iterator[None]:
    """Blocks SIGINT and SIGTERM in every thread of a process that starts meanwhile.

    The parent gets these signals too, and ends that process. Handled there, they would interrupt
    its work, or make libtpu print a stack.
    """
    resource_tracker.ensure_running()  # its first start would unblock both
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(channel: Connection, make: Callable[..., Any], args: tuple[Any, ...]) -> None:
    end_with_parent(signal.SIGKILL)  # also if the parent is killed
    os.dup2(2, 1)  # keeps stdout clean
    apply = None
    with contextlib.suppress(EOFError):
        while True:
            question = channel.recv()
            try:
                apply = apply or make(*args)
                channel.send(apply(question))
            except (BadInput, RunFailed) as e:
                channel.send(e)
