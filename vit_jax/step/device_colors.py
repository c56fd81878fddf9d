# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The colour ops of RandAugment as one jax function on an image, uint8 [H, W, 3].

`data/ops/randaugment.py` has their numbers and oddities, `data/numpy_ops/randaugment.py` the same
in numpy. Eight of the ten ops map the levels of a channel: the op that was drawn becomes a table,
and only one table is looked up. The two others blend an image, and only one blend is computed. A
table is looked up, and a histogram counted, with products of one-hot nibbles: a gather for each
pixel is slow on a TPU. Axes: C channels, H W image, I J nibbles. Start from `changed`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_GRAY = 0.2989, 0.5870, 0.1140  # `tf.image.rgb_to_grayscale`
_LEVELS = np.arange(256, dtype=np.uint8)


class Statistics(NamedTuple):
    """What the tables depend on.

    Attributes:
      counts: pixels of each level, int32 [3, 256].
      mean: of the luma, rounded down, int32 [].
    """

    counts: jax.Array
    mean: jax.Array


# (statistics, level) -> uint8 [3, 256], or [256] for all channels.
Table = Callable[[Statistics, float], jax.Array | np.ndarray]


def _truncated(values: jax.Array) -> jax.Array:
    return jnp.clip(values, 0, 255).astype(jnp.uint8)


def _blend(degenerate: jax.Array, image: jax.Array | np.ndarray, level: float) -> jax.Array:
    start = degenerate.astype(jnp.float32)
    factor = jnp.float32(level * 1.8 + 0.1)
    return _truncated(start + factor * (image.astype(jnp.float32) - start))


# ---------------------------------------------------------------- tables


def _auto_contrast(seen: Statistics, _: float) -> jax.Array:
    there, levels = seen.counts > 0, jnp.arange(256, dtype=jnp.float32)[None]
    low = jnp.where(there, levels, 255).min(axis=1, keepdims=True)
    high = jnp.where(there, levels, 0).max(axis=1, keepdims=True)
    scale = jnp.where(high > low, 255 / jnp.maximum(high - low, 1), 1)
    offset = jnp.where(high > low, -low * scale, 0)
    return _truncated(levels * scale + offset)


def _equalize(seen: Statistics, _: float) -> jax.Array:
    counts, levels = seen.counts, jnp.arange(256)[None]
    up_to = jnp.cumsum(counts, axis=1)
    pixels = up_to[:, -1:]
    last = jnp.where(up_to == pixels, counts, 0).max(axis=1, keepdims=True)  # of the highest level
    step = (pixels - last) // 255
    mapped = jnp.minimum((up_to - counts + step // 2) // jnp.maximum(step, 1), 255)
    return jnp.where(step > 0, mapped, levels).astype(jnp.uint8)


def _invert(_: Statistics, __: float) -> np.ndarray:
    return 255 - _LEVELS


def _posterize(_: Statistics, level: float) -> jax.Array:
    return _LEVELS & jnp.uint8(256 - 2 ** min((8 - int(level * 4)) % 256, 7))


def _solarize(_: Statistics, level: float) -> jax.Array:
    return jnp.where(_LEVELS >= int(level * 256) % 256, 255 - _LEVELS, _LEVELS)


def _contrast(seen: Statistics, level: float) -> jax.Array:
    return _blend(seen.mean, _LEVELS, level)


def _brightness(_: Statistics, level: float) -> jax.Array:
    return _blend(jnp.zeros((), jnp.uint8), _LEVELS, level)


def _solarize_add(_: Statistics, level: float) -> jax.Array:
    added = jnp.minimum(_LEVELS.astype(jnp.int32) + int(level * 110), 255).astype(jnp.uint8)
    return jnp.where(_LEVELS < 128, added, _LEVELS)


# In the order of `COLORS` in `data/ops/randaugment.py`: a random number chooses among them. None:
# the op depends on other pixels, and is a blend.
OPS: dict[str, Table | None] = {
    "auto_contrast": _auto_contrast,
    "equalize": _equalize,
    "invert": _invert,
    "posterize": _posterize,
    "solarize": _solarize,
    "color": None,
    "contrast": _contrast,
    "brightness": _brightness,
    "sharpness": None,
    "solarize_add": _solarize_add,
}
_NAMES = tuple(OPS)


# ---------------------------------------------------------------- pixels


def _nibbles(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the high and the low halves of uint8 [C, N] as one-hot bfloat16 [C, 16, N]."""
    steps = jnp.arange(16, dtype=jnp.uint8)[None, :, None]
    one_hot = ((half[:, None] == steps) for half in (values >> 4, values & 15))
    high, low = (x.astype(jnp.bfloat16) for x in one_hot)
    return high, low


def _luma(image: jax.Array) -> jax.Array:
    """Returns the luma, uint8 [H, W], rounded as TensorFlow does."""
    scaled = image.astype(jnp.float32) * jnp.float32(1 / 255)
    luma = sum(scaled[c] * jnp.float32(share) for c, share in enumerate(_GRAY))
    return _truncated(luma * jnp.float32(255.5))


def _blurred(image: jax.Array) -> jax.Array:
    """Returns the mean of 3 x 3 pixels with 5 times the weight inside, and the image at its edge.

    The products are exact: the first has factors below 256, the second is in three passes.
    """
    (height, width), values = image.shape[1:], image.astype(jnp.float32)
    rows, columns = (
        (jnp.abs(jnp.arange(n)[:, None] - jnp.arange(n)[None]) <= 1).astype(jnp.float32)
        for n in (height, width)
    )
    lines = jnp.einsum("rh,chw->crw", rows, values)
    sums = jnp.einsum("sw,crw->crs", columns, lines, precision=jax.lax.Precision.HIGH)
    row, column = jnp.arange(height)[:, None], jnp.arange(width)[None]
    inside = (row > 0) & (row < height - 1) & (column > 0) & (column < width - 1)
    return jnp.where(inside[None], jnp.floor((sums + 4 * values) / 13), values)


def changed(image_HWC: jax.Array, chosen: jax.Array, level: float) -> jax.Array:
    """Returns an image after one of the ops.

    Args:
      image_HWC: uint8, 3 channels.
      chosen: number of the op in `OPS`, int32 [].
      level: magnitude / 10.

    Returns:
      uint8 of the same shape.
    """
    image, exact = jnp.moveaxis(image_HWC, -1, 0), {"preferred_element_type": jnp.float32}
    (high, low), luma = _nibbles(image.reshape(3, -1)), _luma(image)
    counts = jnp.einsum("cin,cjn->cij", high, low, **exact).reshape(3, 256).astype(jnp.int32)
    seen = Statistics(counts, jnp.sum(luma.astype(jnp.int32)) // luma.size)
    tables = [_LEVELS if table is None else table(seen, level) for table in OPS.values()]
    table = jax.lax.select_n(chosen, *(jnp.broadcast_to(one, (3, 256)) for one in tables))
    table = table.reshape(3, 16, 16).astype(jnp.bfloat16)
    rows = jnp.einsum("cij,cin->cjn", table, high, **exact)
    mapped = jnp.sum(rows * low, axis=1).astype(jnp.uint8).reshape(image.shape)
    is_color, is_sharpness = (chosen == _NAMES.index(name) for name in ("color", "sharpness"))
    blended = _blend(jnp.where(is_color, luma[None], _blurred(image)), image, level)
    return jnp.moveaxis(jnp.where(is_color | is_sharpness, blended, mapped), 0, -1)
