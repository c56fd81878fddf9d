# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From a split to batches: order, reading, preprocessing, padding, prefetching, placing on devices.

A process reads only the rows of the global batch that its devices hold. Start from `Pipeline`.
"""

import collections
import dataclasses
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import jax
import numpy as np

from vit_jax.data import order, preprocess
from vit_jax.data.decode import BadImage, Decode
from vit_jax.data.doubtful import Doubtful
from vit_jax.data.lazy import Tensor, tf
from vit_jax.data.splits import Split
from vit_jax.errors import BadInput

log = logging.getLogger("vit_jax")

# k -> index in the split, seed of the example, whether it is one
Plan = Callable[[Tensor], tuple[Any, Any, Any]]
NumpyBatch = dict[str, np.ndarray]  # image uint8 [b, H, W, 3], labels int32 [b, K], mask bool [b]


@dataclasses.dataclass(frozen=True)
class Pipeline:
    """Batches of one split.

    Attributes:
      split: the examples.
      ops: from `preprocess.parse`.
      batch_size: global rows B.
      seed: of order and augmentation.
      image_size: side of every image that the ops must produce.
      workers: threads.
      prefetch: batches kept ready.
      bad_images: what happens in training to a file that is no image: `error` names it; `skip`
        takes the next good example of the split in its place. Evaluation always names it.
      skipped: (name, reason) of the files of this process that were replaced so far.
    """

    split: Split
    ops: tuple[preprocess.Op, ...]
    batch_size: int
    seed: int
    image_size: int
    workers: int
    prefetch: int
    bad_images: Literal["error", "skip"] = "error"
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list, init=False)

    def train(
        self, first_step: int, last_step: int, rows: range | None = None
    ) -> Iterator[NumpyBatch]:
        """Batches of steps first_step to last_step - 1; to start anywhere costs the same.

        Args:
          first_step: steps already done.
          last_step: exclusive.
          rows: the rows of each batch to read (default: all).
        """
        rows = rows if rows is not None else range(self.batch_size)
        example_at = self.split.order(order.stream_seed(self.seed, "order"))
        augment_seed = order.stream_seed(self.seed, "augment")

        def plan(k: Tensor) -> tuple[Any, Any, Any]:
            at = self._position(k, rows)
            return example_at(at), order.example_seed(at, seed=augment_seed), tf.constant(True)

        steps = range(first_step * len(rows), last_step * len(rows), len(rows))
        return self._batches(steps, plan, skip=self.bad_images == "skip")

    def evaluation(self, rows: range | None = None) -> Iterator[NumpyBatch]:
        """Every example once, in order; the last batch is filled with rows whose mask is False."""
        return self._evaluation(rows, skip=False)

    def probe(self) -> NumpyBatch:
        """The first example; raises BadInput where the chain does not give images."""
        one = dataclasses.replace(self, batch_size=1, workers=1, prefetch=1)
        return next(one._evaluation(None, skip=self.bad_images == "skip"))

    def _evaluation(self, rows: range | None, skip: bool) -> Iterator[NumpyBatch]:
        rows = rows if rows is not None else range(self.batch_size)
        steps = -(-len(self.split) // self.batch_size)

        def plan(k: Tensor) -> tuple[Any, Any, Any]:
            at = self._position(k, rows)
            real = at < len(self.split)
            return tf.where(real, at, 0), order.example_seed(at, seed=0), real

        return self._batches(range(0, steps * len(rows), len(rows)), plan, skip=skip)

    def _position(self, k: Any, rows: range) -> Any:
        """The position of the k-th example that a process with these rows of each batch reads."""
        return k // len(rows) * self.batch_size + rows.start + k % len(rows)

    def _batches(self, starts: range, plan: Plan, skip: bool) -> Iterator[NumpyBatch]:
        """A batch for each of `starts`, of the k from there on.

        A file that cannot be decoded ends the dataset. What the file is gets known then, and a new
        dataset, told so, goes on where the old one ended: nothing else of a batch changes.
        """
        exif = any(op.exif for op in self.ops if isinstance(op, Decode))
        doubtful = Doubtful(self.split, exif)
        start, size = starts.start, starts.step
        while start < starts.stop:
            example = self._example(plan, doubtful.reader())
            iterator = self._iterator(range(start, starts.stop), size, example)
            try:
                for batch in iterator:
                    yield batch
                    start += size
            except (tf.errors.OpError, UnicodeDecodeError) as e:
                if not self._examine(range(start, start + size), plan, example, doubtful, skip):
                    raise BadInput(f"reading failed: {_plain(str(e))}.") from None

    def _example(self, plan: Plan, read: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Any:
        """The tf.function k -> example."""
        process = preprocess.apply(self.ops)

        def example(k: Tensor) -> dict[str, Any]:
            index, seed, mask = plan(k)
            image, labels = read(index)
            return {"image": self._checked(process(image, seed)), "labels": labels, "mask": mask}

        traced = tf.function(example, autograph=False)
        try:
            traced.get_concrete_function(tf.TensorSpec([], tf.int64))
        except BadInput:
            raise
        except (ValueError, TypeError, IndexError, AttributeError) as e:
            raise BadInput(
                f"the chain {_names(self.ops)} cannot be applied: {_plain(str(e))}. "
                "It starts with decode where images are files."
            ) from e
        return traced

    def _checked(self, image: Tensor) -> Tensor:
        shape = [self.image_size, self.image_size, 3]
        if image.dtype != tf.uint8 or not image.shape.is_compatible_with(shape):
            raise BadInput(
                f"the chain gives {image.dtype.name} {image.shape}, expected uint8 {shape}; "
                "it starts with decode and ends at data.image_size, e.g. decode|resize({size})."
            )
        tf.debugging.assert_equal(tf.shape(image), shape, "size after the chain")
        return tf.ensure_shape(image, shape)

    def _iterator(self, positions: range, size: int, example: Any) -> Iterator[NumpyBatch]:
        dataset = tf.data.Dataset.range(positions.start, positions.stop)
        dataset = dataset.map(example, num_parallel_calls=self.workers, deterministic=True)
        dataset = dataset.batch(size, drop_remainder=True).prefetch(self.prefetch)
        options = tf.data.Options()
        options.threading.private_threadpool_size = self.workers
        options.deterministic = True
        return dataset.with_options(options).as_numpy_iterator()

    def _examine(
        self, batch: range, plan: Plan, example: Any, doubtful: Doubtful, skip: bool
    ) -> bool:
        """Finds what failed in a batch: the order is arithmetic, so its examples can be tried.

        Returns:
          Whether anything was found.

        Raises:
          BadInput: an example cannot be read, or not go through the chain; or is no image, unless
            such are skipped.
        """
        found = False
        for k in (tf.constant(k, tf.int64) for k in batch):
            try:
                example(k)
            except (tf.errors.OpError, UnicodeDecodeError) as e:  # which quotes a damaged record
                planned, seed, _ = plan(k)
                index = doubtful.at(int(planned))
                reason = self._examine_one(index, seed, doubtful, e)
                if reason and not skip:
                    raise BadInput(
                        f"{self.split.name(index)} cannot be decoded: {reason}. Remove or replace "
                        "the file; data.bad_images=skip leaves such files out of training."
                    ) from None
                if reason:
                    doubtful.replace(index)
                    if (skipped := (self.split.name(index), reason)) not in self.skipped:
                        self.skipped.append(skipped)
                        log.warning("data: %s is skipped: %s", *skipped)
                found = True
        return found

    def _examine_one(self, index: int, seed: Tensor, doubtful: Doubtful, error: Exception) -> str:
        """Why an example is no image; empty where it is one, which is decoded carefully now."""
        try:
            if not doubtful.is_known(index):
                image = doubtful.image(index)
                self._checked(preprocess.apply(self.ops)(tf.constant(image), seed))
                doubtful.add_careful(index)
                return ""
        except BadImage as e:
            return str(e)
        except (tf.errors.OpError, UnicodeDecodeError) as e:  # not readable, or not fit
            error = e
        raise BadInput(
            f"{self.split.name(index)} does not go through {_names(self.ops)}: "
            f"{_plain(getattr(error, 'message', str(error)))}. "
            "Remove or replace the image, or change the chain."
        ) from None


def _names(ops: tuple[preprocess.Op, ...]) -> str:
    return "|".join(type(op).__name__ for op in ops)


_TF_NAMES = r"\{\{[^}]*\}\}|\[Op:[^\]]*\]|\[\[[^\]]*\]\]|name: *\S*$|<[^>]*>"


def _plain(message: str) -> str:
    """The sentence in an error of TensorFlow, without its node names."""
    text = re.sub(_TF_NAMES, " ", message.split("Summarized data")[0])
    text = re.sub(r"tf\.Tensor\(([^()]*(?:\([^()]*\))?[^()]*)\)", r"\1", text)
    return " ".join(text.split()).strip(" .")[:200]


def local_rows(sharding: jax.sharding.Sharding, batch_size: int) -> range:
    """The rows of a global batch [B, ...] that this process's devices hold.

    Raises:
      ValueError: they are not contiguous; order the mesh so that they are.
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
    """Global arrays from the rows of this process, `ahead` batches early."""

    def place(x: np.ndarray) -> jax.Array:
        shape = (batch_size, *x.shape[1:])
        with jax.transfer_guard("allow"):  # with several processes jax calls this one implicit
            return jax.make_array_from_process_local_data(sharding, x, shape)

    queue: collections.deque[dict[str, jax.Array]] = collections.deque()
    for batch in batches:
        queue.append({key: place(x) for key, x in batch.items()})
        if len(queue) > ahead:
            yield queue.popleft()
    yield from queue
