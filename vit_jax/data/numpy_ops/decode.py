# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decodes image files without TensorFlow: JPEG by libjpeg-turbo (simplejpeg), others by Pillow.

libjpeg-turbo is what TensorFlow decodes with, and its fast transform gives TensorFlow's pixels bit
for bit. A JPEG that simplejpeg refuses goes through Pillow, as one that TensorFlow refuses does.
"""

import functools
from types import ModuleType

import numpy as np

from vit_jax.data.numpy_ops import augment
from vit_jax.data.numpy_ops.draws import Seed
from vit_jax.data.ops import decode as ops
from vit_jax.data.ops import pixmap
from vit_jax.data.ops.augment import InceptionCrop
from vit_jax.data.ops.crops import FastInceptionCrop
from vit_jax.data.ops.resize import rows_columns
from vit_jax.errors import BadInput

_CHANNELS = ("Gray", "YCbCr", "RGB")  # colours of a JPEG that libjpeg-turbo turns into RGB


@functools.cache
def _simplejpeg() -> ModuleType:
    try:
        import simplejpeg
    except ImportError as e:
        raise BadInput(
            "data.reader=python decodes JPEG files with simplejpeg, which is not installed; "
            "pip install simplejpeg."
        ) from e
    return simplejpeg


def _jpeg_sides(content: bytes, exif: bool) -> tuple[int, int] | None:
    """Returns the sides of a JPEG that libjpeg-turbo decodes as needed, else None.

    Raises:
      BadInput: simplejpeg is not installed.
    """
    if not content.startswith(ops.JPEG) or (exif and ops.is_turned(content[: ops.HEAD])):
        return None
    jpeg = _simplejpeg()  # outside of `try`: BadInput is a ValueError too
    try:
        height, width, colours, _ = jpeg.decode_jpeg_header(content)
    except ValueError:
        return None
    known = colours in _CHANNELS and height * width <= ops.MOST_PIXELS
    return (height, width) if known else None


def pixels(op: ops.Decode, content: bytes) -> np.ndarray:
    """Returns uint8 [H, W, C] of a file; see `ops.decode.Decode`.

    Raises:
      BadImage: no decoder can make an image of it.
      BadInput: it is a JPEG, and simplejpeg is not installed.
    """
    if op.in_colour and _jpeg_sides(content, op.exif):
        try:
            return op.of_rgb(_simplejpeg().decode_jpeg(content, "RGB", fastdct=True))
        except ValueError:  # Pillow gives the reason, if it cannot decode the file either
            pass
    plain = pixmap.array(content) if op.in_colour else None
    if plain is not None and plain.size <= 3 * ops.MOST_PIXELS:
        return op.of_rgb(plain)
    return op.in_python(content)


def decode(op: ops.Decode, image: bytes | np.ndarray, _: Seed = (0, 0)) -> np.ndarray:
    """Applies `decode` to the bytes of a file or to uint8 [H, W, C]; returns uint8 [H, W, C]."""
    if isinstance(image, bytes):
        return pixels(op, image)
    own = image.shape[-1]
    if own == 1 and op.channels == 3:
        return np.repeat(image, 3, axis=-1)
    if own == 3 and op.channels == 1:
        return ops.gray(image)
    op.check_channels(own)
    return image


def decode_box(
    op: ops.Decode, crop: InceptionCrop, content: bytes, seed: Seed
) -> tuple[np.ndarray, tuple[int, int]]:
    """Returns the pixels of the box of a crop, uint8 [h, w, C], and the sides of the whole image.

    It decodes the whole image, at a reduced size for `fast_inception_crop`.
    """
    fast = isinstance(crop, FastInceptionCrop) and op.in_colour and content.endswith(ops.END)
    sides = _jpeg_sides(content, op.exif) if fast else None
    if sides is None:
        image = pixels(op, content)
        sides = image.shape[0], image.shape[1]
        return image[augment.crop_box(crop, *sides, seed)], sides
    rows, columns = augment.crop_box(crop, *sides, seed)
    extent = rows.stop - rows.start, columns.stop - columns.start
    fits = min(a // b for a, b in zip(extent, rows_columns(crop.size), strict=True))
    ratio = max(r for r in FastInceptionCrop.REDUCTIONS if r <= max(fits, 1))
    height, width = (-(-side // ratio) for side in sides)  # simplejpeg takes the least that covers
    least = {"min_height": height, "min_width": width}
    try:
        image = _simplejpeg().decode_jpeg(content, "RGB", fastdct=True, **least)
    except ValueError:
        return pixels(op, content)[rows, columns], sides
    half = ratio // 2
    rows, columns = (
        slice((side.start + half) // ratio, (side.stop + half) // ratio) for side in (rows, columns)
    )
    return op.of_rgb(image[rows, columns]), sides
