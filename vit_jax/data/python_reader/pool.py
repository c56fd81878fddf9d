# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Owns the worker processes, which all jobs of this process share. Start from `Job`.

Workers are started once, as programs of their own: a fork of a process that runs jax could hang.
They get images to read through a socket and write pixels into memory that both sides see. When this
process ends, its sockets close, and the workers end.
"""

import atexit
import collections
import contextlib
import itertools
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection

import numpy as np

from vit_jax.data.python_reader import worker
from vit_jax.data.python_reader.rows import Arrays, Recipe
from vit_jax.errors import RunFailed

_AHEAD = 2  # messages that a worker has beforehand, so that it need not wait
_PROGRAM = "from vit_jax.data.python_reader.worker import main; main({}, {}, {})"
# Signals that reach a group of processes: the process that owns the workers answers them.
_LEFT_TO_OWNER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def _memory(size: int) -> int:
    """Returns the descriptor of zeroed memory that several processes can map."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("vit_jax")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


class _Worker:
    """A worker process and the connection to it."""

    def __init__(self, index: int, places: int):
        ours, theirs = socket.socketpair()
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            # The memory of arrays is kept. Given back, it costs as much time as all else.
            "MALLOC_MMAP_THRESHOLD_": str(2**30),
            "MALLOC_TRIM_THRESHOLD_": str(2**30),
        }
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_TO_OWNER)  # the worker inherits it
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM.format(theirs.fileno(), places, index)],
                pass_fds=(theirs.fileno(), places), stdin=subprocess.DEVNULL, env=environment,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
        self.connection = connection.Connection(ours.detach())
        self.outstanding = 0


