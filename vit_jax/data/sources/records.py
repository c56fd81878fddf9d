# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens TFRecord files of tf.train.Example and reads them record by record through `tfrecord`.

Start from `open_records`.
"""

from __future__ import annotations

import collections
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_jax.data.formats import byte_ranges, shards
from vit_jax.data.formats.tfrecord import RecordFiles
from vit_jax.data.splits.split import Fields, Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

if TYPE_CHECKING:
    from vit_jax.data.sources.source import Options

# File names taken in a folder. Compressed files are refused, with advice.
_FILES = ("*.tfrecord", "*.tfrecords", "*.tfrec", "*.tfrecord.gz", "*-of-[0-9]*")

# Usual names of features, most of them from TFDS and TF-slim. The first one found is taken.
IMAGE_KEYS = ("image/encoded", "image", "image_bytes", "image_raw", "encoded", "jpg", "jpeg", "png")
LABEL_KEYS = (
    "image/class/label", "label", "labels", "image/labels", "image/class/labels",
    "image/class/label_index", "image/label", "class", "cls",
)  # fmt: skip
NAME_KEYS = (
    "image/filename", "file_name", "filename", "image/id", "image/key", "image/source_id", "name",
    "key", "__key__", "id", "image_id",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Keys:
    """The names of features.

    Attributes:
      image: the feature with the encoded image.
      label: the feature with the labels.
      name: the feature with the name of the example; "" if examples have no name.
      named: True if labels are class names, False if they are numbers.
      text: the feature with the text; "" if examples have no text.
    """

    image: str
    label: str
    name: str
    named: bool
    text: str


def open_records(rest: str, options: Options) -> tuple[list[str], dict[str, Split], list[str]]:
    """Returns class names, splits and notes of `records:GLOB`.

    Raises:
      BadInput: files are missing or damaged, records are not tf.train.Example, features are
        missing, or the list of class names is missing. The message says what was found.
    """
    spec = f"records:{rest}"
    paths, notes = shards.find(spec, rest, _FILES)
    parts = shards.by_split(spec, paths)
    names = shards.class_names(spec, options.label_names, os.path.dirname(paths[0]))
    if not names:
        raise BadInput(
            f"data.source={spec}: records do not say how many classes there are; give "
            "data.records.label_names=FILE with the name of one class on each line, or put it "
            f"beside the records as {os.path.join(os.path.dirname(paths[0]), 'labels.txt')}."
        )
    splits = {}
    for part, files in parts.items():
        try:
            opened = RecordFiles(files)
        except ValueError as e:
            raise BadInput(f"data.source={spec}: {e} Copy or write it again.") from e
        empty = np.flatnonzero(np.diff(opened.shards) == 0)
        if len(empty):
            first = os.path.basename(files[int(empty[0])])
            notes.append(f"{len(empty)} of {len(files)} files hold no record, first {first}")
        if len(opened):
            table = _table(spec, opened, names, options)
            splits[part] = Split(table, range(table.rows))
    if not splits:
        raise BadInput(f"data.source={spec}: its {len(paths)} files hold no record.")
    return names, splits, notes


def _table(spec: str, opened: RecordFiles, names: Sequence[str], options: Options) -> Table:
    def name(row: int) -> str:
        number, record = opened.locate(row)
        return f"{os.path.basename(opened.files.paths[number])}/{record}"

    keys = _keys(f"data.source={spec}: record {name(0)}", opened[0], options)
    if keys.named and len(set(names)) < len(names):
        twice = next(n for n, times in collections.Counter(names).items() if times > 1)
        raise BadInput(
            f"data.source={spec}: labels are names, and {twice!r} is the name of two classes; "
            "give each class a name of its own."
        )
    return Table(
        len(opened),
        name,
        lambda: _reader(opened, keys, names, options.max_labels),
        shards=opened.shards,
        files=opened.files,
        numbered=True,
        most_labels=options.max_labels,
        ids=(lambda: ids(opened.files.paths, keys.name)) if keys.name else None,
    )


def _keys(subject: str, record: bytes, options: Options) -> _Keys:
    """Chooses the features for image, label and name by the first record."""
    try:
        features = tf.train.Example.FromString(record).features.feature
    except Exception as e:  # protobuf has moved its DecodeError between modules
        raise BadInput(f"{subject} is not a tf.train.Example: {e}.") from e
    kinds = {k: f.WhichOneof("kind") for k, f in features.items()}
    listed = ", ".join(f"{k} ({(v or 'empty').removesuffix('_list')})" for k, v in kinds.items())

    def choose(key: str, asked: str, usual: Sequence[str], fits: Sequence[str | None]) -> str:
        for candidate in (asked,) if asked else usual:
            if candidate in kinds and kinds[candidate] in fits:
                return candidate
        wrong = f"no {asked!r}" if asked else f"none of {', '.join(usual)}"
        expected = " or ".join(kind.removesuffix("_list") for kind in fits if kind)
        raise BadInput(
            f"{subject} has {wrong} of kind {expected}; it holds {listed or 'nothing'}. "
            f"Set data.records.{key} to one of these."
        )

    image = choose("image_key", options.image_key, IMAGE_KEYS, ("bytes_list",))
    # An example without labels has an empty list, or an empty feature of no kind.
    label = choose("label_key", options.label_key, LABEL_KEYS, ("int64_list", "bytes_list", None))
    named = kinds[label] == "bytes_list"
    name_key = options.name_key
    if name_key:
        choose("name_key", name_key, (), ("bytes_list",))
    if options.text_key:
        choose("text_key", options.text_key, (), ("bytes_list",))
    usual = (k for k in NAME_KEYS if kinds.get(k) == "bytes_list")
    return _Keys(image, label, name_key or next(usual, ""), named, options.text_key)


def _reader(
    opened: RecordFiles, keys: _Keys, names: Sequence[str], most: int
) -> Callable[[Tensor], Fields]:
    features: dict[str, Any] = {
        keys.image: tf.io.FixedLenFeature([], tf.string),
        keys.label: tf.io.VarLenFeature(tf.string if keys.named else tf.int64),
    }
    if keys.text:
        features[keys.text] = tf.io.VarLenFeature(tf.string)
    if keys.named:
        numbers = tf.lookup.KeyValueTensorInitializer(
            tf.constant([n.encode() for n in names]), tf.range(len(names), dtype=tf.int64)
        )
        number_of = tf.lookup.StaticHashTable(numbers, default_value=-1)

    def content(row: np.ndarray) -> bytes:
        record = opened[int(row)]
        if not _looks_right(record):  # TensorFlow would show all its bytes
            raise tf.errors.DataLossError(None, None, "it is not a tf.train.Example")
        return record

    def read(row: Tensor) -> Fields:
        record = tf.numpy_function(content, [row], tf.string, stateful=False)
        record.set_shape([])
        example = tf.io.parse_single_example(record, features)
        values = example[keys.label].values
        labels = number_of.lookup(values) if keys.named else values
        count = tf.size(labels)
        # A failing record is read again eagerly, and then the message of its assertion is shown.
        # The code below must accept any labels, because it may run before the assertions.
        known = f"{keys.label} is not one of the {len(names)} classes"
        tf.debugging.assert_greater_equal(labels, tf.constant(0, tf.int64), known)
        tf.debugging.assert_less(labels, tf.constant(len(names), tf.int64), known)
        few = f"more labels than data.records.max_labels={most}; raise it"
        tf.debugging.assert_less_equal(count, most, few)
        if most == 1:
            none = "no label; where that is meant, set data.records.max_labels=2"
            tf.debugging.assert_positive(count, none)
        kept = tf.cast(labels[:most], tf.int32)
        padded = tf.pad(kept, [[0, most - tf.size(kept)]], constant_values=-1)
        fields = {"image": example[keys.image], "labels": tf.ensure_shape(padded, [most])}
        if keys.text:
            texts = example[keys.text].values
            tf.debugging.assert_positive(tf.size(texts), f"no text in {keys.text}")
            fields["text"] = tf.strings.reduce_join(texts, separator="\n")  # see data/texts.py
        return fields

    return read


def _looks_right(record: bytes) -> bool:
    """Returns True if a record begins like a tf.train.Example: field 1 spans all the rest."""
    length, at = 0, 1
    while at < min(len(record), 10):
        length |= (record[at] & 127) << 7 * (at - 1)
        at += 1
        if record[at - 1] < 128:
            break
    return record[:1] == b"\x0a" and at + length == len(record)


def ids(paths: Sequence[str], key: str) -> np.ndarray:
    """Returns the feature `key` of all records in TFRecord files, bytes [rows]; "" if missing.

    Raises:
      BadInput: a file is in a bucket or damaged.
    """
    if any(map(storage.is_remote, paths)):
        raise BadInput(
            f"data.exclude reads {key} of every record, which it does not do in gs://; copy the "
            "records to a disk."
        )

    def of_file(path: str) -> np.ndarray:
        feature = {key: tf.io.FixedLenFeature([], tf.string, default_value="")}
        try:
            return read(path, feature)
        except (tf.errors.OpError, UnicodeDecodeError) as e:  # it would quote a damaged record
            raise BadInput(
                f"data.exclude reads {key} of every record, and one of {path} is damaged; write "
                "the file again."
            ) from e

    def read(path: str, feature: Any) -> np.ndarray:
        records = tf.data.TFRecordDataset(os.fsencode(path), buffer_size=2**23).batch(1024)
        parsed = records.map(lambda batch: tf.io.parse_example(batch, feature)[key])
        return np.concatenate(
            [np.zeros(0, "S1"), *(b.astype("S") for b in parsed.as_numpy_iterator())]
        )

    return np.concatenate([byte_ranges.indexed(path, f"ids {key}", of_file) for path in paths])
