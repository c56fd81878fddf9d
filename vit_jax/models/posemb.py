# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Position embeddings: those in Table 8 of arXiv:2010.11929, fixed sine-cosine, and resizing.

Relative embeddings are not here, because they are part of the attention (`attention.Attention`).
Start from `table`.
"""

from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.config.model_section import Posemb
from vit_jax.errors import BadInput

# Parameter path pattern -> logical axes, see sharding.param_axes.
AXES: dict[str, tuple[str | None, ...]] = {
    r"posemb": (None, "act_tokens", "embed"),
    r"posemb_[xy]": (None, None, "embed"),
    r"posemb_cls": (None, None, "embed"),
}


WITHOUT_TABLE = ("none", "relative", "relative2d")  # kinds that add nothing to tokens
STD = 0.02  # standard deviation of the initial embeddings in the published code


def table(
    param: Callable[..., jax.Array],
    kind: Posemb,
    grid: tuple[int, int],
    width: int,
    class_rows: int,
    std: float = STD,
) -> jax.Array:
    """Returns the embeddings [1, L, D] to add to the class token (if any) and the patches.

    Patches come row by row.

    Args:
      param: `param` method of the module that owns the parameters. They are `posemb`, or `posemb_x`
        [1, columns, D/2], `posemb_y` [1, rows, D/2] and `posemb_cls` [1, 1, D].
      kind: `learned1d`, `learned2d` (X and Y halves, appendix D.4) or `sincos2d`.
      grid: rows and columns of patches.
      width: D.
      class_rows: number of class tokens.
      std: standard deviation of the initial embeddings.
    """
    init, (rows, columns) = nn.initializers.normal(std), grid
    if kind == "learned1d":
        return param("posemb", init, (1, class_rows + rows * columns, width))
    if kind == "learned2d":
        x = param("posemb_x", init, (1, columns, width // 2))
        y = param("posemb_y", init, (1, rows, width // 2))
        x = jnp.broadcast_to(x[:, None], (1, rows, columns, width // 2))
        y = jnp.broadcast_to(y[:, :, None], (1, rows, columns, width // 2))
        patches = jnp.concatenate([x, y], axis=-1).reshape(1, rows * columns, width)
        own = [param("posemb_cls", init, (1, 1, width))] if class_rows else []
        return jnp.concatenate([*own, patches], axis=1)
    assert kind == "sincos2d", kind
    patches = np.concatenate([np.zeros((class_rows, width)), sincos2d(grid, width)])
    return jnp.asarray(patches[None], jnp.float32)


def sincos2d(grid: tuple[int, int], width: int) -> np.ndarray:
    """Returns fixed embeddings [rows * columns, D]: sine and cosine of x, then of y.

    See arXiv:2104.02057.

    Frequencies go from 1 to 1e-4 in D/4 steps, as in big_vision; D is a multiple of 4 and at least
    8.
    """
    frequencies = 1e4 ** -np.linspace(0.0, 1.0, width // 4)
    y, x = (axis.reshape(-1, 1) * frequencies for axis in np.indices(grid))
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)


def with_registers(posemb_1LD: jax.Array, class_rows: int, registers: int) -> jax.Array:
    """Inserts rows of zeros for register tokens after the row of the class token."""
    if not registers:
        return posemb_1LD
    none = jnp.zeros((1, registers, posemb_1LD.shape[-1]), posemb_1LD.dtype)
    return jnp.concatenate([posemb_1LD[:, :class_rows], none, posemb_1LD[:, class_rows:]], axis=1)


def on_grid(table_1LD: jax.Array, grid: tuple[int, int], own: tuple[int, int]) -> jax.Array:
    """Returns the rows of `table` and `with_registers`, made for the grid `own`, for another grid.

    The patches are the last rows; they are resized as in `resize`.
    """
    if grid == own:
        return table_1LD
    others = table_1LD.shape[1] - own[0] * own[1]
    patches = table_1LD[0, others:].reshape(*own, -1)
    rows, columns = (jnp.asarray(_weights(*pair)) for pair in zip(own, grid, strict=True))
    patches = jnp.einsum("yo,xp,opd->yxd", rows, columns, patches, precision="highest")
    patches_1LD = patches.reshape(1, grid[0] * grid[1], -1).astype(table_1LD.dtype)
    return jnp.concatenate([table_1LD[:, :others], patches_1LD], axis=1)


Resize = Literal["aligned", "bicubic", "smooth"]  # ours, transformers', timm's


def _weights(old: int, new: int, how: Resize = "aligned") -> np.ndarray:
    """Returns interpolation weights [new, old].

    `aligned` is linear, with fixed first and last points. `bicubic` is PyTorch's, between centres
    of cells; `smooth` also averages where the grid shrinks (antialias).
    """
    if how != "aligned":
        return _cubic_weights(old, new, smooth=how == "smooth")
    where = np.linspace(0.0, old - 1.0, new) if new > 1 else np.array([(old - 1) / 2])
    low = np.clip(np.floor(where).astype(int), 0, max(old - 2, 0))
    weights = np.zeros((new, old))
    weights[np.arange(new), low] += 1.0 - (where - low)
    weights[np.arange(new), np.minimum(low + 1, old - 1)] += where - low
    return weights


def _cubic_weights(old: int, new: int, *, smooth: bool) -> np.ndarray:
    scale = old / new
    stretch, steepness = (max(scale, 1.0), -0.5) if smooth else (1.0, -0.75)
    centres = (np.arange(new) + 0.5) * scale - 0.5
    weights = np.zeros((new, old))
    for row, centre in enumerate(centres):
        reach = int(np.ceil(2 * stretch)) + 1
        cells = np.arange(int(np.floor(centre)) - reach, int(np.floor(centre)) + reach + 1)
        shares = _cubic((cells - centre) / stretch, steepness)
        if smooth:  # cells outside the grid have no share
            shares = np.where((cells >= 0) & (cells < old), shares, 0.0)
            shares /= shares.sum()
        np.add.at(weights[row], np.clip(cells, 0, old - 1), shares)
    return weights


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Returns the cubic convolution kernel with the slope a at 1."""
    x = np.abs(x)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def resize(
    posemb_1LD: np.ndarray,
    new: tuple[int, int],
    old: tuple[int, int],
    *,
    class_rows: int,
    how: Resize = "aligned",
) -> np.ndarray:
    """Resizes learned 1-D embeddings to another grid, in two dimensions.

    Args:
      posemb_1LD: float [1, L, D]; the class row first, then the old grid row by row.
      new: rows and columns of the new grid.
      old: rows and columns of the old grid.
      class_rows: number of class tokens; these rows stay unchanged.
      how: `aligned`: bilinear with fixed corners; see `_weights` for those of other libraries.

    Returns:
      float32 [1, class_rows + rows * columns, D].

    Raises:
      BadInput: the number of patch rows differs from the size of the old grid.
    """
    kept, patches = posemb_1LD[0, :class_rows], posemb_1LD[0, class_rows:]
    if len(patches) != old[0] * old[1]:
        raise BadInput(f"{len(patches)} position embeddings are not a grid of {old[0]} x {old[1]}.")
    grid = patches.reshape(*old, -1)
    rows, columns = _weights(old[0], new[0], how), _weights(old[1], new[1], how)
    grid = np.einsum("yo,xp,opd->yxd", rows, columns, grid, optimize=True)
    return np.concatenate([kept, grid.reshape(new[0] * new[1], -1)])[None].astype(np.float32)


