# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The pipeline of `data.reader=python`: the batches of `Pipeline`, made without TensorFlow.

This process computes which examples a batch has and reads their labels; workers read, decode and
preprocess the images. Examples, random numbers and rules for bad images are those of `Pipeline`.
Start from `PythonPipeline`.
"""

import collections
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vit_jax.config.sections import Cache
from vit_jax.data.example import BOXES, FIELDS, SPATIAL
from vit_jax.data.numpy_ops import chain, decode
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.ops.chain import check_image_view
from vit_jax.data.ops.decode import Decode
from vit_jax.data.pipeline.bad_images import Replacements
from vit_jax.data.pipeline.pipeline import NumpyBatch, Pipeline, Plan
from vit_jax.data.python_reader import pool, worker
from vit_jax.data.python_reader.rows import Arrays, Fields, Recipe, loaded
from vit_jax.data.splits import order
from vit_jax.data.splits.split import NumpyFields, Split
from vit_jax.errors import BadInput, StoreLost

_PARTS = 4  # messages for each worker and batch, so that all end at about the same time


@dataclasses.dataclass(frozen=True)
class PythonPipeline(Pipeline):
    """The batches of one split; see `Pipeline`. `workers` is the largest number of processes."""

    def __post_init__(self) -> None:
        for view in self.chains:
            chain.check(view.ops)

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields of examples that are read."""
        return self.fields if self.fields is not None else tuple(self.split.numpy_example())

    @property
    def recipe(self) -> Recipe:
        """What becomes of each image."""
        views = self.chains
        sides = (v.size(self.image_size) if self.views else self.image_size for v in views)
        return Recipe(views, tuple(sides), self.channels)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns the shape of every field of a batch, and its dtype; see `Pipeline.shapes`."""
        return {key: (x.shape[1:], x.dtype) for key, x in self.probe().items()}

    def cached(self, kind: Cache) -> tuple[Pipeline, str]:
        """Raises BadInput: worker processes share no memory of examples."""
        raise BadInput(
            f"data.cache={kind} needs data.reader=tf; with data.reader=python, the files stay in "
            "the memory of the operating system: set --config.data.cache=none."
        )

    def _training_plan(self, rows: range) -> Plan:
        indices_at = self.split.numpy_order(order.stream_seed(self.seed, "order"))
        seed = order.stream_seed(self.seed, "augment")

        def plan(k: np.ndarray) -> tuple[np.ndarray, list[Seed], np.ndarray]:
            at = self._position(k, rows)
            return indices_at(at), [(seed, int(n)) for n in at], np.ones(len(k), bool)

        return plan

    def _evaluation_plan(self, rows: range) -> Plan:
        def plan(k: np.ndarray) -> tuple[np.ndarray, list[Seed], np.ndarray]:
            at = self._position(k, rows)
            real = at < len(self.split)
            return np.where(real, at, 0), [(0, int(n)) for n in at], real

        return plan

    def _first(self, training: bool) -> NumpyBatch:
        """Makes the first batch of one example in this process; a worker need not start for it."""
        one = dataclasses.replace(self, batch_size=1)
        reader = _Reader(one, training)
        batch = reader.planned(one._evaluation_plan(range(1)), range(1))
        arrays = reader.recipe.arrays(bytearray(reader.recipe.row_bytes()), 0, 1)
        ((image, seed),) = batch.images
        failure = worker.fill(reader.recipe, image, seed, arrays, 0)
        return reader.finished(batch, arrays, [failure] if failure else [])

    def _batches(self, starts: range, plan: Plan, training: bool) -> Iterator[NumpyBatch]:
        """Yields one batch for each of `starts`; it holds the examples k from that start on."""
        if not starts:
            return
        reader, ahead = _Reader(self, training), self.prefetch + 1
        workers = min(self.workers, _cores())
        size = max(-(-starts.step // (_PARTS * workers)), 1)  # rows of a message
        firsts = range(0, starts.step, size)
        asked: collections.deque[tuple[int, _Batch]] = collections.deque()

        def name(number: int, row: int) -> str:
            batch = next(b for n, b in list(asked) if n <= number < n + len(firsts))
            return self.split.name(batch.read[row])

        job = pool.Job(reader.recipe, ahead, starts.step, workers, name)

        def ask(count: int) -> None:
            start = starts[count]
            batch = reader.planned(plan, range(start, start + starts.step))
            number = count * len(firsts)
            asked.append((number, batch))
            parts = {n: (at, batch.images[at : at + size]) for n, at in enumerate(firsts, number)}
            job.ask(count % ahead, parts)

        try:
            for count in range(min(ahead, len(starts))):
                ask(count)
            for count in range(len(starts)):
                number, batch = asked[0]
                failures = job.wait_for(range(number, number + len(firsts)))
                whole = reader.finished(batch, job.arrays(count % ahead), failures)
                asked.popleft()
                if count + ahead < len(starts):
                    ask(count + ahead)
                yield whole
        finally:
            job.close()


def _cores() -> int:
    """Returns the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@dataclasses.dataclass
