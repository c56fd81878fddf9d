# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Image files to RGB pixels, by content, never by name: TensorFlow where it is right, else Pillow.

Right is Pillow's first frame as RGB, alpha dropped, 16 bits scaled to 8. `Decode` is the op;
`careful` decides what an image is, and says why something is none.
"""

import contextlib
import dataclasses
import functools
import io
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vit_jax.data.tensorflow import Tensor, tf

MOST_PIXELS = 178_956_970  # above it Pillow takes a file for an attack
EXTENSIONS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".bmp", ".gif", ".webp", ".tif",
    ".tiff", ".avif", ".jp2", ".ppm",
)  # fmt: skip
FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")

_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
_END = b"\xff\xd9"  # of a JPEG
_ORIENTATION = 0x0112
_HEAD = 65536  # bytes of a JPEG in which its orientation is looked for


class BadImage(ValueError):
    """No image can be made of a file; the message is the reason, a few words."""


# Orientations as EXIF counts them, to the turn that makes an image [H, W, 3] upright.
TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.swapaxes(0, 1),
    6: lambda image: image.swapaxes(0, 1)[:, ::-1],
    7: lambda image: image[::-1, ::-1].swapaxes(0, 1),
    8: lambda image: image.swapaxes(0, 1)[::-1],
}


def careful(content: bytes, exif: bool = False) -> np.ndarray:
    """Decodes with Pillow; safe in several threads.

    Args:
      content: of a file in one of `FORMATS`.
      exif: turn the image upright. TIFF, whose orientation is no EXIF, always is, as Pillow does.

    Returns:
      uint8 [H, W, 3]: the first frame; palettes expanded, alpha dropped and not blended. 16-bit
      gray is scaled by 1/257, where Pillow's own `convert` clips. Numbers of 32 bits have no
      fixed white: it is the first of 1 (floats only), 255, 65535, 2^32 - 1 that none exceeds.

    Raises:
      BadImage: empty, no image, truncated, damaged, or above `MOST_PIXELS` (known before any
        pixel is stored).
    """
    from PIL import Image, UnidentifiedImageError

    if not content:
        raise BadImage("the file is empty")
    try:
        with _quiet(), Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise BadImage(f"{width} x {height} pixels; at most {MOST_PIXELS} are decoded")
            picture.load()
            image = _rgb(picture)
            turn = TURNS.get(_orientation(picture)) if exif else None
    except UnidentifiedImageError:
        raise BadImage(f"{_unread(content)}; it starts with {content[:12]!r}") from None
    except BadImage:
        raise
    except Exception as e:  # for a damaged file, each format raises what it likes
        raise BadImage(" ".join(str(e).split()) or type(e).__name__) from e
    return np.ascontiguousarray(turn(image) if turn else image)


def _unread(content: bytes) -> str:
    """What a file is that is in none of `FORMATS`; only its first bytes are looked at."""
    from PIL import Image

    Image.init()
    for name, (_, accept) in Image.OPEN.items():
        with contextlib.suppress(Exception):  # for a short file, each format raises what it likes
            if name not in FORMATS and accept and accept(content[:16]) is True:
                return f"{name}, a format that is not read here"
    return "no image that Pillow knows"


def _rgb(picture: Any) -> np.ndarray:
    if picture.mode.startswith("I") or picture.mode == "F":
        values = np.asarray(picture)
        whites = [65535.0] if ";16" in picture.mode else [255.0, 65535.0, 2.0**32 - 1]
        if picture.mode == "I" and picture.format in ("PNG", "PPM"):  # 16 bits, in other words
            whites = [65535.0]
        whites = [1.0, *whites] if picture.mode == "F" else whites
        top = float(values.max())
        white = next((w for w in whites if top <= w), None)
        if white is None or not np.isfinite(values.sum(dtype=np.float64)):
            raise BadImage(f"its values go to {top:g}, and nothing says what is white")
        image = np.empty([*values.shape, 3], np.uint8)
        for row, line in zip(values, image, strict=True):  # the whole would be gigabytes of floats
            line[:] = _to_8_bits(row, white)[:, None]
        return image
    return np.asarray(picture.convert("RGB"))


def _to_8_bits(values: np.ndarray, white: float) -> np.ndarray:
    scaled = np.round(values.astype(np.float64) * (255.0 / white))
    return np.clip(scaled, 0, 255).astype(np.uint8)


def _orientation(picture: Any) -> int:
    """Of an open Pillow image; 1 where there is none, or none that can be read."""
    try:
        if picture.format == "TIFF":
            return 1  # it has been turned
        return int(picture.getexif().get(_ORIENTATION, 1))
    except Exception:  # damaged metadata harm no pixel
        return 1


def is_turned(head: bytes) -> bool:
    """Whether a JPEG or PNG that begins with `head` may have an orientation other than upright."""
    from PIL import Image

    if b"tiff:Orientation" in head:
        return True  # in XMP, where Pillow looks too
    at = head.find(b"Exif\0\0")
    if at < 0:
        return head.startswith(_PNG) and any(k in head for k in (b"eXIf", b"exif", b"XML:com"))
    found = Image.Exif()
    try:
        with _quiet():
            found.load(head[at:])
            return found.get(_ORIENTATION, 1) != 1
    except Exception:
        return True


_IGNORED = ("ignore", None, Warning, re.compile(r"PIL\b"), 0)  # as the module warnings keeps it
_lock = threading.Lock()
_inside = 0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings of Pillow meanwhile; unlike warnings.catch_warnings, for several threads."""
    global _inside
    with _lock:
        if not _inside:
            warnings.filters.insert(0, _IGNORED)  # pyright: ignore[reportAttributeAccessIssue]
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside and _IGNORED in warnings.filters:
                warnings.filters.remove(_IGNORED)  # pyright: ignore[reportAttributeAccessIssue]


