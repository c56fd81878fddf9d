# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Splits: named, sliceable sets of examples that are read by index.

This module decides how a source without `val` or `test` gets them, and parses slices such as
`train[:98%]`. Start from `standard`.
"""

import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_jax.data import example
from vit_jax.data.splits import order
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput, unknown

if TYPE_CHECKING:
    from vit_jax.data.formats.boxes import Truth
    from vit_jax.data.formats.byte_ranges import Files

Rows = range | np.ndarray  # rows of a table
Fields = dict[str, Tensor]  # an example, see data/example.py
Order = Callable[[Tensor], Tensor]  # a graph function: position (int64 []) -> index in a split
NumpyOrder = Callable[[np.ndarray], np.ndarray]  # positions (int64 [n]) -> indices in a split
# An example without TensorFlow: its image is bytes, uint8 [H, W, C], or a `stored.Stored`.
NumpyFields = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Table:
    """The examples of a source, addressable by row.

    Attributes:
      rows: number of rows.
      name: row -> the example's name in error messages (a path).
      reader: () -> a graph function, row (int64 []) -> the fields of an example (data/example.py),
        a dict; or a pair of image (bytes, or uint8 [H, W, C]) and labels (int32 [K], padded with
        -1).
      labels: () -> int32 [rows, K], padded with -1; None unless the labels are known without
        reading every image.
      shards: int64 [S + 1], the first row of each file and, last, `rows`; None unless the examples
        lie one after another in large files.
      files: those files by number, if `reader` reads through them; else None.
      numbered: True if names only give a position, so examples are chosen by a hash of the row;
        otherwise by a hash of the name.
      ids: () -> bytes [rows], other names by which examples may be excluded, or None; may read
        every example once.
      most_labels: K if it is known before an example is read, else 0.
      numpy_reader: () -> a function, row -> the fields of an example, without TensorFlow, for
        `data.reader=python`; None if only TensorFlow reads them.
      truth: () -> a function, row -> all true boxes of the image, for evaluations; None for a
        source that knows no boxes but those in its fields.
      colours: () -> the colour that the data give each class of masks, uint8 [Y, 3], or None; None
        for a source without such colours.
      most_boxes: the example of the source, in any of its tables, that has the most boxes to train
        on, and how many; ("", 0) if they are not counted.
    """

    rows: int
    name: Callable[[int], str]
    reader: Callable[[], Callable[[Tensor], Fields | tuple[Tensor, Tensor]]]
    labels: Callable[[], np.ndarray] | None = None
    shards: np.ndarray | None = None
    files: "Files | None" = None
    numbered: bool = False
    ids: Callable[[], np.ndarray] | None = None
    most_labels: int = 0
    numpy_reader: Callable[[], Callable[[int], NumpyFields]] | None = None
    truth: "Callable[[], Callable[[int], Truth]] | None" = None
    most_boxes: tuple[str, int] = "", 0
    colours: Callable[[], np.ndarray | None] | None = None


@dataclasses.dataclass(frozen=True)
class Split:
    """Some rows of a table, in a fixed order."""

    table: Table
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        """Returns the name of example `index` for error messages."""
        return self.table.name(int(self.rows[index]))

    def notes(self) -> list[str]:
        """Returns sentences about unusual training on this split; usually none."""
        return []

    def digest(self, most: int = 10_000) -> str:
        """Returns a hash of the number of examples and of up to `most` evenly spread names."""
        chosen = np.unique(np.linspace(0, len(self) - 1, min(len(self), most)).astype(int))
        digest = hashlib.blake2b(str(len(self)).encode(), digest_size=6)
        for index in chosen:
            digest.update(self.name(int(index)).encode(errors="surrogateescape") + b"\0")
        return digest.hexdigest()

    def reader(self) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """Returns a graph function, index in this split (int64 []) -> (image, labels)."""
        read = self.fields_reader()

        def pair(index: Tensor) -> tuple[Tensor, Tensor]:
            fields = read(index)
            return fields["image"], fields["labels"]

        return pair

    def fields_reader(self) -> Callable[[Tensor], Fields]:
        """Returns a graph function, index in this split (int64 []) -> all fields of the example."""
        read = self.table.reader()
        rows = self.rows if isinstance(self.rows, range) else tf.constant(self.rows, tf.int64)

        def fields(index: Tensor) -> Fields:
            row = index + rows.start if isinstance(rows, range) else tf.gather(rows, index)
            values = read(row)
            if isinstance(values, tuple | list):
                return {"image": values[0], "labels": values[1]}
            values = {key: tf.convert_to_tensor(value) for key, value in values.items()}
            example.check(values, self.name(0))
            return values

        return fields

    def numpy_reader(self) -> Callable[[int], NumpyFields]:
        """Returns a function, index in this split -> the fields of the example.

        Raises:
          BadInput: only TensorFlow reads them.
        """
        if self.table.numpy_reader is None:
            raise BadInput(
                f"data.reader=python does not read these examples, such as {self.name(0)}; set "
                "--config.data.reader=tf, which needs TensorFlow, or take a source of the kind "
                "digits, folder, csv, tar, records, masks, coco, voc, yolo, synthetic or a mixture "
                "of these."
            )
        read = self.table.numpy_reader()
        return lambda index: read(int(self.rows[index]))

    def numpy_example(self) -> NumpyFields:
        """Returns the first example that can be read; its fields are those of all.

        Raises:
          BadInput: only TensorFlow reads the examples, or none of them can be read.
        """
        read, reason = self.numpy_reader(), ""
        for index in range(len(self)):
            try:
                return read(index)
            except OSError as e:
                reason = reason or e.strerror or str(e)
        raise BadInput(
            f"none of the {len(self):,} examples can be read, such as {self.name(0)}: {reason}. "
            "Correct the source."
        )

    def has_boxes(self) -> bool:
        """Returns True if the source gives boxes, other than by a reader in TensorFlow alone."""
        if self.table.truth is not None or self.table.numpy_reader is None or not len(self):
            return self.table.truth is not None
        return {*example.BOXES} <= {*self.numpy_example()}

    def truth_reader(self) -> "Callable[[int], Truth]":
        """Returns a function, index in this split -> all true boxes of the image.

        Raises:
          BadInput: the examples have no boxes with classes.
        """
        if self.table.truth is not None:
            truth = self.table.truth()
            return lambda index: truth(int(self.rows[index]))
        from vit_jax.data.formats import boxes

        if self.table.numpy_reader is not None:
            read = self.numpy_reader()
        else:
            of_tensors = self.fields_reader()
            read = lambda index: of_tensors(tf.constant(index, tf.int64))  # noqa: E731
        if lacking := [key for key in example.BOXES if key not in read(0)]:
            raise BadInput(
                f"the examples, such as {self.name(0)}, have no {' and no '.join(lacking)}; take a "
                "source that gives boxes, see docs/detection.md."
            )
        return lambda index: boxes.of_fields(self.name(index), read(index))

    def image_reader(self) -> Callable[[int], bytes | np.ndarray]:
        """Returns a function, index in this split -> the image as it is stored.

        It needs TensorFlow only where the source does, and raises OSError or TensorFlow's errors.
        """
        if self.table.numpy_reader is not None:
            from vit_jax.data.formats.stored import read_image

            fields = self.numpy_reader()
            return lambda index: read_image(fields(index)["image"])
        read = self.reader()
        return lambda index: read(tf.constant(index, tf.int64))[0].numpy()

    def take_indices(self, indices: Rows) -> "Split":
        """Returns the split of these ascending indices, with the same kind of order."""
        if isinstance(self.rows, range) and isinstance(indices, np.ndarray):
            return dataclasses.replace(self, rows=indices + self.rows.start)
        if isinstance(indices, range):
            return dataclasses.replace(self, rows=self.rows[indices.start : indices.stop])
        return dataclasses.replace(self, rows=self.rows[indices])

    def take_range(self, start: int, stop: int) -> "Split":
        """Returns the split of examples `start` to `stop` - 1."""
        return self.take_indices(range(start, stop))

    def order(self, seed: int) -> Order:
        """Returns the endless training order: a graph function, position -> index in this split.

        Args:
          seed: the seed of the order, from `order.stream_seed`.
        """
        return lambda position: order.example_at(position, examples=len(self), seed=seed)

    def numpy_order(self, seed: int) -> NumpyOrder:
        """Returns the same order as `order`, without TensorFlow."""
        return lambda positions: order.examples_at(positions, examples=len(self), seed=seed)


def of_arrays(name: str, images: np.ndarray, labels: np.ndarray, **fields: np.ndarray) -> Split:
    """Returns a split whose examples are in memory; their field `id` is their name.

    Args:
      name: examples are named `name/0000` and so on; they are held out and chosen by these names.
      images: uint8 [N, H, W, 3].
      labels: int32 [N, K], padded with -1.
      fields: further fields of the examples (data/example.py), each with an axis of N examples.
    """
    if wrong := [key for key, values in fields.items() if len(values) != len(images)]:
        raise BadInput(
            f"{name}: {wrong[0]} has {len(fields[wrong[0]])} examples, image has {len(images)}."
        )

    def reader() -> Callable[[Tensor], Fields]:
        ids = np.array([f"{name}/{row:04d}" for row in range(len(images))], object)
        arrays = {"image": images, "labels": labels, "id": ids} | fields
        constants = {key: tf.constant(values) for key, values in arrays.items()}
        return lambda row: {key: tf.gather(all_, row) for key, all_ in constants.items()}

    def numpy_reader() -> Callable[[int], NumpyFields]:
        arrays = {"image": images, "labels": labels} | fields
        return lambda row: (
            {key: values[row] for key, values in arrays.items()} | {"id": f"{name}/{row:04d}"}
        )

    table = Table(
        len(images),
        lambda row: f"{name}/{row:04d}",
        reader,
        labels=lambda: labels,
        most_labels=labels.shape[1],
        numpy_reader=numpy_reader,
    )
    return Split(table, range(len(images)))


def first_at_least(ascending: Rows, bounds: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns, for each bound, the first index whose row is not below the bound; int64 [bounds]."""
    if isinstance(ascending, range):
        return np.clip(bounds, ascending.start, ascending.stop) - ascending.start
    return np.searchsorted(ascending, bounds)


