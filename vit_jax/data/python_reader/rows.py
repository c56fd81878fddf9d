# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns one image into one row of a batch. A worker process and the process of the run share it.

Start from `Recipe`.
"""

import dataclasses
import math

import numpy as np

from vit_jax.data.formats import stored
from vit_jax.data.numpy_ops import chain, decode
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.ops.chain import View
from vit_jax.data.ops.decode import Decode
from vit_jax.data.ops.naflex import FIELD, NaFlex
from vit_jax.data.splits import order
from vit_jax.errors import BadInput

Image = bytes | np.ndarray | stored.Stored
# The views of the rows of a batch, uint8 [rows, (count,) H, W, C], and with `naflex` the grids.
Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What becomes of an image.

    Attributes:
      views: the views of each image.
      sides: rows and columns of each view.
      channels: the channels of each view.
    """

    views: tuple[View, ...]
    sides: tuple[tuple[int, int], ...]
    channels: int

    @property
    def decode(self) -> Decode:
        """The op that decodes files."""
        decodes = (op for view in self.views for op in view.ops if isinstance(op, Decode))
        return next(decodes, Decode(channels=self.channels))

    def shapes(self) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns shape and dtype of each view in a row, and of the grid of `naflex` before it."""
        views = {
            view.name: ((*((view.count,) if view.count else ()), *sides, self.channels), np.uint8)
            for view, sides in zip(self.views, self.sides, strict=True)
        }
        grids = {FIELD: ((2,), np.int32)} if isinstance(self.views[0].ops[-1], NaFlex) else {}
        return {name: (shape, np.dtype(kind)) for name, (shape, kind) in (grids | views).items()}

    def row_bytes(self) -> int:
        """Returns the bytes of all views of a row."""
        return sum(math.prod(shape) * kind.itemsize for shape, kind in self.shapes().values())

    def arrays(self, buffer: memoryview | bytearray, start: int, rows: int) -> Arrays:
        """Returns the views of some rows, uint8 [rows, (count,) H, W, C]; they share the memory.

        Args:
          buffer: the memory.
          start: the byte where they begin.
          rows: the number of rows.
        """
        arrays = {}
        for name, (shape, kind) in self.shapes().items():
            size = rows * math.prod(shape)
            flat = np.frombuffer(buffer, kind, size, start)
            arrays[name], start = flat.reshape(rows, *shape), start + size * kind.itemsize
        return arrays

    def write(self, image: Image, seed: Seed, arrays: Arrays, row: int) -> None:
        """Reads an image and writes its views into a row.

        Args:
          image: the bytes of a file, uint8 [H, W, C], or where either is stored.
          seed: the seed of the example.
          arrays: the views of some rows, uint8 [rows, (count,) H, W, C] each.
          row: the row to write.

        Raises:
          BadImage: it cannot be decoded.
          Unsuitable: it cannot go through the chain.
          BadInput: no image can go through the chain.
          OSError: it cannot be read.
          StoreLost: its object store does not answer.
        """
        shared: bytes | np.ndarray
        content = shared = stored.read_image(image)
        if isinstance(content, bytes):
            for view in self.views:
                chain.check_files(view.ops)
        drawn = sum(max(view.count, 1) for view in self.views)
        first = next((op for op in self.views[0].ops if isinstance(op, Decode)), None)
        if drawn > 1 and first is not None:
            shared = decode.decode(first, content)  # once for all views; it draws nothing
        for view, sides in zip(self.views, self.sides, strict=True):
            parts = any(getattr(op, "IN_PARTS", False) for op in view.ops)
            source = content if parts else shared
            for number in range(max(view.count, 1)):
                plain = view.name == "image" and not view.count
                own = seed if plain else order.numpy_stream_of(seed, view.name, number)
                fields = chain.apply_to_fields(view.ops, source, own)
                made = fields.pop("image")
                if made.shape != (*sides, self.channels) or made.dtype != np.uint8:
                    raise BadInput(
                        f"the chain of {view.name} gives {made.dtype} {list(made.shape)}, "
                        f"expected uint8 {[*sides, self.channels]}; it starts with decode and "
                        "ends at data.image_size, e.g. decode|resize({size})."
                    )
                place = arrays[view.name][row]
                (place[number] if view.count else place)[...] = made
                for name, value in fields.items():
                    arrays[name][row] = value
