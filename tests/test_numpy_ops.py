# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Ops without TensorFlow do what the ops with it do, with the same random numbers."""

import contextlib
import csv
import functools
import io
import tarfile

import numpy as np
import pictures
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vit_jax.data.numpy_ops import chain as numpy_chain
from vit_jax.data.numpy_ops import decode as numpy_decode
from vit_jax.data.numpy_ops import draws, randaugment, resize
from vit_jax.data.ops import chain, decode
from vit_jax.data.ops import randaugment as tf_randaugment
from vit_jax.data.ops.augment import InceptionCrop
from vit_jax.data.splits import order
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

INT64 = st.integers(-(2**63), 2**63 - 1)
SEEDS = st.tuples(INT64, INT64)


# ---------------------------------------------------------------- random numbers


@given(SEEDS, st.integers(0, 2**31 - 1))
def test_random_numbers_are_those_of_tensorflow(seed, number):
    tensor = tf.constant(seed, tf.int64)
    uniform = tf.random.stateless_uniform
    assert np.array_equal(uniform([9], tensor), draws.uniform(seed, 9))
    assert np.array_equal(uniform([5], tensor, -1.0, 1.0), draws.uniform(seed, 5, -1, 1))
    below = uniform([3], tensor, maxval=tf.int32.max, dtype=tf.int32)
    assert below.numpy().tolist() == draws.integers(seed, 3, 2**31 - 1)
    noise = uniform([3, 5, 3], tensor, 0, 256, tf.int32).numpy()
    assert np.array_equal(noise, draws.noise(seed, (3, 5, 3)))
    folded = draws.fold_in(seed, number)
    assert tuple(tf.random.experimental.stateless_fold_in(tensor, number).numpy()) == folded
    assert order.numpy_stream_of(folded, "a", 1) == tuple(
        order.stream_of(tf.constant(folded, tf.int64), "a", 1).numpy()
    )


@functools.cache
def boxes(area_min):
    return tf.function(lambda shape, seed: InceptionCrop(5, area_min).box(shape, seed))


@given(SEEDS, st.integers(1, 700), st.integers(1, 700), st.sampled_from([0.05, 0.9, 1.0]))
def test_boxes_are_those_of_tensorflow(seed, height, width, area_min):
    shape = tf.constant([height, width, 3])
    begin, extent = boxes(area_min)(shape, tf.constant(seed, tf.int64))
    expected = (*begin.numpy()[:2], *extent.numpy()[:2])
    assert draws.box(seed, height, width, (area_min, 1.0), (0.75, 1.33)) == expected


@given(st.data(), st.integers(0, 2**31 - 1))
def test_the_order_is_that_of_tensorflow(data, seed):
    examples = data.draw(st.sampled_from([1, 2, 1280, 65536, 65537, 65538, 1_281_167, 2**33 + 1]))
    first = data.draw(st.integers(0, 3 * examples))
    positions = np.arange(first, first + 4)  # may cross the end of an epoch
    expected = [int(order.example_at(tf.constant(p), examples=examples, seed=seed))
                for p in positions]  # fmt: skip
    assert order.examples_at(positions, examples=examples, seed=seed).tolist() == expected


# ---------------------------------------------------------------- ops

CHAINS = (
    "resize(40)", "resize((21, 71))", "resize(40, antialias=True)", "resize_small(24)",
    "resize_small(24, antialias=False)", "resize_inside(24)", "resize_inside((9, 40))|pad((9, 40))",
    "scale_jitter((20, 30))", "scale_jitter(24, smallest=0.5, largest=1.5, covers=True)",
    "resize_small((80, 20))", "central_crop(16)", "resize(40, cubic=True)",
    "resize_small(24, cubic=True)", "resize_inside((9, 40), cubic=True)",
    "inception_crop(32, cubic=True)",
    "bv_resize(40)", "bv_resize_small(24)", "bv_resize_small(90)", "random_crop((16, 9))",
    "inception_crop(32)", "flip_lr", "shift(5)", "affine(degrees=30, scale=0.2, shift=3)",
    "color_jitter(0.4, 0.4, 0.4)", "color_jitter(0.4, 0.4, 0.2, 0.1, probability=0.8)",
    "three_augment", "random_erasing(1.0)", "random_erasing(0.5, fill=7)", "grayscale(0.5)",
    "solarize(0.5)", "resize(48)|gaussian_blur(1.0)", "randaug(2, 10)", "randaug(1, 0)",
)  # fmt: skip


@functools.cache
def with_tensorflow(text):
    (*ops,) = chain.parse("ops", text, 32)
    kinds = [tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([2], tf.int64)]
    return tuple(ops), tf.function(chain.apply(tuple(ops)), input_signature=kinds, autograph=False)