def take_rows(values: np.ndarray, rows: Rows) -> np.ndarray:
    """Returns values[rows], without a copy if the rows are consecutive."""
    return values[rows.start : rows.stop] if isinstance(rows, range) else values[rows]


def split_ids(split: Split) -> np.ndarray:
    """Returns the name that excludes each example, bytes [n]: the table's `ids`, else `name`."""
    if split.table.ids is not None:
        return take_rows(split.table.ids(), split.rows)
    return np.array([os.fsencode(split.name(i)) for i in range(len(split))])


def bucket(name: str) -> int:
    """Maps a name to 0 to 9999, the same on every machine and for any other examples."""
    digest = hashlib.blake2b(name.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "big") % 10000


def hold_out(split: Split, percent: int, salt: str) -> tuple[Split, Split]:
    """Returns (the rest, about `percent` % of the examples).

    The choice follows a hash of the salt and of the name, or of the row if names are numbers. Of
    two examples or more, at least one is on each side; one alone is not held out.
    """
    rows = np.asarray(split.rows)
    if split.table.numbered:
        buckets = (order.hash_numbers(rows, bucket(salt)) % np.uint64(10000)).astype(np.int64)
    else:
        names = (salt + split.table.name(int(r)) for r in rows)
        buckets = np.array([bucket(name) for name in names], np.int64)
    held = buckets < percent * 100
    if len(rows) > 1 and not held.any():  # a very small split may have no example below the limit
        held[np.argmin(buckets)] = True
    if len(rows) and held.all():
        held[np.argmax(buckets)] = False
    return Split(split.table, rows[~held]), Split(split.table, rows[held])


