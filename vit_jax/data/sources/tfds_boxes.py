# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the boxes of TFDS datasets such as coco and voc. Start from `find`, then `table`."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_jax.data.formats import byte_ranges, mask_file
from vit_jax.data.formats.boxes import Annotated, Truth
from vit_jax.data.formats.tfrecord import RecordFiles
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.splits.split import Table
from vit_jax.data.tensorflow import Tensor, tf, untuned
from vit_jax.data.tensorflow import tfds as _tfds
from vit_jax.errors import BadInput

_IGNORED = ("is_crowd", "is_difficult")
_ID = "image/id"


@dataclasses.dataclass(frozen=True)
class Keys:
    """The features of a dataset that hold its boxes.

    Attributes:
      image: the feature with the image.
      objects: the feature with the objects of an image.
      bbox: the feature of an object with its box.
      label: the feature of an object with its class.
      more: further features of an object that an evaluation reads.
    """

    image: str
    objects: str
    bbox: str
    label: str
    more: tuple[str, ...]

    @property
    def of_object(self) -> tuple[str, ...]:
        """All features of an object that are read."""
        return self.bbox, self.label, *self.more


def find(features: Any) -> Keys | None:
    """Returns the features with the image and the boxes; None if there is not one of each."""
    kinds = _tfds().features
    images = [key for key, one in features.items() if isinstance(one, kinds.Image)]
    objects = []
    for key, one in features.items():
        inner: Any = getattr(one, "feature", None)
        if not isinstance(one, kinds.Sequence) or not isinstance(inner, kinds.FeaturesDict):
            continue
        boxes = [k for k, f in inner.items() if isinstance(f, kinds.BBoxFeature)]
        labels = [k for k, f in inner.items() if isinstance(f, kinds.ClassLabel)]
        label = "label" if "label" in labels else (labels[0] if len(labels) == 1 else None)
        if len(boxes) == 1 and label:
            more = tuple(k for k in (*_IGNORED, "area") if k in inner)
            objects.append((key, boxes[0], label, more))
    return Keys(images[0], *objects[0]) if len(images) == len(objects) == 1 else None


def names(features: Any, keys: Keys, setting: str) -> list[str]:
    """Returns the names of the classes; raises BadInput for boxes in another format than TFDS's."""
    inner = features[keys.objects].feature
    form = getattr(inner[keys.bbox], "bbox_format", None)
    if form is not None and getattr(form, "value", form) != "REL_YXYX":
        raise BadInput(f"{setting} has boxes as {form}; expected REL_YXYX, shares of the sides.")
    return list(inner[keys.label].names)


def table(builder: Any, records: Any, name: Callable[[int], str], keys: Keys) -> Table:
    """Returns a table of images with boxes.

    Args:
      builder: the dataset.
      records: its records, by number.
      name: row -> name of an example.
      keys: from `find`.

    Raises:
      BadInput: the records are damaged.
    """
    first, count = _most_boxes(records, keys)
    most = max(1, count)
    examples = _Examples(builder, records, name, keys)

    def padded(row: Any, content: Any, *values: Any) -> tuple[np.ndarray, np.ndarray]:
        sides = mask_file.sides(np.asarray(content, object).item()) or (1, 1)
        objects = dict(zip(keys.of_object, values, strict=True))
        own = examples.annotated(int(row), objects, None, sides)
        clipped, counted = own.for_training()
        boxes, classes = np.zeros((most, 4), np.float32), np.full(most, -1, np.int32)
        boxes[: counted.sum()] = clipped[counted]
        classes[: counted.sum()] = own.classes[counted]
        return boxes, classes

    def fields(row: Tensor) -> dict[str, Tensor]:
        one = examples.read(row)
        inputs = [row, one[keys.image], *(one[keys.objects][key] for key in keys.of_object)]
        boxes, classes = tf.numpy_function(padded, inputs, (tf.float32, tf.int32), stateful=False)
        return {
            "image": one[keys.image],
            "labels": tf.constant([-1], tf.int32),
            "boxes": tf.ensure_shape(boxes, [most, 4]),
            "box_classes": tf.ensure_shape(classes, [most]),
        }

    no_labels = np.full((len(records), 1), -1, np.int32)
    return Table(
        len(records), name, lambda: fields, labels=lambda: no_labels, numbered=True,
        most_labels=1, truth=lambda: examples.truth,
        most_boxes=(name(first), count) if count else ("", 0),
    )  # fmt: skip


