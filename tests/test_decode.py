# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decoding whole images, and the boxes that crops take of them."""

import csv
import dataclasses
import functools
import io
import struct
import tarfile
import warnings
import zlib

import numpy as np
import pictures
import pytest
from PIL import Image, ImageOps, features

from vit_jax.data import tensorflow
from vit_jax.data.numpy_ops import decode as numpy_decode
from vit_jax.data.ops import augment, crops, decode, pixmap, resize
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.tensorflow import tf

# --- whole images ---


def in_a_dataset(contents, chain="decode", size=8):
    """Decodes files by a chain in tf.data, with several threads: an image or "" for each."""
    process = preprocess.apply(preprocess.parse("data.train_ops", chain, size))
    files = tf.constant(contents)

    def example(k):
        image = process(files[k], tf.stack([k, 0]))
        return tf.io.serialize_tensor(image)

    plain = tf.autograph.experimental.do_not_convert(example)
    dataset = tf.data.Dataset.range(len(contents)).map(plain, num_parallel_calls=2)
    batches = dataset.batch(1).as_numpy_iterator()
    found = []
    for _ in contents:
        try:
            found.append(tf.io.parse_tensor(next(batches)[0], tf.uint8).numpy())
        except tf.errors.OpError:
            found.append(None)
    return found


