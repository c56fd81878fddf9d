# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The op that keeps the aspect ratio of an image within a budget of patches (NaFlex).

Its result has one size for all images: the patches lie in its cells, row by row, and gray pixels
fill the rest. The field `grid` says how many rows and columns of patches the image has. See `chain`
for the definition of an op, and `models.naflex` for the model. Start from `grid_of`.
"""

import dataclasses
from typing import Any

from vit_jax.data.ops.resize import Size, resize, rows_columns
from vit_jax.data.ops.scale import FILL
from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

_STEPS = 24  # halvings of the scale from 100 to less than 1e-5


@dataclasses.dataclass(frozen=True)
class NaFlex:
    """Resizes to the largest grid of patches within the budget, which is all cells of `size`.

    The rule is that of transformers' SigLIP 2 (`get_image_size_for_max_num_patches`): the sides are
    scaled alike, and each is rounded up to whole patches. Resizing is bilinear and averages where
    it shrinks. Without `enlarge`, an image with fewer patches keeps its size up to that rounding.
    """

    ADDS_GRID = True  # see `chain.adds_grid`

    size: Size
    patch: int
    enlarge: bool = True

    def __post_init__(self) -> None:
        if any(side % self.patch for side in rows_columns(self.size)):
            raise BadInput(
                f"naflex: patches of {self.patch} pixels do not tile {self.size}; give the patch "
                "of the model, and a multiple of it as data.image_size."
            )

    @property
    def cells(self) -> tuple[int, int]:
        """The rows and columns of cells; their product is the budget."""
        rows, columns = rows_columns(self.size)
        return rows // self.patch, columns // self.patch

    def grid(self, sides: Tensor) -> Tensor:
        """Returns rows and columns of patches for an image of `sides`, int32 [2] both."""
        after = grid_of(tf.cast(sides, tf.float64), self, tf)
        return tf.cast(after, tf.int32)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        (rows, columns), (down, across) = tf.unstack(self.grid(tf.shape(image)[:2])), self.cells
        side, channels = self.patch, image.shape[-1]
        resized = resize(image, rows * side, columns * side, antialias=True)
        patches = tf.reshape(resized, [rows, side, columns, side, channels])
        patches = tf.reshape(
            tf.transpose(patches, [0, 2, 1, 3, 4]), [rows * columns, side, side, channels]
        )
        lacking = [[0, down * across - rows * columns], [0, 0], [0, 0], [0, 0]]
        cells = tf.pad(patches, lacking, constant_values=FILL)
        cells = tf.reshape(cells, [down, across, side, side, channels])
        canvas = tf.transpose(cells, [0, 2, 1, 3, 4])
        return tf.reshape(canvas, [down * side, across * side, channels])


def grid_of(sides: Any, op: NaFlex, module: Any) -> Any:
    """Returns rows and columns of patches, float64 [2], for the sides of an image, float64 [2].

    Args:
      sides: rows and columns of pixels.
      op: the op.
      module: tensorflow or numpy, which computes it.
    """
    budget = op.cells[0] * op.cells[1]

    def grid(scale: Any) -> Any:
        return module.maximum(-(-(sides * scale / op.patch) // 1), 1.0)

    def fits(scale: Any) -> Any:
        after = grid(scale)
        return after[0] * after[1] <= budget

    low, high = sides[0] * 0 + 1e-6, sides[0] * 0 + 100.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        enough = fits(middle)
        low, high = module.where(enough, middle, low), module.where(enough, high, middle)
    return grid(low if op.enlarge else module.where(fits(1.0), module.minimum(low, 1.0), low))