class _Batch:
    """A batch whose images are not there yet.

    Attributes:
      indices: the example of each row, int64 [rows].
      read: the example that is read for each row, which may be a replacement.
      fields: the fields of each row that do not move with the image.
      images: the image of each row with what moves with it, and the seed of its example.
      mask: False for padding rows, bool [rows].
    """

    indices: np.ndarray
    read: list[int]
    fields: list[NumpyFields]
    images: worker.Images
    mask: np.ndarray


class _Reader:
    """Reads the fields of examples, and replaces bad images."""

    def __init__(self, pipe: PythonPipeline, training: bool):
        self._pipe, self._training = pipe, training
        self._read = pipe.split.numpy_reader()
        first = self._example(0)
        self._names = self._wanted(first)
        moving = tuple(key for key in SPATIAL if key in self._names)
        check_image_view(pipe.chains, moving)
        own = len(first["boxes"]) if "boxes" in moving else 0
        boxes = own + pipe.lacking_boxes(own)
        self.recipe = dataclasses.replace(pipe.recipe, moving=moving, boxes=boxes)
        stated = "boxes" in moving and pipe.split.table.truth is not None
        self._truth = pipe.split.truth_reader() if stated else None
        self._instead = _Decoded(pipe.split, self.recipe.decode, self._moving)

    def _example(self, index: int) -> NumpyFields:
        """Returns an example as its source gives it; raises BadInput if it cannot be read."""
        try:
            return self._read(index)
        except OSError as e:
            raise _unreadable(self._pipe.split.name(index), e.strerror or str(e)) from e

    def _wanted(self, example: NumpyFields) -> tuple[str, ...]:
        names = self._pipe.fields if self._pipe.fields is not None else tuple(example)
        if "box_classes" in names and "boxes" not in names:
            names = ("boxes", *names)
        if lacking := [key for key in names if key not in example]:
            raise BadInput(
                f"the examples have no {' and no '.join(lacking)}, only {', '.join(example)}; take "
                "a source that gives it, see docs/data.md."
            )
        if self._pipe.texts is not None:
            names = (*(name for name in names if name != "text"), "tokens")
        return tuple(name for name in names if name != "image")

    def _fields(self, index: int, seed: Seed) -> NumpyFields:
        """Returns the fields of an example, and its tokens if texts are asked for."""
        fields, texts = self._example(index), self._pipe.texts
        if texts is None:
            return fields
        try:
            return fields | {"tokens": texts.of_example(fields[texts.field], seed)}
        except ValueError as e:
            raise BadInput(f"{self._pipe.split.name(index)}: {e}; give each image a text.") from e

    def _moving(self, index: int, fields: NumpyFields | None = None) -> Fields:
        """Takes the image, and what moves with it, out of the fields of an example."""
        fields = self._example(index) if fields is None else fields
        moving = {key: fields.pop(key) for key in ("image", *self.recipe.moving)}
        for key in BOXES:
            if key in moving:
                lacking = [(0, self.recipe.boxes - len(moving[key])), (0, 0)]
                widths = lacking[: np.ndim(moving[key])]
                moving[key] = np.pad(moving[key], widths, constant_values=FIELDS[key].missing)
        return moving | ({"sides": self._truth(index).sides} if self._truth else {})

    def planned(self, plan: Plan, k: range) -> _Batch:
        """Returns the batch of these k, without images."""
        indices, seeds, mask = plan(np.arange(k.start, k.stop))
        read = [self._instead.at(index) for index in indices.tolist()]
        fields = [self._fields(*one) for one in zip(read, seeds, strict=True)]
        images = tuple(
            (self._moving(index, one), seed)
            for index, one, seed in zip(read, fields, seeds, strict=True)
        )
        return _Batch(indices, read, fields, images, mask)

    def finished(self, batch: _Batch, arrays: Arrays, failures: list[worker.Failure]) -> NumpyBatch:
        """Returns a batch with its images, after another try for those that failed.

        Raises:
          BadInput: an image cannot be read or does not go through the chain, or it cannot be
            decoded and such examples are not skipped.
          StoreLost: the object store does not answer.
        """
        for failure in sorted(failures, key=lambda one: one.row):
            self._repair(failure, batch, arrays)
        names = [key for key in self._names if key not in self.recipe.moving]
        fields = {key: _stacked(key, [one[key] for one in batch.fields]) for key in names}
        return fields | {key: x.copy() for key, x in arrays.items()} | {"_mask": batch.mask}

    def _repair(self, failure: worker.Failure | None, batch: _Batch, arrays: Arrays) -> None:
        while failure:
            row = failure.row
            index = batch.read[row]
            if failure.kind != "image" or index != batch.indices[row]:  # a replacement decodes
                raise self._error(failure.kind, self._pipe.split.name(index), failure.reason)
            if self._instead.at(index) == index:  # not replaced since the batch was planned
                self._pipe._skip(index, failure.reason, self._instead, self._training)
            batch.read[row] = self._instead.at(index)
            seed = batch.images[row][1]
            batch.fields[row] = self._fields(batch.read[row], seed)
            image = self._moving(batch.read[row], batch.fields[row])
            failure = worker.fill(self.recipe, image, seed, arrays, row)

    def _error(self, kind: str, name: str, reason: str) -> Exception:
        """Returns the error for an image that nothing can take the place of."""
        if kind == "read":
            return _unreadable(name, reason)
        if kind in ("chain", "image"):
            return BadInput(
                f"{name} does not go through {self._pipe._names()}: {reason}. Remove or replace "
                "the image, or change the chain."
            )
        if kind == "store":
            return StoreLost(reason)
        return BadInput(reason) if kind == "input" else RuntimeError(f"{name}: {reason}")


def _stacked(key: str, values: list[Any]) -> np.ndarray:
    if key in FIELDS and FIELDS[key].dtype == "string":
        texts = [value if isinstance(value, bytes) else str(value).encode() for value in values]
        return np.array(texts, object)
    return np.stack(values)


def _unreadable(name: str, reason: str) -> BadInput:
    return BadInput(f"{name} cannot be read: {reason}. Restore it, or remove it from the source.")


class _Decoded(Replacements):
    """The replacements, whose images are decoded in this process."""

    def __init__(self, split: Split, op: Decode, moving: Callable[[int], Fields]):
        super().__init__(split)
        self._moving, self._op = moving, op

    def image(self, index: int) -> np.ndarray:
        """Decodes one example on its own; see `Replacements.image`."""
        try:
            content = loaded(self._moving(index))["image"]
        except OSError as e:
            raise _unreadable(self._split.name(index), e.strerror or str(e)) from e
        return decode.decode(self._op, content)