def pillow(content):
    """Pillow's first frame as RGB, without alpha; its own conversion of all but 16-bit gray."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def save(picture, kind, **options):
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


PHOTO = Image.fromarray(pictures.smooth(40, 60))  # every decoder shows it alike
RAMP = np.linspace(0, 65535, 40 * 60).reshape(40, 60).astype(np.uint16)


def hidden():
    """Colours under alpha 0."""
    return Image.fromarray(np.dstack([pictures.noise(9, 7), np.zeros([9, 7], np.uint8)]))


def palette(transparency):
    picture = Image.fromarray(pictures.noise(9, 7)).quantize(16)
    return save(picture, "PNG", transparency=transparency)


def frames(kind, **options):
    first, *others = [Image.fromarray(pictures.noise(9, 12, seed=i)) for i in range(3)]
    return save(first, kind, save_all=True, append_images=others, duration=50, **options)


def without_adobe(content):
    at = content.index(b"\xff\xee")
    return content[:at] + content[at + 2 + struct.unpack(">H", content[at + 2 : at + 4])[0] :]


CMYK = save(PHOTO.convert("CMYK"), "JPEG", quality=95)
JPEG = save(PHOTO, "JPEG", quality=95)
PLAIN = pixmap.encoded(np.asarray(PHOTO))
GOOD = {
    "JPEG": JPEG,
    "progressive": save(PHOTO, "JPEG", progressive=True, quality=95),
    "gray JPEG": save(PHOTO.convert("L"), "JPEG", quality=95),
    "CMYK": CMYK,
    "CMYK without Adobe's marker": without_adobe(CMYK),
    "JPEG with zeros after it": JPEG + bytes(500),
    "JPEG with garbage after it": JPEG + pictures.noise(9, 9).tobytes(),
    "JPEG of 1 x 1": save(PHOTO.resize((1, 1)), "JPEG"),
    "PNG": save(PHOTO, "PNG"),
    "PNG of 1 x 1": save(PHOTO.resize((1, 1)), "PNG"),
    "gray PNG": save(PHOTO.convert("L"), "PNG"),
    "PNG of 1 bit": save(PHOTO.convert("1"), "PNG"),
    "gray PNG with a transparent colour": save(PHOTO.convert("L"), "PNG", transparency=7),
    "PNG with a transparent colour": save(PHOTO, "PNG", transparency=(0, 0, 128)),
    "RGBA": save(hidden(), "PNG"),
    "LA": save(hidden().convert("LA"), "PNG"),
    "palette": palette(None),
    "palette with a transparent colour": palette(3),
    "palette with alpha": palette(bytes(range(0, 256, 16))),
    "GIF": frames("GIF"),
    "animated WebP": frames("WEBP", lossless=True),
    "APNG": frames("PNG"),
    "WebP with alpha": save(hidden(), "WEBP", lossless=True, exact=True),
    "TIFF": save(PHOTO, "TIFF"),
    "TIFF with alpha": save(hidden(), "TIFF"),
    "CMYK TIFF": save(PHOTO.convert("CMYK"), "TIFF"),
    "BMP": save(PHOTO, "BMP"),
    "PPM": save(PHOTO, "PPM"),
    "plain pixels": PLAIN,
    "plain pixels of 1 x 1": pixmap.encoded(pictures.noise(1, 1)),
    "plain pixels with others after them": PLAIN + pictures.noise(9, 9).tobytes(),
}


def test_files_become_what_pillow_makes_of_them():
    made = in_a_dataset(list(GOOD.values()))
    for (name, content), image in zip(GOOD.items(), made, strict=True):
        wanted = pillow(content)
        assert image.shape == wanted.shape, name
        off = abs(image.astype(int) - wanted).mean()
        assert off <= (8 if name.startswith("CMYK") and "TIFF" not in name else 2), name
        if "JP" not in name and name not in ("progressive",) and "CMYK" not in name:
            assert off == 0, name
        np.testing.assert_array_equal(decode.with_pillow(content), wanted, name)


@pytest.mark.parametrize(
    "kind, suffix, feature",
    [("AVIF", ".avif", "avif"), ("JPEG2000", ".jp2", "jpg_2000"), ("PPM", ".ppm", None)],
)
def test_formats_of_few_files_are_found_and_read(kind, suffix, feature):
    if feature and not features.check(feature):
        pytest.skip(f"this Pillow is built without {feature}")
    content = save(PHOTO, kind)
    assert suffix in decode.EXTENSIONS
    np.testing.assert_array_equal(decode.image(content, exif=False), pillow(content))
    assert abs(decode.with_pillow(content).astype(int) - np.asarray(PHOTO)).mean() <= 2


def test_plain_pixels_need_no_decoder(monkeypatch):
    monkeypatch.setattr(decode.Decode, "in_python", None)
    wanted = np.asarray(PHOTO)
    np.testing.assert_array_equal(in_a_dataset([PLAIN])[0], wanted)
    np.testing.assert_array_equal(numpy_decode.pixels(decode.Decode(), PLAIN), wanted)
    gray = decode.Decode(channels=1)
    luma = np.asarray(PHOTO.convert("L"))[..., None]
    np.testing.assert_array_equal(numpy_decode.pixels(gray, PLAIN), luma)
    np.testing.assert_array_equal(gray.pixels(tf.constant(PLAIN)), luma)


DEEP = {
    "PNG": lambda: save(Image.fromarray(RAMP), "PNG"),
    "TIFF": lambda: save(Image.fromarray(RAMP), "TIFF"),
    "big-endian TIFF": lambda: save(Image.fromarray(RAMP.astype(">u2")), "TIFF"),
    "compressed TIFF": lambda: save(Image.fromarray(RAMP), "TIFF", compression="tiff_lzw"),
    "PGM": lambda: b"P5 60 40 65535\n" + RAMP.astype(">u2").tobytes(),
    "float TIFF, to 1": lambda: save(Image.fromarray((RAMP / 65535).astype(np.float32)), "TIFF"),
    "float TIFF, to 255": lambda: save(Image.fromarray((RAMP / 257).astype(np.float32)), "TIFF"),
    "32-bit TIFF": lambda: save(Image.fromarray(RAMP.astype(np.int32)), "TIFF"),
}


@pytest.mark.parametrize("make", DEEP.values(), ids=DEEP)
def test_more_than_eight_bits_are_scaled(make):
    content = make()
    (image,) = in_a_dataset([content])
    wanted = np.repeat(np.round(RAMP / 257)[..., None], 3, axis=-1)
    assert image.shape == wanted.shape
    assert abs(image - wanted).max() <= 1
    assert image.min() == 0
    assert image.max() == 255


def test_a_dark_image_of_16_bits_stays_dark():
    content = save(Image.fromarray(RAMP // 256), "PNG")
    assert in_a_dataset([content])[0].max() == 1


def png_header(width, height):
    ihdr = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + ihdr + struct.pack(">I", zlib.crc32(ihdr))


def jpeg_header(width, height):
    """A JPEG that says it is so large."""
    at = JPEG.index(b"\xff\xc0") + 5
    return JPEG[:at] + struct.pack(">HH", height, width) + JPEG[at + 4 :]


PNG = GOOD["PNG"]
BAD = {
    "empty": (b"", "empty"),
    "one byte": (b"\xff", "no image"),
    "text": (b"these are words, not pixels", "no image"),
    "HTML": (b"<!DOCTYPE html><html><body>404</body></html>", "no image"),
    "JPEG's first bytes": (JPEG[:3], "no image"),
    "PNG's first bytes": (PNG[:20], ""),
    "JPEG of 200 megapixels": (jpeg_header(20000, 10000), "178956970"),
    "JPEG bomb": (jpeg_header(65535, 65535), "178956970"),
    "PNG bomb": (png_header(30000, 30000) + PNG[33:], "178956970"),
    "plain pixels of 200 megapixels": (PLAIN.replace(b"00060 00040", b"20000 10000"), "178956970"),
    "plain pixels of no size": (PLAIN.replace(b"00060", b"00000"), ""),
    "PNG of a negative size": (png_header(2**31 + 5, 2**31 + 5) + PNG[33:], ""),
    "PostScript": (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage",
        "EPS, a format that is not",
    ),
    "icon": (save(PHOTO, "ICO"), "ICO, a format that is not read here"),
    "TIFF of values that have no white": (
        save(Image.fromarray(np.full([3, 3], np.nan, np.float32)), "TIFF"),
        "white",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_image_is_bad_for_a_reason(name):
    content, reason = BAD[name]
    with pytest.raises(decode.BadImage, match=reason or ".") as caught:
        decode.image(content, exif=False)
    assert 5 < len(str(caught.value)) < 200
    assert "0x" not in str(caught.value), "addresses are no reason"
    assert "\n" not in str(caught.value)


def test_what_is_no_image_ends_a_dataset():
    for chain in ("decode", "decode|inception_crop(8)", "decode(exif=True)|inception_crop(8)"):
        assert in_a_dataset([content for content, _ in BAD.values()], chain) == [None] * len(BAD)


@pytest.mark.parametrize("kind", [
    "JPEG", "progressive", "gray JPEG", "PNG", "APNG", "TIFF", "GIF", "plain pixels",
])  # fmt: skip
def test_a_truncated_file_is_bad_or_pillow_has_all_of_it(kind):
    content = GOOD[kind]
    cuts = np.unique(np.linspace(1, len(content) - 1, 60).astype(int))
    for cut in [*cuts, *range(len(content) - 14, len(content))]:
        part = content[:cut]
        try:
            wanted = pillow(part)
        except Exception:
            wanted = None
        try:
            image = decode.image(part, exif=False)
        except decode.BadImage:
            image = None
        assert (image is None) == (wanted is None), cut
        if wanted is not None:
            assert abs(image - wanted.astype(int)).mean() <= 2


@pytest.mark.parametrize("crop", ["inception_crop(8)", "random_crop(8)", "central_crop(8)"])
def test_a_truncated_jpeg_is_bad_wherever_the_box_lies(crop):
    """The bytes of the box may all be there."""
    photo = save(Image.fromarray(pictures.noise(90, 90)), "JPEG", quality=95)
    cut = photo[: len(photo) - 40]
    assert in_a_dataset([cut] * 30, f"decode|{crop}") == [None] * 30
    assert all(x is not None for x in in_a_dataset([photo] * 3, f"decode|{crop}"))


# ---------------------------------------------------------------- orientation


def turned(kind, orientation):
    """A file of that orientation, and the pixels of it when it is upright."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}.get(kind, {})
    content = save(PHOTO, kind, exif=exif, **options)
    return content, np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(content))))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_every_orientation_is_turned_upright_where_asked_for(kind):
    files, upright = zip(*[turned(kind, n) for n in range(1, 9)], strict=True)
    made = in_a_dataset(list(files), "decode(exif=True)")
    for n, (image, wanted) in enumerate(zip(made, upright, strict=True)):
        assert image.shape == wanted.shape, n + 1
        assert abs(image.astype(int) - wanted).mean() <= 2, n + 1
    for content, image in zip(files, in_a_dataset(list(files)), strict=True):
        assert abs(image.astype(int) - pillow(content)).mean() <= 2, "not turned, as Pillow has it"


