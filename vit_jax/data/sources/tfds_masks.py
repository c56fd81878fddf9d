# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the masks of TFDS datasets such as oxford_iiit_pet. Start from `find`, then `table`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from vit_jax.data.formats import class_file, mask_file, tf_example
from vit_jax.data.formats.class_file import Classes
from vit_jax.data.formats.stored import FileRange, read_image
from vit_jax.data.formats.tf_example import NotExample, Span
from vit_jax.data.formats.tfrecord import RecordFiles
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.splits.split import NumpyFields, Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.data.tensorflow import tfds as _tfds
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

# Files of classes of datasets whose builders name none. Trimaps of pets: 3 is the border between
# animal and background. Cityscapes: the 19 labels that count, of cityscapesScripts' labels.py.
_CLASSES = {
    "oxford_iiit_pet": "1 pet\n2 background\n3 void",
    "cityscapes": "7 road\n8 sidewalk\n11 building\n12 wall\n13 fence\n17 pole\n19 traffic light\n"
    "20 traffic sign\n21 vegetation\n22 terrain\n23 sky\n24 person\n25 rider\n26 car\n27 truck\n"
    "28 bus\n31 train\n32 motorcycle\n33 bicycle\n"
    + "\n".join(f"{n} void" for n in (*range(7), 9, 10, 14, 15, 16, 18, 29, 30)),
}
# Dataset -> why its masks are not the classes of pixels.
_OTHER = {
    "scene_parse150": "TensorFlow Datasets has the instances of 100 classes, not the 150 classes "
    "of ADE20K's pixels; unpack ADEChallengeData2016.zip and give masks:PATH",
}


@dataclasses.dataclass(frozen=True)
class Keys:
    """The features of a dataset that hold an image and the class of each pixel."""

    image: str
    mask: str


def refuse(name: str, setting: str) -> None:
    """Raises BadInput for a dataset whose masks are of another kind.

    Args:
      name: the TFDS name, with a config and a version if necessary.
      setting: the source as the user wrote it.
    """
    if reason := _OTHER.get(name.partition(":")[0].partition("/")[0]):
        raise BadInput(f"{setting}: {reason}.")


def find(features: Any, given: str) -> Keys | None:
    """Returns the features with the image and the mask; None for a dataset of another kind.

    A mask is an image of one channel beside one of several. Where images have a label or boxes too,
    `given` has to name it: `data.records.label_key`.
    """
    kinds = _tfds().features
    images = [key for key, one in features.items() if isinstance(one, kinds.Image)]
    masks = [key for key in images if features[key].shape[-1] == 1]
    others = [key for key in images if key not in masks]
    if given:
        masks = [key for key in masks if key == given]
    elif any(isinstance(one, kinds.ClassLabel | kinds.Sequence) for one in features.values()):
        return None
    return Keys(others[0], masks[0]) if len(masks) == len(others) == 1 else None


def classes(builder: Any, keys: Keys, label_names: str, setting: str) -> Classes:
    """Returns the classes of masks: of a file, of the dataset, or those that this module knows.

    Args:
      builder: the dataset.
      keys: from `find`.
      label_names: data.records.label_names; "": no file.
      setting: the source as the user wrote it, for messages.

    Raises:
      BadInput: nothing names them, or the file is wrong.
    """
    feature = builder.info.features[keys.mask]
    if label_names:
        return class_file.read(class_file.find(storage.path("."), label_names, setting))
    if getattr(feature, "num_classes", None) and feature.names:
        try:
            return class_file.named(feature.names)
        except ValueError as e:
            raise BadInput(
                f"{setting}: the classes of the masks in {keys.mask}: {e}; give others with "
                f"--config.data.records.label_names=FILE: {class_file.USAGE}."
            ) from e
    if builder.name in _CLASSES:
        return class_file.of_lines(_CLASSES[builder.name])
    raise BadInput(
        f"{setting} does not name the classes of the masks in {keys.mask}; give a file with "
        f"--config.data.records.label_names=FILE: {class_file.USAGE}."
    )


def withheld(split: Split) -> bool:
    """Returns True if neither the first nor the last mask has a class, as in published test sets.

    It returns False for a mask that cannot be read, which an error names once it is an example.
    """
    read = split.numpy_reader()
    try:
        return all(mask_file.is_empty(read(i)["mask"].read()) for i in (0, len(split) - 1))
    except (BadImage, OSError):
        return False


@dataclasses.dataclass(frozen=True)
class _Mask:
    """A mask that is read when it is needed.

    Attributes:
      content: the bytes of its file, or where they are.
      classes: what its pixels stand for.
      path: the feature that holds it, for messages.
    """

    content: bytes | FileRange
    classes: Classes
    path: str

    def read(self) -> np.ndarray:
        """Returns int32 [H, W], -1 where no class counts; raises OSError and BadImage."""
        content = read_image(self.content)
        assert isinstance(content, bytes)
        return mask_file.read(content, self.classes)


def table(records: Any, name: Callable[[int], str], keys: Keys, of_masks: Classes) -> Table:
    """Returns a table of images with masks; they have no labels.

    Args:
      records: the records of a dataset, by number.
      name: row -> name of an example.
      keys: from `find`.
      of_masks: from `classes`.
    """
    no_labels = np.full((len(records), 1), -1, np.int32)

    def fields(row: int) -> NumpyFields:
        image, mask = _contents(records, row, (keys.image, keys.mask))
        return {"image": image, "labels": no_labels[row], "mask": _Mask(mask, of_masks, keys.mask)}

    def at(row: np.ndarray) -> tuple[Any, np.ndarray]:
        one = fields(int(row))
        content = bytes(read_image(one["image"]))
        try:
            mask = one["mask"].read()
            problem = mask_file.fault(mask, mask_file.sides(content), len(of_masks.names))
        except BadImage as e:
            problem = str(e)
        if problem:
            raise BadImage(f"its mask {keys.mask}: {problem}")
        return content, mask

    def in_tensorflow(row: Tensor) -> dict[str, Tensor]:
        image, mask = tf.numpy_function(at, [row], (tf.string, tf.int32), stateful=False)
        image.set_shape([])
        mask.set_shape([None, None])
        return {"image": image, "labels": tf.constant([-1], tf.int32), "mask": mask}

    def colours() -> np.ndarray | None:
        try:
            return mask_file.colours(bytes(read_image(fields(0)["mask"].content)), of_masks)
        except OSError:  # to be told when it is read as an example
            return None

    return Table(
        len(records), name, lambda: in_tensorflow, labels=lambda: no_labels, numbered=True,
        most_labels=1, numpy_reader=lambda: fields, colours=colours,
    )  # fmt: skip


def _contents(records: Any, row: int, keys: tuple[str, ...]) -> list[Any]:
    """Returns the bytes in some features of a record, or where they are.

    Raises:
      OSError: the record is not such an example.
    """
    if isinstance(records, RecordFiles):
        number, start, end = records.place(row)
        path, files = records.files.paths[number], records.files
        span = Span(lambda length, begin: files.read(number, begin, length), start, end)
        content = functools.partial(_range, path)
    else:
        span = tf_example.of_bytes(records[row])
        content = span.bytes
    found = []
    try:
        features = tf_example.features(span)
        for key in keys:
            (place,) = tf_example.ranges(span, features[key])
            found.append(content(*place))
    except (NotExample, KeyError, ValueError) as e:
        raise OSError(f"the record does not have one image in each of {', '.join(keys)}") from e
    return found


def _range(path: str, start: int, end: int) -> FileRange:
    return FileRange(path, start, end - start)