def picture(height, width, seed):
    """Noise, or a few colours in areas and slopes; edges, ties and plain areas all occur."""
    if seed % 2:
        return pictures.noise(height, width, seed=seed)
    coarse = pictures.noise(3, 3, seed=seed).astype(np.float32)
    rows, columns = (np.linspace(0, 2, n) for n in (height, width))
    near = coarse[np.rint(rows).astype(int)[:, None], np.rint(columns).astype(int)]
    slope = np.linspace(0, 60, width)[None, :, None] * (seed % 4 // 2)
    return np.clip(near + slope, 0, 255).astype(np.uint8)


@pytest.mark.integration
@pytest.mark.parametrize("text", CHAINS)
@given(st.integers(16, 70), st.integers(16, 70), st.integers(0, 99), SEEDS)
def test_ops_are_within_one_grey_level_of_tensorflow(text, height, width, kind, seed):
    image = picture(height, width, kind)
    ops, process = with_tensorflow(text)
    expected = process(image, tf.constant(seed, tf.int64)).numpy().astype(int)
    made = numpy_chain.apply(ops, image, seed)
    assert made.dtype == np.uint8
    assert made.shape == expected.shape
    assert abs(made - expected).max() <= 1


MOVING = (
    "resize(40)", "resize_small(24)", "bv_resize_small(24)", "central_crop(16)",
    "resize_inside((9, 40))|pad((9, 40))", "scale_jitter((20, 30))",
    "scale_jitter(24, smallest=0.5, largest=1.5, covers=True)", "random_crop((16, 9))",
    "inception_crop(32)", "flip_lr", "shift(5)", "affine(degrees=30, scale=0.2, shift=3)",
    "random_erasing(1.0)", "grayscale(0.5)",
)  # fmt: skip


@functools.cache
def fields_with_tensorflow(text):
    (*ops,) = chain.parse("ops", text, 32)
    kinds = {
        "image": tf.TensorSpec([None, None, 3], tf.uint8),
        "mask": tf.TensorSpec([None, None], tf.int32),
        "boxes": tf.TensorSpec([5, 4], tf.float32),
        "box_classes": tf.TensorSpec([5], tf.int32),
    }
    signature = [kinds, tf.TensorSpec([2], tf.int64)]
    process = chain.apply_to_fields(tuple(ops))
    return tuple(ops), tf.function(process, input_signature=signature, autograph=False)


@pytest.mark.parametrize("text", MOVING)
@given(st.integers(16, 70), st.integers(16, 70), st.integers(0, 99), SEEDS)
def test_masks_and_boxes_move_as_with_tensorflow(text, height, width, kind, seed):
    rng, sides = np.random.default_rng(kind), np.array([width, height] * 2)
    shares = np.sort(rng.random((5, 2, 2)), axis=1).reshape(5, 4)
    fields = {
        "image": picture(height, width, kind),
        "mask": rng.integers(-1, 9, (height, width), np.int32),
        "boxes": (shares * sides).astype(np.float32),
        "box_classes": np.array([0, 3, 1, 2, -1], np.int32),
    }
    ops, process = fields_with_tensorflow(text)
    expected = {key: x.numpy() for key, x in process(fields, tf.constant(seed, tf.int64)).items()}
    made = numpy_chain.apply_to_fields(ops, fields, seed)
    assert made.keys() == expected.keys()
    for key, x in made.items():
        assert (x.dtype, x.shape) == (expected[key].dtype, expected[key].shape), key
    assert abs(made["image"].astype(int) - expected["image"]).max() <= 1
    np.testing.assert_array_equal(made["mask"], expected["mask"])
    np.testing.assert_array_equal(made["box_classes"], expected["box_classes"])
    np.testing.assert_allclose(made["boxes"], expected["boxes"], atol=1e-4)


@functools.cache
def layer(name, magnitude):
    kinds = [tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([3], tf.float32)]
    op = tf_randaugment.OPS[name]
    return tf.function(lambda image, shares: op(image, magnitude / 10, shares), kinds)


@pytest.mark.parametrize("number, name", list(enumerate(tf_randaugment.OPS)))
def test_every_op_of_randaugment_equals_that_of_tensorflow(number, name):
    for seed in range(8):
        image = picture(40 + seed, 50, seed)
        shares = np.random.default_rng(seed).random(3, np.float32)
        for magnitude in (0, 9, 15):
            made = randaugment.OPS[number](image, magnitude / 10, shares)
            assert np.array_equal(made, layer(name, magnitude)(image, shares)), magnitude


@pytest.mark.parametrize("sides", [(1, 1), (1, 7), (5, 1), (2, 2)])
def test_sharpness_of_a_few_pixels_is_that_of_tensorflow(sides):
    image = picture(*sides, 1)
    number = list(tf_randaugment.OPS).index("sharpness")
    shares = np.zeros(3, np.float32)
    made = randaugment.OPS[number](image, 1.0, shares)
    assert np.array_equal(made, layer("sharpness", 10)(image, shares))


def test_what_tensorflow_refuses_to_blur_is_refused():
    blurred = chain.parse("ops", "decode|resize_small(9)|gaussian_blur", 8)
    with pytest.raises(BadInput, match="put it after an op that sets the size"):
        numpy_chain.check_files(blurred)
    numpy_chain.check_files(chain.parse("ops", "decode|resize(9)|flip_lr|gaussian_blur", 8))
    ops, process = with_tensorflow("three_augment")
    image, seeds = picture(5, 9, 1), [(0, n) for n in range(9)]
    passing = set()
    for seed in seeds:
        with contextlib.suppress(tf.errors.InvalidArgumentError):
            process(image, tf.constant(seed, tf.int64))
            passing.add(seed)
    with_numpy = set()
    for seed in seeds:
        with contextlib.suppress(resize.Unsuitable):
            numpy_chain.apply(ops, image, seed)
            with_numpy.add(seed)
    assert passing == with_numpy
    assert 0 < len(passing) < len(seeds)


def test_every_op_has_a_form_in_numpy_and_another_is_named():
    assert {chain.OPS[name] for name in chain.OPS} == numpy_chain.APPLY.keys()

    class Own:
        def __call__(self, image, seed):
            return image

    with pytest.raises(BadInput, match=r"op Own is written for TensorFlow alone.*reader=tf"):
        numpy_chain.check((Own(),))
    Own.in_numpy = lambda self, image, seed: image + 1  # type: ignore[attr-defined]
    numpy_chain.check((Own(),))
    assert numpy_chain.apply((Own(),), np.zeros([1, 1, 3], np.uint8), (0, 0)).sum() == 3


# ---------------------------------------------------------------- files


def members(path):
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile():
                yield member.name.rpartition("/")[2], tar.extractfile(member).read()


@pytest.mark.parametrize("crop", ["inception_crop", "fast_inception_crop"])
def test_photographs_are_decoded_and_cropped_as_by_tensorflow(data_dir, crop):
    ops = chain.parse("ops", f"decode|{crop}({{size}})|flip_lr", 48)
    kinds = [tf.TensorSpec([], tf.string), tf.TensorSpec([2], tf.int64)]
    process = tf.function(chain.apply(ops), kinds, autograph=False)
    photographs = [data for name, data in members(data_dir / "imagenet_sample200.tar")
                   if name.endswith("JPEG")][::8]  # fmt: skip
    for number, content in enumerate(photographs):
        expected = tf.io.decode_jpeg(content, channels=3).numpy()
        made = numpy_decode.pixels(decode.Decode(), content)
        assert np.array_equal(made, expected)
        seed = (1, number)
        expected = process(content, tf.constant(seed, tf.int64)).numpy()
        assert np.array_equal(numpy_chain.apply(ops, content, seed), expected)


# simplejpeg refuses this file for stray bytes between its segments. Pillow, which reads it then,
# has a more exact inverse transform than TensorFlow's: some pixels differ by as many grey levels.
BY_PILLOW = {"jpeg_icc__jpeg_ff00_header.jpg": 16}


def verdict(decoded, content):
    try:
        return decoded(content), ""
    except decode.BadImage as e:
        return None, str(e)


@pytest.mark.parametrize("exif", [False, True])
def test_odd_files_have_the_same_verdict_and_pixels_as_with_tensorflow(data_dir, exif):
    op, differing = decode.Decode(exif), {}
    files = dict(members(data_dir / "odd_images.tar"))
    names = [row["file"] for row in csv.DictReader(io.StringIO(files["manifest.csv"].decode()))]
    assert len(names) == 66
    for name in (name.rpartition("/")[2] for name in names):
        expected, reason = verdict(op.image, files[name])
        made, other_reason = verdict(lambda content: numpy_decode.pixels(op, content), files[name])
        assert reason == other_reason, name
        if made is not None:
            assert made.shape == expected.shape, name
            if (worst := int(abs(made.astype(int) - expected).max())) > 1:
                differing[name] = worst
    assert differing == BY_PILLOW


@pytest.mark.parametrize("fields", ["boxes", "mask"])
def test_a_random_crop_larger_than_the_image_is_unsuitable_beside_fields(fields):
    image = np.zeros((15, 20, 3), np.uint8)
    beside = {"boxes": np.float32([[1, 1, 9, 9]]), "mask": np.zeros((15, 20), np.int32)}
    example = {"image": image, fields: beside[fields]}
    with pytest.raises(resize.Unsuitable, match="20 x 15 pixels are less than the crop"):
        numpy_chain.apply_to_fields(chain.parse("x", "random_crop(16)", 16), example, (0, 0))
