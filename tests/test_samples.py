# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Files of 16 bits and of other channels than three become uint8, or are bad for a reason."""

import io
import struct
import tracemalloc
import zlib

import hostile
import numpy as np
import pictures
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vit_jax.data.ops import chain, crops, decode
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

VALUES = np.random.default_rng(0).integers(0, 12_000, (20, 30, 13)).astype(np.uint16)
HIGH = 10_000
EXPECTED = np.rint(np.minimum(VALUES, HIGH).astype(np.float64) * 255 / HIGH).astype(np.uint8)


def tiff(values, **options):
    out = io.BytesIO()
    tifffile.imwrite(out, values, **{"photometric": "minisblack"} | options)
    return out.getvalue()


def png(values):
    return tf.io.encode_png(values).numpy()


def decoded(content, channels, **options):
    return decode.Decode(channels=channels, **options).image(content)


LAYOUTS = [
    {}, {"compression": "zlib"}, {"compression": "zlib", "predictor": True},
    {"compression": "lzma", "rowsperstrip": 3}, {"tile": (16, 16)}, {"byteorder": ">"},
    {"tile": (32, 16), "compression": "zlib"}, {"rowsperstrip": 7}, {"bigtiff": True},
]  # fmt: skip


@pytest.mark.parametrize("options", LAYOUTS, ids=str)
@pytest.mark.parametrize("planar", ["contig", "separate"])
def test_thirteen_bands_in_every_layout(options, planar):
    values = VALUES if planar == "contig" else np.moveaxis(VALUES, 2, 0)
    content = tiff(values, planarconfig=planar, **options)
    np.testing.assert_array_equal(decoded(content, 13, high=HIGH), EXPECTED)
    low = decoded(content, 13, low=2000, high=HIGH).astype(int)
    expected = np.rint((np.clip(VALUES, 2000, HIGH) - 2000.0) * 255 / 8000)
    assert abs(low - expected).max() == 0
    with pytest.raises(decode.BadImage):
        decoded(content[: len(content) // 2], 13)
    for end in range(len(content) - 4, len(content)):  # tifffile may end a file with padding
        image = hostile.answer(
            lambda c: decoded(c, 13, high=HIGH), content[:end], errors=(decode.BadImage,)
        )
        assert image is None or np.array_equal(image, EXPECTED)
        assert image is None or end > len(content) - 4
    for channels in (1, 3, 4):
        with pytest.raises(decode.BadImage, match=f"13 channels, and data.channels={channels}"):
            decoded(content, channels)


@pytest.mark.parametrize("own", [1, 2, 3, 4])
def test_sixteen_bits_of_png_and_tiff_agree(own):
    """TensorFlow writes the PNG, tifffile the TIFF; an independent formula gives the pixels."""
    values, expected = VALUES[..., :own], EXPECTED[..., :own]
    contents = png(values), tiff(values, planarconfig="contig" if own > 1 else None)
    for content in contents:
        np.testing.assert_array_equal(decoded(content, own, high=HIGH), expected)
        colour = np.repeat(expected[..., :1], 3, -1) if own < 3 else expected[..., :3]
        np.testing.assert_array_equal(decoded(content, 3, high=HIGH), colour)
        luma = np.asarray(Image.fromarray(colour).convert("L"))[..., None]
        np.testing.assert_array_equal(decoded(content, 1, high=HIGH), luma)
    if own == 1:  # without a range as before; Pillow reads these itself
        deep = np.asarray(Image.open(io.BytesIO(contents[1])))
        np.testing.assert_array_equal(deep, values[..., 0])
        np.testing.assert_array_equal(decoded(contents[0], 3), decode.with_pillow(contents[1]))


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "BMP", "WEBP", "JPEG"])
def test_a_range_leaves_eight_bits_as_they_are_and_gray_is_that_of_pillow(kind):
    content = pictures.encode(pictures.noise(9, 7), kind)
    plain = decode.image(content, exif=False)
    np.testing.assert_array_equal(decoded(content, 3, low=5, high=99), plain)
    luma = np.asarray(Image.fromarray(plain).convert("L"))[..., None]
    np.testing.assert_array_equal(decoded(content, 1, high=99), luma)
    op = decode.Decode(channels=1)
    seed = tf.constant([1, 2], tf.int64)
    for crop in chain.parse("k", "inception_crop(5)|random_crop(5)|central_crop(5)", 5):
        box = crops.decode_box(op, crop, tf.constant(content), seed)[0].numpy()
        begin, extent = (t.numpy() for t in crop.box(tf.constant(plain.shape), seed))
        cut = luma[begin[0] : begin[0] + extent[0], begin[1] : begin[1] + extent[1]]
        np.testing.assert_array_equal(box, cut)


