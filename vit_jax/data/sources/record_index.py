# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads examples of TFRecord files without TensorFlow, from an index of images and labels.

The index is built once: it reads some bytes of each record, not the image, unless images in a
bucket are so small that it costs more to skip them. Worker processes then read the images alone.
Start from `reader`.
"""

import concurrent.futures
import dataclasses
import functools
import hashlib
import logging
from collections.abc import Callable, Iterator

import numpy as np

from vit_jax.data.formats import byte_ranges, tf_example
from vit_jax.data.formats.stored import FileRange
from vit_jax.data.formats.tf_example import Feature, NotExample, Span
from vit_jax.data.formats.tfrecord import RecordFiles, places
from vit_jax.data.splits.split import NumpyFields

log = logging.getLogger("vit_jax")

_INDEXERS = 16  # files indexed at the same time
_MANY = 100_000  # number of records from which on the log reports the indexing


@dataclasses.dataclass(frozen=True)
class Layout:
    """The features of records that are read, and how.

    Attributes:
      image: the feature with the encoded image.
      label: the feature with the labels.
      text: the feature with the text; "" if examples have no text.
      named: True if labels are class names, False if they are numbers.
      names: the class names, by label; () if any number is a label.
      max_labels: K, the largest number of labels of an image.
    """

    image: str
    label: str
    text: str
    named: bool
    names: tuple[str, ...]
    max_labels: int

    @property
    def unknown(self) -> str:
        """The reason against a label of no class."""
        return f"{self.label} is not one of the {len(self.names)} classes"

    @property
    def too_many(self) -> str:
        """The reason against too many labels."""
        return f"more labels than data.records.max_labels={self.max_labels}; raise it"

    @property
    def no_label(self) -> str:
        """The reason against an example without labels, where each has one."""
        return "no label; where that is meant, set data.records.max_labels=2"

    @property
    def no_text(self) -> str:
        """The reason against an example without a text."""
        return f"no text in {self.text}"


class _Wrong(ValueError):
    """A record that cannot be an example."""


def reader(opened: RecordFiles, layout: Layout) -> Callable[[int], NumpyFields]:
    """Returns a function, record -> image (a `FileRange`), labels (int32 [K]) and, if asked, text.

    It raises OSError for a record that is not such an example.

    Raises:
      ValueError: a file is truncated or damaged.
    """
    if len(opened) >= _MANY:
        log.info("data: reading the labels of %d records, where that is not done yet", len(opened))
    with concurrent.futures.ThreadPoolExecutor(_INDEXERS) as pool:
        index = list(pool.map(lambda path: _index(path, layout), opened.files.paths))

    def read(row: int) -> NumpyFields:
        number, record = opened.locate(row)
        entry = index[number][record]
        if entry["wrong"]:
            raise OSError(entry["wrong"].decode())
        image = FileRange(opened.files.paths[number], int(entry["start"]), int(entry["size"]))
        fields: NumpyFields = {"image": image, "labels": np.array(entry["labels"], np.int32)}
        return fields | ({"text": text(row)} if layout.text else {})

    def text(row: int) -> bytes:
        number, start, end = opened.place(row)
        span = Span(functools.partial(_read_range, opened, number), start, end)
        texts = tf_example.values(span, tf_example.features(span)[layout.text])
        return b"\n".join(texts)  # type: ignore[arg-type]  # see data/texts.py

    return read


def _read_range(opened: RecordFiles, number: int, length: int, start: int) -> bytes:
    return opened.files.read(number, start, length)


def _index(path: str, layout: Layout) -> np.ndarray:
    """Returns an entry for each record of a file, built once; see `byte_ranges.indexed`.

    Returns:
      Structured [records]: start and size (int64) of the image in the file, labels (int32 [K],
      padded with -1), wrong (bytes: why the record is not an example, else empty).
    """
    known = hashlib.sha256(repr(dataclasses.astuple(layout)).encode()).hexdigest()[:24]
    return byte_ranges.indexed(path, f"examples {known}", functools.partial(_entries, layout))


def _entries(layout: Layout, path: str) -> np.ndarray:
    numbers = {name.encode(): number for number, name in enumerate(layout.names)}
    entries: list[tuple[int, int, list[int], bytes]] = []
    for span in spans(path):
        try:
            entries.append((*_image(span, layout, numbers), b""))
        except (_Wrong, NotExample) as e:
            entries.append((0, 0, [-1] * layout.max_labels, str(e).encode()))
    longest = max([1, *(len(wrong) for *_, wrong in entries)])
    labels = ("labels", "<i4", (layout.max_labels,))
    return np.array(entries, [("start", "<i8"), ("size", "<i8"), labels, ("wrong", f"S{longest}")])


def spans(path: str) -> Iterator[Span]:
    """Yields the records of a file, of which only the pieces that are needed are read.

    Raises:
      ValueError: the file is truncated or damaged.
    """
    file = byte_ranges.open_parts(path)
    try:
        for start, end in places(path):
            yield Span(file.read, start, end)
    finally:
        file.close()


def _image(span: Span, layout: Layout, numbers: dict[bytes, int]) -> tuple[int, int, list[int]]:
    """Returns start and size of the image, and K labels; raises _Wrong or NotExample."""
    features = tf_example.features(span)
    images = _bytes(span, features, layout.image)
    if len(images) != 1:
        raise _Wrong(f"{len(images)} images in {layout.image}, expected one")
    if layout.text and not _bytes(span, features, layout.text):
        raise _Wrong(layout.no_text)
    (start, end), labels = images[0], _labels(span, features, layout, numbers)
    return start, end - start, labels + [-1] * (layout.max_labels - len(labels))


def _bytes(span: Span, features: dict[str, Feature], key: str) -> list[tuple[int, int]]:
    feature = features.get(key, Feature("", ()))
    if feature.kind not in ("bytes", ""):
        raise _Wrong(f"{key} is of kind {feature.kind}, expected bytes")
    return tf_example.ranges(span, feature)


def _labels(
    span: Span, features: dict[str, Feature], layout: Layout, numbers: dict[bytes, int]
) -> list[int]:
    feature = features.get(layout.label, Feature("", ()))
    expected = "bytes" if layout.named else "int64"
    if feature.kind not in (expected, ""):
        raise _Wrong(f"{layout.label} is of kind {feature.kind}, expected {expected}")
    values: list = tf_example.values(span, feature)
    labels = [numbers.get(value, -1) for value in values] if layout.named else values
    if layout.names and not all(0 <= label < len(layout.names) for label in labels):
        raise _Wrong(layout.unknown)
    if len(labels) > layout.max_labels:
        raise _Wrong(layout.too_many)
    if layout.max_labels == 1 and not labels:
        raise _Wrong(layout.no_label)
    return labels
