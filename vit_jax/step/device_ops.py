# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random image ops as jax functions inside the step: uint8 [B, H, W, C] to uint8 [B, h, w, C].

An op is the same frozen dataclass as in a chain of the host (`data/ops/chain.py`). Here it draws
from a key of its own for each row, and then changes the image; given the same draws, the result is
that of the host to one grey level. A row's draws depend on the seed, the step and the row alone,
not on the mesh. Start from `parse` and `apply`.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from vit_jax.data.ops import chain
from vit_jax.data.ops.chain import Op
from vit_jax.data.ops.resize import Size, rows_columns
from vit_jax.errors import BadInput
from vit_jax.models import naflex
from vit_jax.step import device_colors

_ASPECTS = 0.75, 1.33  # of a box of inception_crop, width to height
_TRIES = 10  # boxes of inception_crop drawn; the first that fits is used, else the whole image
_NUMBER = 2**31 - 2  # stands for a micro-batch's number in the key of these ops
Sides = tuple[int, int]


class DeviceOp(NamedTuple):
    """What an op does on a device, for one image.

    Attributes:
      draw: (op, key, rows and columns of the image) -> what it draws.
      change: (op, uint8 [H, W, C], what it drew) -> uint8 [h, w, C].
    """

    draw: Callable[[Any, jax.Array, Sides], Any]
    change: Callable[[Any, jax.Array, Any], jax.Array]


# ---------------------------------------------------------------- crops


def _box_shares(op: Any, key: jax.Array, sides: Sides) -> jax.Array:
    return jax.random.uniform(key, (_TRIES, 4))


def box(op: Any, sides: Sides, shares: jax.Array) -> jax.Array:
    """Returns the box of `inception_crop`, int32 [4]: top, left, rows, columns.

    Args:
      op: the crop.
      sides: rows and columns of the image.
      shares: float32 [tries, 4] in [0, 1), of the aspect, the rows, and the place of each try.
    """
    (height, width), (low, high) = sides, map(jnp.float32, _ASPECTS)
    least, most = (jnp.float32(area) * width * height for area in (op.area_min, op.area_max))
    aspect = shares[:, 0] * (high - low) + low
    most_rows = jnp.round(jnp.sqrt(most / aspect))
    narrow = jnp.floor((width + 0.5 - 1e-7) / aspect)
    narrow -= jnp.round(narrow * aspect) > width
    most_rows = jnp.where(jnp.round(most_rows * aspect) > width, narrow, most_rows)
    most_rows = jnp.minimum(most_rows, height)
    rows = jnp.minimum(jnp.round(jnp.sqrt(least / aspect)), most_rows)
    rows += jnp.floor(shares[:, 1] * (most_rows - rows + 1))
    rows += jnp.round(rows * aspect) * rows < least
    rows -= jnp.round(rows * aspect) * rows > most
    columns = jnp.round(rows * aspect)
    fits = (columns > 0) & (columns <= width) & (rows <= height)
    fits &= (least <= rows * columns) & (rows * columns <= most)
    top = jnp.floor(shares[:, 2] * (height - rows))  # as TensorFlow's: never the last place
    left = jnp.floor(shares[:, 3] * (width - columns))
    boxes = jnp.stack([top, left, rows, columns], axis=1).astype(jnp.int32)
    return jnp.where(fits.any(), boxes[jnp.argmax(fits)], jnp.array([0, 0, height, width]))


def _taps(begin: jax.Array, extent: jax.Array, before: int, after: int) -> jax.Array:
    """Returns the weights of a bilinear resize of a part of a line, float32 [after, before]."""
    scale = extent.astype(jnp.float32) / after
    places = (jnp.arange(after, dtype=jnp.float32) + 0.5) * scale - 0.5
    first = jnp.floor(places)
    share = (places - first)[:, None]
    near, far = (
        jnp.clip(first.astype(jnp.int32) + n, 0, extent - 1)[:, None] + begin for n in (0, 1)
    )
    pixels = jnp.arange(before)[None]
    return (1 - share) * (pixels == near) + share * (pixels == far)


