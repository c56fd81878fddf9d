# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Records where the time of a run goes: a row of goodput.jsonl at each event of its life.

A row is `{"step": 600, "event": "save", "time": 1790000000.0}`, with the time in seconds since
1970. Each start has the events `start` (with `restarts`; `seen`: when an earlier start that left no
`exit` was last seen; `reached`: the largest step that an earlier start had reported, because each
start cuts metrics.jsonl), `initialised` (connected, built and restored), `first_step` (done, so
compiled), `new_step` (the first that no earlier start had reported, with the split of the time
until then: `secs`, `parts`, `buckets`, see `recovery`), `save` (committed) again and again, `stop`
(requested; `why` names the source), `staged` (with `data.stage`: `bytes` in copies, images read in
`copies` and from the `origin`), `slices` (with `elastic.secs`: `slices` that train, `of` the run's,
`accumulation`), `exit` (with `code`). Process 0 writes. `python -m launch report`
sums up. Start from `recording`.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vit_jax.errors import PeerLost
from vit_jax.runtime import process_exit, recovery
from vit_jax.storage import jsonl

FILE = "goodput.jsonl"
log = logging.getLogger("vit_jax")


class _Record:
    """The rows of this start; they wait until the workdir belongs to a run."""

    def __init__(self, path: Path):
        self._path, self._file, self._lock = path, None, threading.Lock()
        self._waiting, self._step, self._closed = list[dict[str, Any]](), 0, False
        self.restarts = 0
        self.since = 0.0  # when this start began
        self.ended: float | None = None  # when the last start ended
        self.reached = 0  # the largest step that an earlier start had reported
        self.left_open: contextlib.ExitStack | None = None  # kept until `process_exit.end`

    def add(self, event: str, step: int | None = None, **more: Any) -> None:
        """Adds a row; a row that cannot be written is left out, and the log says so."""
        with self._lock, self._tried():
            self._step = self._step if step is None else step
            self._waiting.append({"step": self._step, "event": event, "time": time.time(), **more})
            self._write()

    def begin(self) -> None:
        """Writes the waiting rows, and writes rows at once from now on."""
        with self._lock, self._tried():
            if not self._closed:
                self._file = self._file or jsonl.open_for_append(self._path)
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
        """Closes the file; later rows are dropped."""
        with self._lock, self._tried():
            file, self._file, self._closed = self._file, None, True
            if file:
                file.close()

    def exit(self, code: int) -> None:
        """Adds the last row."""
        self.add("exit", code=code)
        self.close()


_record: _Record | None = None


@contextlib.contextmanager
def recording(
    workdir: Path, *, since: float, seen: float | None, write: bool = True, alone: bool = True
) -> Iterator[None]:
    """Records a start of the run in the existing `workdir`, from here to its exit.

    The file is made once the run begins (`begin`), or at once if the run began in an earlier start.

    Args:
      workdir: the folder of the run.
      since: the time at which this start began, in seconds since 1970, if no command began it.
      seen: the time at which an earlier start that was killed was last seen, likewise; None if
        there was none.
      write: False for all processes but one.
      alone: False if an unexpected error may come from another process: then only
        `process_exit.end` knows the exit code.
    """
    global _record
    if not write:
        yield
        return
    _record = record = _begun(workdir, recovery.began(since), seen)
    with contextlib.ExitStack() as stack:
        stack.enter_context(process_exit.before_exit(lambda: record.exit(process_exit.code())))
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
            recovery.forget()


def _begun(workdir: Path, since: float, seen: float | None) -> _Record:
    """Returns a record with its first row; it writes nothing if the rows cannot be read."""
    path = workdir / FILE
    record = _Record(path)
    record.since = since
    try:
        rows = jsonl.read_rows(path)
        record.restarts = sum(row.get("event") == "start" for row in rows)
        record.ended = recovery.ended(rows, seen, since)
        record.reached = _reached(workdir, rows)
    except (OSError, PeerLost) as e:
        log.warning("cannot read %s: %s", path, e)
        record.close()
    more: dict[str, Any] = {} if seen is None else {"seen": seen}
    if record.reached:
        more["reached"] = record.reached
    record.add("start", time=since, restarts=record.restarts, **more)
    if record.restarts:
        record.begin()
    return record


def _reached(workdir: Path, rows: Sequence[Mapping[str, Any]]) -> int:
    steps = [row["reached"] for row in rows if type(row.get("reached")) is int]
    with contextlib.suppress(OSError, PeerLost):  # `metric_writer.Report` tells it
        steps += [row["step"] for row in jsonl.read_rows(workdir / jsonl.METRICS_FILE)]
    return max(steps, default=0)


def reached() -> int:
    """Returns the largest step that an earlier start had reported; 0 if nothing is recorded."""
    return _record.reached if _record else 0


def event(name: str, step: int | None = None, **more: Any) -> None:
    """Adds a row if this process records; without a step, the row has that of the row before."""
    if record := _record:
        record.add(name, step, **more)


def stepped(step: int, *, first: bool, new: bool) -> None:
    """Adds the rows of the first step of this start, and of the first new step, which are done."""
    recovery.passed("first_step" if first else "repeated")
    if first:
        event("first_step", step)
    if new and (record := _record):
        record.add("new_step", step, **recovery.of_this_start(record.ended, record.since))


passed = recovery.passed


def begin() -> None:
    """Writes the waiting rows: the workdir now belongs to a run."""
    if record := _record:
        record.begin()