def test_orientation_in_xmp_counts_and_damaged_exif_does_not():
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a tiff:Orientation="6"/></x:xmpmeta>'
    content = save(PHOTO, "JPEG", xmp=xmp)
    damaged = save(PHOTO, "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\xff\0\0\0")
    made = in_a_dataset([content, damaged], "decode(exif=True)")
    assert [image.shape for image in made] == [(60, 40, 3), (40, 60, 3)]


@pytest.mark.parametrize("orientation", [0, 1, 9, 300])
def test_orientations_that_mean_nothing_turn_nothing(orientation):
    content, _ = turned("PNG", orientation)
    (image,) = in_a_dataset([content], "decode(exif=True)")
    assert (image == np.asarray(PHOTO)).all()


def test_most_jpegs_of_cameras_stay_on_the_fast_path():
    assert not decode.is_turned(turned("JPEG", 1)[0])
    assert decode.is_turned(turned("JPEG", 6)[0])
    assert not decode.is_turned(JPEG)
    assert not decode.is_turned(PNG)
    assert decode.is_turned(turned("PNG", 3)[0])
    turned_jpeg, _ = turned("JPEG", 6)
    cut = turned_jpeg[: turned_jpeg.index(b"Exif") + 10]
    assert decode.is_turned(cut), "metadata that cannot be read may turn the image"


