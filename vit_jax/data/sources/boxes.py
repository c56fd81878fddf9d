# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes splits of images with boxes, whatever the format of their files.

The fields of an example hold the boxes to train on, clipped to the image. `Table.truth` holds all,
as stored, with crowd regions and difficult objects, which an evaluation treats in its own way.
`coco`, `voc` and `yolo` read the files. Start from `opened`.
"""

import collections
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vit_jax.data.formats import boxes as box_files
from vit_jax.data.formats import mask_file
from vit_jax.data.formats.boxes import NOT_CHECKED, NOT_READ, Annotated, Problem, Truth
from vit_jax.data.formats.stored import WholeFile
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.sources.source import Source
from vit_jax.data.splits.split import NumpyFields, Split, Table
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

Opened = tuple[Sequence[str], dict[str, Split], list[str]]
# Names of classes, the images of each split, and notes.
Found = tuple[tuple[str, ...], dict[str, Annotated], list[str]]


def examined(spec: str, options: Any) -> tuple[list[Problem], Source | None]:
    """Returns what is wrong in the files of a source, and what can be read if it does not open.

    Of masks, these are the images without one. Other kinds of source have no such files. The source
    has the images that are there; it is None if nothing hinders the source to open.

    Raises:
      BadInput: a file cannot be read at all.
    """
    from vit_jax.data.sources import coco, masks, voc, yolo

    kind, _, rest = spec.partition(":")
    names, parts, notes = (), dict[str, Annotated](), list[str]()
    try:
        if storage.is_remote(rest) or not rest:
            return [], None  # to be told when it is opened
        if kind == "coco":
            names, parts, notes = coco.find(rest, polygons=True)
        elif kind == "voc" and voc.has_boxes(rest):
            names, parts, notes = voc.find(rest, options)
        elif kind == "yolo":
            names, parts, notes = yolo.find(rest)
        elif kind == "masks":
            return masks.examined(rest, options)
        elif kind == "voc":
            return voc.examined_masks(rest, options)
    except OSError as e:
        raise BadInput(f"{spec} cannot be read: {e.strerror}: {e.filename}.") from e
    every = _problems(parts)
    if all(problem.left_out for problem in every):
        return every, None
    splits, more = _splits(parts)
    there = {
        name: Split(split.table, np.flatnonzero([*map(os.path.isfile, parts[name].paths)]))
        for name, split in splits.items()
    }
    return every, Source(spec, names, there, (*notes, *more))


def _problems(parts: Mapping[str, Annotated]) -> list[Problem]:
    """Returns what is wrong, also with splits without any box; only val and test can lack boxes."""
    every = [problem for part in parts.values() for problem in part.problems]
    for split, part in parts.items():
        _, counted = part.for_training()
        if counted.any() or any(not problem.left_out for problem in part.problems):
            continue
        counts = collections.Counter(one.left_out for one in part.problems)
        why = [f"{n:,} {what}" for what, n in counts.items()
                if what not in (NOT_READ, NOT_CHECKED)]  # fmt: skip
        why += [f"{n:,} {what}" for what, n in _not_trained_on(part, counted).items() if n]
        reason = f"no box is left: {'; '.join(why)}" if why else "it has no boxes"
        left_out = "" if split in ("train", "all") else "splits without a box that counts"
        every.append(Problem(f"split {split}", reason, left_out))
    return every


def _not_trained_on(part: Annotated, counted: np.ndarray) -> dict[str, int]:
    """Returns how many boxes training leaves out, by reason; `counted` are the others."""
    return {
        "crowd regions or difficult objects, which only evaluations know": int(part.ignored.sum()),
        "boxes without area inside the image left out of training": int(
            (~counted & ~part.ignored).sum()
        ),
    }


def opened(spec: str, found: Found) -> Opened:
    """Returns names of classes, splits and notes of the source `spec`.

    Raises:
      BadInput: something is wrong that it cannot be read with.
    """
    names, parts, notes = found
    command = f"vit_jax data check {spec}"
    notes = notes + box_files.check(f"data.source={spec}", _problems(parts), command)
    splits, more = _splits(parts)
    return names, splits, notes + more


def _splits(parts: Mapping[str, Annotated]) -> tuple[dict[str, Split], list[str]]:
    """Returns the splits, and notes about boxes that training leaves out."""
    sorted_parts = {name: _Sorted(part) for name, part in parts.items()}
    most_boxes = max((part.most_boxes for part in sorted_parts.values()), key=lambda one: one[1])
    splits, notes = dict[str, Split](), list[str]()
    for name, part in sorted_parts.items():
        table = _table(part, most_boxes)
        splits[name] = Split(table, range(table.rows))
        some = _not_trained_on(parts[name], part.counted)
        notes += [f"{name}: {count:,} {what}" for what, count in some.items() if count]
    return splits, notes


class _Sorted:
    """The boxes of images in the order of the images.

    Attributes:
      content: everything, as read.
      counted: bool [T], True for boxes to train on, in the order of `content`.
      starts: int64 [N + 1], where the boxes to train on of each image begin.
      boxes: float32 [boxes to train on, 4].
      classes: int32 [boxes to train on].
      most_boxes: the image with the most boxes to train on, and how many.
    """

    def __init__(self, content: Annotated):
        self.content = content
        clipped, self.counted = content.for_training()
        every = np.argsort(content.rows, kind="stable")
        self._every, images = every, np.arange(len(content.paths) + 1)
        self._all_starts = np.searchsorted(content.rows[every], images)
        kept = every[self.counted[every]]
        self.starts = np.searchsorted(content.rows[kept], images)
        self.boxes = clipped[kept].astype(np.float32)
        self.classes = content.classes[kept].astype(np.int32)
        counts = np.diff(self.starts)
        row = int(counts.argmax()) if len(counts) else 0
        self.most_boxes = (content.names[row], int(counts[row])) if len(counts) else ("", 0)

    def truth(self, row: int) -> Truth:
        """Returns all boxes of an image; raises BadImage and OSError if they need its size."""
        here = self._every[self._all_starts[row] : self._all_starts[row + 1]]
        sides = self.sides(row) if self.content.in_shares else None
        return self.content.truth(here, row, sides)

    def sides(self, row: int) -> tuple[int, int]:
        """Returns rows and columns of an image file."""
        sides = mask_file.sides(WholeFile(self.content.paths[row]).read())
        if sides is None:
            raise BadImage("it is not an image that says its size")
        return sides

    def padded(self, row: int, most: int, scale: np.ndarray | None) -> tuple[Any, Any]:
        """Returns boxes, float32 [most, 4], and classes, int32 [most], to train on."""
        here = slice(self.starts[row], self.starts[row + 1])
        count = here.stop - here.start
        boxes, classes = np.zeros((most, 4), np.float32), np.full(most, -1, np.int32)
        boxes[:count] = self.boxes[here] * (1 if scale is None else scale)
        classes[:count] = self.classes[here]
        return boxes, classes


def _table(part: _Sorted, most_boxes: tuple[str, int]) -> Table:
    most = max(1, most_boxes[1])
    images, names = list(part.content.paths), part.content.names
    no_labels = np.full((len(images), 1), -1, np.int32)

    def scale(row: int, content: bytes) -> np.ndarray | None:
        """Returns the sides that boxes are shares of; those of a bad image do not matter."""
        if not part.content.in_shares:
            return None
        return np.tile(np.array(mask_file.sides(content) or (1, 1), np.float32)[::-1], 2)

    def at(row: np.ndarray, content: Any) -> tuple[np.ndarray, np.ndarray]:
        number, image = int(row), np.asarray(content, object).item()
        stated, sides = tuple(part.content.sides[number].tolist()), mask_file.sides(image)
        if all(stated) and sides and (problem := box_files.wrong_sides(stated, sides)):
            raise BadImage(problem)
        return part.padded(number, most, scale(number, image))

    def reader() -> Callable[[Tensor], dict[str, Tensor]]:
        paths = tf.constant([os.fsencode(path) for path in images])

        def fields(row: Tensor) -> dict[str, Tensor]:
            content = tf.io.read_file(tf.gather(paths, row))
            types = (tf.float32, tf.int32)
            boxes, classes = tf.numpy_function(at, [row, content], types, stateful=False)
            return {
                "image": content,
                "labels": tf.constant([-1], tf.int32),
                "boxes": tf.ensure_shape(boxes, [most, 4]),
                "box_classes": tf.ensure_shape(classes, [most]),
            }

        return fields

    def numpy_reader() -> Callable[[int], NumpyFields]:
        def fields(row: int) -> NumpyFields:
            file = WholeFile(images[row])
            sides = file.read() if part.content.in_shares else b""
            boxes, classes = part.padded(row, most, scale(row, sides))
            rest = {"labels": no_labels[row], "boxes": boxes, "box_classes": classes}
            return {"image": file, **rest}

        return fields

    return Table(
        len(images), lambda row: names[row], reader, labels=lambda: no_labels, most_labels=1,
        numpy_reader=numpy_reader, truth=lambda: part.truth, most_boxes=most_boxes,
    )  # fmt: skip
