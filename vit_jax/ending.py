# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The end of a process that cannot wait for its main thread, from whatever thread.

Python's exit hooks are not run: those of jax and TensorFlow wait for what may never come. What must
be done all the same is registered with `last`. Start from `end`.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator

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


def end(code: int) -> None:
    """Ends the process with an exit code; does not return."""
    for action in reversed(_last):
        with contextlib.suppress(Exception):
            action()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
