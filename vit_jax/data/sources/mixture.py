# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Mixes several sources into one, whose training examples follow a fixed block pattern.

With weights 3 and 1 every four positions hold A A B A, whatever the sizes. Each source goes through
its own examples, in a new permutation for each of its own epochs. Start from `mix`.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vit_jax.data.example import CLASSES, FIELDS
from vit_jax.data.formats.mask_file import Renumbered
from vit_jax.data.splits import order
from vit_jax.data.splits.split import (
    Fields,
    NumpyFields,
    NumpyOrder,
    Order,
    Rows,
    Split,
    Table,
    first_at_least,
    split_ids,
    take_rows,
)
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.data.formats.boxes import Truth
    from vit_jax.data.sources.source import Source

_PART = re.compile(r"(?P<weight>\d{1,9})\*(?P<spec>[a-z]+(:.*)?)")
_MOST = 1000  # largest number of examples in a block


def parse(rest: str) -> tuple[list[int], list[str]]:
    """Splits `3*SOURCE,1*SOURCE` into weights and sources; a source may contain commas.

    Raises:
      BadInput: the text has another form, a weight is out of range, or a part is a mixture.
    """
    parts = [_PART.fullmatch(part.strip()) for part in re.split(r",(?=\s*\d+\*)", rest)]
    terms = [(int(p["weight"]), p["spec"]) for p in parts if p]
    total = sum(weight for weight, _ in terms)
    if len(terms) < max(len(parts), 2) or any(w < 1 for w, _ in terms) or total > _MOST:
        raise BadInput(
            f"data.source='mix:{rest}': expected at least two sources with the number of examples "
            f"that each has in a block of at most {_MOST}, e.g. mix:3*folder:A,1*folder:B."
        )
    if any(spec.startswith("mix:") for _, spec in terms):
        raise BadInput(
            f"data.source='mix:{rest}': a mixture cannot hold a mixture; list all sources in one."
        )
    return [weight for weight, _ in terms], [spec for _, spec in terms]


def mix(
    weights: Sequence[int], sources: Sequence[Source]
) -> tuple[tuple[str, ...], dict[str, Split], tuple[str, ...]]:
    """Returns class names, splits and notes of a mixture.

    Args:
      weights: the number of examples of each source in a block.
      sources: the opened sources.

    Returns:
      The classes of all sources, merged by name in order of appearance. The split `train` is mixed,
      and its length is the sum of all. Any other split joins those of all sources that have it.

    Raises:
      BadInput: a source has no `train`, or two classes of the same name.
    """
    classes = tuple(dict.fromkeys(name for source in sources for name in source.classes))
    number = {name: k for k, name in enumerate(classes)}
    maps, notes = [], []
    for source in sources:
        if "train" not in source.splits:
            raise BadInput(
                f"{source.spec} has no split train to be mixed, only {', '.join(source.splits)}."
            )
        if len(set(source.classes)) < len(source.classes):
            raise BadInput(
                f"{source.spec} has two classes of the same name; a mixture tells classes by name."
            )
        own = [number[name] for name in source.classes]
        maps.append(np.array(own or [-1], np.int32))  # without classes, all labels are -1
        notes += [f"{source.spec}: {note}" for note in _of_classes(source, sources)]
        notes += [f"{source.spec}: {note}" for note in source.notes]
    splits: dict[str, Split] = {}
    for name in dict.fromkeys(name for source in sources for name in source.splits):
        having = [i for i, source in enumerate(sources) if name in source.splits]
        table = _concatenated([sources[i].splits[name] for i in having], [maps[i] for i in having])
        splits[name] = Split(table, range(table.rows))
    sizes = [len(source.splits["train"]) for source in sources]
    firsts = (0, *itertools.accumulate(sizes))
    train = splits["train"]
    specs = tuple(source.spec for source in sources)
    splits["train"] = Mixed(train.table, train.rows, firsts, tuple(weights), specs)
    return classes, splits, tuple(notes)


def _of_classes(source: Source, sources: Sequence[Source]) -> list[str]:
    """Returns a note that counts a source's classes and those it shares with other sources."""
    others = {name for other in sources if other is not source for name in other.classes}
    shared = [name for name in source.classes if name in others]
    names = ", ".join(shared[:3]) + (", ..." if shared[3:] else "")
    also = f", {len(shared)} of them also those of other sources: {names}" if shared else ""
    return [f"{len(source.classes)} classes{also}"]


def block_pattern(weights: Sequence[int]) -> list[int]:
    """Returns the source of each position in a block, evenly spread: 3, 1 gives [0, 0, 1, 0]."""
    block = sum(weights)
    times = [((2 * j + 1) * block / w, i) for i, w in enumerate(weights) for j in range(w)]
    return [source for _, source in sorted(times)]


