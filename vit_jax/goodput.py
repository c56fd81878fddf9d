# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Where the time of a run goes: a row of goodput.jsonl at each turn of its life.

`{"step": 600, "event": "save", "time": 1790000000.0}`, the time in seconds since 1970. Events, of
each start in this order: `start` (with `restarts`, and `seen`: when an earlier start that left no
`exit` was last seen), `initialised` (connected, built and restored), `first_step` (done, so
compiled), `save` (committed) again and again, `stop` (asked to; `why` says by whom), `exit` (with
`code`). Process 0 writes. `python -m launch report` sums up. Start from `recording`.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vit_jax import ending, rows
from vit_jax.errors import PeerLost, Stopped

FILE = "goodput.jsonl"
log = logging.getLogger("vit_jax")


class _Record:
    """The rows of this start; they wait until the workdir is one of a run."""

    def __init__(self, path: Path):
        self._path, self._file, self._lock = path, None, threading.Lock()
        self._waiting, self._step = list[dict[str, Any]](), 0

    def add(self, event: str, step: int | None, **more: Any) -> None:
        """A row; one that cannot be written is left out, and the log says so."""
        with self._lock:
            self._step = self._step if step is None else step
            self._waiting.append({"step": self._step, "event": event, "time": time.time(), **more})
            self._write()

    def begin(self) -> None:
        """Rows are written from now on, those that wait first."""
        with self._lock, self._tried():
            self._file = self._file or rows.cut(self._path)
            self._write()

    def _write(self) -> None:
        with self._tried():
            while self._file and self._waiting:
                self._file.add(self._waiting.pop(0))

    @contextlib.contextmanager
    def _tried(self) -> Iterator[None]:
        try:
            yield
        except (OSError, PeerLost) as e:
            log.warning("cannot write %s: %s", self._path, e)

    def close(self) -> None:
        """No rows follow, or none that is written."""
        with self._lock, self._tried():
            if self._file:
                self._file.close()
            self._file = None


_record: _Record | None = None


@contextlib.contextmanager
def recording(workdir: Path, seen: float | None, *, write: bool) -> Iterator[None]:
    """Records a start of the run in `workdir`, which exists, from here to its exit.

    A run that never began, as its input was bad, has no file.

    Args:
      workdir: of the run.
      seen: when an earlier start that was killed was last seen, in seconds since 1970.
      write: False for all processes but one.
    """
    global _record
    if not write:
        yield
        return
    path = workdir / FILE
    before = [row for row in rows.read_rows(path) if row.get("event") == "start"]
    _record = record = _Record(path)
    try:
        record.add("start", None, restarts=len(before), **({"seen": seen} if seen else {}))
        if before:
            record.begin()
        with ending.last(lambda: record.add("exit", None, code=ending.code())):
            yield
        record.add("exit", None, code=0)
    except BaseException as e:
        if isinstance(e, Stopped):
            record.add("stop", None, why=str(e))
        record.add("exit", None, code=getattr(e, "exit_code", 1))
        raise
    finally:
        _record = None
        record.close()


def event(name: str, step: int) -> None:
    """Adds a row, where this process records."""
    if _record:
        _record.add(name, step)


def begin() -> None:
    """The workdir is one of a run: what waits is written."""
    if _record:
        _record.begin()


def forget() -> None:
    """The run never began: nothing more is written."""
    if _record:
        _record.close()