def hold_out_last(split: Split, percent: int, salt: str) -> tuple[Split, Split]:
    """Returns (the rest, the last `percent` %), for tables stored shuffled, such as TFDS's.

    Of two examples or more, at least one is on each side, unless `percent` is 0.
    """
    held = round(len(split) * percent / 100)
    if percent and len(split):
        held = min(max(1, held), len(split) - 1)
    at = len(split) - held
    return Split(split.table, split.rows[:at]), Split(split.table, split.rows[at:])


def standard(
    own: dict[str, Split],
    *,
    val_percent: int,
    test_percent: int,
    hold: Callable[[Split, int, str], tuple[Split, Split]] = hold_out,
) -> tuple[dict[str, Split], list[str]]:
    """Gives every source `train`, `val` and `test`.

    `all` is divided into three. If a source has `train` and a validation split but no `test`, the
    validation split becomes `test` (as for ImageNet). `val` is then held out of train, so that
    results are never reported on the images used for selection.

    Args:
      own: the source's own splits.
      val_percent: percentage of train to hold out if there is no `val`; 0 makes no `val`.
      test_percent: percentage of train to hold out if there is no `test`; 0 makes no `test`.
      hold: chooses the examples that are held out.

    Returns:
      The splits, and one sentence for each split that was made.
    """
    splits, notes = dict(own), []
    for alias in ("validation", "valid"):
        if alias in splits and "val" not in splits:
            splits["val"] = splits[alias]
    if "all" in splits and "train" not in splits:
        splits["train"] = splits.pop("all")
    if "train" not in splits:
        return splits, notes
    if "test" not in splits and "val" in splits:
        splits["test"] = splits.pop("val")
        notes.append("test: the validation split, since there is no test split")
    for name, percent, salt in (("test", test_percent, ""), ("val", val_percent, "val/")):
        if name not in splits and percent:
            splits["train"], splits[name] = hold(splits["train"], percent, salt)
            if len(splits[name]):
                notes.append(f"{name}: {percent} % held out of train")
    return {k: v for k, v in splits.items() if len(v)}, notes


