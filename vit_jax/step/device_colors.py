# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The colour ops of RandAugment as jax functions on one image, uint8 [H, W, 3].

`data/ops/randaugment.py` has their numbers and oddities, `data/numpy_ops/randaugment.py` the same
in numpy. A table of 256 levels is looked up, and a histogram counted, with products of one-hot
nibbles: a gather for each pixel is slow on a TPU. Start from `OPS`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

_GRAY = 0.2989, 0.5870, 0.1140  # `tf.image.rgb_to_grayscale`
Apply = Callable[[jax.Array, float], jax.Array]  # (uint8 [H, W, 3], level) -> the same shape


def _truncated(values: jax.Array) -> jax.Array:
    return jnp.clip(values, 0, 255).astype(jnp.uint8)


def _blend(degenerate: jax.Array, image: jax.Array, level: float) -> jax.Array:
    start = degenerate.astype(jnp.float32)
    factor = jnp.float32(level * 1.8 + 0.1)
    return _truncated(start + factor * (image.astype(jnp.float32) - start))


def _auto_contrast(image: jax.Array, _: float) -> jax.Array:
    low, high = (f(axis=(0, 1)).astype(jnp.float32) for f in (image.min, image.max))
    scale = jnp.where(high > low, 255 / jnp.maximum(high - low, 1), 1)
    offset = jnp.where(high > low, -low * scale, 0)
    return _truncated(image.astype(jnp.float32) * scale[None, None] + offset[None, None])


def _nibbles(values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the high and the low halves of uint8 [C, N] as one-hot bfloat16 [C, 16, N]."""
    steps = jnp.arange(16, dtype=jnp.uint8)[None, :, None]
    one_hot = ((half[:, None] == steps) for half in (values >> 4, values & 15))
    high, low = (x.astype(jnp.bfloat16) for x in one_hot)
    return high, low


def _equalize(image: jax.Array, _: float) -> jax.Array:
    values = jnp.moveaxis(image, -1, 0).reshape(3, -1)
    high, low = _nibbles(values)
    exact = {"preferred_element_type": jnp.float32}
    counts = jnp.einsum("cin,cjn->cij", high, low, **exact).reshape(3, 256).astype(jnp.int32)
    last = jnp.take_along_axis(counts, values.max(axis=1).astype(jnp.int32)[:, None], axis=1)
    step = (values.shape[1] - last) // 255
    below = jnp.cumsum(counts, axis=1) - counts
    levels = jnp.minimum((below + step // 2) // jnp.maximum(step, 1), 255)
    table = jnp.where(step > 0, levels, jnp.arange(256)[None]).reshape(3, 16, 16)
    rows = jnp.einsum("cij,cin->cjn", table.astype(jnp.bfloat16), high, **exact)
    looked_up = jnp.sum(rows * low, axis=1).astype(jnp.uint8)
    return jnp.moveaxis(looked_up.reshape(3, *image.shape[:2]), 0, -1)


def _invert(image: jax.Array, _: float) -> jax.Array:
    return 255 - image


def _posterize(image: jax.Array, level: float) -> jax.Array:
    return image & jnp.uint8(256 - 2 ** min((8 - int(level * 4)) % 256, 7))


def _solarize(image: jax.Array, level: float) -> jax.Array:
    return jnp.where(image >= int(level * 256) % 256, 255 - image, image)


def _solarize_add(image: jax.Array, level: float) -> jax.Array:
    added = jnp.minimum(image.astype(jnp.int32) + int(level * 110), 255).astype(jnp.uint8)
    return jnp.where(image < 128, added, image)


def _gray(image: jax.Array) -> jax.Array:
    """Returns the luma, uint8 [H, W, 1], rounded as TensorFlow does."""
    scaled = image.astype(jnp.float32) * jnp.float32(1 / 255)
    luma = sum(scaled[..., c : c + 1] * jnp.float32(share) for c, share in enumerate(_GRAY))
    return _truncated(luma * jnp.float32(255.5))


def _color(image: jax.Array, level: float) -> jax.Array:
    return _blend(_gray(image), image, level)


def _contrast(image: jax.Array, level: float) -> jax.Array:
    gray = _gray(image).astype(jnp.int32)
    return _blend(jnp.sum(gray) // gray.size, image, level)


def _brightness(image: jax.Array, level: float) -> jax.Array:
    return _blend(jnp.zeros((), jnp.uint8), image, level)


def _sharpness(image: jax.Array, level: float) -> jax.Array:
    values = image.astype(jnp.float32)
    rows = values[:-2] + values[1:-1] + values[2:]
    sums = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * values[1:-1, 1:-1]
    inner = _blend(jnp.floor(sums / 13), image[1:-1, 1:-1], level)
    return image.at[1:-1, 1:-1].set(inner)


# In the order of `COLORS` in `data/ops/randaugment.py`: a random number chooses among them.
OPS: dict[str, Apply] = {
    "auto_contrast": _auto_contrast,
    "equalize": _equalize,
    "invert": _invert,
    "posterize": _posterize,
    "solarize": _solarize,
    "color": _color,
    "contrast": _contrast,
    "brightness": _brightness,
    "sharpness": _sharpness,
    "solarize_add": _solarize_add,
}
