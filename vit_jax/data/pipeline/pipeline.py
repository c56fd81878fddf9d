# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns a split into batches: orders, reads, preprocesses, pads, prefetches, places on devices.

Each process reads only the rows of the global batch that its own devices hold. Start from
`Pipeline`.
"""

import collections
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from vit_jax.config.sections import BadImages, Cache
from vit_jax.data.example import BOXES, FIELDS, SPATIAL
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops.decode import Decode
from vit_jax.data.pipeline.bad_images import FallbackReader, Replacements
from vit_jax.data.splits import order
from vit_jax.data.splits.split import Fields, Split
from vit_jax.data.tensorflow import Tensor, plain, tf, untuned
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.data.texts import Texts

log = logging.getLogger("vit_jax")

_LENIENT_BATCHES = 256  # batches between two checks for missing examples

# k -> (index in the split, seed of the example, False for a padding row); without TensorFlow, it
# maps int64 [n] to (int64 [n], n seeds, bool [n]).
Plan = Callable[[Any], tuple[Any, Any, Any]]
# The fields of the examples, e.g. image uint8 [b, H, W, C] and labels int32 [b, K]; one field for
# each view in place of image; _mask bool [b], False for padding.
NumpyBatch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """The batches of one split.

    Attributes:
      split: the examples.
      ops: the preprocessing chain, from `preprocess.parse`; the same as a single view `image`.
      batch_size: B, the number of rows of a global batch.
      seed: seeds the order and the augmentation.
      image_size: rows and columns of every image that the ops must produce.
      workers: number of threads.
      prefetch: number of batches kept ready.
      bad_images: how training treats a file that cannot be decoded: `error` raises an error that
        names the file; `skip` replaces it with the next good example of the split. `evaluation`
        always raises, and so does `probe` unless this is `skip`.
      channels: number of channels of those images.
      views: views of each image, from `preprocess.parse_views`; they take the place of `ops`. A
        view whose chain states no size must have `image_size`.
      fields: the fields of examples to read; None: all that the source gives. Mask and boxes follow
        the view `image`; `box_classes` brings `boxes`.
      most_boxes: M, the number of boxes of every example after filling up; 0: as the source has it.
      texts: how the text of an example becomes the field `tokens`; None: it does not.
      skipped: (name, reason) of each file that this process has replaced so far.
    """

    split: Split
    ops: tuple[preprocess.Op, ...]
    batch_size: int
    seed: int
    image_size: tuple[int, int]
    workers: int
    prefetch: int
    bad_images: BadImages = "error"
    channels: int = 3
    views: tuple[preprocess.View, ...] = ()
    fields: tuple[str, ...] | None = ("image", "labels")
    most_boxes: int = 0
    texts: "Texts | None" = None
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list, init=False)

    @property
    def chains(self) -> tuple[preprocess.View, ...]:
        """The views; a chain without a name is the view `image`."""
        return self.views or (preprocess.View("image", 0, self.ops),)

    @property
    def field_names(self) -> tuple[str, ...]:
        """The names of the fields of examples that are read."""
        if self.fields is not None:
            return self.fields
        reader = tf.function(self.split.fields_reader(), autograph=False)
        return tuple(reader.get_concrete_function(tf.TensorSpec([], tf.int64)).structured_outputs)

    def train(
        self, first_step: int, last_step: int, rows: range | None = None
    ) -> Iterator[NumpyBatch]:
        """Yields the batches of steps first_step to last_step - 1; every start costs the same.

        Args:
          first_step: number of steps already done.
          last_step: where to stop, exclusive.
          rows: the rows of each batch to read (default: all).
        """
        rows = rows if rows is not None else range(self.batch_size)
        steps = range(first_step * len(rows), last_step * len(rows), len(rows))
        return self._batches(steps, self._training_plan(rows), training=True)

    def _training_plan(self, rows: range) -> Plan:
        """Returns the plan of a process that reads these rows of each batch."""
        example_at = self.split.order(order.stream_seed(self.seed, "order"))
        augment_seed = order.stream_seed(self.seed, "augment")

        def plan(k: Tensor) -> tuple[Any, Any, Any]:
            at = self._position(k, rows)
            return example_at(at), order.example_seed(at, seed=augment_seed), tf.constant(True)

        return plan

    def evaluation(self, rows: range | None = None) -> Iterator[NumpyBatch]:
        """Yields every example once, in order; padding rows of the last batch have mask False."""
        return self._evaluation(rows, training=False)

    def probe(self) -> NumpyBatch:
        """Returns the first example as a batch of one.

        Raises:
          BadInput: the chain does not produce images of the right shape, or the first example's
            number of labels differs from what the table states.
        """
        batch = self._first(training=self.bad_images == "skip")  # only training skips
        stated = self.split.table.most_labels
        labels = batch["labels"].shape[1] if "labels" in batch else stated
        if stated not in (0, labels):
            raise BadInput(
                f"{self.split.name(0)} has K={labels} labels, but the table of its source says "
                f"most_labels={stated}; correct one of them (0: not known beforehand)."
            )
        return batch

    def _first(self, training: bool) -> NumpyBatch:
        one = dataclasses.replace(self, batch_size=1, workers=1, prefetch=1)
        return next(one._evaluation(None, training=training))

    def shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns the shape of every field of a batch, without the axis of examples, and its dtype.

        Reads the first example if the source does not know its shapes beforehand.

        Raises:
          BadInput: see `probe`.
        """
        read = self.split.fields_reader()
        example = self._example(lambda k: (k, tf.zeros([2], tf.int64), tf.constant(True)), read)
        specs = example.get_concrete_function(tf.TensorSpec([], tf.int64)).structured_outputs
        specs = {key: spec for key, spec in specs.items() if key != "_k"}
        if all(spec.shape.is_fully_defined() for spec in specs.values()):
            return {
                key: (tuple(spec.shape.as_list()), np.dtype(spec.dtype.as_numpy_dtype))
                for key, spec in specs.items()
            }
        return {key: (x.shape[1:], x.dtype) for key, x in self.probe().items()}

    def cached(self, kind: Cache) -> tuple["Pipeline", str]:
        """Returns the same pipeline with its examples in memory, and a note; see `cache_split`."""
        from vit_jax.data.pipeline import memory_cache

        split, left, note = memory_cache.cache_split(
            self.split, kind, [view.ops for view in self.chains], self.workers, self.field_names
        )
        if not self.views:
            return dataclasses.replace(self, split=split, ops=left[0]), note
        views = zip(self.views, left, strict=True)
        replaced = tuple(
            dataclasses.replace(view, ops=ops, stated=view.size(self.image_size))
            for view, ops in views
        )
        return dataclasses.replace(self, split=split, views=replaced), note

    def _evaluation(self, rows: range | None, training: bool) -> Iterator[NumpyBatch]:
        rows = rows if rows is not None else range(self.batch_size)
        steps = -(-len(self.split) // self.batch_size)
        starts = range(0, steps * len(rows), len(rows))
        return self._batches(starts, self._evaluation_plan(rows), training)

    def _evaluation_plan(self, rows: range) -> Plan:
        def plan(k: Tensor) -> tuple[Any, Any, Any]:
            at = self._position(k, rows)
            real = at < len(self.split)
            return tf.where(real, at, 0), order.example_seed(at, seed=0), real

        return plan

    def _position(self, k: Any, rows: range) -> Any:
        """Returns the position of the k-th example that a process with these rows reads."""
        return k // len(rows) * self.batch_size + rows.start + k % len(rows)

    def _batches(self, starts: range, plan: Plan, training: bool) -> Iterator[NumpyBatch]:
        """Yields one batch for each of `starts`; it holds the examples k from that start on.

        A file that cannot be decoded ends the dataset. From then on, examples that fail leave gaps,
        and each gap is filled on its own. The other rows of the batch stay the same.
        """
        decodes = (op for v in self.chains for op in v.ops if isinstance(op, Decode))
        fallback = FallbackReader(self.split, next(decodes, Decode(channels=self.channels)))
        start, size = starts.start, starts.step
        example = self._example(plan, fallback.reader())
        try:
            for batch in _joined(self._iterator(starts, example), starts):
                yield batch
                start += size
            return
        except (tf.errors.OpError, UnicodeDecodeError):  # the latter quotes a damaged record
            pass
        example = self._example(plan, fallback.updating_reader())
        fill = self._filler(plan, example, fallback, training)
        while start < starts.stop:  # gaps show after this many batches if all fails
            some = range(start, min(start + _LENIENT_BATCHES * size, starts.stop), size)
            yield from _joined(self._iterator(some, example, lenient=True), some, fill)
            start = some.stop

    def _example(self, plan: Plan, read: Callable[[Tensor], Fields]) -> Any:
        """Returns the tf.function k -> example."""

        def example(k: Tensor) -> dict[str, Any]:
            index, seed, mask = plan(k)
            fields = self._processed(self._wanted(read(index)), seed)
            return fields | {"_mask": mask, "_k": k}

        traced = tf.function(example, autograph=False)
        try:
            traced.get_concrete_function(tf.TensorSpec([], tf.int64))
        except BadInput:
            raise
        except (ValueError, TypeError, IndexError, AttributeError, tf.errors.OpError) as e:
            raise BadInput(
                f"the chain {self._names()} cannot be applied: {plain(e)}. "
                "It starts with decode where images are files."
            ) from e
        return traced

    def _names(self) -> str:
        return "; ".join(preprocess.names(view.ops) for view in self.chains)

    def _wanted(self, example: Fields) -> Fields:
        """Returns the fields to read; raises BadInput if the source lacks one."""
        if self.fields is None:
            return example
        if lacking := [key for key in self.fields if key not in example]:
            raise BadInput(
                f"the examples have no {' and no '.join(lacking)}, "  # the same for all splits
                f"only {', '.join(example)}; take a source that gives it, see docs/data.md."
            )
        boxes = ("boxes",) if "box_classes" in self.fields else ()
        wanted = {key: example[key] for key in ("image", *boxes, *self.fields)}
        if not self.most_boxes:
            return wanted
        return wanted | {key: self._filled_up(key, x) for key, x in wanted.items() if key in BOXES}

    def _filled_up(self, key: str, boxes: Tensor) -> Tensor:
        """Returns `boxes` or `box_classes` with `most_boxes` rows."""
        more = [[0, self.lacking_boxes(boxes.shape[0])], [0, 0]][: boxes.shape.rank]
        return tf.pad(boxes, more, constant_values=FIELDS[key].missing)

    def lacking_boxes(self, own: int) -> int:
        """Returns how many boxes fill up an example; raises BadInput if it has too many."""
        if 0 < self.most_boxes < own:
            raise BadInput(
                f"the examples, such as {self.split.name(0)}, have up to {own} boxes, "
                f"and the objective takes {self.most_boxes}; let its argument be as many."
            )
        return max(self.most_boxes - own, 0)

    def _processed(self, example: Fields, seed: Tensor) -> Fields:
        """Returns the fields of a row: one for each view, and those of the example beside image."""
        if self.texts is not None and self.texts.field in example:
            example = self.texts.in_graph(example, seed)
        moving = {key: example[key] for key in SPATIAL if key in example}
        preprocess.check_image_view(self.chains, moving)
        fields = {key: x for key, x in example.items() if key != "image" and key not in moving}
        shared, times = example["image"], sum(max(view.count, 1) for view in self.chains)
        decode = next((op for op in self.chains[0].ops if isinstance(op, Decode)), None)
        if times > 1 and decode is not None:
            shared = decode(shared, seed)  # once for all views; it draws nothing
        for view in self.chains:
            parts = any(getattr(op, "IN_PARTS", False) for op in view.ops)
            source = {"image": example["image"] if parts else shared}
            fields |= self._view(view, source | (moving if view.name == "image" else {}), seed)
        return fields

    def _view(self, view: preprocess.View, source: Fields, seed: Tensor) -> Fields:
        """Returns the fields of one view: its image under its name, and mask and boxes."""
        process = preprocess.apply_to_fields(view.ops)
        if not view.count:
            own = seed if view.name == "image" else order.stream_of(seed, view.name, 0)
            return self._checked(view, process(source, own))
        drawn = [
            self._checked(view, process(source, order.stream_of(seed, view.name, number)))
            for number in range(view.count)
        ]
        return {key: tf.stack([one[key] for one in drawn]) for key in drawn[0]}

    def _checked(self, view: preprocess.View, fields: Fields) -> Fields:
        """Returns the fields under their names in a batch, after a check of their shapes."""
        image = fields["image"]
        sides = view.size(self.image_size) if self.views else self.image_size
        shape = [*sides, self.channels]
        if image.dtype != tf.uint8 or not image.shape.is_compatible_with(shape):
            name = f"the chain of view {view.name}" if self.views else "the chain"
            raise BadInput(
                f"{name} gives {image.dtype.name} {image.shape}, expected uint8 {shape}; "
                "it starts with decode and ends at data.image_size, e.g. decode|resize({size})."
            )
        tf.debugging.assert_equal(tf.shape(image), shape, "size after the chain")
        checked = fields | {view.name: tf.ensure_shape(image, shape)}
        if "mask" in fields:
            same = "size of the mask, which is not that of the image"
            tf.debugging.assert_equal(tf.shape(fields["mask"]), sides, same)
            checked["mask"] = tf.ensure_shape(fields["mask"], sides)
        return {key: x for key, x in checked.items() if key != "image" or view.name == "image"}

    def _iterator(
        self, starts: range, example: Any, *, lenient: bool = False
    ) -> Iterator[NumpyBatch]:
        """Yields batches of the k in `starts`, in order; leaves out failing examples if lenient."""
        dataset = tf.data.Dataset.range(starts.start, starts.stop)
        dataset = dataset.map(example, num_parallel_calls=self.workers)
        dataset = dataset.ignore_errors() if lenient else dataset
        dataset = dataset.batch(starts.step).prefetch(self.prefetch)
        return untuned(dataset, self.workers).as_numpy_iterator()

    def _filler(
        self, plan: Plan, example: Any, fallback: FallbackReader, training: bool
    ) -> Callable[[int], NumpyBatch]:
        """Returns the function that maps each k whose example failed to the batch of its row.

        Raises:
          BadInput: when called, if an example cannot be read or does not go through the chain, or
            if it cannot be decoded and such examples are not skipped.
        """

        def process(image: Tensor, seed: Tensor) -> Fields:
            return self._processed({"image": image}, seed)

        traced = tf.function(process, autograph=False, reduce_retracing=True)
        planned = tf.function(plan, autograph=False)

        def fill(k: int) -> NumpyBatch:
            at = tf.constant(k, tf.int64)
            while True:
                try:
                    return {key: x[None].numpy() for key, x in example(at).items()}
                except (tf.errors.OpError, UnicodeDecodeError) as e:
                    index, seed, _ = planned(at)
                    index = fallback.at(int(index))
                    process_one = functools.partial(traced, seed=seed)
                    reason = fallback.examine(index, process_one, self._names(), e)
                if reason:
                    self._skip(index, reason, fallback, training)

        return fill

    def _skip(self, index: int, reason: str, replacements: Replacements, training: bool) -> None:
        """Replaces an example that cannot be decoded, or raises BadInput."""
        name = self.split.name(index)
        if not training or self.bad_images != "skip":
            advice = "; data.bad_images=skip leaves such files out of training" if training else ""
            raise BadInput(
                f"{name} cannot be decoded: {reason}. Remove or replace the file{advice}."
            )
        replacements.replace(index)
        if (name, reason) not in self.skipped:
            self.skipped.append((name, reason))
            log.warning("data: %s is skipped: %s", name, reason)


def _joined(
    batches: Iterator[NumpyBatch], starts: range, fill: Callable[[int], NumpyBatch] | None = None
) -> Iterator[NumpyBatch]:
    """Yields batches of the k in `starts`, from rows in that order, some of which may be missing.

    Args:
      batches: batches of any size; their `_k` identifies each row.
      starts: the first k of each batch.
      fill: k -> the batch of one row that takes its place; called only for missing rows.
    """
    size, left = starts.step, None
    for start in starts:
        parts: list[NumpyBatch] = []
        rows = 0
        while rows < size and (left := next(batches, None) if left is None else left) is not None:
            here = int(np.searchsorted(left["_k"], start + size))
            parts.append({key: x[:here] for key, x in left.items()})
            rows += here
            if here < len(left["_k"]):
                left = {key: x[here:] for key, x in left.items()}
                break
            left = None
        whole = parts[0] if len(parts) == 1 else {}
        if rows < size or not whole:
            known = {int(k) for part in parts for k in part["_k"]}
            assert fill is not None or rows == size
            parts += [fill(k) for k in range(start, start + size) if k not in known]  # type: ignore[misc]
            whole = {k: np.empty((size, *x.shape[1:]), x.dtype) for k, x in parts[0].items()}
            for part in parts:
                for key, x in part.items():
                    whole[key][part["_k"] - start] = x
        yield {key: x for key, x in whole.items() if key != "_k"}


def local_rows(sharding: jax.sharding.Sharding, batch_size: int) -> range:
    """Returns the rows of a global batch [B, ...] that this process's devices hold.

    Raises:
      ValueError: the rows are not contiguous; order the mesh so that they are.
    """
    held: set[int] = set()
    for slices in sharding.addressable_devices_indices_map((batch_size,)).values():
        held.update(range(*(slices or (slice(None),))[0].indices(batch_size)))
    if max(held) - min(held) + 1 != len(held):
        raise ValueError("the rows of this process are not contiguous in the global batch.")
    return range(min(held), max(held) + 1)


def to_devices(
    batches: Iterator[NumpyBatch], sharding: jax.sharding.Sharding, batch_size: int, ahead: int
) -> Iterator[dict[str, jax.Array]]:
    """Yields global arrays made from this process's rows, placed `ahead` batches early.

    Texts stay on the host.
    """

    def place(x: np.ndarray) -> jax.Array:
        shape = (batch_size, *x.shape[1:])
        with jax.transfer_guard("allow"):  # with several processes this is an implicit transfer
            return jax.make_array_from_process_local_data(sharding, x, shape)

    queue: collections.deque[dict[str, jax.Array]] = collections.deque()
    for batch in batches:
        queue.append({key: place(x) for key, x in batch.items() if x.dtype != object})
        if len(queue) > ahead:
            yield queue.popleft()
    yield from queue
