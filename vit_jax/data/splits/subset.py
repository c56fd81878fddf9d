# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Chooses a part of the training examples by hash.

The choice is the same on every host, and a smaller part lies within every larger one. The paper's
Figure 4 uses 9, 30 and 90 of 303 million examples. Start from `choose`.
"""

import hashlib
import logging
import os
from collections.abc import Callable, Iterable

import numpy as np

from vit_jax.data.splits import order
from vit_jax.data.splits.split import Split, split_ids, take_rows
from vit_jax.data.tensorflow import Tensor, plain, tf, untuned
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

log = logging.getLogger("vit_jax")

_PURPOSE = order.stream_seed(0, "subset")
_CHUNK = 2**17  # rows hashed at once; they fit in the processor's cache
_READERS = 16  # number of threads
_BITS = 12  # number of leading bits of a hash that are counted first


def choose(
    split: Split,
    *,
    examples: int = 0,
    fraction: float = 1.0,
    balanced: bool = False,
    exclude: str = "",
    classes: int,
) -> tuple[Split, list[str]]:
    """Returns the examples of a split that are used for training, in table order, and notes.

    Excluded examples are removed first. Then those with the smallest hashes stay: hashes of the row
    if names are numbers (`Table.numbered`), otherwise hashes of the name. So 9 M of a dataset are
    among its 30 M.

    Args:
      split: the examples to choose from.
      examples: how many stay; 0: all.
      fraction: the share that stays if `examples` is 0.
      balanced: takes equally many of each class, as far as each class has them; uses the first
        label of an example. Reads the labels if the source does not list them.
      exclude: a file of names, one a line: as `Split.name` or the records' name_key gives them, or
        the last part of either, with or without its extension; "": excludes nothing.
      classes: the number of classes.

    Raises:
      BadInput: more examples are asked for than exist, the file of names is missing, or no example
        would be left.
    """
    notes = []
    if exclude:
        split, note = _without(split, exclude)
        notes.append(note)
    count = examples or round(fraction * len(split))
    if not 0 < count <= len(split):
        asked = f"data.examples={examples}" if examples else f"data.fraction={fraction}"
        raise BadInput(
            f"{asked} of {len(split)} training images is {count}; give 1 to {len(split)}."
        )
    if count == len(split):
        return split, [*notes, *split.notes()]
    note = f"{count:,} of {len(split):,} training images are kept, by hash"
    if balanced and not classes:
        raise BadInput("data.balanced=True: the data has no labels; leave it out.")
    if balanced:
        chosen, few = _balanced(split, count, classes)
        note += f", evenly from each class{few}"
    else:
        chosen = _smallest(split, count)
    part = split.take_indices(chosen)
    return part, [*notes, note, *part.notes()]


Hashes = Callable[[int, int], np.ndarray]  # (start, stop) -> uint64 of those examples


def hashes(split: Split) -> Hashes:
    """Returns a function that gives the hashes of rows (on each call) or of names (all at once)."""
    if split.table.numbered:
        return lambda start, stop: order.hash_numbers(split.rows[start:stop], _PURPOSE)
    names = (os.fsencode(split.name(i)) for i in range(len(split)))
    values = np.fromiter(map(_of_name, names), np.uint64, len(split))
    return lambda start, stop: values[start:stop]


def take_range_by_hash(split: Split, start: int, stop: int) -> Split:
    """Returns examples `start` to `stop` - 1 in hash order, as a split in its original order."""
    by_hash = np.argsort(hashes(split)(0, len(split)), kind="stable")
    return split.take_indices(np.sort(by_hash[start:stop]))


def _of_name(name: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(name, digest_size=8, person=b"subset").digest(), "big")


def _smallest(split: Split, count: int) -> np.ndarray:
    """Returns int64 [count]: the indices with the smallest hashes, ascending.

    Counts the hashes by their first bits. Then keeps every hash below the bits of the last one
    kept, and sorts only those that share these bits. So memory is that of the result, whatever the
    size of the split.
    """
    hashes_of, shift = hashes(split), np.uint64(64 - _BITS)
    chunks = [(a, min(a + _CHUNK, len(split))) for a in range(0, len(split), _CHUNK)]
    counts = np.zeros(2**_BITS, np.int64)
    for start, stop in chunks:
        bits = (hashes_of(start, stop) >> shift).astype(np.int64)
        counts += np.bincount(bits, minlength=2**_BITS)
    last = np.uint64(np.searchsorted(np.cumsum(counts), count))
    chosen, filled, edge = np.empty(count, np.int64), 0, []
    for start, stop in chunks:
        own = hashes_of(start, stop)
        bits = own >> shift
        below, on = np.flatnonzero(bits < last), np.flatnonzero(bits == last)
        chosen[filled : filled + len(below)] = below + start
        filled += len(below)
        edge.append((own[on], on + start))
    last_ones, indices = (np.concatenate(parts) for parts in zip(*edge, strict=True))
    chosen[filled:] = indices[np.argsort(last_ones, kind="stable")[: count - filled]]
    chosen.sort()
    return chosen


def _balanced(split: Split, count: int, classes: int) -> tuple[np.ndarray, str]:
    """Returns int64 [count], ascending, and a note.

    Takes one example of each class, then a second of each, and so on, by hash. Uses about 40 bytes
    an example.
    """
    first, own = labels(split, "data.balanced", most=1)[:, 0], hashes(split)(0, len(split))
    by_class, rank = ranked(first, own)
    sizes = np.unique(first, return_counts=True)[1]
    chosen = by_class[np.lexsort((own[by_class], rank))[:count]]
    few = classes - int((sizes >= count / classes).sum())
    note = f"; {few} of {classes} classes have fewer than {count / classes:.4g}" if few else ""
    return np.sort(chosen), note


def ranked(classes: np.ndarray, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (int64 [n], int64 [n]): examples by class and then by key, and each one's rank.

    Args:
      classes: int [n], the class of each example.
      keys: [n], the sort key within a class.
    """
    by_class = np.lexsort((keys, classes))
    sizes = np.unique(classes, return_counts=True)[1]
    return by_class, np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def labels(split: Split, why: str, most: int | None = None) -> np.ndarray:
    """Returns int32 [n, K], padded with -1: the labels of each example; decodes no image.

    Args:
      split: n examples.
      why: why the labels are needed, for messages.
      most: the largest number of labels to return for an example; None: all.

    Raises:
      BadInput: the source does not list the labels apart from the images, and an example cannot be
        read.
    """
    if split.table.labels is not None:
        return take_rows(split.table.labels(), split.rows)[:, :most]
    log.info("data: reading the labels of %d examples, for %s", len(split), why)
    read = split.reader()

    def own(index: Tensor) -> Tensor:
        return read(index)[1][:most]

    examples = tf.data.Dataset.range(len(split)).map(own, num_parallel_calls=_READERS)
    try:
        return np.concatenate(list(untuned(examples.batch(2**12)).as_numpy_iterator()))
    except (tf.errors.OpError, UnicodeDecodeError) as e:  # the latter quotes a damaged record
        raise BadInput(
            f"{why} reads the label of every image, and one cannot be read ({plain(e)}); "
            "`vit_jax data check SOURCE` names it. Write its file again, or leave it out."
        ) from e