def test_four_channels_are_those_of_the_file_and_upright():
    alpha = pictures.noise(9, 7, 4)
    exif = Image.Exif()
    exif[0x0112] = 6
    content = pictures.encode(alpha, "PNG", exif=exif)
    np.testing.assert_array_equal(decoded(content, 4), alpha)
    np.testing.assert_array_equal(decoded(content, 4, exif=True), np.rot90(alpha, -1))
    turned = tiff(VALUES, planarconfig="contig", extratags=[(274, "H", 1, 6, True)])
    np.testing.assert_array_equal(decoded(turned, 13, high=HIGH), np.rot90(EXPECTED, -1))
    for channels in (2, 5):
        with pytest.raises(decode.BadImage, match="it has 4 channels"):
            decoded(content, channels)
    with pytest.raises(decode.BadImage, match=r"3 channels, and data\.channels=4"):
        decoded(pictures.encode(alpha[..., :3], "JPEG"), 4)


def test_pixels_of_other_channels_are_refused_and_gray_and_colour_become_each_other():
    op, seed = chain.parse("data.train_ops", "decode", 4, 1)[0], tf.zeros([2], tf.int64)
    colour = tf.constant(pictures.noise(3, 4))
    np.testing.assert_array_equal(op(colour, seed), decode.gray(colour.numpy()))
    with pytest.raises(BadInput, match=r"3 channels, and data\.channels=13; set"):
        decode.Decode(channels=13)(colour, seed)


# --- files of strangers ---

FILES = [tiff(VALUES[:5, :6], planarconfig="contig", **options) for options in LAYOUTS]
FILES += [png(VALUES[:5, :6, :4]), png(VALUES[:5, :6, :1])]


@given(hostile.changed(FILES), st.sampled_from([1, 3, 4, 13]))
def test_changed_file_is_an_image_or_bad_for_a_reason(content, channels):
    op = decode.Decode(channels=channels, high=HIGH)
    image = hostile.answer(op.image, content, errors=(decode.BadImage,))
    if image is not None:
        assert image.dtype == np.uint8
        assert image.shape[2] == channels
        assert 0 < image.shape[0] * image.shape[1] <= decode.MOST_PIXELS


def crafted(rows, columns, bands, *strips, compression=1, height=0):
    """A TIFF of 16 bits that says it has this size, with these strips."""
    fields = [(256, 4, columns), (257, 4, rows), (258, 3, 16), (259, 3, compression)]
    fields += [(262, 3, 1), (277, 3, bands), (278, 4, height or rows), (284, 3, 1)]
    start = 8
    for name, numbers in ((279, list(map(len, strips))), (273, None)):
        if numbers is None:
            numbers = list(np.cumsum([start, *map(len, strips)])[:-1])
        assert len(numbers) == 1
        fields.append((name, 4, numbers[0]))
    body = b"".join(strips)
    entries = b"".join(struct.pack("<HHIL", n, kind, 1, v)[:12] for n, kind, v in sorted(fields))
    table = struct.pack("<H", len(fields)) + entries + struct.pack("<I", 0)
    return struct.pack("<2sHI", b"II", 42, start + len(body)) + body + table


BOMB = zlib.compress(bytes(2**28), 9)  # 256 MiB in 261 kB


@pytest.mark.parametrize(
    "content, said",
    [
        (crafted(4, 4, 13, BOMB, compression=8), "expands to more than its 416 bytes"),
        (crafted(4, 4, 13, b"\x81\0" * 2**18, compression=32773), "expands to more than its 416"),
        (crafted(60_000, 60_000, 13, bytes(99)), "60000 x 60000 pixels"),
        (crafted(9_000, 9_000, 60_000, bytes(99)), "9000 x 9000 x 60000 values"),
        (crafted(4, 4, 13, bytes(415)), "truncated"),
        (crafted(4, 4, 13, bytes(416), compression=5), "compression .* is not read here; write"),
        (crafted(4, 4, 13, bytes(416), compression=8, height=1), "missing"),
        (b"II*\0", "damaged"),
        (tiff(VALUES.astype(np.float32), planarconfig="contig"), "values are float32"),
        (tiff(VALUES[..., 0].astype(np.int16)), "values are int16"),
    ],
)  # fmt: skip
def test_a_file_that_claims_more_than_it_has_takes_no_memory(content, said):
    tracemalloc.start()
    try:
        with pytest.raises(decode.BadImage, match=said):
            decode.Decode(channels=13).in_python(content)
        assert tracemalloc.get_traced_memory()[1] < 2**22 + 4 * len(content)
    finally:
        tracemalloc.stop()
    good = crafted(4, 4, 13, VALUES[:4, :4].tobytes())
    np.testing.assert_array_equal(decoded(good, 13, high=HIGH), EXPECTED[:4, :4])


def test_a_claimed_size_of_a_png_is_refused():
    head = struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 16, 6, 0, 0, 0)
    content = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + bytes(20)
    with pytest.raises(decode.BadImage, match="pixels; at most"):
        decoded(content, 4)