def resize_axis(posemb_1XD: np.ndarray, new: int) -> np.ndarray:
    """Resizes an axis of learned 2-D embeddings: align-corners linear, float32."""
    weights: Any = _weights(posemb_1XD.shape[1], new)
    return np.einsum("xo,bod->bxd", weights, posemb_1XD).astype(np.float32)


# ---------------------------------------------------------------- kinds


def check(kind: str, at: str, width: int, std: float) -> None:
    """Raises BadInput unless a model of this width can have these settings `model.posemb...`."""
    if std != STD and not kind.startswith("learned"):
        raise BadInput(
            f"model.posemb_std={std} with posemb={kind}, which it does not apply to; leave it out."
        )
    if kind in WITHOUT_TABLE and at != "stem":
        where = "adds nothing" if kind == "none" else "lies in the attention of each layer"
        raise BadInput(
            f"model.posemb_at={at} with posemb={kind}, which {where}; leave posemb_at out."
        )
    if kind == "learned2d" and width % 2:
        raise BadInput(f"model.posemb=learned2d halves the width, and {width} is odd.")
    if kind == "sincos2d" and (width % 4 or width < 8):
        raise BadInput(f"model.posemb=sincos2d needs a width of 8, 12, 16, ...; got {width}.")


def without_embeddings(kind: str, rotary: str = "") -> list[str]:
    """Returns why a model has no position embeddings to show, as sentences; [] if it has.

    Args:
      kind: `model.posemb`.
      rotary: words for rotary positions, if the model has them.
    """
    none = "This model has no position embeddings to compare"
    if kind == "none" and rotary:
        return [f"{none}: it rotates queries and keys (posemb=none, {rotary})."]
    if kind == "none":
        return [f"{none} (posemb=none)."]
    if kind in WITHOUT_TABLE:
        return [f"{none}: its positions are offsets inside attention (posemb={kind})."]
    return []
