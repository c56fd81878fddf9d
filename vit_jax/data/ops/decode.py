# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decodes image files to pixels with TensorFlow where its result is right, else with Pillow.

It looks at the content of a file, never at its name. The right result is Pillow's first frame as
RGB, alpha dropped, 16 bits scaled to 8. `Decode` is the op; `samples` reads files with other
channels. `with_pillow` decides whether a file is an image, and states the reason if it is not.
"""

import contextlib
import dataclasses
import functools
import io
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vit_jax.data.tensorflow import Tensor, tf
from vit_jax.errors import BadInput

MOST_PIXELS = 178_956_970  # the size above which Pillow suspects an attack
EXTENSIONS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".bmp", ".gif", ".webp", ".tif",
    ".tiff", ".avif", ".jp2", ".ppm",
)  # fmt: skip
FORMATS = ("AVIF", "BMP", "DIB", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")

JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
END = b"\xff\xd9"  # the last bytes of a JPEG
ORIENTATION = 0x0112
_SAMPLES = 277  # tag of the channels of a TIFF file
HEAD = 65536  # leading bytes of a JPEG that are searched for its orientation


class BadImage(ValueError):
    """A file that cannot be decoded; the message is the reason, in a few words."""


class UnknownImage(BadImage):
    """A file that Pillow cannot identify."""


# EXIF orientation -> the turn that makes an image [H, W, 3] upright.
TURNS: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    2: lambda image: image[:, ::-1],
    3: lambda image: image[::-1, ::-1],
    4: lambda image: image[::-1],
    5: lambda image: image.swapaxes(0, 1),
    6: lambda image: image.swapaxes(0, 1)[:, ::-1],
    7: lambda image: image[::-1, ::-1].swapaxes(0, 1),
    8: lambda image: image.swapaxes(0, 1)[::-1],
}


def with_pillow(content: bytes, exif: bool = False) -> np.ndarray:
    """Decodes with Pillow; safe in several threads.

    Args:
      content: the bytes of a file in one of `FORMATS`.
      exif: turns the image upright. TIFF images are always turned, as Pillow does it, since TIFF's
        orientation is not EXIF.

    Returns:
      uint8 [H, W, 3]: the first frame; palettes expanded, alpha dropped and not blended. 16-bit
      gray is scaled by 1/257, where Pillow's own `convert` clips. 32-bit numbers have no fixed
      white: the first of 1 (floats only), 255, 65535 and 2^32 - 1 that no value exceeds counts.

    Raises:
      BadImage: the file is empty, not an image, truncated, damaged, or above `MOST_PIXELS`
        (detected before any pixel is stored).
    """
    with opened(content) as picture:
        if picture.format == "TIFF" and picture.tag_v2.get(_SAMPLES, 1) > 4:
            raise UnknownImage("Pillow reads only the first of its channels")
        image = _rgb(picture)
        turn = TURNS.get(orientation(picture)) if exif else None
    return np.ascontiguousarray(turn(image) if turn else image)


@contextlib.contextmanager
def opened(content: bytes) -> Iterator[Any]:
    """Yields the Pillow image of a file, loaded; raises BadImage for errors inside, too."""
    from PIL import Image, UnidentifiedImageError

    logging.getLogger("PIL.TiffImagePlugin").disabled = True  # it logs what it raises
    if not content:
        raise BadImage("the file is empty")
    try:
        with _quiet(), Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise BadImage(f"{width} x {height} pixels; at most {MOST_PIXELS} are decoded")
            picture.load()
            yield picture
    except UnidentifiedImageError:
        raise UnknownImage(f"{_unread(content)}; it starts with {content[:12]!r}") from None
    except BadImage:
        raise
    except Exception as e:  # damaged files make each format raise its own errors
        raise BadImage(" ".join(str(e).split()) or type(e).__name__) from e


def turn_of(content: bytes) -> Callable[[np.ndarray], np.ndarray] | None:
    """Returns the turn that makes a file upright, as its metadata say; None if it is upright."""
    with opened(content) as picture:
        return TURNS.get(orientation(picture))


def gray(image: Any) -> Any:
    """Returns the luma of RGB, uint8 [..., 3] to [..., 1], as Pillow; equal values stay."""
    numpy = isinstance(image, np.ndarray)
    values = image.astype(np.int32) if numpy else tf.cast(image, tf.int32)
    red, green, blue = (values[..., c : c + 1] for c in range(3))
    luma = (19595 * red + 38470 * green + 7471 * blue + 0x8000) // 2**16
    return luma.astype(np.uint8) if numpy else tf.cast(luma, tf.uint8)


def _unread(content: bytes) -> str:
    """Describes a file that is in none of `FORMATS`; looks only at its first bytes."""
    from PIL import Image

    Image.init()
    for name, (_, accept) in Image.OPEN.items():
        with contextlib.suppress(Exception):  # short files make each format raise its own errors
            if name not in FORMATS and accept and accept(content[:16]) is True:
                return f"{name}, a format that is not read here"
    return "no image that Pillow knows"


def _rgb(picture: Any) -> np.ndarray:
    if picture.mode.startswith("I") or picture.mode == "F":
        values = np.asarray(picture)
        whites = [65535.0] if ";16" in picture.mode else [255.0, 65535.0, 2.0**32 - 1]
        if picture.mode == "I" and picture.format in ("PNG", "PPM"):  # 16 bits, by another name
            whites = [65535.0]
        whites = [1.0, *whites] if picture.mode == "F" else whites
        top = float(values.max())
        white = next((w for w in whites if top <= w), None)
        if white is None or not np.isfinite(values.sum(dtype=np.float64)):
            raise BadImage(f"its values go up to {top:g}, and their white is unknown")
        image = np.empty([*values.shape, 3], np.uint8)
        for row, line in zip(values, image, strict=True):  # the whole would be gigabytes of floats
            line[:] = _to_8_bits(row, white)[:, None]
        return image
    return np.asarray(picture.convert("RGB"))


def _to_8_bits(values: np.ndarray, white: float) -> np.ndarray:
    scaled = np.round(values.astype(np.float64) * (255.0 / white))
    return np.clip(scaled, 0, 255).astype(np.uint8)


def orientation(picture: Any) -> int:
    """Returns the orientation of an open Pillow image; 1 if it is missing or cannot be read."""
    try:
        if picture.format == "TIFF":
            return 1  # Pillow has turned it
        return int(picture.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged metadata do not affect pixels
        return 1


def is_turned(head: bytes) -> bool:
    """Returns True if a JPEG or PNG that begins with `head` may not be upright."""
    from PIL import Image

    if b"tiff:Orientation" in head:
        return True  # in XMP, which Pillow reads too
    at = head.find(b"Exif\0\0")
    if at < 0:
        return head.startswith(_PNG) and any(k in head for k in (b"eXIf", b"exif", b"XML:com"))
    tags = Image.Exif()
    try:
        with _quiet():
            tags.load(head[at:])
            return tags.get(ORIENTATION, 1) != 1
    except Exception:
        return True


_IGNORED = ("ignore", None, Warning, re.compile(r"PIL\b"), 0)  # the form that `warnings` stores
_lock = threading.Lock()
_inside = 0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silences Pillow's warnings; unlike warnings.catch_warnings, it works in several threads."""
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
    """Returns int32 [3] (height, width, channels) of a JPEG; zeros if it does not begin as one."""
    begins = tf.equal(tf.strings.substr(content, 0, len(JPEG)), JPEG)
    shape = tf.cond(
        begins, lambda: tf.io.extract_jpeg_shape(content), lambda: tf.zeros([3], "int32")
    )
    return tf.ensure_shape(shape, [3])


