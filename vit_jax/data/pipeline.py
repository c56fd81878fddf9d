# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From a split to batches: order, reading, preprocessing, padding, prefetching, placing on devices.

A process reads only the rows of the global batch that its devices hold. Start from `Pipeline`.
"""

import collections
import dataclasses
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from vit_jax.data import order, preprocess
from vit_jax.data.lazy import Tensor, tf
from vit_jax.data.splits import Split
from vit_jax.errors import BadInput

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
    """

    split: Split
    ops: tuple[preprocess.Op, ...]
    batch_size: int
    seed: int
    image_size: int
    workers: int
    prefetch: int

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

        return self._batches(first_step * len(rows), last_step * len(rows), plan, len(rows))

    def evaluation(self, rows: range | None = None) -> Iterator[NumpyBatch]:
        """Every example once, in order; the last batch is filled with rows whose mask is False."""
        rows = rows if rows is not None else range(self.batch_size)
        steps = -(-len(self.split) // self.batch_size)

        def plan(k: Tensor) -> tuple[Any, Any, Any]:
            at = self._position(k, rows)
            real = at < len(self.split)
            return tf.where(real, at, 0), order.example_seed(at, seed=0), real

        return self._batches(0, steps * len(rows), plan, len(rows))

    def probe(self) -> None:
        """Processes the first example; raises BadInput where the chain does not give images."""
        one = dataclasses.replace(self, batch_size=1, workers=1, prefetch=1)
        next(one.evaluation())

    def _position(self, k: Any, rows: range) -> Any:
        """The position of the k-th example that a process with these rows of each batch reads."""
        return k // len(rows) * self.batch_size + rows.start + k % len(rows)

    def _batches(self, first: int, last: int, plan: Any, size: int) -> Iterator[NumpyBatch]:
        read, process = self.split.reader(), preprocess.apply(self.ops)
        shape = [self.image_size, self.image_size, 3]

        def example(k: Tensor) -> dict[str, Any]:
            index, seed, mask = plan(k)
            image, labels = read(index)
            image = process(image, seed)
            if image.dtype != tf.uint8 or not image.shape.is_compatible_with(shape):
                raise BadInput(
                    f"the chain gives {image.dtype.name} {image.shape}, expected uint8 {shape}; "
                    "it starts with decode and ends at data.image_size, e.g. decode|resize({size})."
                )
            tf.debugging.assert_equal(tf.shape(image), shape, "size after the chain")
            return {"image": tf.ensure_shape(image, shape), "labels": labels, "mask": mask}

        dataset = tf.data.Dataset.range(first, last)
        try:
            plain = tf.autograph.experimental.do_not_convert(example)
            dataset = dataset.map(plain, num_parallel_calls=self.workers, deterministic=True)
        except BadInput:
            raise
        except (ValueError, TypeError, IndexError, AttributeError) as e:
            raise BadInput(
                f"the chain {_names(self.ops)} cannot be applied: {_plain(str(e))}. "
                "It starts with decode where images are files."
            ) from e
        dataset = dataset.batch(size, drop_remainder=True).prefetch(self.prefetch)
        options = tf.data.Options()
        options.threading.private_threadpool_size = self.workers
        options.deterministic = True
        iterator = dataset.with_options(options).as_numpy_iterator()
        for start in range(first, last, size):
            try:
                batch = next(iterator)
            except tf.errors.OpError as e:
                raise self._explain(range(start, start + size), plan, example, e) from None
            yield batch

    def _explain(self, positions: range, plan: Any, example: Any, error: Exception) -> BadInput:
        """The order is arithmetic: the example that failed is found by trying its batch."""
        for k in positions:
            try:
                example(tf.constant(k, tf.int64))
            except tf.errors.OpError as e:
                name = self.split.name(int(plan(tf.constant(k, tf.int64))[0]))
                return BadInput(
                    f"{name} does not go through {_names(self.ops)}: {_plain(e.message)}. "
                    "Remove or replace the image, or change the chain."
                )
        return BadInput(f"reading failed: {_plain(str(error))}.")


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
