# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Where the time of a run goes: a row of goodput.jsonl at each turn of its life.

`{"step": 600, "event": "save", "time": 1790000000.0}`, the time in seconds since 1970. Events, of
each start: `start` (with `restarts`, and `seen`: when an earlier start that left no `exit` was last
seen), `initialised` (connected, built and restored), `first_step` (done, so compiled), `save`
(committed) again and again, `stop` (asked to; `why` says by whom), `exit` (with `code`). Process 0
writes. `python -m launch report` sums up. Start from `recording`.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vit_jax.errors import PeerLost
from vit_jax.runtime import process_exit
from vit_jax.storage import jsonl

FILE = "goodput.jsonl"
log = logging.getLogger("vit_jax")


class _Record:
    """The rows of this start; they wait until the workdir is one of a run."""

    def __init__(self, path: Path):
        self._path, self._file, self._lock = path, None, threading.Lock()
        self._waiting, self._step, self._closed = list[dict[str, Any]](), 0, False
        self.restarts = 0
        self.left_open: contextlib.ExitStack | None = None  # kept until `process_exit.end`

    def add(self, event: str, step: int | None = None, **more: Any) -> None:
        """A row; one that cannot be written is left out, and the log says so."""
        with self._lock, self._tried():
            self._step = self._step if step is None else step
            self._waiting.append({"step": self._step, "event": event, "time": time.time(), **more})
            self._write()

    def begin(self) -> None:
        """Rows are written from now on, those that wait first."""
        with self._lock, self._tried():
            if not self._closed:
                self._file = self._file or jsonl.cut(self._path)
            self._write()

    def _write(self) -> None:
        while self._file and self._waiting:
            self._file.add(self._waiting.pop(0))

    @contextlib.contextmanager
    def _tried(self) -> Iterator[None]:
        try:
            yield
        except (OSError, PeerLost, ValueError) as e:
            log.warning("cannot write %s: %s", self._path, e)

    def close(self) -> None:
        """What is written is there; no more is."""
        with self._lock, self._tried():
            file, self._file, self._closed = self._file, None, True
            if file:
                file.close()

    def exit(self, code: int) -> None:
        """The last row."""
        self.add("exit", code=code)
        self.close()


_record: _Record | None = None


@contextlib.contextmanager
def recording(
    workdir: Path, *, since: float, seen: float | None, write: bool = True, alone: bool = True
) -> Iterator[None]:
    """Records a start of the run in `workdir`, which exists, from here to its exit.

    The file is made once the run begins (`begin`), or at once where it began in an earlier start.

    Args:
      workdir: of the run.
      since: when this start began, in seconds since 1970.
      seen: when an earlier start that was killed was last seen, likewise; None if there was none.
      write: False for all processes but one.
      alone: False where an error that nobody expected may be that of another process: the exit
        code is known only to `process_exit.end` then.
    """
    global _record
    if not write:
        yield
        return
    _record = record = _begun(workdir / FILE, since, seen)
    with contextlib.ExitStack() as stack:
        stack.enter_context(process_exit.last(lambda: record.exit(process_exit.code())))
        try:
            yield
        except BaseException as e:
            code = getattr(e, "exit_code", None)
            if code is None and not alone:
                record.left_open = stack.pop_all()
                raise
            record.exit(1 if code is None else code)
            raise
        else:
            record.exit(0)
        finally:
            _record = None


def _begun(path: Path, since: float, seen: float | None) -> _Record:
    """A record with its first row; one that writes nothing where the rows cannot be read."""
    record = _Record(path)
    try:
        record.restarts = sum(row.get("event") == "start" for row in jsonl.read_rows(path))
    except (OSError, PeerLost) as e:
        log.warning("cannot read %s: %s", path, e)
        record.close()
    more: dict[str, Any] = {} if seen is None else {"seen": seen}
    record.add("start", time=since, restarts=record.restarts, **more)
    if record.restarts:
        record.begin()
    return record


def event(name: str, step: int | None = None, **more: Any) -> None:
    """Adds a row, where this process records; without a step, that of the row before."""
    if record := _record:
        record.add(name, step, **more)


def begin() -> None:
    """The workdir is one of a run: what waits is written."""
    if record := _record:
        record.begin()