def _without(split: Split, path: str) -> tuple[Split, str]:
    """Returns the split without the excluded examples, and a note with their number."""
    try:
        lines = storage.read_list(os.path.expanduser(path)).splitlines()
    except OSError as e:
        raise BadInput(
            f"data.exclude={path} cannot be read: {e.strerror}; give a file of names, one a line."
        ) from e
    wanted = {line.strip() for line in lines} - {b""}
    if not wanted:
        raise BadInput(f"data.exclude={path} has no names; expected one a line.")
    matched, kept = set(), np.ones(len(split), bool)

    def search(names: Iterable[bytes], whole: bool) -> None:
        for index, name in enumerate(names):
            for form in _forms(name, whole):
                if form in wanted:
                    matched.add(form)
                    kept[index] = False

    if split.table.ids is not None:
        search(split_ids(split), False)
    if wanted - matched:
        names = (os.fsencode(split.name(i)) for i in range(len(split)))
        search(names, split.table.numbered)
    if not matched:
        raise BadInput(
            f"data.exclude={path}: none of its {len(wanted):,} names, such as "
            f"{os.fsdecode(min(wanted))}, is a training image here, such as {split.name(0)}; "
            "correct the list, or leave it out."
        )
    if not kept.any():
        raise BadInput(f"data.exclude={path} names all {len(split)} training images.")
    note = f"{(~kept).sum():,} training images are excluded by {path}"
    if missing := sorted(wanted - matched):
        first = os.fsdecode(missing[0])
        note += (
            f"; {len(missing):,} of its {len(wanted):,} names are not images here, first {first}"
        )
    return split.take_indices(np.flatnonzero(kept)), note


def _forms(name: bytes, whole: bool) -> list[bytes]:
    """Returns the forms of a name that a list may use: all of it, its last part, and its stem."""
    if whole:
        return [name]
    last = name.rpartition(b"/")[2]
    return [name, last, last.rpartition(b".")[0] or last]
