# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens sources that need no files of the user: scikit-learn's digits, and noise.

The noise stands in for large or private datasets, with their size and number of classes. It serves
plans, timing and a first step on any machine; nothing can be learned from it. Start from
`open_digits` and `open_synthetic`.
"""

import gzip
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vit_jax.data.sources.source import Opened, Options
from vit_jax.data.splits import split as splits_lib
from vit_jax.data.splits.split import NumpyFields, Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput, unknown


def open_digits(_: str, __: Options) -> Opened:
    """Reads scikit-learn's data file, without the import of scikit-learn (1 s) or scipy.

    Raises:
      BadInput: scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise BadInput("data.source=digits reads a file of scikit-learn; pip install scikit-learn.")
    path = Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        values = np.array([line.split(",") for line in file], np.float32)
    grey = np.round(values[:, :-1] * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    images, labels = np.repeat(grey, 3, axis=-1), values[:, -1:].astype(np.int32)

    split = splits_lib.of_arrays("digits", images, labels)
    return [str(d) for d in range(10)], {"all": split}, []


# Name -> classes, training images. JFT-300M: arXiv:2010.11929, section 4.1, and 18,291 classes
# (arXiv:1707.02968); ImageNet-21k: fall 2011, and the 21,843 outputs of the published heads.
SIZES = {
    "jft300m": (18_291, 303_000_000),
    "imagenet21k": (21_843, 14_197_122),
    "imagenet": (1_000, 1_281_167),
    "cifar10": (10, 50_000),
    "cifar100": (100, 50_000),
    "pets": (37, 3_680),
    "flowers": (102, 1_020),
}
# Name -> classes, images in train and in val, and the field beside the image. Cityscapes has 19
# classes that count; VOC's 21 include the background; no training image of COCO has more than 93
# boxes.
DENSE = {
    "ade20k": (150, 20_210, 2_000, "mask"),
    "cityscapes": (19, 2_975, 500, "mask"),
    "voc": (21, 1_464, 1_449, "mask"),
    "coco": (80, 118_287, 5_000, "boxes"),
}
_MOST_BOXES = 93
_HELD_OUT = 1_000  # images in val, and in test
_SIDE = 256


def open_synthetic(name: str, _: Options) -> Opened:
    """Returns class names, splits and notes of a stand-in.

    Raises:
      BadInput: the name is unknown; the message lists the known names.
    """
    of_vtab = name.startswith("vtab/")
    if not of_vtab and name not in SIZES | DENSE:
        raise unknown("data.source=synthetic:NAME", name, [*SIZES, *DENSE, "vtab/TASK"])
    if name in DENSE:
        return _dense(name)
    if of_vtab:
        from vit_jax.paper import vtab

        classes = vtab.find(name.removeprefix("vtab/")).classes
        sizes = {"train800": 800, "val200": 200, "test": _HELD_OUT}
    else:
        classes, examples = SIZES[name]
        sizes = {"train": examples, "val": _HELD_OUT, "test": _HELD_OUT}

    def reader() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        return lambda row: (_noise(row), tf.cast(row % classes, tf.int32)[None])

    def numpy_reader() -> Callable[[int], NumpyFields]:
        from vit_jax.data.formats.stored import Noise

        return lambda row: {
            "image": Noise(row, (_SIDE, _SIDE, 3)), "labels": np.array([row % classes], np.int32)
        }  # fmt: skip

    rows = sum(sizes.values())

    def labels() -> np.ndarray:
        return np.arange(rows, dtype=np.int32)[:, None] % np.int32(classes)

    table = Table(
        rows, lambda row: f"{name}/{row}", reader, labels, numbered=True, most_labels=1,
        numpy_reader=numpy_reader,
    )  # fmt: skip
    ends = np.cumsum(list(sizes.values())).tolist()
    splits = {
        split: Split(table, range(end - size, end))
        for (split, size), end in zip(sizes.items(), ends, strict=True)
    }
    if of_vtab:
        splits["train800val200"] = Split(table, range(1000))
    return [str(k) for k in range(classes)], splits, [_note(name)]


def _note(name: str) -> str:
    return f"images of {name} are noise: a stand-in from which nothing can be learned"


def _noise(row: Tensor) -> Tensor:
    """Returns the image of a row, uint8 [256, 256, 3]."""
    return tf.cast(_drawn(row, 0, (_SIDE, _SIDE, 3), 256), tf.uint8)


def _drawn(row: Tensor, purpose: int, shape: tuple[int, ...], end: int) -> Tensor:
    """Returns numbers from 0 up to below `end` that belong to a row, int32 of a shape."""
    seed = tf.stack([row, tf.constant(purpose, tf.int64)])
    return tf.random.stateless_uniform(shape, seed, minval=0, maxval=end, dtype=tf.int32)


def _dense(name: str) -> Opened:
    """Returns a stand-in with masks of one class each, or with random boxes."""
    from vit_jax.data.numpy_ops import draws

    classes, train, val, field = DENSE[name]
    no_labels = np.full((train + val, 1), -1, np.int32)

    def beside(row: Tensor) -> dict[str, Tensor]:
        if field == "mask":
            return {"mask": tf.fill([_SIDE, _SIDE], tf.cast(row % classes, tf.int32))}
        corners = tf.cast(_drawn(row, 1, (_MOST_BOXES, 4), _SIDE // 2), tf.float32)
        boxes = tf.concat([corners[:, :2], corners[:, :2] + corners[:, 2:] + 1], axis=1)
        return {"boxes": boxes, "box_classes": _drawn(row, 2, (_MOST_BOXES,), classes)}

    def reader() -> Callable[[Tensor], dict[str, Tensor]]:
        no_label = tf.constant([-1], tf.int32)
        return lambda row: {"image": _noise(row), "labels": no_label, **beside(row)}

    def numpy_beside(row: int) -> dict[str, np.ndarray]:
        if field == "mask":
            return {"mask": np.full((_SIDE, _SIDE), row % classes, np.int32)}
        corners = draws.integers((row, 1), 4 * _MOST_BOXES, _SIDE // 2)
        corners = np.array(corners, np.float32).reshape(-1, 4)
        boxes = np.concatenate([corners[:, :2], corners[:, :2] + corners[:, 2:] + 1], axis=1)
        labels = draws.integers((row, 2), _MOST_BOXES, classes)
        return {"boxes": boxes, "box_classes": np.array(labels, np.int32)}

    def numpy_reader() -> Callable[[int], NumpyFields]:
        from vit_jax.data.formats.stored import Noise

        image = (_SIDE, _SIDE, 3)
        return lambda row: {
            "image": Noise(row, image), "labels": no_labels[row], **numpy_beside(row)
        }  # fmt: skip

    table = Table(
        train + val, lambda row: f"{name}/{row}", reader, lambda: no_labels, numbered=True,
        most_labels=1, numpy_reader=numpy_reader,
    )  # fmt: skip
    splits = {"train": range(train), "val": range(train, train + val)}
    named = [str(k) for k in range(classes)]
    return named, {split: Split(table, rows) for split, rows in splits.items()}, [_note(name)]