class Pool:
    """The worker processes of this process."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.jobs: dict[int, Job] = {}
        self.error: RunFailed | None = None
        self._workers: list[_Worker] = []
        self._waiting: collections.deque[worker.Rows] = collections.deque()
        self.closed = False

    def start(self, count: int) -> None:
        """Starts this many workers if they do not run yet."""
        with self.changed:
            if self._workers or self.error:
                return
            size = 24 * count
            places = _memory(size)
            self._places = np.frombuffer(mmap.mmap(places, size), np.int64).reshape(count, 3)
            self._workers = [_Worker(index, places) for index in range(count)]
            os.close(places)
            atexit.register(self.end)
            threading.Thread(target=self._listen, name="image workers", daemon=True).start()

    def end(self) -> None:
        """Ends all workers at once; nobody needs what they are doing."""
        with self.changed:
            self.closed = True
            for one in self._workers:
                one.process.kill()
            for one in self._workers:
                one.process.wait()

    def processor_secs(self) -> float:
        """Returns the processor time of all workers up to what they have sent last."""
        return float(self._places[:, 2].sum()) / 1e9

    def open(self, job: "Job", memory: int) -> None:
        """Tells all workers about a job."""
        with self.changed:
            self.jobs[job.number] = job
            for one in self._workers:
                with self._noticing(one):
                    one.connection.send(worker.Opening(job.number, job.recipe, job.size))
                    worker.send_descriptor(one.connection, memory)

    def close(self, job: "Job") -> None:
        """Takes back what was asked for a job."""
        with self.changed:
            self.jobs.pop(job.number, None)
            kept = [rows for rows in self._waiting if rows.job != job.number]
            self._waiting = collections.deque(kept)
            for one in self._workers if not self.error else ():
                with self._noticing(one):
                    one.connection.send(worker.Closing(job.number))

    def ask(self, rows: list[worker.Rows]) -> None:
        """Lets workers fill rows, in this order."""
        with self.changed:
            self._waiting += rows
            self._hand_out()

    def _hand_out(self) -> None:
        for ahead in range(1, _AHEAD + 1):
            for one in self._workers:
                if self._waiting and one.outstanding < ahead and not self.error:
                    one.outstanding += 1
                    with self._noticing(one):
                        one.connection.send(self._waiting.popleft())

    @contextlib.contextmanager
    def _noticing(self, one: _Worker) -> Iterator[None]:
        """Notices that a worker is dead."""
        try:
            yield
        except (EOFError, OSError):
            self._died(one)

    def _listen(self) -> None:
        """Receives what workers have done, until one dies; runs in a thread of its own."""
        by_connection = {one.connection: one for one in self._workers}
        while not self.error and not self.closed:
            for ready in connection.wait(list(by_connection)):
                one = by_connection[ready]  # type: ignore[index]
                try:
                    number, rows, failures = one.connection.recv()
                except (EOFError, OSError):
                    with self.changed:
                        self._died(one)
                    return
                with self.changed:
                    one.outstanding -= 1
                    if job := self.jobs.get(number):
                        job.done[rows] = failures
                    self._hand_out()
                    self.changed.notify_all()

    def _died(self, one: _Worker) -> None:
        """Makes every job raise an error that names the image that a dead worker was at."""
        if self.closed or self.error:
            return
        code = one.process.wait()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        number, at, _ = (int(n) for n in self._places[self._workers.index(one)])
        job = self.jobs.get(number)
        where = f" at {job.name(at >> 32, at & 0xFFFFFFFF)}" if job else ""
        for other in self._workers:
            other.process.kill()
        self.error = RunFailed(
            f"a process that reads images ended {how}{where}; see its last lines above. If memory "
            "was short, give fewer processes (--config.data.workers); otherwise remove the image."
        )
        self.changed.notify_all()


_shared = Pool()
_numbers = itertools.count(1)


def shared() -> Pool:
    """Returns the pool of this process; a new one if the last has ended."""
    global _shared
    if _shared.error or _shared.closed:
        _shared = Pool()
    return _shared


class Job:
    """The rows of some batches, filled by workers.

    Attributes:
      recipe: what becomes of each image.
      number: identifies the job; 0 is none.
      size: bytes of the memory, for all batches that are filled at the same time.
      name: (number of rows that were asked for, row) -> the name of the image.
      done: number of rows that were asked for -> those that failed.
    """

    def __init__(
        self, recipe: Recipe, batches: int, rows: int, workers: int,
        name: Callable[[int, int], str],
    ):  # fmt: skip
        self.recipe, self.number, self.name, self._pool = recipe, next(_numbers), name, shared()
        self.done: dict[int, list[worker.Failure]] = {}
        self._rows, self._bytes = rows, rows * recipe.row_bytes()
        self.size = max(batches * self._bytes, 1)
        self._pool.start(workers)
        memory = _memory(self.size)
        self._buffer = mmap.mmap(memory, self.size)
        self._pool.open(self, memory)
        os.close(memory)

    def arrays(self, slot: int) -> Arrays:
        """Returns the memory of a batch."""
        return self.recipe.arrays(memoryview(self._buffer), slot * self._bytes, self._rows)

    def ask(self, slot: int, parts: dict[int, tuple[int, worker.Images]]) -> None:
        """Lets workers fill rows of a batch.

        Args:
          slot: the place of the batch in memory.
          parts: number that identifies some rows -> the first row, and image and seed of each.
        """
        start = slot * self._bytes
        rows = [
            worker.Rows(self.number, number, start, self._rows, first, images)
            for number, (first, images) in parts.items()
        ]
        self._pool.ask(rows)

    def wait_for(self, numbers: range) -> list[worker.Failure]:
        """Waits until these rows are filled; returns those that failed.

        Raises:
          RunFailed: a worker has died.
        """
        with self._pool.changed:
            done = self._pool.changed.wait_for(
                lambda: self._pool.error or all(n in self.done for n in numbers)
            )
            if isinstance(done, RunFailed):
                raise done
            return [failure for n in numbers for failure in self.done.pop(n)]

    def close(self) -> None:
        """Takes back what is not filled yet."""
        self._pool.close(self)
