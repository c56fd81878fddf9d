# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One pass gives the pixels of two; at a reduced scale, nearly those of an area resize."""

import functools
import tarfile

import numpy as np
import pictures
import pytest
from PIL import Image

from vit_jax.data.ops import augment, crops, decode
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.tensorflow import tf


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


def test_one_pass_gives_the_pixels_of_two():
    for text in (ONE, TWO, "decode(exif=True)|inception_crop({size})"):
        fused, plain = chain(text), op_by_op(text)
        for name, content in FILES.items():
            for seed in seeds(12 if text == ONE else 3):
                np.testing.assert_array_equal(fused(content, seed), plain(content, seed), name)


def test_boxes_themselves_agree_at_their_edges():
    """A resize may leave out the columns at the edge, where chroma is interpolated."""
    crop = augment.InceptionCrop(64, area_min=0.02)
    box = compiled(lambda content, seed: crops.decode_box(decode.Decode(), crop, content, seed))
    for name, content in FILES.items():
        image = decode.image(content, exif=False)
        for seed in seeds(12):
            begin, extent = (x.numpy() for x in crop.box(tf.constant(image.shape), seed))
            (y, x, _), (height, width, _) = begin, extent
            wanted = image[y : y + height, x : x + width]
            np.testing.assert_array_equal(box(content, seed), wanted, name)


def test_of_a_jpeg_only_the_box_is_decoded():
    graph = chain(ONE).get_concrete_function().graph.as_graph_def()
    ops = {node.op for function in graph.library.function for node in function.node_def}
    assert "DecodeAndCropJpeg" in ops


def test_turned_images_are_cropped_when_they_are_upright():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = pictures.encode(photograph(50, 40), "JPEG", exif=exif)
    upright = decode.with_pillow(content, exif=True)
    crop = preprocess.apply(preprocess.parse("", "decode|inception_crop(8)", 8))
    for seed in seeds(5):
        found = chain("decode(exif=True)|inception_crop(8)")(content, seed)
        np.testing.assert_array_equal(found, crop(tf.constant(upright), seed))


# ---------------------------------------------------------------- at a reduced scale

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
