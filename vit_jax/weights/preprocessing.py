# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns raw images into a model's input, as the model's own evaluation does.

A reader is made once, from the model's description of its input, and is then called with images.
Use `chain_reader` for runs, `original_reader` for the published .npz files, `timm_reader` and
`hf_reader` for theirs. The last two resize with Pillow, which rounds differently from TensorFlow.
"""

import contextlib
import io
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from vit_jax.config.sections import ReaderName
from vit_jax.data import readers
from vit_jax.data.example import GRID
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import decode
from vit_jax.data.ops.naflex import NaFlex
from vit_jax.data.tensorflow import op_errors, tf
from vit_jax.errors import BadInput
from vit_jax.models.naflex import Canvas
from vit_jax.step.state import normalise
from vit_jax.storage import files as storage
from vit_jax.weights import image_settings

# The bytes of an image file, its path, uint8 [H, W, C], a list of those, or uint8 [B, H, W, C].
Images = bytes | str | Path | np.ndarray | Sequence[bytes | str | Path | np.ndarray]
# To float32 [B, H, W, C], B = 1 for a single image; with `naflex`, to a `models.naflex.Canvas`.
Reader = Callable[[Images], Any]

_One = Callable[[str, bytes | np.ndarray], Any]  # (name, content) to float32 [H, W, C] or a canvas
_Picture = Any  # a PIL.Image.Image in RGB
_EXPECTED = "expected the path or the bytes of an image file, or uint8 [H, W, {}]"


def _reader(one: _One, channels: int = 3) -> Reader:
    """Makes a reader that applies `one` to every image and stacks the results."""
    expected = _EXPECTED.format(channels)

    def read(images: Images) -> Any:
        array = isinstance(images, np.ndarray)
        single = images.ndim != 4 if array else isinstance(images, bytes | str | Path)
        listed: Any = [images] if single else images
        if not isinstance(listed, Sequence | np.ndarray):
            raise BadInput(f"images are {type(images).__name__}; {expected}, or a list of those.")
        rows = [one(*_content(number, image, channels)) for number, image in enumerate(listed)]
        if not rows:
            raise BadInput(f"no images; {expected}, or a list of those.")
        if isinstance(rows[0], Canvas):
            return Canvas(*(np.stack(parts) for parts in zip(*rows, strict=True)))
        shapes = sorted({row.shape for row in rows})
        if len(shapes) > 1:
            raise BadInput(
                f"the images come out as {' and '.join(map(str, shapes[:2]))}, because this "
                "preprocessing keeps their sizes; give them one by one, or of one size."
            )
        return np.stack(rows)

    return read


def _content(number: int, image: Any, channels: int) -> tuple[str, bytes | np.ndarray]:
    """Returns a name for messages, and encoded bytes or uint8 [H, W, C]."""
    expected = _EXPECTED.format(channels)
    if isinstance(image, str | Path):
        try:
            return f"image {image}", storage.read(os.path.expanduser(image))
        except (OSError, ValueError) as e:
            raise BadInput(f"image {str(image)!r} cannot be read: {e}; {expected}.") from e
    if isinstance(image, bytes):
        return f"image {number}", image
    if not isinstance(image, np.ndarray):
        raise BadInput(f"image {number} is {type(image).__name__}; {expected}.")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[-1] != channels or not image.size:
        raise BadInput(f"image {number} is {image.dtype} {list(image.shape)}; {expected}.")
    return f"image {number}", image


@contextlib.contextmanager
def _named(name: str, chain: str) -> Iterator[None]:
    """Turns errors of TensorFlow into BadInput about one image."""
    try:
        yield
    except BadInput:  # no fault of the image, such as a library that is not installed
        raise
    except (ValueError, *op_errors()) as e:
        reason = re.sub(r"\{\{.*?\}\}|\[Op:.*", "", str(e)).strip(" .")
        raise BadInput(
            f"{name} does not go through {chain}: {reason}. Remove or replace the image."
        ) from e


def chain_reader(
    ops: tuple[preprocess.Op, ...],
    mean: tuple[float, ...],
    std: tuple[float, ...],
    reader: ReaderName = "tf",
) -> Reader:
    """Makes the reader of a run's own evaluation: its chain, then `normalise.normalise`.

    Args:
      ops: operations from `preprocess.parse`. Files are decoded first if no operation does it.
      mean: mean per channel, of values in [0, 1].
      std: standard deviation, likewise.
      reader: data.reader of the run.

    Returns:
      A reader that raises BadInput if an image is missing, damaged or too small for the chain; the
      message names the image.
    """
    chain = "|".join(type(op).__name__ for op in ops)
    decodes = [op for op in ops if isinstance(op, decode.Decode)]
    op = decodes[0] if decodes else decode.Decode(channels=len(mean))
    process = _in_numpy(op, ops) if reader == "python" else _in_graphs(op, ops)

    def one(name: str, content: bytes | np.ndarray) -> Any:
        with _named(name, chain):
            fields = process(content)
        image = np.asarray(normalise(jnp.asarray(fields["image"][None]), mean, std))[0]
        return Canvas(image, fields[GRID]) if GRID in fields else image

    return _reader(one, len(mean))


_Fields = dict[str, np.ndarray]  # `image`: uint8 [H, W, C]; and `grid` after `naflex`
_Process = Callable[[bytes | np.ndarray], _Fields]


def _in_numpy(op: decode.Decode, ops: tuple[preprocess.Op, ...]) -> _Process:
    """Returns the function that decodes by `op`, if `ops` do not decode, and applies them."""
    from vit_jax.data.numpy_ops import chain
    from vit_jax.data.numpy_ops import decode as numpy_decode

    chain.check(ops)
    decodes = any(isinstance(one, decode.Decode) for one in ops)

    def process(content: bytes | np.ndarray) -> _Fields:
        image = content if decodes else numpy_decode.decode(op, content)
        return chain.apply_to_fields(
            ops, {"image": image}, (0, 0)
        )  # seed of the first example of a run

    return process


def _in_graphs(op: decode.Decode, ops: tuple[preprocess.Op, ...]) -> _Process:
    """Returns the same function as `_in_numpy`, with TensorFlow."""
    decodes = any(isinstance(one, decode.Decode) for one in ops)
    first = preprocess.apply(() if decodes else (op,))
    then = preprocess.apply_to_fields(ops)

    def apply(content: bytes | np.ndarray) -> _Fields:
        seed = tf.zeros([2], tf.int64)  # seed of the first example that a run evaluates
        fields = then({"image": first(tf.constant(content), seed)}, seed)
        return {name: value.numpy() for name, value in fields.items()}

    def process(content: bytes | np.ndarray) -> _Fields:
        try:
            return apply(content)
        except op_errors():
            if isinstance(content, np.ndarray):
                raise
            return apply(op.in_python(content))

    return process


def original_reader(height: int, width: int, channels: int = 3) -> Reader:
    """Makes the reader of google-research/vision_transformer: straight to height x width.

    Resizing is bilinear without antialias, and unlike our own `resize` not rounded to uint8. Then
    follows (x - 127.5) / 127.5, from -1 to 1. Raises BadInput like `chain_reader`.
    """
    from vit_jax.data.numpy_ops import decode as numpy_decode
    from vit_jax.data.numpy_ops import resize as numpy_resize

    op, with_tf = decode.Decode(channels=channels), readers.usable() == "tf"

    def one(name: str, content: bytes | np.ndarray) -> np.ndarray:
        image: Any = content
        if isinstance(content, bytes):
            with _named(name, "decode"):
                image = op.image(content) if with_tf else numpy_decode.pixels(op, content)
        if with_tf:
            image = tf.image.resize(image, [height, width], method="bilinear", antialias=False)
            resized = image.numpy()
        else:
            resized = numpy_resize.bilinear(image, height, width)
        return (resized - np.float32(127.5)) / np.float32(127.5)

    return _reader(one, channels)


def _open(name: str, content: bytes | np.ndarray) -> _Picture:
    from PIL import Image

    if isinstance(content, np.ndarray):
        return Image.fromarray(content)
    try:
        return Image.open(io.BytesIO(content)).convert("RGB")
    except Exception as e:  # each format raises other errors for a damaged file
        reason = re.sub(" ?<.*>", "", str(e))
        raise BadInput(
            f"{name} cannot be decoded: {reason}. Remove it, or replace it by a file that Pillow "
            "reads."
        ) from e


def _shorter_side_to(picture: _Picture, size: int) -> tuple[int, int]:
    """Returns (width, height) with the shorter side `size`, and the longer rounded down."""
    shorter = min(picture.size)
    width, height = (int(size * side / shorter) for side in picture.size)
    return width, height


def _resized(picture: _Picture, width: int, height: int, resample: Any) -> _Picture:
    """Resizes a picture; raises BadImage if it gets more pixels than a decoded image may have."""
    if width * height > decode.MOST_PIXELS:
        raise decode.BadImage(
            f"{picture.width} x {picture.height} pixels would be resized to {width} x {height}"
        )
    return picture.resize((max(width, 1), max(height, 1)), resample)


def _window(
    picture: _Picture, left: int, top: int, width: int, height: int, fill: tuple[int, ...]
) -> _Picture:
    """Returns width x height pixels from (left, top); pixels outside the picture are `fill`."""
    from PIL import Image

    window = Image.new("RGB", (width, height), fill)
    window.paste(picture, (-left, -top))
    return window


def timm_reader(pretrained_cfg: Mapping[str, Any]) -> Reader:
    """Makes the reader of timm's evaluation, exact to the pixel.

    It reproduces `create_transform(**resolve_data_config(...))`.

    It resizes to the input size / crop_pct, then takes the centre. The shorter side gets that size
    (center), both sides do (squash), or the longer side does and borders have the mean colour
    (border).

    Args:
      pretrained_cfg: section of a timm config.json: input_size [3, H, W], interpolation, crop_pct,
        crop_mode, mean, std. A missing key has timm's default; other keys are not read.

    Returns:
      A reader that raises BadInput if an image is missing or damaged; the message names the image.

    Raises:
      BadInput: a value that timm does not know, or an input that is not RGB.
    """
    from PIL import Image

    wanted = image_settings.timm(pretrained_cfg)
    _, height, width = wanted["input_size"]
    resample = Image.Resampling[wanted["interpolation"].upper()]
    mode, mean, std = wanted["crop_mode"], np.float32(wanted["mean"]), np.float32(wanted["std"])
    fill = tuple(round(255 * m) for m in wanted["mean"]) if mode == "border" else (0, 0, 0)
    to_height, to_width = (math.floor(side / wanted["crop_pct"]) for side in (height, width))

    def resized_size(picture: _Picture) -> tuple[int, int]:
        if mode == "squash":
            return to_width, to_height
        if mode == "center" and to_width == to_height:
            return _shorter_side_to(picture, to_width)
        ratios = picture.width / to_width, picture.height / to_height
        ratio = max(ratios) if mode == "border" else min(ratios)
        # timm cannot resize a line of pixels; here, no side becomes 0.
        return max(round(picture.width / ratio), 1), max(round(picture.height / ratio), 1)

    def one(name: str, content: bytes | np.ndarray) -> np.ndarray:
        picture = _open(name, content)
        with _named(name, "resizing"):
            picture = _resized(picture, *resized_size(picture), resample)
        left, top = _centre(picture.width - width), _centre(picture.height - height)
        picture = _window(picture, left, top, width, height, fill)
        return (np.asarray(picture, np.float32) / np.float32(255) - mean) / std

    return _reader(one)


def _centre(excess: int) -> int:
    """Returns where torchvision's central crop begins; negative if the picture is too small."""
    return round(excess / 2) if excess > 0 else -(-excess // 2)


def hf_reader(preprocessor_config: Mapping[str, Any]) -> Reader:
    """Makes the reader of one of Hugging Face's image processors, with Pillow.

    Args:
      preprocessor_config: a preprocessor_config.json: do_resize, size, resample, do_center_crop,
        crop_size, do_rescale, rescale_factor, do_normalize, image_mean, image_std. A missing or
        null key has Hugging Face's default.

    Returns:
      A reader that raises BadInput if an image is missing or damaged; the message names the image.

    Raises:
      BadInput: another processor, a value that it does not know, or a key that asks for more.
    """
    wanted = image_settings.hf(preprocessor_config)
    size, crop = wanted["size"], wanted["crop_size"]
    mean, std = np.float32(wanted["image_mean"]), np.float32(wanted["image_std"])

    def one(name: str, content: bytes | np.ndarray) -> np.ndarray:
        picture = _open(name, content)
        if wanted["do_resize"] and wanted["in_floats"]:
            return _in_floats(picture, size, wanted)
        if wanted["do_resize"]:
            shortest = size.get("shortest_edge")
            to = (
                _shorter_side_to(picture, shortest) if shortest else (size["width"], size["height"])
            )
            with _named(name, "resizing"):
                picture = _resized(picture, *to, wanted["resample"])
        if wanted["do_center_crop"]:
            width, height = crop["width"], crop["height"]
            left, top = (picture.width - width) // 2, (picture.height - height) // 2
            picture = _window(picture, left, top, width, height, (0, 0, 0))
        image = np.asarray(picture)
        if wanted["do_rescale"]:
            image = image * np.float64(wanted["rescale_factor"])
        image = image.astype(np.float32)
        return (image - mean) / std if wanted["do_normalize"] else image

    return _reader(one)


def naflex_reader(form: str, config: Mapping[str, Any], op: NaFlex) -> Reader:
    """Makes the reader of timm's or transformers' images of any aspect ratio, with Pillow.

    Args:
      form: timm or hf.
      config: see `timm_reader`, `hf_reader`; sizes and crops in it are not read.
      op: the patch and the budget of the model.

    Returns:
      A reader that gives a `Canvas`, and raises BadInput as that of `hf_reader` does.
    """
    from PIL import Image

    from vit_jax.data.numpy_ops import naflex

    if form == "timm":
        wanted = image_settings.timm(config)
        resample: Any = Image.Resampling[wanted["interpolation"].upper()]
        factor, normalises = 1 / 255, True
        mean, std = np.float32(wanted["mean"]), np.float32(wanted["std"])
    else:
        wanted = image_settings.hf(config)
        resample, normalises = wanted["resample"], wanted["do_normalize"]
        factor = wanted["rescale_factor"] if wanted["do_rescale"] else 1.0
        mean, std = np.float32(wanted["image_mean"]), np.float32(wanted["image_std"])

    def one(name: str, content: bytes | np.ndarray) -> Canvas:
        picture = _open(name, content)
        rows, columns = naflex.grid(op, (picture.height, picture.width))
        with _named(name, "resizing"):
            picture = _resized(picture, columns * op.patch, rows * op.patch, resample)
        image = (np.asarray(picture) * np.float64(factor)).astype(np.float32)
        image = (image - mean) / std if normalises else image
        return Canvas(naflex.in_cells(op, image, 0.0), np.array([rows, columns], np.int32))

    return _reader(one)


def _in_floats(picture: _Picture, size: dict[str, int], wanted: Mapping[str, Any]) -> np.ndarray:
    """Returns an image scaled first and resized then, which rounds nothing (DINOv3)."""
    from PIL import Image

    scaled = np.asarray(picture, np.float32)
    if wanted["do_rescale"]:
        scaled *= np.float32(wanted["rescale_factor"])
    sides = size["width"], size["height"]
    channels = [
        np.asarray(Image.fromarray(scaled[..., i]).resize(sides, wanted["resample"]))
        for i in range(3)
    ]
    image = np.stack(channels, axis=-1)
    if not wanted["do_normalize"]:
        return image
    return (image - np.float32(wanted["image_mean"])) / np.float32(wanted["image_std"])


def unknown_reader(reason: str) -> Reader:
    """Makes a reader that raises BadInput, for weights without a description of their images."""

    def read(images: Images) -> np.ndarray:
        raise BadInput(f"images cannot be prepared: {reason}.")

    return read
