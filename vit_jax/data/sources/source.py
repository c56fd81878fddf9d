# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines a dataset as the rest of the program sees it. Start from `Source`.

Users write functions that open sources of their own; `open_custom` calls them.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from vit_jax.config import plugins
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.splits import split as splits_lib
from vit_jax.data.splits.split import Split
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

# Kinds whose examples may be ordered by class: the first 90 % would lack the last classes.
BY_CLASS = ("folder", "csv", "tar")


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset: its splits and class names.

    Attributes:
      spec: the source as given, `kind:rest`.
      classes: the class names, by label.
      splits: the splits, by name.
      notes: sentences for the user, e.g. about splits that were made and files left out.
      stands_for: for each class, the names of the equal classes of another dataset; () if each
        class stands for itself.
    """

    spec: str
    classes: tuple[str, ...]
    splits: dict[str, Split]
    notes: tuple[str, ...] = ()
    stands_for: tuple[tuple[str, ...], ...] = ()

    def split(self, expression: str) -> Split:
        """Returns a split by name or slice; see `splits.select`."""
        part = None
        if self.spec.partition(":")[0] in BY_CLASS:
            from vit_jax.data.splits import subset

            part = subset.take_range_by_hash
        return splits_lib.select(self.splits, expression, self.spec, part)

    def colours(self) -> np.ndarray | None:
        """Returns the colour that the data give each class of masks, uint8 [Y, 3], or None."""
        for split in self.splits.values():
            if split.table.colours is not None:
                return split.table.colours()
        return None

    def fingerprint(self) -> dict[str, str]:
        """Returns digests of the class names and of each split's size and example names.

        Equal datasets have equal digests, wherever they are stored.
        """
        classes = hashlib.blake2b("\0".join(self.classes).encode(errors="surrogateescape"))
        digests = {"classes": f"{len(self.classes)} ({classes.hexdigest()[:12]})"}
        for name, split in self.splits.items():
            digests[f"split {name}"] = f"{len(split)} examples ({split.digest()})"
        return digests


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that some kinds of source need besides their `rest`; see `data` in docs/config.md.

    Attributes:
      data_dir: the data folder of TFDS; empty: its default.
      image_key: the feature with the image in `records:`; empty: the first usual name found.
      label_key: the feature with the labels, likewise.
      name_key: the feature with the name of the example, likewise.
      text_key: the feature with the text, or the suffix of its member in `tar:`; empty: no text.
      label_names: a file of class names, one a line; empty: labels.txt beside the data.
      max_labels: K, the largest number of labels of an image.
    """

    data_dir: str = ""
    image_key: str = ""
    label_key: str = ""
    name_key: str = ""
    text_key: str = ""
    label_names: str = ""
    max_labels: int = 1


Opened = tuple[Sequence[str], dict[str, Split], list[str]]


def open_custom(rest: str, options: Options) -> Opened:
    """Calls a function of the user's package with `options=`; returns the opened source.

    Raises:
      BadInput: the function returned anything but (class names, {name: Split}, notes). Reading an
        example raises it for a mask with numbers that are not those of classes.
    """
    opened = plugins.find(f"data.source='python:{rest}'", rest, options=options)(options=options)
    empty: Opened = ((), {}, [])
    classes, splits, notes = opened if isinstance(opened, tuple) and len(opened) == 3 else empty
    good = isinstance(splits, dict) and all(isinstance(s, Split) for s in splits.values())
    if not good or not splits or not len(classes):
        raise BadInput(
            f"data.source='python:{rest}' gave {type(opened).__name__}; expected (names of "
            "classes, {name: Split}, notes), see docs/extending_data.md."
        )
    tables = {id(split.table): split.table for split in splits.values()}
    checked = {key: _with_checked_masks(table, len(classes)) for key, table in tables.items()}
    splits = {
        name: dataclasses.replace(split, table=checked[id(split.table)])
        for name, split in splits.items()
    }
    return classes, splits, notes


def _with_checked_masks(table: splits_lib.Table, classes: int) -> splits_lib.Table:
    """Returns a table whose examples cannot be read with a mask of unknown classes.

    In training such a class would have no logit, and the loss would not be finite.
    """
    from vit_jax.data.formats import mask_file

    def checked(mask: np.ndarray) -> np.ndarray:
        if problem := mask_file.fault(mask, None, classes):
            raise BadImage(f"its mask: {problem}")
        return mask

    def reader() -> Callable[[Tensor], splits_lib.Fields | tuple[Tensor, Tensor]]:
        read = table.reader()

        def fields(row: Tensor) -> splits_lib.Fields | tuple[Tensor, Tensor]:
            values = read(row)
            if not isinstance(values, dict) or "mask" not in values:
                return values
            mask = tf.convert_to_tensor(values["mask"])
            same = tf.numpy_function(checked, [mask], mask.dtype, stateful=False)
            same.set_shape(mask.shape)
            return values | {"mask": same}

        return fields

    return dataclasses.replace(table, reader=reader)
