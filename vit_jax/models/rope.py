# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Rotary positions in two dimensions (arXiv:2104.09864, arXiv:2403.13298, arXiv:2508.10104).

Queries and keys of a patch are rotated by angles that grow with its place, so that their product
depends on the offset between two patches. Channel p of a head and channel p + K/2 are a pair.

Axes: B batch, L tokens, N heads, K head dim, P = K/2 pairs. Start from `coordinates` and `rotate`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.config.model_section import RopeCoordinates
from vit_jax.errors import BadInput


def coordinates(
    kind: RopeCoordinates, grid: tuple[int, int], before: int, reference: int
) -> jax.Array:
    """Returns the row and the column of each token, float32 [L, 2].

    Tokens without a patch lie at 0, which rotates nothing.

    Args:
      kind: `unit`: centres of patches from -1 to 1, times 2 pi (DINOv3). `index`: 0, 1, 2, ...
        `from1`: 1, 2, 3, ..., which tells the first row and column from tokens without a patch.
      grid: rows and columns of patches.
      before: tokens without a patch, which come first.
      reference: patches a side to which indices are scaled, as EVA-02 does at other resolutions; 0
        leaves them as they are.
    """
    sides = []
    for count in grid:
        if kind == "unit":
            sides.append(2 * np.pi * (2 * (np.arange(count) + 0.5) / count - 1))
        else:
            places = np.arange(count) + (kind == "from1")
            sides.append(places * ((reference or count) / count))
    rows, columns = np.meshgrid(*sides, indexing="ij")
    patches = np.stack([rows.ravel(), columns.ravel()], axis=1)
    return jnp.asarray(np.concatenate([np.zeros((before, 2)), patches]), jnp.float32)


def scattered(
    coordinates_L2: jax.Array, key: jax.Array, jitter: float, rescale: float
) -> jax.Array:
    """Returns coordinates times random factors, drawn once for a batch (arXiv:2508.10104, sec. 4).

    Args:
      coordinates_L2: from `coordinates`.
      key: typed key.
      jitter: each axis gets a factor, log-uniform in [1 / jitter, jitter].
      rescale: both get a common one, log-uniform in [1 / rescale, rescale].
    """
    axis_key, common_key = jax.random.split(key)
    each_2 = jax.random.uniform(axis_key, (2,), minval=-1.0) * jnp.log(jitter)
    common = jax.random.uniform(common_key, (), minval=-1.0) * jnp.log(rescale)
    return coordinates_L2 * jnp.exp(each_2 + common)[None]


def axial(coordinates_L2: jax.Array, base: float, head_dim: int) -> jax.Array:
    """Returns the angles [L, 1, P]: half of the pairs turn with the row, half with the column.

    Pair j of K/4 turns by place x base^(-4j/K).
    """
    speeds = jnp.asarray(base ** -(np.arange(0, 1, 4 / head_dim)), jnp.float32)
    angles_L2Q = coordinates_L2[:, :, None] * speeds[None, None]
    return angles_L2Q.reshape(len(coordinates_L2), 1, -1)


def mixed(coordinates_L2: jax.Array, speeds_2NP: jax.Array) -> jax.Array:
    """Returns the angles [L, N, P] of learned directions (arXiv:2403.13298, equation 14)."""
    return jnp.einsum("lx,xnp->lnp", coordinates_L2, speeds_2NP, precision="highest")


def initial_speeds(key: jax.Array, shape: tuple[int, ...], base: float) -> jax.Array:
    """Returns speeds [2, N, P] of `mixed` in a random direction for each head.

    The pairs of a head come in two halves at a right angle to each other. The speeds within a half
    are those of `axial`.
    """
    _, heads, pairs = shape
    angles_N1 = jax.random.uniform(key, (heads, 1)) * 2 * jnp.pi
    half = jnp.asarray(base ** -(np.arange(pairs // 2) / (pairs // 2)), jnp.float32)[None]
    rows = [half * jnp.cos(angles_N1 + turn) for turn in (0.0, jnp.pi / 2)]
    columns = [half * jnp.sin(angles_N1 + turn) for turn in (0.0, jnp.pi / 2)]
    return jnp.stack([jnp.concatenate(rows, axis=1), jnp.concatenate(columns, axis=1)])


def rotate(x_BLNK: jax.Array, angles_LNP: jax.Array) -> jax.Array:
    """Rotates queries or keys in float32; returns their dtype."""
    first, second = jnp.split(x_BLNK.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angles_LNP)[None], jnp.sin(angles_LNP)[None]
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=-1).astype(x_BLNK.dtype)


def check(kind: str, width: int, heads: int) -> None:
    """Raises BadInput unless the heads of a model can be rotated."""
    if kind != "none" and width // heads % 4:
        raise BadInput(
            f"model.rope={kind} rotates heads in pairs for rows and columns: the head dim must be "
            f"divisible by 4, and {width} / {heads} is {width // heads}."
        )