def _cubic_taps(begin: jax.Array, extent: jax.Array, before: int, after: int) -> jax.Array:
    """Returns the weights of a bicubic resize with averaging, float32 [after, before]."""
    scale = extent.astype(jnp.float32) / after
    centres = (jnp.arange(after, dtype=jnp.float32) + 0.5) * scale
    pixels = (jnp.arange(before) - begin)[None]
    away = jnp.abs(pixels + 0.5 - centres[:, None]) / jnp.maximum(scale, 1)
    weights = jnp.where(away < 2, naflex.cubic(away), 0)
    weights *= (pixels >= 0) & (pixels < extent)
    return weights / weights.sum(axis=1, keepdims=True)


def _resampled(
    image: jax.Array, begin: Sequence[jax.Array], extent: Sequence[Any], size: Size,
    cubic: bool = False,
) -> jax.Array:  # fmt: skip
    """Returns a box of an image, resized as matrix products.

    It is bilinear without averaging, or bicubic with it.
    """
    taps = _cubic_taps if cubic else _taps
    down, across = (
        taps(begin[i], jnp.asarray(extent[i]), image.shape[i], rows_columns(size)[i])
        for i in (0, 1)
    )
    precise = jax.lax.Precision.HIGH  # with one pass of bfloat16, results are off by 2 levels
    lines = jnp.einsum("rh,hwc->rwc", down, image.astype(jnp.float32), precision=precise)
    pixels = jnp.einsum("sw,rwc->rsc", across, lines, precision=precise)
    return jnp.clip(jnp.round(pixels), 0, 255).astype(jnp.uint8)


def _inception_crop(op: Any, image: jax.Array, shares: jax.Array) -> jax.Array:
    top, left, rows, columns = box(op, (image.shape[0], image.shape[1]), shares)
    return _resampled(image, (top, left), (rows, columns), op.size, op.cubic)


def _crop_shares(op: Any, key: jax.Array, sides: Sides) -> jax.Array:
    room = jnp.array(sides) - jnp.array(rows_columns(op.size)) + 1
    return jax.random.randint(key, (2,), 0, room)


def _random_crop(op: Any, image: jax.Array, begin: jax.Array) -> jax.Array:
    return _resampled(image, (begin[0], begin[1]), rows_columns(op.size), op.size)


# ---------------------------------------------------------------- flips, colours, erasing


def _coin(op: Any, key: jax.Array, sides: Sides) -> jax.Array:
    return jax.random.uniform(key)


def _flip_lr(op: Any, image: jax.Array, share: jax.Array) -> jax.Array:
    return jnp.where(share < 0.5, image[:, ::-1], image)


def _layer_shares(op: Any, key: jax.Array, sides: Sides) -> jax.Array:
    return jax.random.uniform(key, (op.layers,))


def _randaug(op: Any, image: jax.Array, shares: jax.Array) -> jax.Array:
    for layer in range(op.layers):
        chosen = (shares[layer] * len(device_colors.OPS)).astype(jnp.int32)
        image = device_colors.changed(image, chosen, op.magnitude / 10)
    return image


def _erasing_draws(op: Any, key: jax.Array, sides: Sides) -> tuple[jax.Array, jax.Array]:
    from vit_jax.data.ops import erasing

    shares_key, noise_key = jax.random.split(key)
    return jax.random.uniform(shares_key, (2 * erasing.TRIES + 3,)), noise_key