class _Examples:
    """Reads examples with their objects."""

    def __init__(self, builder: Any, records: Any, name: Callable[[int], str], keys: Keys):
        self._features = features = builder.info.features
        self._records, self._name, self._keys = records, name, keys
        # TFDS keeps left and top of Pascal VOC as they are, and they count from 1.
        self._first = 1 if builder.name == "voc" else 0
        self._decoders = {keys.image: _tfds().decode.SkipDecoding()}
        self._wanted: dict[str, Any] = {keys.image: True, keys.objects: {*keys.of_object}}
        if _ID in features:
            self._wanted[_ID] = True

    def read(self, row: Tensor) -> dict[str, Any]:
        """Returns the features of an example; the image stays encoded."""
        records, decode = self._records, _tfds().decode
        data = tf.numpy_function(lambda i: records[int(i)], [row], tf.string, stateful=False)
        data.set_shape([])
        partial = decode.PartialDecoding(self._wanted, decoders=self._decoders)
        specs = partial.extract_features(self._features)
        return specs.deserialize_example(data, decoders=self._decoders)

    def truth(self, row: int) -> Truth:
        """Returns all boxes of an image."""
        one = self.read(tf.constant(row, tf.int64))
        objects = {key: value.numpy() for key, value in one[self._keys.objects].items()}
        sides = mask_file.sides(one[self._keys.image].numpy())
        if sides is None:
            raise BadImage("it is not an image that says its size")
        number = one[_ID].numpy() if _ID in one else None
        own = self.annotated(row, objects, number, sides)
        return own.truth(slice(None), 0, None)

    def annotated(
        self, row: int, objects: dict[str, Any], number: Any, sides: tuple[int, int]
    ) -> Annotated:
        """Returns one image with its boxes."""
        keys, name = self._keys, self._name(row)
        ymin, xmin, ymax, xmax = np.asarray(objects[keys.bbox], np.float64).reshape(-1, 4).T
        boxes = np.stack([xmin, ymin, xmax, ymax], axis=1) * np.tile(sides[::-1], 2)
        boxes[:, :2] -= self._first
        ignored = np.zeros(len(boxes), bool)
        for key in set(keys.more) & {*_IGNORED}:
            ignored |= np.asarray(objects[key], bool)
        areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
        if "area" in keys.more:
            areas = np.asarray(objects["area"], np.float64)
        return Annotated(
            paths=[""],
            names=[name],
            ids=[int(number) if isinstance(number, np.integer) else name],
            sides=np.array([sides]),
            rows=np.zeros(len(boxes), np.int64),
            boxes=boxes,
            classes=np.asarray(objects[keys.label], np.int32),
            ignored=ignored,
            areas=areas,
        )


def _most_boxes(records: Any, keys: Keys) -> tuple[int, int]:
    """Returns the image with the most boxes and their number; reads all records once and keeps it.

    Without any box, both are 0.
    """
    if not isinstance(records, RecordFiles):
        lengths = (_count(np.array([records[row]], object), keys) for row in range(len(records)))
        return _largest(np.array([one[0] for one in lengths]))

    def of_file(path: str) -> np.ndarray:
        batches = untuned(tf.data.TFRecordDataset(path, buffer_size=2**23).batch(256))
        try:
            counts = [_count(batch, keys) for batch in batches.as_numpy_iterator()]
        except (tf.errors.OpError, UnicodeDecodeError) as e:  # it would quote a damaged record
            raise BadInput(f"{path} is damaged; prepare the dataset again.") from e
        return np.concatenate([np.zeros(0, np.int64), *counts])

    key = f"boxes {keys.objects}/{keys.label}"
    counts = [byte_ranges.indexed(path, key, of_file) for path in records.files.paths]
    return _largest(np.concatenate(counts))


def _largest(counts: np.ndarray) -> tuple[int, int]:
    """Returns position and value of the largest number; zeros if there is none."""
    at = int(counts.argmax()) if len(counts) else 0
    return at, int(counts[at]) if len(counts) else 0


def _count(batch: np.ndarray, keys: Keys) -> np.ndarray:
    """Returns the number of boxes of each record, int64 [records]."""
    key = f"{keys.objects}/{keys.label}"
    parsed = tf.io.parse_example(batch, {key: tf.io.RaggedFeature(tf.int64)})
    return parsed[key].row_lengths().numpy()