# ---------------------------------------------------------------- no warnings, real files


def test_warnings_of_pillow_do_not_leak():
    """Here they would be errors; an image of 100 megapixels makes Pillow warn of an attack."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        with pytest.raises(decode.BadImage, match=r"truncated|broken"):
            decode.with_pillow(png_header(10000, 10000) + PNG[33:])
        decode.with_pillow(palette(bytes(16)))
        assert warnings.filters == before
    assert caught == []


def test_every_odd_real_file_is_as_in_pillow_or_bad(data_dir):
    """66 files: CMYK, 16 bit, interlaced, lossless JPEG, truncated, not images at all."""
    with tarfile.open(data_dir / "odd_images.tar") as tar:
        files = {m.name.split("/", 1)[1]: tar.extractfile(m).read() for m in tar if m.isfile()}
    rows = list(csv.DictReader(files["manifest.csv"].decode().splitlines()))
    assert len(rows) == len(files) - 1 > 60
    bad = {row["file"] for row in rows if row["pillow_ok"] != "yes"}
    assert len(bad) == 11
    made = dict(zip(files, in_a_dataset(list(files.values())), strict=True))
    # Pillow decodes again the file that ends a dataset; see `bad_images`.
    assert {f for f in made if made[f] is None} - bad == {
        "manifest.csv",
        "jpeg_lossless_or_12bit__testimg_rgb.jpg",
    }
    # TensorFlow takes a JFIF segment that Pillow does not.
    tolerated = {"jpeg_corrupt__jfif-bogus-empty-jfif-segment.jpg"}
    assert {f for f in made if made[f] is not None} & bad == tolerated
    for name in bad:
        with pytest.raises(decode.BadImage):
            decode.with_pillow(files[name])
    for row in (row for row in rows if row["file"] not in bad):
        name, mode = row["file"], row["pillow_mode"]
        wanted = pillow(files[name])
        if mode.startswith("I;16"):
            values = np.asarray(Image.open(io.BytesIO(files[name]))).astype(float) / 257
            wanted = np.repeat(values[..., None], 3, axis=-1)
        image = decode.image(files[name], exif=False)
        assert image.shape == wanted.shape == (int(row["height"]), int(row["width"]), 3), name
        assert abs(image - wanted.astype(float)).mean() <= (8 if mode == "CMYK" else 2), name
        assert made[name] is None or (made[name] == image).all()


def test_pillow_modules_that_run_other_programs_are_left_out():
    assert "EPS" not in decode.FORMATS
    assert "EPS" in Image.OPEN or Image.init(), "or the test says nothing"


def test_tensorflow_is_kept_off_accelerators():
    version, seen, usable = tensorflow.accelerators()
    assert version.startswith("2.")
    assert seen == usable == []


# --- boxes ---


def compiled(function):
    specs = [tf.TensorSpec([], tf.string), tf.TensorSpec([2], tf.int64)]
    return tf.function(function, autograph=False, input_signature=specs)


@functools.cache
def chain(text, size=8):
    return compiled(preprocess.apply(preprocess.parse("data.train_ops", text, size)))


def op_by_op(text, size=8):
    """The chain without any fusion: each op by itself, with its own fold of the seed."""
    ops = preprocess.parse("data.train_ops", text, size)

    def apply(image, seed):
        for number, op in enumerate(ops):
            image = op(image, tf.random.experimental.stateless_fold_in(seed, number))
        return image

    return compiled(apply)


def seeds(count):
    return [tf.constant([7, k], tf.int64) for k in range(count)]


def photograph(height, width):
    """Something like one: smooth, with edges and strong colours."""
    small = Image.fromarray(pictures.noise(max(height // 6, 2), max(width // 6, 2)))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


FILES = (
    {
        f"{kind}, {height} x {width}": pictures.encode(
            photograph(height, width), "JPEG", quality=90, **options
        )
        for kind, options in {
            "4:4:4": {"subsampling": 0},  # size 8: boxes from 1/8 to 15 times as wide
            "4:2:2": {"subsampling": 1},
            "4:2:0": {"subsampling": 2},
            "4:1:1": {"subsampling": "4:1:1"},
            "progressive": {"progressive": True},
            "restarts": {"restart_marker_blocks": 2},
        }.items()
        for height, width in ((120, 90), (33, 17), (16, 16), (1, 1), (5, 64))
    }
    | {
        "gray": pictures.encode(photograph(50, 40)[..., :1], "JPEG"),
        "garbage after its end": pictures.encode(photograph(50, 40), "JPEG") + b"garbage",
        "PNG": pictures.encode(photograph(50, 40)),
        "GIF": pictures.encode(photograph(50, 40), "GIF"),
        "end without the middle": pictures.encode(photograph(90, 90), "JPEG")[:1500] + b"\xff\xd9",
    }
)
ONE, TWO = "decode|inception_crop({size})", "decode|inception_crop({size})|flip_lr|shift(2)"
CROPS = "decode|central_crop((5, 13))", "decode|random_crop((5, 13))|flip_lr"


def outcome(process, content, seed):
    """The pixels of a file after a chain, or why there are none."""
    try:
        return process(content, seed).numpy()
    except tf.errors.InvalidArgumentError as e:
        return tensorflow.plain(e)


@pytest.mark.integration
def test_one_pass_gives_the_pixels_of_two():
    cubic = "decode|inception_crop({size}, cubic=True)"  # which looks at columns farther away
    for text in (ONE, TWO, "decode(exif=True)|inception_crop({size})", cubic, *CROPS):
        fused, plain = chain(text), op_by_op(text)
        for name, content in FILES.items():
            for seed in seeds(12 if text == ONE else 3):
                found, wanted = (outcome(process, content, seed) for process in (fused, plain))
                np.testing.assert_array_equal(found, wanted, name)
                assert isinstance(found, str) == (text in CROPS and "1 x 1" in name)


def test_odd_real_files_are_cropped_alike_or_bad_alike(data_dir):
    with tarfile.open(data_dir / "odd_images.tar") as tar:
        files = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}
    for text in ("decode|central_crop(32)", "decode(exif=True)|random_crop((16, 41))"):
        fused, plain = chain(text), op_by_op(text)
        for name, content in files.items():
            for seed in seeds(2):
                found, wanted = (outcome(process, content, seed) for process in (fused, plain))
                np.testing.assert_array_equal(found, wanted, name)


def test_boxes_themselves_agree_at_their_edges():
    """A resize may leave out the columns at the edge, where chroma is interpolated."""
    crop = augment.InceptionCrop(64, area_min=0.02)
    box = compiled(lambda content, seed: crops.decode_box(decode.Decode(), crop, content, seed)[0])
    for name, content in FILES.items():
        image = decode.image(content, exif=False)
        for seed in seeds(12):
            begin, extent = (x.numpy() for x in crop.box(tf.constant(image.shape), seed))
            (y, x, _), (height, width, _) = begin, extent
            wanted = image[y : y + height, x : x + width]
            np.testing.assert_array_equal(box(content, seed), wanted, name)


@dataclasses.dataclass(frozen=True)
class At(resize.Crop):
    """The box that begins where the seed says."""

    def begin(self, room, seed):
        return tf.cast(seed, tf.int32)


@pytest.mark.parametrize("rows, columns", [(1, 1), (2, 2), (3, 3), (16, 15), (17, 31), (33, 35)])
def test_boxes_are_exact_wherever_they_lie(rows, columns):
    """Chroma of half the width or height is interpolated from neighbours."""
    options = {f"4:{n}": {"subsampling": k} for k, n in enumerate(("4:4", "2:2", "2:0"))}
    options |= {"progressive": {"progressive": True}, "gray": {}}
    crop = At((rows, columns))
    box = compiled(lambda content, at: crops.decode_box(decode.Decode(), crop, content, at)[0])
    for name, option in options.items():
        pixels = photograph(33, 35)[..., : 1 if name == "gray" else 3]
        content = pictures.encode(pixels, "JPEG", quality=90, **option)
        image = decode.image(content, exif=False)
        for y in range(0, 34 - rows, 3):
            for x in range(36 - columns):
                found = box(content, tf.constant([y, x], tf.int64))
                wanted = image[y : y + rows, x : x + columns]
                np.testing.assert_array_equal(found, wanted, f"{name}, {y}, {x}")


@pytest.mark.parametrize("text", [ONE, *CROPS])
def test_of_a_jpeg_only_the_box_is_decoded(text):
    graph = chain(text).get_concrete_function().graph.as_graph_def()
    ops = {node.op for function in graph.library.function for node in function.node_def}
    assert "DecodeAndCropJpeg" in ops


@pytest.mark.parametrize("crop", ["inception_crop(8)", "random_crop(8)", "central_crop((8, 30))"])
def test_turned_images_are_cropped_when_they_are_upright(crop):
    exif = Image.Exif()
    exif[0x0112] = 6
    content = pictures.encode(photograph(50, 40), "JPEG", exif=exif)
    upright = decode.with_pillow(content, exif=True)
    alone = preprocess.apply(preprocess.parse("", f"decode|{crop}", 8))
    for seed in seeds(5):
        found = chain(f"decode(exif=True)|{crop}")(content, seed)
        np.testing.assert_array_equal(found, alone(tf.constant(upright), seed))


# ---------------------------------------------------------------- at a reduced scale


class Negative(resize.CentralCrop):
    def __call__(self, image, seed):
        return 255 - super().__call__(image, seed)


def test_a_crop_of_ones_own_does_its_own_work():
    file = pictures.encode(pictures.smooth(40, 40), "JPEG")
    seed = tf.constant([1, 2], tf.int64)
    plain, own = (
        preprocess.apply((decode.Decode(), op(16)))(tf.constant(file), seed).numpy()
        for op in (resize.CentralCrop, Negative)
    )
    assert (own == 255 - plain).all()


FAST = "decode|fast_inception_crop({size})"


def test_small_boxes_are_those_of_the_exact_crop():
    """Boxes of less than twice the size cannot be reduced."""
    content = pictures.encode(photograph(60, 60), "JPEG")
    for seed in seeds(8):
        np.testing.assert_array_equal(chain(FAST, 32)(content, seed), chain(ONE, 32)(content, seed))


@pytest.mark.parametrize("name", ["PNG", "GIF", "garbage after its end"])
def test_other_files_are_cropped_exactly(name):
    for seed in seeds(3):
        np.testing.assert_array_equal(
            chain(FAST)(FILES[name], seed), chain(ONE)(FILES[name], seed), name
        )


def test_decoded_images_are_cropped_exactly():
    image = tf.constant(photograph(90, 90))
    fast, exact = crops.FastInceptionCrop(8), augment.InceptionCrop(8)
    for seed in seeds(3):
        np.testing.assert_array_equal(fast(image, seed), exact(image, seed))


@pytest.mark.parametrize("height, width", [(480, 640), (401, 333), (97, 800)])
def test_reduced_boxes_show_what_an_area_resize_shows(height, width):
    """Smooth content: what is left is the rounding of the box to pixels of the reduced image."""
    content = pictures.encode(pictures.smooth(height, width), "JPEG", quality=95, subsampling=0)
    image, crop = decode.image(content, exif=False), augment.InceptionCrop(16)
    fast = chain(FAST, 16)
    for seed in seeds(10):
        own = tf.random.experimental.stateless_fold_in(seed, 1)
        box = tf.slice(image, *crop.box(tf.constant(image.shape), own))
        wanted = tf.image.resize(tf.cast(box, tf.float32)[None], [16, 16], method="area")[0]
        assert fast(content, seed).shape == (16, 16, 3)
        assert abs(fast(content, seed).numpy() - wanted.numpy()).mean() < 4


def test_large_boxes_are_decoded_at_every_scale():
    ratios = set()
    for function in chain(FAST).get_concrete_function().graph.as_graph_def().library.function:
        ratios |= {n.attr["ratio"].i for n in function.node_def if n.op == "DecodeAndCropJpeg"}
    assert ratios == {1, 2, 4, 8}


def test_photographs_at_224_are_near_an_area_resize(data_dir):
    """The docstring's figures."""
    with tarfile.open(data_dir / "imagenet_sample200.tar") as tar:
        names = [m for m in tar.getmembers() if m.name.endswith(".JPEG")][:3]
        photos = [tar.extractfile(m).read() for m in names]
    fast = chain(FAST, 64)
    off = []
    for content in photos:
        image = decode.image(content, exif=False)
        for seed in seeds(6):
            own = tf.random.experimental.stateless_fold_in(seed, 1)
            box = tf.slice(image, *augment.InceptionCrop(64).box(tf.constant(image.shape), own))
            wanted = tf.image.resize(tf.cast(box, tf.float32)[None], [64, 64], method="area")[0]
            off.append(abs(fast(content, seed).numpy() - wanted.numpy()).mean())
    assert np.mean(off) < 8
