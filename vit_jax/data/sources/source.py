# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A dataset as the rest of the program sees it. Start from `Source`."""

import dataclasses
import hashlib
from collections.abc import Sequence

from vit_jax.data.splits import split as splits_lib
from vit_jax.data.splits import subset
from vit_jax.data.splits.split import Split

# Kinds whose examples may lie class by class: the first 90 % would be without the last classes.
BY_CLASS = ("folder", "csv", "tar")


@dataclasses.dataclass(frozen=True)
class Source:
    """A dataset: its splits and class names.

    Attributes:
      spec: as given, `kind:rest`.
      classes: names, by label.
      splits: by name.
      notes: a sentence for everything a user should know (splits that were made, files left out).
      stands_for: the classes of another dataset that each class is, by name; (): each is itself.
    """

    spec: str
    classes: tuple[str, ...]
    splits: dict[str, Split]
    notes: tuple[str, ...] = ()
    stands_for: tuple[tuple[str, ...], ...] = ()

    def split(self, expression: str) -> Split:
        """A split by name or slice; see `splits.select`."""
        part = subset.part if self.spec.partition(":")[0] in BY_CLASS else None
        return splits_lib.select(self.splits, expression, self.spec, part)

    def fingerprint(self) -> dict[str, str]:
        """What is equal where the dataset is, wherever it lies: classes, and size and names."""
        classes = hashlib.blake2b("\0".join(self.classes).encode(errors="surrogateescape"))
        found = {"classes": f"{len(self.classes)} ({classes.hexdigest()[:12]})"}
        for name, split in self.splits.items():
            found[f"split {name}"] = f"{len(split)} examples ({split.digest()})"
        return found


@dataclasses.dataclass(frozen=True)
class Options:
    """What some kinds of source need besides their `rest`; the keys of `data` in configs/base.py.

    Attributes:
      data_dir: of TFDS; empty is its default.
      image_key: of `records:`, and so on; empty: the first usual name that is there.
      label_key: likewise.
      name_key: likewise.
      label_names: file of class names, one a line; empty: what lies beside the records.
      max_labels: K, the most labels that an image has.
    """

    data_dir: str = ""
    image_key: str = ""
    label_key: str = ""
    name_key: str = ""
    label_names: str = ""
    max_labels: int = 1


Opened = tuple[Sequence[str], dict[str, Split], list[str]]