@dataclasses.dataclass(frozen=True)
class Mixed(Split):
    """A split of several sources. They are stored one after another and read in a block pattern.

    Attributes:
      firsts: [sources + 1], the first index of each source, and last the number of examples.
      weights: the number of examples of each source in a block.
      specs: each source as given, `kind:rest`.
    """

    firsts: tuple[int, ...]
    weights: tuple[int, ...]
    specs: tuple[str, ...]

    def notes(self) -> list[str]:
        """Returns the share of each source and how often its examples are seen; see `Split`."""
        length, block = len(self), sum(self.weights)
        sizes = [b - a for a, b in itertools.pairwise(self.firsts)]
        return [
            f"{weight} of {block} training examples ({weight / block:.1%}) are from {spec}: in an "
            f"epoch of {length:,} each of its {size:,} is seen "
            f"{length * weight / block / size:.2f} times"
            for weight, size, spec in zip(self.weights, sizes, self.specs, strict=True)
        ]

    def take_indices(self, indices: Rows) -> Split:
        """Returns a part, see `Split`; raises BadInput if a source would keep no example."""
        firsts = tuple(first_at_least(indices, self.firsts).tolist())
        if any(a == b for a, b in itertools.pairwise(firsts)):
            raise BadInput(
                f"{len(indices)} of the {len(self)} examples of a mixture leave one of its sources "
                "without any; take more, or leave the source out."
            )
        return dataclasses.replace(super().take_indices(indices), firsts=firsts)

    def take_range(self, start: int, stop: int) -> Split:
        """Raises BadInput: sources are stored one after another, so a slice is not a sample."""
        raise BadInput(
            "a slice such as train[:98%] of a mixture would take its sources one after another; "
            "take part of it by data.fraction, or slice by data.val_percent."
        )

    def _pattern(self, seed: int) -> tuple[np.ndarray, np.ndarray, list[int], list[int]]:
        """Returns what the orders are made of.

        That is the source of each position in a block, how often it came before in the block, and
        for each source the number of its examples and the seed of its order.
        """
        slots = np.array(block_pattern(self.weights))
        ranks = np.array([(slots[:s] == slots[s]).sum() for s in range(len(slots))])
        sizes = np.diff(self.firsts).tolist()
        seeds = [order.stream_seed(seed, f"mix/{i}") for i in range(len(sizes))]
        return slots, ranks, sizes, seeds

    def order(self, seed: int) -> Order:
        """Returns the order of the examples in the block pattern; see `Split.order`."""
        slots, ranks, sizes, seeds = self._pattern(seed)

        def at(position: Tensor) -> Tensor:
            slot = position % len(slots)
            source = tf.gather(tf.constant(slots), slot)
            weight = tf.gather(tf.constant(self.weights, tf.int64), source)
            own = position // len(slots) * weight + tf.gather(tf.constant(ranks), slot)
            candidates = [
                order.example_at(own, examples=size, seed=one) + first
                for size, one, first in zip(sizes, seeds, self.firsts, strict=False)
            ]
            return tf.gather(tf.stack(candidates), source)

        return at

    def numpy_order(self, seed: int) -> NumpyOrder:
        """Returns the same order as `order`, without TensorFlow."""
        slots, ranks, sizes, seeds = self._pattern(seed)

        def at(positions: np.ndarray) -> np.ndarray:
            indices, blocks = np.empty(len(positions), np.int64), positions // len(slots)
            sources = slots[positions % len(slots)]
            for i, (size, one) in enumerate(zip(sizes, seeds, strict=True)):
                here = sources == i
                own = blocks[here] * self.weights[i] + ranks[positions[here] % len(slots)]
                indices[here] = order.examples_at(own, examples=size, seed=one) + self.firsts[i]
            return indices

        return at


