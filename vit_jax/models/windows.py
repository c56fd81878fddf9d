# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Attention within windows of patches, as in ViTDet (arXiv:2203.16527, section 3).

The parameters are those of an ordinary ViT. A windowed block projects all tokens at once, and then
each window attends alone. Axes: B batch, L tokens, n windows, w tokens of a window, N heads, K head
dim. Start from `attended`; `numbers` says which blocks have windows.

A window at the edge of the grid is as small as what is left. So a grid consists of up to four
rectangles: the inner one, those at its right and lower edges, and the corner. Each is divided by
windows of one size, so none has a place without a patch. ViTDet fills these windows up with zeros
instead, which its patches attend to. ViTDet has no token beside the patches in the pyramid. Here
the class token and registers belong to every window: they attend to all patches, and all patches to
them. So one window that covers the grid is global attention, whatever the tokens.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

Attend = Callable[[jax.Array, jax.Array, jax.Array, Any, Any], jax.Array]


class Rectangle(NamedTuple):
    """A part of a grid that windows of one size divide.

    Attributes:
      counts: how many windows stand below and beside each other.
      sides: rows and columns of patches in a window.
    """

    counts: tuple[int, int]
    sides: tuple[int, int]

    def split(self, x: jax.Array) -> jax.Array:
        """Maps [B, rows, columns, ...] to windows, [B n, w, ...]."""
        (below, beside), (rows, columns), rest = *self, x.shape[3:]
        x = jnp.swapaxes(x.reshape(-1, below, rows, beside, columns, *rest), 2, 3)
        return x.reshape(-1, rows * columns, *rest)

    def joined(self, windows: jax.Array) -> jax.Array:
        """Maps windows [B n, w, ...] to [B, rows, columns, ...]; the inverse of `split`."""
        (below, beside), (rows, columns), rest = *self, windows.shape[2:]
        x = jnp.swapaxes(windows.reshape(-1, below, beside, rows, columns, *rest), 2, 3)
        return x.reshape(-1, below * rows, beside * columns, *rest)


