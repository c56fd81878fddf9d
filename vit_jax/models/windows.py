# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Attention within windows of patches, as in ViTDet (arXiv:2203.16527, section 3).

The parameters are those of an ordinary ViT. A windowed block projects all tokens at once, and then
each window attends alone. Axes: B batch, L tokens, n windows, w tokens of a window, N heads, K head
dim. Start from `attended`; `numbers` says which blocks have windows.

A window at the edge of the grid is as small as what is left. ViTDet fills it up with zeros, which
its patches attend to; here they are masked, so that no result depends on them. ViTDet has no token
beside the patches in the pyramid. Here the class token and registers belong to every window: they
attend to all patches, and all patches to them. So one window that covers the grid is global
attention, whatever the tokens.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

MASKED = -1e30  # added to the scores of tokens that nothing attends to
Attend = Callable[[jax.Array, jax.Array, jax.Array, Any, Any], jax.Array]


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
    def sides(self) -> tuple[int, int]:
        """Returns rows and columns of a window; a smaller grid has one window of its size."""
        rows, columns = (min(self.side, side) for side in self.grid)
        return rows, columns

    @property
    def counts(self) -> tuple[int, int]:
        """Returns how many windows stand below and beside each other."""
        rows, columns = (-(-g // s) for g, s in zip(self.grid, self.sides, strict=True))
        return rows, columns

    @property
    def filled_up(self) -> bool:
        """Returns True if the windows at the edge hold places without a patch."""
        return any(g % s for g, s in zip(self.grid, self.sides, strict=True))

    @property
    def products(self) -> int:
        """Returns the pairs of query and key for one image, with those of filled-up places."""
        window, count = math.prod(self.sides), math.prod(self.counts)
        tokens = self.prefix + math.prod(self.grid)
        return count * window * (window + self.prefix) + self.prefix * tokens

    def path(self, wanted: str, *, masked: bool) -> Any:
        """Returns the code path of `Attention` for windows: short sequences, some with masks.

        They hold fewer queries than keys if there are tokens before the patches.
        """
        if wanted == "plain":
            return "plain"
        on_tpu = wanted in ("packed", "splash")
        return "packed" if on_tpu and not (masked or self.filled_up) else "memory_efficient"

    def split(self, patches: jax.Array, empty: float = 0.0) -> jax.Array:
        """Maps [B, patches, ...] to windows [B n, w, ...], filled up with a constant."""
        (rows, columns), (below, beside) = self.sides, self.counts
        batch, _, *rest = patches.shape
        lacking = below * rows - self.grid[0], beside * columns - self.grid[1]
        widths = [(0, 0), (0, lacking[0]), (0, lacking[1]), *[(0, 0)] * len(rest)]
        x = jnp.pad(patches.reshape(batch, *self.grid, *rest), widths, constant_values=empty)
        x = jnp.swapaxes(x.reshape(batch, below, rows, beside, columns, *rest), 2, 3)
        return x.reshape(batch * below * beside, rows * columns, *rest)

    def joined(self, windows: jax.Array) -> jax.Array:
        """Maps windows [B n, w, ...] to [B, patches, ...]; the inverse of `split`."""
        (rows, columns), (below, beside) = self.sides, self.counts
        rest = windows.shape[2:]
        x = jnp.swapaxes(windows.reshape(-1, below, beside, rows, columns, *rest), 2, 3)
        x = x.reshape(-1, below * rows, beside * columns, *rest)
        return x[:, : self.grid[0], : self.grid[1]].reshape(-1, math.prod(self.grid), *rest)

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
    prefix, count = windows.prefix, math.prod(windows.counts)

    def everywhere(x: jax.Array, empty: float = 0.0) -> jax.Array:
        """Returns the tokens of each window after a copy of those before the patches."""
        shape = (len(x), count, prefix, *x.shape[2:])
        copies = jnp.broadcast_to(x[:, None, :prefix], shape)
        copies = copies.reshape(len(x) * count, *shape[2:])
        return jnp.concatenate([copies, windows.split(x[:, prefix:], empty)], axis=1)

    bias = bias_BL
    if windows.filled_up and bias is None:
        bias = jnp.zeros(query.shape[:2], jnp.float32)
    within = attend(
        windows.split(query[:, prefix:]), everywhere(key), everywhere(value), dropout_key,
        None if bias is None else everywhere(bias, MASKED),
    )  # fmt: skip
    mixed = windows.joined(within)
    if not prefix:
        return mixed
    own = None if dropout_key is None else jax.random.fold_in(dropout_key, 1)
    return jnp.concatenate([attend(query[:, :prefix], key, value, own, bias_BL), mixed], axis=1)
