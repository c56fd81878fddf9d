# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens ObjectNet, a test set, as downloaded: PATH/images/CLASS/*.png and PATH/mappings.

It reads the 113 of ObjectNet's 313 classes that correspond to one or several classes of ImageNet,
and cuts off the red border that marks the images. ObjectNet's own files list these classes; this
module must not hard-code them. Start from `open_objectnet` and `stands_for`.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from vit_jax.data.catalog import imagenet_labels, prepared
from vit_jax.data.ops import decode
from vit_jax.data.sources import folders
from vit_jax.data.splits.split import Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

BORDER = 2  # pixels
_FILES = (
    "folder_to_objectnet_label.json",  # folder -> ObjectNet name
    "objectnet_to_imagenet_1k.json",  # ObjectNet name -> ImageNet names, separated by "; "
    "imagenet_to_label_2012_v2",  # ImageNet names, in an order of its own
    "pytorch_to_imagenet_2012_id.json",  # number by ascending wnid -> line in that file, from 0
)


def open_objectnet(rest: str, data_dir: str) -> tuple[Sequence[str], dict[str, Split], list[str]]:
    """Returns class names (folders), the split `test`, and notes.

    Args:
      rest: PATH, or a name in DATA_DIR/downloads/manual.
      data_dir: DATA_DIR; "": TFDS's default.

    Raises:
      BadInput: the layout is not that of ObjectNet; the message says what is missing.
    """
    root = _root(rest, data_dir)
    classes = list(stands_for(rest, data_dir))
    paths, labels, no_files = [], [], list[str]()
    for label, name in enumerate(classes):
        folder = root / "images" / name
        images, _, odd = folders.sort_files(folder) if folder.is_dir() else ([], [], [])
        no_files += [f"images/{name}/{path.name}" for path in odd]
        if not images:
            raise BadInput(
                f"data.source=objectnet:{rest}: no images in {folder}; unpack ObjectNet whole."
            )
        paths += [f"images/{name}/{path.name}" for path in images]
        labels += [label] * len(images)
    others = sum(p.is_dir() for p in (root / "images").iterdir()) - len(classes)
    table = _table(root, paths, np.array(labels, np.int32)[:, None])
    notes = [
        f"{len(classes)} classes that are ImageNet's; {others} others left out; "
        f"a border of {BORDER} pixels is cut off"
    ]
    if no_files:
        notes.append(f"{len(no_files)} pipes, sockets or devices left out; first {no_files[0]}")
    return classes, {"test": Split(table, range(len(paths)))}, notes


def _root(rest: str, data_dir: str) -> Path:
    root = prepared.manual_path(rest, data_dir)
    missing = [n for n in ("images", *(f"mappings/{f}" for f in _FILES)) if not (root / n).exists()]
    if missing:
        raise BadInput(
            f"data.source=objectnet:{rest}: {root} has no {', '.join(missing)}; download ObjectNet "
            "(objectnet-1.0.zip, https://objectnet.dev), unpack it there, or give "
            "objectnet:PATH of the folder that holds images/ and mappings/."
        )
    return root


def _table(root: Path, paths: Sequence[str], labels_N1: np.ndarray) -> Table:
    def reader() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        files = tf.constant([os.fsencode(root / p) for p in paths])
        labels = tf.constant(labels_N1)

        def read(row: Tensor) -> tuple[Tensor, Tensor]:
            content = tf.io.read_file(tf.gather(files, row))
            return without_border(decode.pixels(content, exif=False)), tf.gather(labels, row)

        return read

    return Table(
        len(paths), lambda row: paths[row], reader, labels=lambda: labels_N1, most_labels=1
    )


def without_border(image: Tensor) -> Tensor:
    """Cuts the border off an image: uint8 [H, W, 3] to uint8 [H - 4, W - 4, 3]."""
    inner = image[BORDER:-BORDER, BORDER:-BORDER]
    inner.set_shape([None, None, 3])
    return inner


def stands_for(rest: str, data_dir: str) -> dict[str, tuple[str, ...]]:
    """Returns folder -> ImageNet classes (wnids, ascending) that count as right predictions for it.

    Raises:
      BadInput: a file is missing or damaged, or the files contradict each other.
    """
    folder = _root(rest, data_dir) / "mappings"
    try:
        names, meanings, numbers = (json.loads(storage.read(folder / _FILES[i])) for i in (0, 1, 3))
        lines = [line.strip() for line in storage.read(folder / _FILES[2]).decode().splitlines()]
        folder_of = {name: key for key, name in names.items()}
        classes = imagenet_labels.wnids()
        wnid_of = {int(line): classes[int(number)] for number, line in numbers.items()}
        if sorted(wnid_of) != list(range(len(classes))):
            raise ValueError(f"{_FILES[3]} does not number {len(classes)} lines from 0")
        wnids_of = {}
        for name, text in meanings.items():
            wanted = text.split("; ")
            if twice := [n for n in wanted if lines.count(n) != 1]:
                raise ValueError(f"{_FILES[2]} does not have {twice[0]!r} once")
            wnids_of[folder_of[name]] = tuple(sorted(wnid_of[lines.index(n)] for n in wanted))
    except (
        OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError
    ) as e:  # fmt: skip
        raise BadInput(
            f"data.source=objectnet:{rest}: {folder} is not ObjectNet's: {type(e).__name__}: {e}. "
            "Unpack it again."
        ) from e
    return dict(sorted(wnids_of.items()))
