# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The program of a worker process: it takes rows from a connection and writes them into memory.

A worker ends when its connection ends, so none outlives the process that started it, however that
ends. It imports neither jax nor TensorFlow, and starts in a fraction of a second. Start from
`main`.
"""

import dataclasses
import functools
import mmap
import os
import pickle
import queue
import socket
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.numpy_ops.resize import Unsuitable
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.python_reader.rows import Arrays, Fields, Recipe
from vit_jax.errors import BadInput, StoreLost

Images = tuple[tuple[Fields, Seed], ...]  # each with the seed of its example


@dataclasses.dataclass(frozen=True)
class Opening:
    """Begins a job: its `Recipe`, pickled. The descriptor of its memory, `size` bytes, follows."""

    job: int
    recipe: bytes
    size: int


@dataclasses.dataclass(frozen=True)
class Rows:
    """Some rows of a batch to fill.

    Attributes:
      job: the number of the job.
      number: identifies these rows within the job.
      start: where the memory of the batch begins.
      batch: the number of rows of the batch.
      first: the first of these rows.
      images: the image of each row, and its seed: `Images`, pickled.
    """

    job: int
    number: int
    start: int
    batch: int
    first: int
    images: bytes


@dataclasses.dataclass(frozen=True)
class Closing:
    """Ends a job."""

    job: int


@dataclasses.dataclass(frozen=True)
class Failure:
    """A row that could not be filled.

    Attributes:
      row: the row of the batch.
      kind: `image`: it cannot be decoded; `read`: it cannot be read; `chain`: it does not go
        through the chain; `input`: no image could; `store`: the object store does not answer;
        `bug`: any other error.
      reason: some words; for `input` and `store`, the whole message; for `bug`, a traceback.
    """

    row: int
    kind: str
    reason: str


Done = tuple[int, int, list[Failure]]  # job, number, and the rows that could not be filled


def fill(recipe: Recipe, image: Fields, seed: Seed, arrays: Arrays, row: int) -> Failure | None:
    """Fills one row; returns the failure if it cannot."""
    try:
        recipe.write(image, seed, arrays, row)
        return None
    except BadImage as e:
        return Failure(row, "image", str(e))
    except Unsuitable as e:
        return Failure(row, "chain", str(e))
    except BadInput as e:
        return Failure(row, "input", str(e))
    except StoreLost as e:
        return Failure(row, "store", str(e))
    except OSError as e:
        return Failure(row, "read", e.strerror or str(e))
    except Exception:
        return Failure(row, "bug", traceback.format_exc())


def not_importable(error: Exception) -> str:
    """Returns the message for an op or image that is not pickled, or unpickled, with this error."""
    return (
        f"data.reader=python: worker processes cannot import an op or image of yours ({error}); "
        "put its class into a module of its own, not into a function or the program itself."
    )


def send_opening(connection: Connection, opening: Opening, memory: int) -> None:
    """Sends the beginning of a job, and the descriptor of its memory."""
    connection.send(opening)
    line = socket.socket(fileno=connection.fileno())
    try:
        socket.send_fds(line, [b"d"], [memory])
    finally:
        line.detach()


def _receive(connection: Connection, orders: "queue.SimpleQueue[Any]") -> None:
    """Takes in orders at any time, so that whoever sends them never waits for this process.

    Maps the memory of jobs. Ends the process when the connection ends.
    """
    try:
        while True:
            try:
                order = connection.recv()
            except (EOFError, OSError):
                os._exit(0)
            buffer = _mapped(connection, order.size) if isinstance(order, Opening) else None
            orders.put((order, buffer))
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def _mapped(connection: Connection, size: int) -> mmap.mmap:
    """Returns the memory whose descriptor comes next."""
    line = socket.socket(fileno=connection.fileno())
    try:
        _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
    finally:
        line.detach()
    try:
        return mmap.mmap(descriptors[0], size)
    finally:
        os.close(descriptors[0])


def main(descriptor: int, places: int, index: int) -> None:
    """Fills rows until the connection ends.

    Args:
      descriptor: of the connection.
      places: of the memory that holds, for each worker, the job and row that it is at, 0 while it
        waits, and its processor time in nanoseconds; int64 [workers, 3].
      index: the number of this worker.
    """
    place = np.frombuffer(mmap.mmap(places, 0), np.int64).reshape(-1, 3)[index]
    jobs: dict[int, tuple[bytes, mmap.mmap]] = {}
    orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
    connection = Connection(descriptor)
    threading.Thread(target=_receive, args=(connection, orders), daemon=True).start()
    while True:
        order, buffer = orders.get()
        if isinstance(order, Opening):
            jobs[order.job] = order.recipe, buffer
        elif isinstance(order, Closing):
            jobs.pop(order.job, None)
        else:
            failures = _filled(order, *jobs[order.job], place) if order.job in jobs else []
            place[:] = 0, 0, time.process_time_ns()
            try:
                connection.send((order.job, order.number, failures))
            except ConnectionError:
                return


_recipe = functools.lru_cache(16)(pickle.loads)


def _filled(rows: Rows, recipe: bytes, buffer: mmap.mmap, place: np.ndarray) -> list[Failure]:
    """Fills rows and returns the failures; stops at one that ends the job for certain."""
    try:
        how, images = _recipe(recipe), pickle.loads(rows.images)
    except Exception as e:  # whatever the import of a module raises
        return [Failure(rows.first, "input", not_importable(e))]
    arrays = how.arrays(memoryview(buffer), rows.start, rows.batch)
    failures = []
    for row, (image, seed) in enumerate(images, rows.first):
        place[:2] = rows.job, rows.number << 32 | row
        if failure := fill(how, image, seed, arrays, row):
            failures.append(failure)
            if failure.kind != "image":
                break
    return failures