def is_jpeg(content: Tensor, shape: Tensor, exif: bool) -> Tensor:
    """Returns True if the file is a JPEG that TensorFlow decodes correctly.

    False for CMYK, since TensorFlow misreads it if Adobe's marker is missing.

    Args:
      content: string [].
      shape: from `jpeg_shape`.
      exif: the image must also be upright.
    """
    height, width, channels = tf.unstack(shape)
    jpeg = (tf.equal(channels, 3) | tf.equal(channels, 1)) & _within(height, width)
    return jpeg & _upright(tf.strings.substr(content, 0, HEAD)) if exif else jpeg


def is_whole(content: Tensor) -> Tensor:
    """Returns True if a JPEG has its end mark; if not, only full decoding shows what is missing."""
    end = tf.maximum(tf.strings.length(content) - len(END), 0)
    return tf.equal(tf.strings.substr(content, end, len(END)), END)


def _is_png(content: Tensor, exif: bool) -> Tensor:
    """Returns True if the file is a PNG that TensorFlow decodes correctly: gray or RGB, 8 bits."""
    head = tf.strings.substr(content, 0, 26) + b"\0" * 26  # substr refuses to start past the end
    png = tf.equal(tf.strings.substr(head, 0, len(_PNG)), _PNG)
    kind = tf.strings.substr(head, 24, 2)  # two fields of IHDR: bits, colour type
    png &= tf.equal(kind, b"\x08\x00") | tf.equal(kind, b"\x08\x02")
    sides = tf.io.decode_raw(tf.strings.substr(head, 16, 8), tf.int32, little_endian=False)
    png &= (tf.reduce_min(sides) > 0) & _within(sides[0], sides[1])
    return png & _upright(content) if exif else png