def _random_erasing(op: Any, image: jax.Array, drawn: tuple[jax.Array, jax.Array]) -> jax.Array:
    from vit_jax.data.ops import erasing

    (shares, noise_key), tries = drawn, erasing.TRIES
    sides = jnp.array(image.shape[:2])
    area = jnp.float32(math.prod(image.shape[:2])) * (
        jnp.float32(op.area_min) + jnp.float32(op.area_max - op.area_min) * shares[:tries]
    )
    aspect = jnp.exp((2 * shares[tries:-3] - 1) * jnp.float32(math.log(erasing.LEAST_ASPECT)))
    boxes = jnp.stack([jnp.sqrt(area * aspect), jnp.sqrt(area / aspect)], axis=1)
    boxes = jnp.round(boxes).astype(jnp.int32)
    fits = jnp.all(boxes <= sides[None], axis=1)
    extent = boxes[jnp.argmax(fits)]
    begin = (shares[-2:] * (sides - extent + 1)).astype(jnp.int32)
    rows, columns = (
        (jnp.arange(n) >= begin[i]) & (jnp.arange(n) < begin[i] + extent[i])
        for i, n in enumerate(image.shape[:2])
    )
    inside = (rows[:, None] & columns[None])[..., None]
    erased = (shares[-3] < op.probability) & fits.any() & inside
    if op.fill >= 0:
        return jnp.where(erased, jnp.uint8(op.fill), image)
    return jnp.where(erased, jax.random.bits(noise_key, image.shape, jnp.uint8), image)


# Class of an op -> what it does here.
OPS: dict[str, DeviceOp] = {
    "InceptionCrop": DeviceOp(_box_shares, _inception_crop),
    "RandomCrop": DeviceOp(_crop_shares, _random_crop),
    "FlipLr": DeviceOp(_coin, _flip_lr),
    "RandAugment": DeviceOp(_layer_shares, _randaug),
    "RandomErasing": DeviceOp(_erasing_draws, _random_erasing),
}
_KEY = "data.device_ops"
_NAMES = "inception_crop, random_crop, flip_lr, randaug(..., colors=True), random_erasing"


# ---------------------------------------------------------------- chains


def parse(text: str, before: Sides, size: Sides, channels: int) -> tuple[Op, ...]:
    """Returns the ops of `data.device_ops`.

    Args:
      text: a chain, in the words of `data.train_ops`.
      before: rows and columns of the images that the host makes.
      size: rows and columns of the images that the model takes.
      channels: channels of an image.

    Raises:
      BadInput: the chain is wrong, an op has no form on a device, an image is smaller than a crop,
        or the last image is not of the model's size.
    """
    ops, made = chain.parse(_KEY, text, size, channels), before
    for op in ops:
        if type(op).__name__ not in OPS:
            raise BadInput(f"{_KEY}: {chain.names((op,))} has no form on a device; give {_NAMES}.")
        if type(op).__name__ == "RandAugment" and not op.colors:  # type: ignore[attr-defined]
            raise BadInput(
                f"{_KEY}: randaug also moves pixels, which is slow on a device; write "
                "randaug(..., colors=True), or leave it in data.train_ops."
            )
        after = rows_columns(getattr(op, "size", made))
        if type(op).__name__ == "RandomCrop" and (after[0] > made[0] or after[1] > made[1]):
            raise BadInput(
                f"{_KEY}: random_crop({after}) of images of {made}; make larger images in "
                "data.train_ops."
            )
        made = after
    if made != size:
        raise BadInput(
            f"{_KEY} makes images of {made}, and the model takes {size}; end with a crop."
        )
    return ops


def apply(ops: tuple[Op, ...], images_BHWC: jax.Array, key: jax.Array) -> jax.Array:
    """Applies the ops to every image of a global batch.

    Args:
      ops: from `parse`.
      images_BHWC: uint8.
      key: typed key of the step.

    Returns:
      uint8 [B, h, w, C].
    """
    key = jax.random.fold_in(key, _NUMBER)
    rows = jnp.arange(images_BHWC.shape[0])
    keys_B = jax.vmap(lambda row: jax.random.fold_in(key, row))(rows)

    def one(image: jax.Array, own: jax.Array) -> jax.Array:
        for number, op in enumerate(ops):
            draw, change = OPS[type(op).__name__]
            sides = (image.shape[0], image.shape[1])
            image = change(op, image, draw(op, jax.random.fold_in(own, number), sides))
        return image

    with jax.named_scope("device_ops"):
        return jax.vmap(one)(images_BHWC, keys_B)
