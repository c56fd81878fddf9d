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
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from multiprocessing import connection
from typing import Any

import numpy as np

from vit_jax.data.python_reader import worker
from vit_jax.data.python_reader.rows import Arrays, Recipe
from vit_jax.errors import BadInput, PeerLost, RunFailed

_EXIT_SECS = 5  # for a worker that has closed its connection
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


def _packed(value: Any) -> bytes:
    """Pickles what a worker needs; raises BadInput if its class cannot be imported elsewhere."""
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError) as e:
        raise BadInput(worker.not_importable(e)) from e


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

    def exit_code(self) -> int:
        """Returns the exit code of a process that has closed its connection."""
        try:
            return self.process.wait(_EXIT_SECS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class Pool:
    """The worker processes of this process.

    Attributes:
      changed: held for each change, and told of it.
      jobs: the jobs that are open, by number.
      error: why the workers have ended; None while they may run.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.jobs: dict[int, Job] = {}
        self.error: RunFailed | PeerLost | None = None
        self._workers: list[_Worker] = []
        self._waiting: collections.deque[worker.Rows] = collections.deque()
        self._listener: threading.Thread | None = None

    def start(self, count: int) -> None:
        """Starts this many workers, unless some run: all jobs share those of the first."""
        with self.changed:
            if self._workers or self.error:
                return
            size = 24 * count
            places = _memory(size)
            self._places = np.frombuffer(mmap.mmap(places, size), np.int64).reshape(count, 3)
            self._workers = [_Worker(index, places) for index in range(count)]
            os.close(places)
            atexit.register(self.end)
            self._listener = threading.Thread(
                target=self._listen, name="image workers", daemon=True
            )
            self._listener.start()

    def end(self) -> None:
        """Ends all workers at once; nobody needs what they are doing."""
        for one in self._workers:  # first: who sends to one of them may have the lock
            one.process.kill()
        with self.changed:
            self._finish(RunFailed("the processes that read images have been ended."))
        if self._listener:
            self._listener.join()

    def _finish(self, error: RunFailed | PeerLost) -> None:
        """Ends all workers, and all jobs with an error; the listener closes the connections."""
        if self.error:
            return
        self.error = error
        for one in self._workers:
            one.process.kill()
        for one in self._workers:
            one.process.wait()
        atexit.unregister(self.end)
        self.changed.notify_all()

    def processor_secs(self) -> float:
        """Returns the processor time of all workers up to what they have sent last."""
        return float(self._places[:, 2].sum()) / 1e9

    def open(self, job: "Job", recipe: bytes, memory: int) -> None:
        """Tells all workers about a job: its pickled recipe, and the descriptor of its memory."""
        with self.changed:
            for one in self._workers:
                with self._noticing(one):
                    worker.send_opening(
                        one.connection, worker.Opening(job.number, recipe, job.size), memory
                    )
            self.jobs[job.number] = job

    def close(self, job: "Job") -> None:
        """Takes back what was asked for a job."""
        with self.changed:
            self.jobs.pop(job.number, None)
            kept = [rows for rows in self._waiting if rows.job != job.number]
            self._waiting = collections.deque(kept)
            for one in self._workers:
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
                if self._waiting and one.outstanding < ahead:
                    one.outstanding += 1
                    with self._noticing(one):
                        one.connection.send(self._waiting.popleft())

    @contextlib.contextmanager
    def _noticing(self, one: _Worker) -> Iterator[None]:
        """Notices, while something is sent to a worker, that it is dead."""
        try:
            yield
        except ConnectionError:
            self._died(one)

    def _listen(self) -> None:
        """Receives what workers have done, until one dies; runs in a thread of its own."""
        by_connection = {one.connection: one for one in self._workers}
        while not self.error:
            for ready in connection.wait(list(by_connection)):
                one = by_connection[ready]  # type: ignore[index]
                try:
                    number, rows, failures = one.connection.recv()
                except (EOFError, OSError):
                    with self.changed:
                        self._died(one)
                    break
                with self.changed:
                    one.outstanding -= 1
                    if job := self.jobs.get(number):
                        job.done[rows] = failures
                    self._hand_out()
                    self.changed.notify_all()
        with self.changed:
            for one in self._workers:
                one.connection.close()
            self._workers = []

    def _died(self, one: _Worker) -> None:
        """Makes every job raise an error that names the image that a dead worker was at."""
        if self.error:
            return
        code = one.exit_code()
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        number, at, _ = (int(n) for n in self._places[self._workers.index(one)])
        job = self.jobs.get(number)
        where = f" at {job.name(at >> 32, at & 0xFFFFFFFF)}" if job else ""
        ended = f"a process that reads images ended {how}{where}"
        fewer = "give fewer processes (--config.data.workers)"
        if code == -signal.SIGKILL:  # not by the image
            self._finish(
                PeerLost(
                    f"{ended}, as the system does when memory is short. Run again; if it happens "
                    f"again, {fewer}."
                )
            )
        else:
            self._finish(
                RunFailed(
                    f"{ended}; see its last lines above. If memory was short, {fewer}; otherwise "
                    "remove the image."
                )
            )


_shared = Pool()
_numbers = itertools.count(1)


def shared() -> Pool:
    """Returns the pool of this process; a new one if the last has ended and holds nothing."""
    global _shared
    if _shared.error:
        _shared.end()
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
        packed = _packed(recipe)
        self._pool.start(workers)
        memory = _memory(self.size)
        try:
            self._buffer = mmap.mmap(memory, self.size)
            self._pool.open(self, packed, memory)
        finally:
            os.close(memory)

    def arrays(self, slot: int) -> Arrays:
        """Returns the memory of a batch: its views, uint8 [rows, (count,) H, W, C] each."""
        return self.recipe.arrays(memoryview(self._buffer), slot * self._bytes, self._rows)

    def ask(self, slot: int, parts: dict[int, tuple[int, worker.Images]]) -> None:
        """Lets workers fill rows of a batch.

        Args:
          slot: the place of the batch in memory.
          parts: number that identifies some rows -> the first row, and image and seed of each.

        Raises:
          BadInput: the class of an image cannot be imported by workers.
        """
        start = slot * self._bytes
        rows = [
            worker.Rows(self.number, number, start, self._rows, first, _packed(images))
            for number, (first, images) in parts.items()
        ]
        self._pool.ask(rows)

    def wait_for(self, numbers: range) -> list[worker.Failure]:
        """Waits until these rows are filled; returns those that failed.

        Raises:
          PeerLost: a worker was killed (signal 9).
          RunFailed: a worker has died in another way.
        """
        with self._pool.changed:
            done = self._pool.changed.wait_for(
                lambda: self._pool.error or all(n in self.done for n in numbers)
            )
            if isinstance(done, Exception):
                raise done
            return [failure for n in numbers for failure in self.done.pop(n)]

    def close(self) -> None:
        """Takes back what is not filled yet."""
        self._pool.close(self)