def _upright(content: Tensor) -> Tensor:
    return ~in_python(is_turned, content, tf.bool, [])


def _within(height: Tensor, width: Tensor) -> Tensor:
    return tf.cast(height, tf.int64) * tf.cast(width, tf.int64) <= MOST_PIXELS


def decodable(height: Tensor, width: Tensor) -> list[Tensor]:
    """Returns the sides (int32 []) of an image; fails if it would exceed `MOST_PIXELS`.

    A line of pixels is a small file, but enlarging its shorter side to 224 multiplies its pixels by
    50,000.
    """
    many = f"it would be resized to more than {MOST_PIXELS} pixels"
    checked = tf.debugging.assert_equal(_within(height, width), True, many)
    with tf.control_dependencies([] if checked is None else [checked]):  # None: the check has run
        return [tf.identity(height), tf.identity(width)]


def in_python(
    function: Callable[[bytes], Any], content: Tensor, dtype: Any, shape: list[Any]
) -> Tensor:
    """Calls function(content) in a graph; content is string []."""

    def call(array: Any) -> Any:
        return function(np.asarray(array, object).item())

    result = tf.numpy_function(call, [content], dtype, stateful=False)
    result.set_shape(shape)
    return result


def pixels(content: Tensor, exif: bool) -> Tensor:
    """Decodes the bytes of a file (string []) to uint8 [H, W, 3]; see `Decode`."""
    return Decode(exif).pixels(content)


def image(content: bytes, exif: bool) -> np.ndarray:
    """Returns uint8 [H, W, 3] of a file as training decodes it; see `Decode.image`."""
    return Decode(exif).image(content)


@functools.cache
def _traced_pixels(op: "Decode") -> Callable[[Tensor], Tensor]:
    """Returns `pixels` as a traced function; op by op, the overhead is milliseconds an image."""
    return tf.function(op.pixels, autograph=False)


