# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Datasets that are prepared with smaller images."""

import io

import archive_files
import numpy as np
import pictures
import pytest
from PIL import Image
from test_python_reader import pipes, same

from vit_jax.cli.main import main
from vit_jax.data.ops.decode import BadImage, Decode
from vit_jax.data.prepare import writer
from vit_jax.data.prepare.packing import Packing
from vit_jax.data.sources import registry as sources
from vit_jax.data.sources.source import Options

SMALLER = Packing(size=32, quality=90)
TALL = pictures.smooth(120, 90)


def opened(content):
    return Image.open(io.BytesIO(content))


def encoded(image, kind="JPEG", **options):
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    "height, width, sides", [(120, 90, (32, 43)), (64, 200, (100, 32)), (33, 33, (32, 32))]
)
def test_the_shorter_side_has_the_size_and_the_aspect_ratio_stays(height, width, sides):
    image = opened(SMALLER.packed(encoded(pictures.smooth(height, width))))
    assert (image.size, image.format, image.mode) == (sides, "JPEG", "RGB")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP"])
def test_pixels_are_those_of_a_resize_with_averaging(kind):
    found = np.asarray(opened(SMALLER.packed(encoded(TALL, kind, quality=95))), float)
    expected = Image.fromarray(TALL).resize((32, 43), Image.Resampling.BOX)
    assert np.abs(found - np.asarray(expected, float)).mean() < 4
    wrong = Image.fromarray(TALL[:, ::-1]).resize((32, 43), Image.Resampling.BOX)
    assert np.abs(found - np.asarray(wrong, float)).mean() > 8


def test_small_images_are_copied_and_others_follow_the_quality():
    small = encoded(pictures.noise(32, 50), "PNG")
    assert SMALLER.packed(small) == small
    large = encoded(pictures.noise(80, 80))
    assert len(Packing(32, 30).packed(large)) < len(SMALLER.packed(large)) < len(large)


@pytest.mark.parametrize("turn", [6, None])
def test_the_orientation_of_a_camera_is_kept(turn):
    exif = Image.Exif()
    exif[0x010F] = "camera"
    if turn:
        exif[0x0112] = turn
    packed = opened(SMALLER.packed(encoded(TALL, exif=exif)))
    assert packed.getexif().get(0x0112) == turn
    assert 0x010F not in packed.getexif()
    assert packed.size == (32, 43)


LOSSLESS = Packing(size=32, quality=None)


@pytest.mark.parametrize("height, width", [(120, 90), (20, 30)])
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_without_loss_pixels_are_those_of_pillow_resized_or_not(height, width, kind):
    content = encoded(pictures.smooth(height, width), kind)
    original = opened(content).convert("RGB")
    if height > 32:
        original = original.resize((32, 43), Image.Resampling.BICUBIC)
    packed = LOSSLESS.packed(content)
    image = opened(packed)
    assert (image.format, image.mode) == ("PPM", "RGB")
    np.testing.assert_array_equal(np.asarray(image), np.asarray(original))
    assert len(packed) < 3 * image.width * image.height + 20


@pytest.mark.parametrize("turn, kind", [(6, "PNG"), (1, "PPM")])
def test_without_loss_an_image_that_is_not_upright_says_so(turn, kind):
    exif = Image.Exif()
    exif[0x0112] = turn
    packed = LOSSLESS.packed(encoded(TALL, exif=exif))
    assert opened(packed).format == kind
    for op, sides in ((Decode(), (43, 32, 3)), (Decode(exif=True), (32, 43, 3))):
        assert op.image(packed).shape == (sides if turn == 6 else (43, 32, 3))


@pytest.mark.parametrize("packing", [SMALLER, LOSSLESS])
def test_a_turned_tiff_is_turned_once(packing):
    exif = Image.Exif()
    exif[0x0112] = 6
    packed = packing.packed(encoded(TALL, "TIFF", exif=exif))
    assert Decode(exif=True).image(packed).shape == (32, 43, 3)