def jpeg_shape(content: Tensor) -> Tensor:
    """int32 [3] (height, width, channels) of a JPEG; zeros of what does not begin as one."""
    begins = tf.equal(tf.strings.substr(content, 0, len(_JPEG)), _JPEG)
    shape = tf.cond(
        begins, lambda: tf.io.extract_jpeg_shape(content), lambda: tf.zeros([3], "int32")
    )
    return tf.ensure_shape(shape, [3])


def is_jpeg(content: Tensor, shape: Tensor, exif: bool) -> Tensor:
    """Whether TensorFlow decodes a file as it should be, as a JPEG.

    Not so CMYK: TensorFlow reads it otherwise where Adobe's marker is missing.

    Args:
      content: string [].
      shape: from `jpeg_shape`.
      exif: it must be upright.
    """
    height, width, channels = tf.unstack(shape)
    jpeg = (tf.equal(channels, 3) | tf.equal(channels, 1)) & _within(height, width)
    return jpeg & _upright(tf.strings.substr(content, 0, _HEAD)) if exif else jpeg


def is_whole(content: Tensor) -> Tensor:
    """Whether a JPEG ends as one does; where not, only decoding all of it shows what is missing."""
    end = tf.maximum(tf.strings.length(content) - len(_END), 0)
    return tf.equal(tf.strings.substr(content, end, len(_END)), _END)


def _is_png(content: Tensor, exif: bool) -> Tensor:
    """Whether TensorFlow decodes a file as it should be, as a PNG: gray or RGB of 8 bits."""
    head = tf.strings.substr(content, 0, 26) + b"\0" * 26  # substr refuses to start past the end
    png = tf.equal(tf.strings.substr(head, 0, len(_PNG)), _PNG)
    kind = tf.strings.substr(head, 24, 2)  # of IHDR: bits, colour type
    png &= tf.equal(kind, b"\x08\x00") | tf.equal(kind, b"\x08\x02")
    sides = tf.io.decode_raw(tf.strings.substr(head, 16, 8), tf.int32, little_endian=False)
    png &= (tf.reduce_min(sides) > 0) & _within(sides[0], sides[1])
    return png & _upright(content) if exif else png


def _upright(content: Tensor) -> Tensor:
    return ~in_python(is_turned, content, tf.bool, [])


def _within(height: Tensor, width: Tensor) -> Tensor:
    return tf.cast(height, tf.int64) * tf.cast(width, tf.int64) <= MOST_PIXELS


def decodable(height: Tensor, width: Tensor) -> list[Tensor]:
    """The sides (int32 []) of an image; fails where it would have more than `MOST_PIXELS`.

    A line of pixels is a small file, and enlarged to a shorter side of 224 it is 50,000 times that.
    """
    many = f"it would be resized to more than {MOST_PIXELS} pixels"
    checked = tf.debugging.assert_equal(_within(height, width), True, many)
    with tf.control_dependencies([] if checked is None else [checked]):  # None: it ran at once
        return [tf.identity(height), tf.identity(width)]


def in_python(
    function: Callable[[bytes], Any], content: Tensor, dtype: Any, shape: list[Any]
) -> Tensor:
    """function(content) in a graph; content is string []."""

    def call(array: Any) -> Any:
        return function(np.asarray(array, object).item())

    result = tf.numpy_function(call, [content], dtype, stateful=False)
    result.set_shape(shape)
    return result


def _no_jpeg(content: Tensor, exif: bool) -> Tensor:
    return tf.cond(
        _is_png(content, exif),
        lambda: tf.io.decode_png(content, channels=3),
        lambda: in_python(lambda c: careful(c, exif), content, tf.uint8, [None, None, 3]),
    )


def pixels(content: Tensor, exif: bool) -> Tensor:
    """Bytes of a file (string []) to uint8 [H, W, 3]; see `Decode`."""
    return tf.cond(
        is_jpeg(content, jpeg_shape(content), exif),
        lambda: tf.io.decode_jpeg(content, channels=3),
        lambda: _no_jpeg(content, exif),
    )


@functools.cache
def _traced_pixels(exif: bool) -> Callable[[Tensor], Tensor]:
    """`pixels`, traced: op by op it takes milliseconds before a pixel is decoded."""
    return tf.function(lambda content: pixels(content, exif), autograph=False)


def image(content: bytes, exif: bool) -> np.ndarray:
    """uint8 [H, W, 3] of a file as training sees it: TensorFlow's where it succeeds, else Pillow's.

    Raises:
      BadImage: neither can decode it.
    """
    try:
        return _traced_pixels(exif)(tf.constant(content)).numpy()
    except tf.errors.OpError:
        return careful(content, exif)


@dataclasses.dataclass(frozen=True)
class Decode:
    """Bytes of an image file to its pixels, uint8 [H, W, 3]; pixels stay as they are.

    JPEG and plain PNG go through TensorFlow, which is within 2 gray levels of Pillow on average
    (its inverse DCT is faster and less exact); the rest through `careful`.
    `exif` turns the image upright; of a JPEG, the first 64 KiB are searched for its orientation.
    """

    exif: bool = False

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        if image.dtype == tf.string:
            return pixels(image, self.exif)
        if image.shape[-1] == 1:
            image = tf.repeat(image, 3, axis=-1)
        return image