def _concatenated(splits: Sequence[Split], maps: Sequence[np.ndarray]) -> Table:
    """Returns the examples of several splits one after another, with classes mapped by `maps`."""
    firsts = np.cumsum([0, *map(len, splits)])

    def name(row: int) -> str:
        part = int(np.searchsorted(firsts, row, side="right")) - 1
        return splits[part].name(row - int(firsts[part]))

    def labels() -> np.ndarray:
        parts = []
        for split, one in zip(splits, maps, strict=True):
            own = take_rows(split.table.labels(), split.rows)  # type: ignore[misc]
            parts.append(np.where(own < 0, np.int32(-1), one[own]))
        most = max(part.shape[1] for part in parts)
        padded = [np.pad(p, [(0, 0), (0, most - p.shape[1])], constant_values=-1) for p in parts]
        return np.concatenate(padded)

    def ids() -> np.ndarray:
        return np.concatenate([split_ids(split) for split in splits])

    def numpy_reader() -> Callable[[int], NumpyFields]:
        readers = [split.numpy_reader() for split in splits]
        kinds = [split.numpy_example() for split in splits]
        most = max(len(kind["labels"]) for kind in kinds)
        common = {key for key in kinds[0] if all(key in kind for kind in kinds)}

        def read(row: int) -> NumpyFields:
            part = int(np.searchsorted(firsts, row, side="right")) - 1
            fields = readers[part](row - int(firsts[part]))
            padding = most - len(fields["labels"])
            for key in {*CLASSES} & common - {"mask"}:
                own = fields[key]
                fields[key] = np.where(own < 0, np.int32(-1), maps[part][np.maximum(own, 0)])
            fields["labels"] = np.pad(fields["labels"], [0, padding], constant_values=-1)
            if "mask" in common:
                fields["mask"] = Renumbered(fields["mask"], tuple(maps[part].tolist()))
            return {key: value for key, value in fields.items() if key in common}

        return read

    with_truth = any(split.table.truth for split in splits)
    known = all(split.table.labels for split in splits)
    most = [split.table.most_labels for split in splits]
    boxes = max((split.table.most_boxes for split in splits), key=lambda one: one[1])
    numbered = any(split.table.numbered for split in splits)  # may be too many names to hash
    return Table(
        int(firsts[-1]),
        name,
        lambda: _reader(splits, maps, firsts),
        labels=labels if known else None,
        numbered=numbered,
        most_labels=max(most) if all(most) else 0,
        most_boxes=boxes,
        ids=ids if any(split.table.ids or not split.table.numbered for split in splits) else None,
        numpy_reader=numpy_reader if all(split.table.numpy_reader for split in splits) else None,
        truth=(lambda: _truth(splits, maps, firsts))
        if with_truth and all(split.has_boxes() for split in splits)
        else None,
    )


def _truth(
    splits: Sequence[Split], maps: Sequence[np.ndarray], firsts: np.ndarray
) -> Callable[[int], Truth]:
    """Returns a function, row -> the true boxes; parts may have images of one name."""
    readers = [split.truth_reader() for split in splits]

    def of_row(row: int) -> Truth:
        part = int(np.searchsorted(firsts, row, side="right")) - 1
        index = row - int(firsts[part])
        own = readers[part](index)
        name = f"{part}:{splits[part].name(index)}"
        return own._replace(id=name, classes=maps[part][own.classes])

    return of_row


def _reader(
    splits: Sequence[Split], maps: Sequence[np.ndarray], firsts: np.ndarray
) -> Callable[[Tensor], Fields]:
    """Returns a reader of the fields that all splits have; the fewer boxes are filled up."""
    readers = [split.fields_reader() for split in splits]
    index = tf.TensorSpec([], tf.int64)
    kinds = [
        tf.function(r, autograph=False).get_concrete_function(index).structured_outputs
        for r in readers
    ]
    common = [key for key in kinds[0] if all(key in kind for kind in kinds)]
    files = any(kind["image"].dtype == tf.string for kind in kinds)
    most = {
        key: max(kind[key].shape[0] for kind in kinds)
        for key in common
        if FIELDS[key].axes[:1] in (("K",), ("M",))
    }

    shape: list[int | None] = []  # of the bytes of a file
    if not files:
        channels = {kind["image"].shape[-1] for kind in kinds}
        shape = [None, None, channels.pop() if len(channels) == 1 else None]

    def branch(part: int, row: Tensor) -> Fields:
        fields = dict(readers[part](row - int(firsts[part])))
        if files and fields["image"].dtype != tf.string:
            # All branches return one type, and PNG is lossless.
            if (fields["image"].shape[-1] or 3) > 4:
                raise BadInput(
                    f"{splits[part].name(0)} is an array of {fields['image'].shape[-1]} channels, "
                    "and other parts of the mixture are files; mix arrays with arrays."
                )
            fields["image"] = tf.io.encode_png(fields["image"])
        for key in {*CLASSES} & {*common}:
            own = fields[key]
            number = tf.gather(tf.constant(maps[part]), tf.maximum(own, 0))
            fields[key] = tf.where(own < 0, -1, number)
        for key, length in most.items():
            more = [[0, length - fields[key].shape[0]], [0, 0]][: fields[key].shape.rank]
            fields[key] = tf.pad(fields[key], more, constant_values=FIELDS[key].missing)
        return {key: fields[key] for key in common}

    def read(row: Tensor) -> Fields:
        part = tf.searchsorted(tf.constant(firsts), row[None], side="right")[0] - 1
        branches = [lambda p=p: branch(p, row) for p in range(len(splits))]
        fields = tf.switch_case(part, branches)
        fields["image"].set_shape(shape)
        for key, length in most.items():
            fields[key] = tf.ensure_shape(fields[key], [length, *fields[key].shape[1:]])
        return fields

    return read