@dataclasses.dataclass(frozen=True)
class Decode:
    """Decodes the bytes of an image file to pixels, uint8 [H, W, C]; leaves pixels as they are.

    JPEG, plain PNG and plain pixels (`pixmap`) go through TensorFlow, which is within 2 gray levels
    of Pillow on average (its inverse DCT is faster and less exact). Others go through Pillow.
    `exif` turns the image upright; only the first 64 KiB of a JPEG are searched for its
    orientation.

    `low` and `high` are values of PNG and TIFF files of 16 bits; `low` becomes 0 and `high` 255,
    linearly. `high=0` is the white of the file. They do not change files of 8 bits.

    `channels` is data.channels. With one or three, gray and RGB become each other and alpha is
    dropped; with others, a file has to have that many.
    """

    exif: bool = False
    _: dataclasses.KW_ONLY
    low: int = 0
    high: int = 0
    channels: int = 3

    def __post_init__(self) -> None:
        if self.low >= (self.high or 2**16 - 1):
            raise BadInput(f"decode(low={self.low}, high={self.high}): give a high above low.")

    @property
    def in_colour(self) -> bool:
        """True if every file that Pillow reads has an image of these channels."""
        return self.channels in (1, 3)

    def __call__(self, image: Tensor, seed: Tensor) -> Tensor:
        if image.dtype == tf.string:
            return self.pixels(image)
        own = image.shape[-1]
        if own == 1 and self.channels == 3:
            return tf.repeat(image, 3, axis=-1)
        if own == 3 and self.channels == 1:
            return gray(image)
        self.check_channels(own)
        return image

    def check_channels(self, own: int | None) -> None:
        """Raises BadInput if images that need no decoder have other channels; None: not known."""
        if own not in (None, self.channels):
            raise BadInput(
                f"the images have {own} channels, and data.channels={self.channels}; set "
                f"--config.data.channels={own}."
            )

    def pixels(self, content: Tensor) -> Tensor:
        """Decodes the bytes of a file (string [])."""
        if not self.in_colour:
            return self._with_python(content)
        return tf.cond(
            is_jpeg(content, jpeg_shape(content), self.exif),
            lambda: self.of_rgb(tf.io.decode_jpeg(content, channels=3)),
            lambda: self._no_jpeg(content),
        )

    def of_rgb(self, image: Tensor) -> Tensor:
        """Returns RGB pixels in one or three channels."""
        return gray(image) if self.channels == 1 else image

    def _no_jpeg(self, content: Tensor) -> Tensor:
        return tf.cond(
            _is_png(content, self.exif),
            lambda: self.of_rgb(tf.io.decode_png(content, channels=3)),
            lambda: self._neither(content),
        )

    def _neither(self, content: Tensor) -> Tensor:
        from vit_jax.data.ops import pixmap

        sides = pixmap.sides(content)
        return tf.cond(
            (tf.reduce_min(sides) > 0) & _within(*tf.unstack(sides)),
            lambda: self.of_rgb(pixmap.pixels(content, sides)),
            lambda: self._with_python(content),
        )

    def _with_python(self, content: Tensor) -> Tensor:
        return in_python(self.in_python, content, tf.uint8, [None, None, self.channels])

    def in_python(self, content: bytes) -> np.ndarray:
        """Decodes without TensorFlow's fast paths.

        Raises:
          BadImage: the file cannot be decoded, or has another number of channels.
        """
        if self.in_colour and not (self.low or self.high):
            try:
                return self.of_rgb(with_pillow(content, self.exif))
            except UnknownImage:  # such as a TIFF file of 16 bits and three channels
                from vit_jax.data.ops import samples

                if not samples.is_tiff(content):
                    raise
                return samples.read(content, self)
        from vit_jax.data.ops import samples

        if self.in_colour and not samples.is_deep(content):
            return dataclasses.replace(self, low=0, high=0).in_python(content)
        return samples.read(content, self)

    def image(self, content: bytes) -> np.ndarray:
        """Returns uint8 [H, W, C] of a file as training decodes it, with TensorFlow where it can.

        Raises:
          BadImage: no decoder can make an image of it.
        """
        try:
            return _traced_pixels(self)(tf.constant(content)).numpy()
        except tf.errors.OpError:
            return self.in_python(content)
