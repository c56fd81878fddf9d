# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns an image, and what moves with it, into a row of a batch.

A worker process and the process of the run share it.

Start from `Recipe`.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from vit_jax.data.example import FIELDS, GRID, SPATIAL
from vit_jax.data.formats import stored
from vit_jax.data.numpy_ops import chain, decode
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.ops.chain import View, adds_grid
from vit_jax.data.ops.decode import BadImage, Decode
from vit_jax.data.splits import order
from vit_jax.errors import BadInput

# `image`: the bytes of a file, uint8 [H, W, C], or where either is stored. What moves with it:
# `mask` (int32 [H, W], or where it is stored), `boxes` and `box_classes`. `sides`: rows and columns
# of the image that the boxes are for, or None.
Fields = dict[str, Any]
# The views of the rows of a batch, uint8 [rows, (count,) H, W, C], what moves with `image`, and
# the grids of `naflex`.
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What becomes of an image.

    Attributes:
      views: the views of each image.
      sides: rows and columns of each view.
      channels: the channels of each view.
      moving: the fields that move with the view `image`.
      boxes: M, the number of boxes of each image.
    """

    views: tuple[View, ...]
    sides: tuple[tuple[int, int], ...]
    channels: int
    moving: tuple[str, ...] = ()
    boxes: int = 0

    @property
    def decode(self) -> Decode:
        """The op that decodes files."""
        decodes = (op for view in self.views for op in view.ops if isinstance(op, Decode))
        return next(decodes, Decode(channels=self.channels))

    def shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns shape and dtype of each view in a row, and of what comes with `image`."""
        shapes = {}
        for view, (rows, columns) in zip(self.views, self.sides, strict=True):
            times = (view.count,) if view.count else ()
            shapes[view.name] = (*times, rows, columns, self.channels), np.dtype(np.uint8)
            if view.name == "image":
                own: dict[str, tuple[int, ...]] = {
                    "mask": (rows, columns), "boxes": (self.boxes, 4), "box_classes": (self.boxes,)
                }  # fmt: skip
                for key in self.moving:
                    shapes[key] = (*times, *own[key]), np.dtype(FIELDS[key].dtype)
        if any(map(adds_grid, self.views[0].ops)):
            shapes[GRID] = (2,), np.dtype(np.int32)
        return shapes

    def row_bytes(self) -> int:
        """Returns the bytes of a row."""
        return sum(math.prod(shape) * dtype.itemsize for shape, dtype in self.shapes().values())

    def arrays(self, buffer: memoryview | bytearray, start: int, rows: int) -> Arrays:
        """Returns the arrays of some rows, in memory that is not copied.

        Args:
          buffer: the memory.
          start: the byte where they begin.
          rows: the number of rows.
        """
        arrays = {}
        for name, (shape, dtype) in self.shapes().items():
            size = rows * math.prod(shape)
            flat = np.frombuffer(buffer, dtype, size, start)
            arrays[name], start = flat.reshape(rows, *shape), start + flat.nbytes
        return arrays

    def write(self, fields: Fields, seed: Seed, arrays: Arrays, row: int) -> None:
        """Reads an image and writes its views, and what moves with them, into a row.

        Args:
          fields: the image, and what moves with it.
          seed: the seed of the example.
          arrays: the arrays of some rows.
          row: the row to write.

        Raises:
          BadImage: it cannot be decoded, or its mask or boxes do not belong to it.
          Unsuitable: it cannot go through the chain.
          BadInput: no image can go through the chain.
          OSError: it cannot be read.
          StoreLost: its object store does not answer.
        """
        fields = loaded(fields)
        shared: bytes | np.ndarray
        content = shared = fields.pop("image")
        if isinstance(content, bytes):
            for view in self.views:
                chain.check_files(view.ops)
        drawn = sum(max(view.count, 1) for view in self.views)
        first = next((op for op in self.views[0].ops if isinstance(op, Decode)), None)
        if drawn > 1 and first is not None:
            shared = decode.decode(first, content)  # once for all views; it draws nothing
        for view, sides in zip(self.views, self.sides, strict=True):
            parts = any(getattr(op, "IN_PARTS", False) for op in view.ops)
            source = {"image": content if parts else shared}
            source |= fields if view.name == "image" else {}
            for number in range(max(view.count, 1)):
                plain = view.name == "image" and not view.count
                own = seed if plain else order.numpy_stream_of(seed, view.name, number)
                moved = chain.apply_to_fields(view.ops, source, own)
                made = moved.pop("image")
                if made.shape != (*sides, self.channels) or made.dtype != np.uint8:
                    raise BadInput(
                        f"the chain of {view.name} gives {made.dtype} {list(made.shape)}, "
                        f"expected uint8 {[*sides, self.channels]}; it starts with decode and "
                        "ends at data.image_size, e.g. decode|resize({size})."
                    )
                for key, value in {view.name: made, **moved}.items():
                    place = arrays[key][row]
                    (place[number] if view.count else place)[...] = value


def loaded(fields: Fields) -> Fields:
    """Returns the image and what moves with it, read from where they are stored.

    Raises:
      BadImage: the mask cannot be read, or mask or boxes do not belong to the image.
      OSError: the image cannot be read.
      StoreLost: its object store does not answer.
    """
    image = stored.read_image(fields["image"])
    moving = {key: fields[key] for key in SPATIAL if key in fields}
    if not moving:
        return {"image": image}
    from vit_jax.data.formats import boxes as box_files  # a batch without them needs neither
    from vit_jax.data.formats import mask_file

    sides = mask_file.sides(image) if isinstance(image, bytes) else image.shape[:2]
    stated = fields.get("sides")
    if sides and (problem := box_files.wrong_sides(stated, sides)):
        raise BadImage(problem)
    if "mask" in moving:
        place = getattr(moving["mask"], "path", "")
        try:
            moving["mask"] = mask = np.asarray(stored.read_image(moving["mask"]))
            problem = mask_file.fault(mask, sides, np.iinfo(np.int32).max)
        except (BadImage, OSError) as e:
            problem = getattr(e, "strerror", None) or str(e)
        if problem:
            raise BadImage(f"its mask {place}: {problem}" if place else problem)
    return {"image": image, **moving}
