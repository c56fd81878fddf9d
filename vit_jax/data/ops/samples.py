# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads image files of other channels than gray and RGB, and all 16 bits of PNG and TIFF files.

A range of 16-bit values becomes 0 to 255. `decode.Decode` calls `read` where its own decoders would
lose channels or bits. tifffile reads TIFF, and decodes strips only after the checks here: each has
to lie in the file and to expand to no more than its share of the image. Start from `read`.
"""

import contextlib
import functools
import io
import logging
import math
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from vit_jax.data.ops import decode
from vit_jax.data.ops.decode import BadImage
from vit_jax.data.tensorflow import tf

_PNG = b"\x89PNG\r\n\x1a\n"
_TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_MOST_VALUES = 3 * decode.MOST_PIXELS  # of all channels together
_NO_COMPRESSION, _LZMA, _PACK_BITS, _DEFLATE = 1, 34925, 32773, (8, 32946)
_MIN_IS_WHITE, _MIN_IS_BLACK, _RGB, _SEPARATED = 0, 1, 2, 5


def is_tiff(content: bytes) -> bool:
    """Returns True for the bytes of a TIFF file."""
    return content.startswith(_TIFF)


def is_deep(content: bytes) -> bool:
    """Returns True for a PNG or TIFF file of more than 8 bits a value."""
    if not is_tiff(content):
        return content.startswith(_PNG) and content[24:25] == b"\x10"
    try:
        with _first_page(content) as page:
            return page.bitspersample > 8
    except BadImage:
        return False


def read(content: bytes, op: "decode.Decode") -> np.ndarray:
    """Returns uint8 [H, W, op.channels] of a file with that many channels.

    For one or three channels, alpha is dropped, and gray and RGB become each other. Values of more
    than 8 bits from `op.low` to `op.high` become 0 to 255.

    Raises:
      BadImage: the file cannot be decoded, or has another number of channels.
    """
    try:
        if is_tiff(content):
            values, bits = _tiff(content)
        elif content.startswith(_PNG):
            values, bits = _png(content)
        else:
            values, bits = _with_pillow(content), 8
        if op.exif and not is_tiff(content):
            turn = decode.turn_of(content)
            values = turn(values) if turn else values
    except BadImage:
        raise
    except Exception as e:  # damaged files make each format raise its own errors
        raise BadImage(" ".join(str(e).split())[:200] or type(e).__name__) from e
    if bits > 8:
        values = _to_8_bits(values, op.low, op.high or 2**bits - 1)
    return np.ascontiguousarray(_in_channels(values, op.channels))


def _to_8_bits(values: np.ndarray, low: int, high: int) -> np.ndarray:
    """Maps low..high to 0..255 linearly, to the nearest; values outside become 0 or 255."""
    levels = np.arange(2**16, dtype=np.float64)
    table = np.clip(np.round((levels - low) * 255.0 / (high - low)), 0, 255).astype(np.uint8)
    return table[values]


def _in_channels(values: np.ndarray, channels: int) -> np.ndarray:
    own = values.shape[-1]
    if own == channels:
        return values
    if channels in (1, 3) and own <= 4:
        colours = values[..., : 1 if own <= 2 else 3]  # without alpha
        if colours.shape[-1] == channels:
            return colours
        return decode.gray(colours) if channels == 1 else np.repeat(colours, 3, axis=-1)
    raise BadImage(f"it has {own} channels, and data.channels={channels}")


def _check_size(height: int, width: int, channels: int = 1) -> None:
    if not (0 < height and 0 < width and height * width <= decode.MOST_PIXELS):
        raise BadImage(f"{width} x {height} pixels; at most {decode.MOST_PIXELS} are decoded")
    if height * width * channels > _MOST_VALUES:
        raise BadImage(f"{width} x {height} x {channels} values; at most {_MOST_VALUES} are read")


def _png(content: bytes) -> tuple[np.ndarray, int]:
    width, height = (int.from_bytes(content[at : at + 4], "big") for at in (16, 20))
    _check_size(height, width)
    bits = 16 if is_deep(content) else 8
    dtype = tf.uint16 if bits == 16 else tf.uint8
    try:
        return tf.io.decode_png(content, channels=0, dtype=dtype).numpy(), bits
    except tf.errors.OpError:
        raise BadImage("the PNG file is damaged or truncated") from None


def _with_pillow(content: bytes) -> np.ndarray:
    with decode.opened(content) as picture:
        if picture.mode not in ("L", "LA", "RGB", "RGBA", "CMYK"):
            picture = picture.convert("RGBA" if picture.has_transparency_data else "RGB")
        values = np.asarray(picture)
        return values if values.ndim == 3 else values[..., None]


# ---------------------------------------------------------------- TIFF


@functools.cache
def _tifffile() -> Any:
    import tifffile

    logging.getLogger("tifffile").disabled = True  # it logs what this module raises
    return tifffile


@contextlib.contextmanager
def _first_page(content: bytes) -> Iterator[Any]:
    """Yields the first page of a TIFF file; raises BadImage for errors inside, too."""
    try:
        with _tifffile().TiffFile(io.BytesIO(content)) as file:
            yield file.pages.first
    except (BadImage, ImportError):
        raise
    except Exception as e:  # damaged files make tifffile raise errors of many kinds
        raise BadImage(f"the TIFF file is damaged: {' '.join(str(e).split())[:150]}") from e


def _tiff(content: bytes) -> tuple[np.ndarray, int]:
    """Returns the values [H, W, C] of the first page, upright, and their bits."""
    with _first_page(content) as page:
        _check_page(page, content)
        values = page.asarray(squeeze=False, maxworkers=1)  # [S, 1, H, W, C], S or C is 1
        values = np.moveaxis(values[:, 0], 0, 2).reshape(*values.shape[2:4], -1)
        if page.photometric == _MIN_IS_WHITE:
            values = np.asarray(2**page.bitspersample - 1 - values, values.dtype)
        tag = page.tags.get(decode.ORIENTATION)
        turn = decode.TURNS.get(tag.value if tag is not None else 1)
        return turn(values) if turn else values, page.bitspersample


def _check_page(page: Any, content: bytes) -> None:
    """Raises BadImage for a page that is not read; looks at no pixel that it need not expand."""
    _check_size(page.imagelength, page.imagewidth, page.samplesperpixel)
    kind = str(page.dtype)
    if kind not in ("uint8", "uint16") or page.imagedepth != 1:
        raise BadImage(f"its values are {kind}, and uint8 and uint16 are read")
    if page.photometric not in (_MIN_IS_WHITE, _MIN_IS_BLACK, _RGB, _SEPARATED):
        raise BadImage(f"its colours ({page.photometric!s}) are not read here")
    readable = (_NO_COMPRESSION, _LZMA, _PACK_BITS, *_DEFLATE)
    if page.compression not in readable:
        raise BadImage(
            f"its compression ({page.compression!s}) is not read here; write it anew without "
            "compression, or with deflate, LZMA or PackBits"
        )
    largest = math.prod(page.chunks) * page.dtype.itemsize
    if largest > 2 * _MOST_VALUES:
        raise BadImage(f"a strip or tile of {largest} bytes is too large")
    offsets, sizes = page.dataoffsets, page.databytecounts
    # tifffile joins plain strips that follow each other, and fills missing ones with zeros.
    joined = page.compression == _NO_COMPRESSION and len(offsets) == 1
    if len(offsets) != len(sizes) or not (joined or len(offsets) == math.prod(page.chunked)):
        raise BadImage("strips or tiles are missing")
    whole = math.prod(page.shaped) * page.bitspersample // 8
    if page.compression == _NO_COMPRESSION and sum(sizes) < whole:
        raise BadImage("the file is truncated")
    for offset, size in zip(offsets, sizes, strict=True):
        if size <= 0 or offset <= 0 or offset + size > len(content):
            raise BadImage("the file is truncated")
        if page.compression != _NO_COMPRESSION:
            _check_expansion(content[offset : offset + size], page.compression, largest)


def _check_expansion(data: bytes, compression: int, largest: int) -> None:
    """Raises BadImage for a strip or tile that would expand to more than its share of the image."""
    if compression == _PACK_BITS:
        expanded, at = 0, 0
        while at < len(data):
            repeated = data[at] > 128
            expanded += 257 - data[at] if repeated else (data[at] + 1) % 129
            at += 2 if repeated else 1 + (data[at] + 1) % 129
    elif compression == _LZMA:
        import lzma

        expanded = len(lzma.LZMADecompressor().decompress(data, largest + 1))
    else:
        expanded = len(zlib.decompressobj().decompress(data, largest + 1))
    if expanded > largest:
        raise BadImage(f"a strip or tile expands to more than its {largest} bytes")
