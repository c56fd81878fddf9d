# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens TFRecord files of tf.train.Example and reads them record by record through `tfrecord`.

Start from `open_records`.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vit_jax.data.formats import byte_ranges, shards, tf_example
from vit_jax.data.formats.tfrecord import RecordFiles
from vit_jax.data.sources import record_index
from vit_jax.data.sources.record_index import Layout
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

    subject = f"data.source={spec}: record {name(0)}"
    layout, name_key = _layout(subject, opened[0], names, options)
    if layout.named and len(set(names)) < len(names):
        twice = next(n for n, times in collections.Counter(names).items() if times > 1)
        raise BadInput(
            f"data.source={spec}: labels are names, and {twice!r} is the name of two classes; "
            "give each class a name of its own."
        )
    return Table(
        len(opened),
        name,
        lambda: _reader(opened, layout),
        shards=opened.shards,
        files=opened.files,
        numbered=True,
        most_labels=options.max_labels,
        ids=(lambda: ids(opened.files.paths, name_key)) if name_key else None,
        numpy_reader=functools.cache(lambda: record_index.reader(opened, layout)),
    )


def _layout(
    subject: str, record: bytes, names: Sequence[str], options: Options
) -> tuple[Layout, str]:
    """Chooses features by the first record; the second is that with the example's name, or ""."""
    try:
        features = tf_example.features(tf_example.of_bytes(record))
    except tf_example.NotExample as e:
        raise BadInput(f"{subject} is not a tf.train.Example; write the file again.") from e
    kinds = {key: feature.kind for key, feature in features.items()}
    listed = ", ".join(f"{key} ({kind or 'empty'})" for key, kind in kinds.items())

    def choose(key: str, asked: str, usual: Sequence[str], fits: Sequence[str]) -> str:
        for candidate in (asked,) if asked else usual:
            if candidate in kinds and kinds[candidate] in fits:
                return candidate
        wrong = f"no {asked!r}" if asked else f"none of {', '.join(usual)}"
        expected = " or ".join(filter(None, fits))
        raise BadInput(
            f"{subject} has {wrong} of kind {expected}; it holds {listed or 'nothing'}. "
            f"Set data.records.{key} to one of these."
        )

    image = choose("image_key", options.image_key, IMAGE_KEYS, ("bytes",))
    # An example without labels has an empty list, or an empty feature of no kind.
    label = choose("label_key", options.label_key, LABEL_KEYS, ("int64", "bytes", ""))
    named = kinds[label] == "bytes"
    name_key = options.name_key
    if name_key:
        choose("name_key", name_key, (), ("bytes",))
    if options.text_key:
        choose("text_key", options.text_key, (), ("bytes",))
    usual = (k for k in NAME_KEYS if kinds.get(k) == "bytes")
    layout = Layout(image, label, options.text_key, named, tuple(names), options.max_labels)
    return layout, name_key or next(usual, "")


def _reader(opened: RecordFiles, keys: Layout) -> Callable[[Tensor], Fields]:
    names, most = keys.names, keys.max_labels
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
        tf.debugging.assert_greater_equal(labels, tf.constant(0, tf.int64), keys.unknown)
        tf.debugging.assert_less(labels, tf.constant(len(names), tf.int64), keys.unknown)
        tf.debugging.assert_less_equal(count, most, keys.too_many)
        if most == 1:
            tf.debugging.assert_positive(count, keys.no_label)
        kept = tf.cast(labels[:most], tf.int32)
        padded = tf.pad(kept, [[0, most - tf.size(kept)]], constant_values=-1)
        fields = {"image": example[keys.image], "labels": tf.ensure_shape(padded, [most])}
        if keys.text:
            texts = example[keys.text].values
            tf.debugging.assert_positive(tf.size(texts), keys.no_text)
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
        try:
            return np.array([b"", *(_first(span, key) for span in record_index.spans(path))])[1:]
        except (ValueError, OSError) as e:
            raise BadInput(
                f"data.exclude reads {key} of every record, and one of {path} is damaged; write "
                "the file again."
            ) from e

    return np.concatenate([byte_ranges.indexed(path, f"ids {key}", of_file) for path in paths])


def _first(span: tf_example.Span, key: str) -> bytes:
    """Returns the first value of a feature; "" without one."""
    feature = tf_example.features(span).get(key)
    places = tf_example.ranges(span, feature) if feature and feature.kind == "bytes" else []
    return span.bytes(*places[0]) if places else b""