@dataclasses.dataclass(frozen=True)
class Windows:
    """Squares of patches that cover a grid, from its first row and column on.

    Attributes:
      side: rows and columns of patches in a window.
      grid: rows and columns of patches.
      prefix: tokens before the patches, which belong to every window.
    """

    side: int
    grid: tuple[int, int]
    prefix: int

    @property
    def rectangles(self) -> list[list[Rectangle]]:
        """Returns those of whole windows' rows, then those of the rows that are left, if any."""

        def spans(length: int) -> list[tuple[int, int]]:
            """Returns how many windows of which side lie along an axis."""
            whole, left = divmod(length, self.side)
            return [
                (count, side) for count, side in ((whole, self.side), (1, left)) if count * side
            ]

        below, beside = map(spans, self.grid)
        return [[Rectangle(*zip(y, x, strict=True)) for x in beside] for y in below]

    @property
    def products(self) -> int:
        """Returns the pairs of query and key for one image."""
        pairs = self.prefix * (self.prefix + math.prod(self.grid))
        for counts, sides in itertools.chain.from_iterable(self.rectangles):
            window = math.prod(sides)
            pairs += math.prod(counts) * window * (window + self.prefix)
        return pairs

    def path(self, wanted: str, *, masked: bool) -> Any:
        """Returns the code path of `Attention` for windows: short sequences, some with masks.

        They hold fewer queries than keys if there are tokens before the patches.
        """
        if wanted == "plain":
            return "plain"
        packed = "packed_keys_first" if wanted == "splash" else wanted
        fits = packed in ("packed", "packed_keys_first") and not masked
        return packed if fits else "memory_efficient"

    def split(self, patches: jax.Array) -> list[jax.Array]:
        """Maps [B, patches, ...] to the windows of each rectangle, [B n, w, ...]."""
        x = patches.reshape(len(patches), *self.grid, *patches.shape[2:])
        return [
            rectangle.split(part)
            for band, rectangles in zip(self._cut(x, 1), self.rectangles, strict=True)
            for part, rectangle in zip(self._cut(band, 2), rectangles, strict=True)
        ]

    def joined(self, windows: list[jax.Array]) -> jax.Array:
        """Maps the windows of each rectangle to [B, patches, ...]; the inverse of `split`."""
        parts = iter(windows)
        bands = [
            jnp.concatenate([rectangle.joined(next(parts)) for rectangle in rectangles], axis=2)
            for rectangles in self.rectangles
        ]
        x = jnp.concatenate(bands, axis=1)
        return x.reshape(len(x), math.prod(self.grid), *x.shape[3:])

    def _cut(self, x: jax.Array, axis: int) -> list[jax.Array]:
        """Divides an axis into whole windows and what is left, if there are both."""
        length = x.shape[axis]
        whole = length - length % self.side
        return jnp.split(x, [whole], axis) if 0 < whole < length else [x]

    def seen(self) -> np.ndarray:
        """Returns True for the tokens that each token attends to, bool [L, L]."""
        y, x = (axis.ravel() // self.side for axis in np.indices(self.grid))
        same = (y[:, None] == y[None]) & (x[:, None] == x[None])
        return np.pad(same, ((self.prefix, 0), (self.prefix, 0)), constant_values=True)


def numbers(depth: int, global_blocks: int) -> tuple[int, ...]:
    """Returns the numbers, from 0 on, of the blocks with windows.

    The blocks are divided into `global_blocks` parts that are as equal as possible. The last one of
    each part has global attention, as in ViTDet.
    """
    part = [(i + 1) * global_blocks // depth for i in range(depth)]
    return tuple(i for i in range(depth) if part[i] == (part[i - 1] if i else 0))


def attended(
    attend: Attend,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    dropout_key: jax.Array | None,
    bias_BL: jax.Array | None,
    windows: Windows,
) -> jax.Array:
    """Returns the values that each token mixes within its window, [B, L, N, K].

    Args:
      attend: attention of queries [B, L, N, K] to keys and values [B, M, N, K], with the key of
        dropout and float32 [B, M], added to the scores of each key, or None.
      query: [B, L, N, K].
      key: [B, L, N, K].
      value: [B, L, N, K].
      dropout_key: typed key of dropout; None in evaluation.
      bias_BL: float32, added to the scores of each token; None: nothing.
      windows: the windows.
    """
    prefix = windows.prefix

    def within(x: jax.Array) -> list[jax.Array]:
        return windows.split(x[:, prefix:])

    def seen(x: jax.Array) -> list[jax.Array]:
        """Returns the patches of each window after a copy of the tokens before all patches."""

        def with_copies(patches: jax.Array) -> jax.Array:
            shape = (len(x), len(patches) // len(x), prefix, *x.shape[2:])
            copies = jnp.broadcast_to(x[:, None, :prefix], shape)
            copies = copies.reshape(len(patches), *shape[2:])
            return jnp.concatenate([copies, patches], axis=1)

        return [with_copies(patches) for patches in within(x)]

    def own(number: int) -> jax.Array | None:
        """Returns the key of dropout for a number, that which is given for 0."""
        if dropout_key is None or not number:
            return dropout_key
        return jax.random.fold_in(dropout_key, number)

    queries = within(query)
    biases = [None] * len(queries) if bias_BL is None else seen(bias_BL)
    keys_of_dropout = [own(2 * number) for number in range(len(queries))]
    each = zip(queries, seen(key), seen(value), keys_of_dropout, biases, strict=True)
    mixed = windows.joined([attend(*rectangle) for rectangle in each])
    if not prefix:
        return mixed
    first = attend(query[:, :prefix], key, value, own(1), bias_BL)
    return jnp.concatenate([first, mixed], axis=1)
