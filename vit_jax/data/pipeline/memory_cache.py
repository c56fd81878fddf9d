# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Holds examples in memory, either as stored or as the chain's first ops leave them.

The cached pipeline yields bit for bit what the uncached one yields. Each process holds the whole
split, since the order may ask any process for any example. Start from `cache_split`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from vit_jax.config.sections import Cache
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.pipeline.bad_images import FallbackReader, raise_if_store_lost
from vit_jax.data.splits.split import Fields, Split, Table
from vit_jax.data.tensorflow import Tensor, plain, tf, untuned
from vit_jax.errors import BadInput, unknown
from vit_jax.hardware import host_memory

KINDS = ("none", "raw", "decoded")

_SAMPLE = 64  # number of examples from which the total size is predicted
_HEADROOM = 1.25  # allows for a sample mean that is too small by this factor
_EACH = 64  # bytes for each example beside its image: label and bookkeeping

_Ops = tuple[preprocess.Op, ...]
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class CachedOp:
    """A placeholder for an op whose result is cached, so later ops keep their random numbers."""

    changes: ClassVar[tuple[str, ...]] = ("image",)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        return image


def cache_split(
    split: Split,
    kind: Cache,
    chains: Sequence[_Ops],
    workers: int,
    fields: Sequence[str] = ("image", "labels"),
) -> tuple[Split, list[_Ops], str]:
    """Returns the cached split, the rest of each chain, and a note ("" if nothing is cached).

    Args:
      split: the examples; read once, in this call.
      kind: `raw` caches the examples as stored; `decoded` caches them after the first ops, up to
        the first op that draws random numbers or that is not the same in every chain; `none`
        caches nothing.
      chains: the ops of each view.
      workers: number of threads.
      fields: the fields to cache.

    Returns:
      A split with the same names, order and examples, the chains for them, and the note.

    Raises:
      BadInput: the kind is unknown, the cache needs more than half of the available memory, the
        chain decodes parts of images, or the first ops cannot process an image.
    """
    if kind not in KINDS:
        raise unknown("data.cache", kind, KINDS)
    if kind == "none":
        return split, list(chains), ""
    if kind == "decoded" and any(getattr(op, "IN_PARTS", False) for ops in chains for op in ops):
        raise BadInput(
            "data.cache=decoded holds whole images, fast_inception_crop decodes parts; "
            "use data.cache=raw."
        )
    done, ops = 0, chains[0]
    if kind == "decoded":  # ops of the same place in all chains, up to the shortest
        for same in zip(*chains, strict=False):
            if len(set(same)) > 1 or not isinstance(same[0], preprocess.FIXED):
                break
            done += 1
    decodes = (op for op in ops[:done] if isinstance(op, preprocess.Decode))
    fallback = FallbackReader(split, next(decodes, preprocess.Decode()))
    stored = _Stored(fallback, split, ops[:done], workers, tuple(fields))
    advice = "Set data.cache=none" + (", or raw, which takes less." if done else ".")
    need = stored.retrying(stored.predicted_bytes)
    host_memory.check(need, f"data.cache={kind} of {len(split):,} images", advice)
    table = stored.retrying(stored.table)
    names = preprocess.names(ops[:done]) or "as they are stored"
    note = f"{len(split):,} images are held in memory, {names}: about {need / 2**20:,.0f} MiB"
    cached = dataclasses.replace(split, table=table, rows=range(len(split)))
    return cached, [(CachedOp(),) * done + ops[done:] for ops in chains], note


@dataclasses.dataclass(frozen=True)
class _Stored:
    """The cached form of each example: its fields after `ops`."""

    fallback: FallbackReader  # wraps `split`
    split: Split
    ops: _Ops
    workers: int
    fields: tuple[str, ...]

    def retrying(self, function: Callable[[], _T]) -> _T:
        """Calls the function, and calls it again if the failed images can be decoded by Pillow.

        Raises:
          BadInput: an example cannot be decoded at all; names the first one by index.
          StoreLost: the object store does not answer.
        """
        try:
            try:
                return function()
            except (tf.errors.OpError, UnicodeDecodeError) as e:
                self._examine(e)
                return function()
        except (tf.errors.OpError, UnicodeDecodeError) as e:
            raise_if_store_lost(e)
            raise BadInput(f"reading failed: {plain(e)}.") from None

    def predicted_bytes(self) -> int:
        """Predicts the bytes of all examples from an even sample; exact for small splits."""
        count = len(self.split)
        some = np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64))

        def size(fields: Fields) -> Tensor:
            sizes = [
                tf.strings.length(x) if x.dtype == tf.string else tf.size(x) * x.dtype.size
                for key, x in fields.items()
                if key != "labels"
            ]
            return tf.add_n(sizes)

        sizes = list(self._examples(some).map(size).as_numpy_iterator())
        headroom = _HEADROOM if count > len(some) else 1
        return int(count * (np.mean(sizes) * headroom + _EACH))

    def table(self) -> Table:
        """Returns a table of the examples in memory; row i is example i of the split."""
        examples = self._examples(np.arange(len(self.split)))
        kinds = examples.element_spec
        # A batch moves packed values instead of copying them, and their sizes may differ.
        pack = {k for k in ("image", "mask") if k in kinds and kinds[k].dtype != tf.string}

        def packed(fields: Fields) -> Fields:
            return {k: tf.io.serialize_tensor(x) if k in pack else x for k, x in fields.items()}

        held = next(iter(examples.map(packed).batch(len(self.split))))

        def read(row: Tensor) -> Fields:
            fields = {key: tf.gather(values, row) for key, values in held.items()}
            for key in pack:
                value = tf.io.parse_tensor(fields[key], kinds[key].dtype)
                fields[key] = tf.ensure_shape(value, kinds[key].shape)
            return fields

        labels = held["labels"].numpy
        return Table(len(self.split), self.split.name, lambda: read, labels=labels)

    def _examples(self, indices: np.ndarray) -> Any:
        """Returns a dataset of the fields of these examples."""
        read = self.fallback.reader()
        process = preprocess.apply_to_fields(self.ops)

        def stored(index: Tensor) -> Fields:
            example = read(index)
            return process({k: example[k] for k in self.fields}, tf.zeros([2], tf.int64))

        plainly = tf.autograph.experimental.do_not_convert(stored)
        dataset = tf.data.Dataset.from_tensor_slices(indices)
        return untuned(dataset.map(plainly, num_parallel_calls=self.workers))

    def _process(self, image: Tensor) -> Tensor:
        return preprocess.apply(self.ops)(image, tf.zeros([2], tf.int64))

    def _examine(self, error: Exception) -> None:
        """Finds all failing examples in one pass; from now on Pillow decodes those it can."""
        every = np.arange(len(self.split))
        numbers = tf.data.Dataset.from_tensor_slices(every)
        passed = tf.data.Dataset.zip(numbers, self._examples(every)).map(lambda n, _: n)
        good = np.fromiter(passed.ignore_errors().as_numpy_iterator(), np.int64)
        for index in np.setdiff1d(every, good).tolist():
            if reason := self.fallback.examine(
                index, self._process, preprocess.names(self.ops), error
            ):
                raise BadInput(
                    f"{self.split.name(index)} cannot be decoded: {reason}. Remove or replace the "
                    "file; data.bad_images=skip needs data.cache=raw or none."
                )