_SLICE = re.compile(r"(?P<name>[\w-]+)(?:\[(?P<a>\d{1,18}%?)?:(?P<b>\d{1,18}%?)?\])?")


def select(
    splits: dict[str, Split],
    expression: str,
    source: str,
    part: Callable[[Split, int, int], Split] | None = None,
) -> Split:
    """Returns a split by name or slice: `test`, `train[:98%]`, `train[45000:]`.

    Percents round to the nearest example.

    Args:
      splits: the splits by name.
      expression: a name or a slice.
      source: the source's name, for messages.
      part: takes [start:stop] of a split; None: `Split.take_range`.

    Raises:
      BadInput: the split is unknown (the message lists the options), or the slice is malformed or
        empty.
    """
    match = _SLICE.fullmatch(expression.strip())
    if match is None:
        raise BadInput(f"split {expression!r} is not understood; write test or train[:98%].")
    if match["name"] not in splits:
        if match["name"] in ("val", "test") and len(splits.get("train", ())) == 1:
            raise BadInput(
                f"{source} has no split {match['name']!r}, and too few images to hold some out, "
                f"since train has one left; add images, or take one of {', '.join(splits)}."
            )
        hint = ""
        if match["name"] in ("val", "test") and "train" in splits:
            key = f"data.{match['name']}_percent"
            hint = f" Nothing of train is held out for it; in a run, {key} above 0 does that."
        raise unknown(f"split of {source}", match["name"], splits, hint)
    split = splits[match["name"]]

    def edge(text: str | None, default: int) -> int:
        if text is None:
            return default
        number = int(text.rstrip("%"))
        return min(len(split), round(number / 100 * len(split)) if text.endswith("%") else number)

    if match["a"] is None and match["b"] is None:
        return split
    start, stop = edge(match["a"], 0), edge(match["b"], len(split))
    if start >= stop:
        raise BadInput(
            f"split {expression!r} of {source} is empty: {match['name']} has {len(split)}; take a "
            "larger part, or add images."
        )
    return split.take_range(start, stop) if part is None else part(split, start, stop)
