# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The program of a worker process: it takes rows from a connection and writes them into memory.

A worker ends when its connection ends, so none outlives the process that started it, however that
ends. It imports neither jax nor TensorFlow, and starts in a fraction of a second. Start from
`main`.
"""

import dataclasses
import mmap
import os
import socket
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.numpy_ops.resize import Unsuitable
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.python_reader.rows import Arrays, Image, Recipe
from vit_jax.errors import BadInput

Images = tuple[tuple[Image, Seed], ...]  # each with the seed of its example


@dataclasses.dataclass(frozen=True)
class Opening:
    """Begins a job. The descriptor of its memory, `size` bytes, follows."""

    job: int
    recipe: Recipe
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
      images: the image of each row, and its seed.
    """

    job: int
    number: int
    start: int
    batch: int
    first: int
    images: Images


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
        through the chain; `input`: no image could; `bug`: any other error.
      reason: some words; for `input`, the whole message; for `bug`, a traceback.
    """

    row: int
    kind: str
    reason: str


Done = tuple[int, int, list[Failure]]  # job, number, and the rows that could not be filled


def fill(recipe: Recipe, image: Image, seed: Seed, arrays: Arrays, row: int) -> Failure | None:
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
    except OSError as e:
        return Failure(row, "read", e.strerror or str(e))
    except Exception:
        return Failure(row, "bug", traceback.format_exc())


def send_descriptor(connection: Connection, descriptor: int) -> None:
    """Sends a descriptor to the process at the other end."""
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        socket.send_fds(line, [b"d"], [descriptor])


def receive_descriptor(connection: Connection) -> int:
    """Returns the descriptor that comes next."""
    with socket.socket(fileno=os.dup(connection.fileno())) as line:
        _, descriptors, _, _ = socket.recv_fds(line, 1, 1)
    return descriptors[0]


def main(descriptor: int, places: int, index: int) -> None:
    """Fills rows until the connection ends.

    Args:
      descriptor: of the connection.
      places: of the memory that holds, for each worker, the job and row that it is at, 0 while it
        waits, and its processor time in nanoseconds; int64 [workers, 3].
      index: the number of this worker.
    """
    place = np.frombuffer(mmap.mmap(places, 0), np.int64).reshape(-1, 3)[index]
    jobs: dict[int, tuple[Recipe, mmap.mmap]] = {}
    with Connection(descriptor) as connection:
        try:
            while True:
                _act(connection.recv(), connection, jobs, place)
        except (EOFError, ConnectionError):
            pass


def _act(order: Any, connection: Connection, jobs: dict[int, Any], place: np.ndarray) -> None:
    if isinstance(order, Opening):
        memory = receive_descriptor(connection)
        jobs[order.job] = order.recipe, mmap.mmap(memory, order.size)
        os.close(memory)
    elif isinstance(order, Closing):
        del jobs[order.job]
    else:
        recipe, buffer = jobs[order.job]
        arrays = recipe.arrays(buffer, order.start, order.batch)
        failures = []
        for row, (image, seed) in enumerate(order.images, order.first):
            place[:2] = order.job, order.number << 32 | row
            failure = fill(recipe, image, seed, arrays, row)
            failures += [failure] if failure else []
        place[:] = 0, 0, time.process_time_ns()
        connection.send((order.job, order.number, failures))
