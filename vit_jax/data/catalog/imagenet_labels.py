# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Matches ReaL's label sets (arXiv:2006.07159) to ImageNet's validation images, by file name.

real.json is a list of 50,000 lists of classes; list i - 1 belongs to ILSVRC2012_val_0000000i.JPEG.
TFDS stores the images shuffled, so their position says nothing. Start from `match_labels`.
"""

import json
import re

import numpy as np

from vit_jax.data.catalog import downloads, prepared
from vit_jax.data.splits.split import Split, split_ids
from vit_jax.errors import BadInput

_FILE = re.compile(rb"(?:.*/)?ILSVRC2012_val_(\d{8})(?:\.\w+)?")
REAL = "real.json"


def wnids() -> list[str]:
    """Returns the classes of ILSVRC2012, n01440764 ..., ascending; real.json has their numbers."""
    path = prepared.tfds_package() / "datasets" / "imagenet2012" / "labels.txt"
    return path.read_text(encoding="utf-8").split()


def read_label_sets(labels: str, data_dir: str) -> list[list[int]]:
    """Reads the label sets in a file.

    Args:
      labels: path, or a name in DATA_DIR/downloads/manual.
      data_dir: DATA_DIR; "": TFDS's default.

    Raises:
      BadInput: the file is missing or does not hold lists of classes; the message says where to get
        ReaL's.
    """
    path = prepared.manual_path(labels, data_dir)
    try:
        sets = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        problem = "is not there" if isinstance(e, FileNotFoundError) else f"cannot be read: {e}"
        [real] = [d for d in downloads.tfds_downloads("imagenet2012_real") if d.name == REAL]
        raise BadInput(
            f"labels={labels}: {path} {problem}. ReaL's labels are\n  {real.text()}\n"
            f"put it into {prepared.manual_path('', data_dir)}, or give labels=PATH."
        ) from e
    numbers = range(len(wnids()))
    good = isinstance(sets, list) and all(
        isinstance(one, list) and all(type(n) is int and n in numbers for n in one) for one in sets
    )
    if not good or not any(sets):
        raise BadInput(
            f"labels={labels}: {path} is not ReaL's: expected a list, for each validation image a "
            f"list of classes from 0 to {numbers[-1]}."
        )
    return sets


def match_labels(split: Split, sets: list[list[int]], setting: str) -> tuple[Split, np.ndarray]:
    """Returns the images that have labels, and these labels, int32 [n, K], padded with -1.

    Images with an empty set are left out: 46,837 of 50,000 stay (ReaL's protocol).

    Raises:
      BadInput: an image is not named ILSVRC2012_val_NNNNNNNN, or has no set; the message begins
        with `setting`.
    """
    label_sets = []
    for index, name in enumerate(split_ids(split)):
        match = _FILE.fullmatch(name)
        if match is None or not 1 <= int(match[1]) <= len(sets):
            raise BadInput(
                f"{setting}: labels are matched by file name, ILSVRC2012_val_00000001.JPEG to "
                f"{len(sets):08d}, and example {index} is {name.decode(errors='replace')!r}; give "
                "the validation split of imagenet2012, prepared as TFRecords, or a folder of its "
                "files."
            )
        label_sets.append(sets[int(match[1]) - 1])
    kept = np.array([i for i, labels in enumerate(label_sets) if labels], np.int64)
    if not len(kept):
        raise BadInput(
            f"{setting}: none of the {len(label_sets)} images has a label; give more images."
        )
    label_sets = [labels for labels in label_sets if labels]
    padded = np.full((len(label_sets), max(map(len, label_sets))), -1, np.int32)
    for row, labels in enumerate(label_sets):
        padded[row, : len(labels)] = labels
    return split.take_indices(kept), padded
