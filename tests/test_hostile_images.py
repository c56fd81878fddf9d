# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Image files of strangers become pixels or a reason, and no small file a huge image."""

import functools
import io
import struct
import zlib

import hostile
import numpy as np
import pictures
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import decode
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput
from vit_jax.weights import preprocessing


def saved(picture: Image.Image, kind: str, **options) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def files() -> list[bytes]:
    rgb = Image.fromarray(pictures.noise(9, 7))
    deep = Image.fromarray(np.linspace(0, 65535, 63).reshape(9, 7).astype(np.uint16))
    frames = {"save_all": True, "append_images": [rgb.rotate(90)], "duration": 50}
    exif = Image.Exif()
    exif[0x0112] = 6
    return [
        saved(rgb, "JPEG", exif=exif), saved(rgb, "JPEG", progressive=True),
        saved(rgb.convert("L"), "JPEG"), saved(rgb.convert("CMYK"), "JPEG"),
        saved(rgb, "PNG"), saved(rgb.quantize(8), "PNG", transparency=1), saved(deep, "PNG"),
        saved(rgb.convert("1"), "PNG"), saved(rgb.convert("RGBA"), "PNG"), saved(rgb, "BMP"),
        saved(rgb, "GIF", **frames), saved(rgb, "PNG", **frames), saved(rgb, "WEBP"),
        saved(rgb, "WEBP", **frames), saved(rgb, "WEBP", lossless=True), saved(rgb, "PPM"),
        saved(deep, "TIFF"), saved(rgb, "TIFF", compression="tiff_lzw"), saved(rgb, "JPEG2000"),
    ]  # fmt: skip


def check(image) -> None:
    if image is not None:
        assert image.dtype == np.uint8
        assert image.ndim == 3
        assert image.shape[2] == 3
        assert 0 < image.shape[0] * image.shape[1] <= decode.MOST_PIXELS


CHANGED = hostile.changed(files())


@settings(max_examples=3 * settings().max_examples)
@given(CHANGED, st.booleans())
def test_changed_file_is_an_image_or_bad_for_a_reason(content, exif):
    check(hostile.answer(decode.with_pillow, content, exif, errors=(decode.BadImage,)))
    check(hostile.answer(decode.image, content, exif, errors=(decode.BadImage,)))


@functools.cache
def chain(text: str):
    process = preprocess.apply(preprocess.parse("data.train_ops", text, 8))
    return tf.function(lambda content: process(content, tf.zeros([2], tf.int64)), autograph=False)


@given(CHANGED, st.sampled_from(["decode|inception_crop(8)", "decode|resize_small(8)"]))
def test_changed_file_goes_through_a_chain_or_fails_by_itself(content, text):
    try:
        check(chain(text)(tf.constant(content)).numpy())
    except (tf.errors.OpError, UnicodeDecodeError):
        pass  # what `bad_images` takes up


# --- dimensions ---


def png(width: int, height: int, depth: int = 8, kind: int = 2, data: bytes = b"") -> bytes:
    """A PNG that says it is of that size."""

    def chunk(name: bytes, content: bytes) -> bytes:
        check = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(data))
        + chunk(b"IEND", b"")
    )  # fmt: skip


def resized_header(kind: str, width: int, height: int) -> bytes:
    rgb = Image.fromarray(pictures.noise(9, 7))
    content = bytearray(saved(rgb, kind))
    if kind == "JPEG":
        struct.pack_into(">HH", content, content.index(b"\xff\xc0") + 5, height, width)
    elif kind == "GIF":
        struct.pack_into("<HH", content, 6, width, height)
        struct.pack_into("<HH", content, content.index(b",") + 5, width, height)
    else:
        struct.pack_into("<ii", content, 18, width, height)
    return bytes(content)


SIDES = st.sampled_from([0, 1, 2, 7, 1000, 65535])


@given(st.sampled_from(["JPEG", "GIF", "BMP"]), SIDES, SIDES)
@example("JPEG", 0, 0)
@example("JPEG", 65535, 65535)
@example("BMP", 2**31 - 1, 2**31 - 1)
@example("BMP", -1, -1)
def test_claimed_size_is_an_image_or_bad_for_a_reason(kind, width, height):
    if abs(width * height) < 2**24 or abs(width * height) > decode.MOST_PIXELS:
        if kind != "BMP" and not 0 <= width <= 65535:
            return
        content = resized_header(kind, width, height)
        check(hostile.answer(decode.image, content, False, errors=(decode.BadImage,)))
        check(hostile.answer(decode.with_pillow, content, errors=(decode.BadImage,)))


@pytest.mark.parametrize("sides", [(0, 0), (2**31 - 1, 2**31 - 1), (2**31, 1), (2**32 - 1, 1)])
@pytest.mark.parametrize("kind", [0, 2, 3, 6])
def test_claimed_size_of_a_png_is_refused(sides, kind):
    with pytest.raises(decode.BadImage):
        decode.image(png(*sides, kind=kind), exif=True)


# --- a line of pixels, which grows when its shorter side does ---

LINE = saved(Image.fromarray(np.zeros([1, 60_000, 3], np.uint8)), "PNG")  # 254 bytes


@pytest.mark.timeout(120)
@pytest.mark.parametrize("op", ["resize_small(224)", "bv_resize_small(224)"])
def test_a_line_is_not_resized_to_gigabytes(op):
    read = preprocessing.chain_reader(
        preprocess.parse("k", f"decode|{op}", 224), (0,) * 3, (1,) * 3
    )
    with pytest.raises(BadInput, match=f"more than {decode.MOST_PIXELS} pixels"):
        read(LINE)
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than"):
        chain(f"decode|{op}")(tf.constant(LINE))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make, said", [
    (preprocessing.timm_reader, {}), (preprocessing.hf_reader, {"size": {"shortest_edge": 224}}),
])  # fmt: skip
def test_a_line_is_not_resized_to_gigabytes_by_pillow(make, said):
    with pytest.raises(BadInput, match="pixels would be resized to"):
        make(said)(LINE)


@pytest.mark.parametrize(
    "make, said",
    [
        (preprocessing.timm_reader, {"crop_pct": 1e-320}),
        (preprocessing.timm_reader, {"crop_pct": 1e-4}),
        (preprocessing.timm_reader, {"crop_pct": 1e300}),
        (preprocessing.timm_reader, {"mean": [1e300, 0, 0]}),
        (preprocessing.timm_reader, {"mean": [float("nan")] * 3}),
        (preprocessing.hf_reader, {"resample": 1.0}),
        (preprocessing.timm_reader, {"input_size": [3, 60_000, 60_000]}),
        (preprocessing.hf_reader, {"size": 10**30}),
        (preprocessing.hf_reader, {"crop_size": 50_000}),
        (preprocessing.hf_reader, {"rescale_factor": 10**400}),
        (preprocessing.hf_reader, {"size": {"a": {}}}),
    ],
)
def test_preprocessing_that_cannot_be_is_refused_before_an_image_is_read(make, said):
    with pytest.raises(BadInput, match="expected"):
        make(said)


def test_sixteen_bits_take_little_more_than_their_image():
    deep = Image.fromarray(np.full([1000, 1000], 9, np.uint16))
    content = saved(deep, "PNG")
    assert hostile.peak_mib(decode.with_pillow, content) < 10  # 3 of the image, 2 of its values