@pytest.mark.parametrize("packing", [SMALLER, LOSSLESS])
def test_damaged_metadata_are_left_out(packing):
    jpeg = encoded(TALL)
    # A text where the orientation should be.
    exif = b"Exif\0\0II*\0\x08\0\0\0\x02\0\x12\x01\x02\0\x02\0\0\0x\0\0\0"
    damaged = jpeg[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif + jpeg[2:]
    assert Decode(exif=True).image(packing.packed(damaged)).shape == (43, 32, 3)


def test_damaged_files_are_refused():
    with pytest.raises(BadImage):
        SMALLER.packed(encoded(pictures.noise(60, 60), "PNG")[:3000])


CUT = encoded(pictures.noise(60, 60), "PNG")[:3000]
FILES = {f"{c}/{i}.png": encoded(pictures.smooth(60 + i, 80), "PNG") for c in "ab" for i in (0, 1)}


def prepared(tmp_path, *words, name="mine"):
    origin = tmp_path / "images"
    archive_files.unpacked(origin, FILES | {"a/cut.png": CUT})
    data = f"--data_dir={tmp_path / 'data'}"
    return main(["data", "prepare", name, f"--from={origin}", data, *words])


def test_files_of_records_have_about_their_usual_size_without_loss_too(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "SHARD_BYTES", 24 * 32 * 3)
    assert prepared(tmp_path, "--size=24", "--quality=lossless") == 0
    sizes = [path.stat().st_size for path in (tmp_path / "data").glob("mine*/*/*.tfrecord*")]
    assert len(sizes) == 5  # one has the damaged image alone
    assert max(sizes) < 2 * writer.SHARD_BYTES


def test_both_readers_make_the_same_batches_of_what_is_stored_without_loss(tmp_path):
    assert prepared(tmp_path, "--size=24", "--quality=lossless") == 0
    options = Options(str(tmp_path / "data"))
    source = sources.open_source("tfds:mine_24_lossless", options, val_percent=0, test_percent=0)
    split = source.split("train")
    stored = {opened(split.image_reader()(row)).format for row in range(len(split))}
    assert stored == {"PPM"}
    tf, python = pipes(split, "decode|inception_crop({size})|flip_lr", (16, 16), batch_size=4)
    for expected, made in zip(tf.train(0, 2), python.train(0, 2), strict=True):
        same(expected, made)


def test_a_packed_dataset_has_a_name_of_its_own_and_is_read(tmp_path, capsys):
    assert prepared(tmp_path) == 0
    assert prepared(tmp_path, "--size=24", "--quality=80") == 0
    told = capsys.readouterr().out
    assert "tfds:mine_24_q80:1.0.0" in told
    assert told.count("a/cut.png") == 1  # what is copied is not decoded
    options, sides = Options(str(tmp_path / "data")), {}
    for name in ("mine", "mine_24_q80"):
        spec = f"tfds:{name}"
        source = sources.open_source(spec, options, val_percent=0, test_percent=0)
        split = source.splits["train"]
        content = [split.table.reader()(row)[0].numpy() for row in range(len(split))]
        sides[name] = sorted({opened(one).size for one in content})
    assert sides == {"mine": [(60, 60), (80, 60), (80, 61)], "mine_24_q80": [(31, 24), (32, 24)]}


@pytest.mark.parametrize("words, name, parts", [
    (["--quality=50"], "mine", ["--quality=50", "without --size"]),
    (["--size=-3"], "mine", ["--size=-3", "1 to 4096"]),
    (["--size=24", "--quality=101"], "mine", ["--quality=101", "1 to 100", "lossless"]),
    (["--size=24", "--quality=png"], "mine", ["--quality=png", "1 to 100", "lossless"]),
    (["--quality=lossless"], "mine", ["--quality=lossless", "without --size"]),
    (["--size=24"], "cifar10", ["--size=24", "cifar10", "leave it out"]),
    (["--size=24"], "vtab/all", ["--size=24", "vtab/all", "leave it out"]),
])  # fmt: skip
def test_what_cannot_be_packed_is_refused(tmp_path, capsys, words, name, parts):
    assert prepared(tmp_path, *words, name=name) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in parts), said
    assert not (tmp_path / "data").exists()
