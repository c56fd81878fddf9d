# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Copies files of a run in a thread, in the order in which it reads them, and reads the copies.

Until a file is whole, its images come from the origin, so batches are the same with and without
copies. Start from `begin`; `check` says beforehand whether a split can be staged.
"""

import contextlib
import dataclasses
import itertools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from vit_jax.data.formats.stored import FileRange, Staged, WholeFile, read_image
from vit_jax.data.pipeline.pipeline import Pipeline
from vit_jax.data.splits import order
from vit_jax.data.splits.split import Fields, NumpyFields, Split
from vit_jax.data.staging.copies import Copies, Interrupted, Unreadable, in_units
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput, StoreLost

log = logging.getLogger("vit_jax")

_FIELDS = {"image", "labels", "text"}
_LOOK_AT = 10  # examples that show what a source holds
_AT_ONCE = 1024  # positions of the order that are looked up together
_CLOSE_SECS = 5  # for the thread, which a store that hangs may hold up


def check(key: str, split: Split) -> None:
    """Raises BadInput unless all examples of a split lie in files that `numpy_reader` names."""
    from vit_jax.data.splits.windows import Windowed

    if isinstance(split, Windowed):
        raise BadInput(
            f"{key} and data.window_shards both avoid single reads from a slow store; leave one "
            "of them out."
        )
    if split.table.files is not None and split.table.numpy_reader is not None:
        return  # tar and record files, whose index need not be built here
    rows = np.unique(np.linspace(0, len(split) - 1, _LOOK_AT).astype(int)).tolist()
    fields: list[NumpyFields] = []
    if split.table.numpy_reader is not None:
        read, fields = split.numpy_reader(), [split.numpy_example()]
        for row in rows:
            with contextlib.suppress(OSError):  # one that cannot be read; training says so
                fields.append(read(row))
    files = [isinstance(one["image"], WholeFile | FileRange) for one in fields]
    if not files or not all(files) or not {*fields[0]} <= _FIELDS:
        raise BadInput(
            f"{key} copies files of images with labels or texts, and the examples, such as "
            f"{split.name(0)}, are not in such files; take a source of the kind folder, csv, tar "
            "or records, or leave it out."
        )


def paths_in_order(split: Split, indices: Iterator[np.ndarray]) -> Iterator[str]:
    """Yields the path of each file at its first use, then those of the other examples.

    Args:
      split: a split that `check` accepts.
      indices: indices of examples in the order of their use, int64 [n] each.
    """
    table, seen = split.table, set[str]()
    read = split.numpy_reader() if table.files is None else None

    def paths(some: np.ndarray) -> Iterator[str]:
        if read is not None:
            for index in some.tolist():
                with contextlib.suppress(OSError):  # an example that cannot be read
                    yield read(index)["image"].path
        else:
            rows = some + split.rows.start if isinstance(split.rows, range) else split.rows[some]
            for number in np.searchsorted(table.shards, rows, side="right").tolist():  # type: ignore[arg-type]
                yield table.files.paths[number - 1]  # type: ignore[union-attr]

    most = len(table.files.paths) if table.files else len(split)
    rest = (np.arange(at, min(at + _AT_ONCE, len(split))) for at in range(0, len(split), _AT_ONCE))
    for some in itertools.chain(indices, rest):
        for path in paths(some):
            if path not in seen:
                seen.add(path)
                yield path
        if len(seen) == most:
            return


def epoch(pipe: Pipeline, rows: range, first_step: int) -> Iterator[np.ndarray]:
    """Yields the indices that a process with these rows reads in an epoch from a step on."""
    at = pipe.split.numpy_order(order.stream_seed(pipe.seed, "order"))
    steps = -(-len(pipe.split) // pipe.batch_size)
    start, stop = (step * len(rows) for step in (first_step, first_step + steps))
    for k in range(start, stop, _AT_ONCE):
        yield at(pipe._position(np.arange(k, min(k + _AT_ONCE, stop)), rows))


class Staging:
    """Copies files in a thread and says where images are read.

    Attributes:
      copies: the folder of copies.
      served: images that were asked of copies, and of the origin.
      bytes: bytes of the whole copies that are used.
      left: files that do not fit into the budget.
      unread: files that could not be read at their origin.
    """

    def __init__(self, copies: Copies, paths: Iterator[str]):
        self.copies, self.served = copies, [0, 0]
        self.bytes, self.left, self.unread, self._lock = 0, 0, 0, threading.Lock()
        self._paths, self._places = paths, dict[str, tuple[Path, int]]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="staging", daemon=True)
        self._thread.start()

    def place(self, image: WholeFile | FileRange) -> "Staged | WholeFile | FileRange":
        """Returns where an image is read: in the copy of its file if that is whole."""
        place = self._places.get(image.path)
        with self._lock:
            self.served[place is None] += 1
        if place is None:
            return image
        copy = dataclasses.replace(image, path=str(place[0]))
        return Staged(copy, image.size if isinstance(image, FileRange) else place[1], image)

    def close(self) -> None:
        """Stops copying, waits a little for that, and says in the log what was staged."""
        self._stop.set()
        self._thread.join(_CLOSE_SECS)
        log.info("data: %s", self.note())

    def note(self) -> str:
        """Returns a sentence about what was staged and what it was used for."""
        left = f"; {self.left:,} files are over the budget" if self.left else ""
        left += f"; {self.unread:,} files could not be read" if self.unread else ""
        return (
            f"{in_units(self.bytes)} in {len(self._places):,} files are staged in "
            f"{self.copies.folder}{left}; {self.served[0]:,} images were read there, "
            f"{self.served[1]:,} from the origin{self.copies.speeds()}"
        )

    def _run(self) -> None:
        if sys.platform == "linux":  # a thread has a priority of its own there
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        try:
            for path in self._paths:
                if self._stop.is_set():
                    return
                self._stage(path)
        except Interrupted:
            return
        except (OSError, StoreLost) as e:
            reason = (isinstance(e, OSError) and e.strerror) or str(e)
            log.warning(
                "data: staging in %s has ended: %s; other images come from the origin",
                self.copies.folder, reason,
            )  # fmt: skip

    def _stage(self, path: str) -> None:
        stopped = self._stop.is_set
        try:
            place = self.copies.whole(path, stopped) or self.copies.copy(path, stopped)
        except (Unreadable, StoreLost) as e:
            if not self.unread:
                log.warning("data: %s; staging goes on without it", e)
            self.unread += 1
            return
        if place is None:
            self.left += 1
        else:
            size = place.stat().st_size
            self._places[path] = place, size
            self.bytes += size


def begin(copies: Copies, pipe: Pipeline, rows: range, first_step: int) -> tuple[Pipeline, Staging]:
    """Starts to copy what a pipeline reads; returns the pipeline that reads the copies.

    Args:
      copies: the folder to copy to.
      pipe: the pipeline of training, whose split `check` accepts.
      rows: the rows of each batch that this process reads.
      first_step: the step from which it reads.
    """
    staging = Staging(copies, paths_in_order(pipe.split, epoch(pipe, rows, first_step)))
    table = pipe.split.table
    make_reader: Any = table.numpy_reader

    def numpy_reader() -> Callable[[int], NumpyFields]:
        read = make_reader()
        return lambda row: (fields := read(row)) | {"image": staging.place(fields["image"])}

    table = dataclasses.replace(
        table,
        numpy_reader=numpy_reader,
        reader=lambda: _in_graph(numpy_reader(), pipe.split.numpy_example()),
        files=None,
    )
    return dataclasses.replace(pipe, split=dataclasses.replace(pipe.split, table=table)), staging


def _in_graph(
    read: Callable[[int], NumpyFields], example: NumpyFields
) -> Callable[[Tensor], Fields]:
    """Returns the graph function, row -> fields, of a reader without TensorFlow.

    Args:
      read: row -> fields.
      example: any of these, for names and shapes.
    """
    kinds = {"image": tf.string, "labels": tf.int32, "text": tf.string}

    def values(row: np.ndarray) -> list[Any]:
        fields = read(int(row))
        return [read_image(fields["image"]), *(fields[key] for key in example if key != "image")]

    def in_graph(row: Tensor) -> Fields:
        names = ["image", *(key for key in example if key != "image")]
        types = [kinds[name] for name in names]
        fields = dict(
            zip(names, tf.numpy_function(values, [row], types, stateful=False), strict=True)
        )
        for name, value in fields.items():
            value.set_shape(example["labels"].shape if name == "labels" else [])
        return fields

    return in_graph
