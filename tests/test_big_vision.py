# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The resizing of big_vision, against numpy: sizes, pixels, truncation."""

import numpy as np
import pictures
import pytest

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import resize
from vit_jax.data.tensorflow import tf

SEED = (0, 0)


def area(image, height, width):
    """The mean over what each pixel covers."""
    for axis, size in ((0, height), (1, width)):
        step = image.shape[axis] / size
        pixel, out = np.arange(image.shape[axis]), np.arange(size)[:, None]
        covered = np.minimum(pixel + 1, (out + 1) * step) - np.maximum(pixel, out * step)
        weights = np.maximum(covered, 0) / step
        image = np.moveaxis(np.tensordot(weights, image.astype(float), (1, axis)), 0, axis)
    return image


def bilinear(image, height, width):
    """Half-pixel centres, edges repeated, no averaging when shrinking."""
    for axis, size in ((0, height), (1, width)):
        at = (np.arange(size) + 0.5) * image.shape[axis] / size - 0.5
        low, share = np.floor(at).astype(int), at - np.floor(at)
        weights = np.zeros((size, image.shape[axis]))
        for shift, weight in ((0, 1 - share), (1, share)):
            ends = np.clip(low + shift, 0, image.shape[axis] - 1)
            np.add.at(weights, (np.arange(size), ends), weight)
        image = np.moveaxis(np.tensordot(weights, image.astype(float), (1, axis)), 0, axis)
    return image


def assert_truncated(got, wanted):
    """Equal to the fraction dropped; either neighbour where float32 ends at a whole number."""
    assert got.dtype == np.uint8
    assert got.shape == wanted.shape
    low, high = np.floor(wanted - 0.01), np.floor(wanted + 0.01)
    assert ((got == low) | (got == high)).all()


@pytest.mark.parametrize("height, width", [(5, 7), (13, 4), (64, 40), (1, 1)])
@pytest.mark.parametrize("size", [1, 3, 8, 20])
def test_resize(height, width, size):
    image = pictures.noise(height, width)
    got = resize.BvResize(size)(tf.constant(image), SEED).numpy()
    assert_truncated(got, bilinear(image, size, size))


@pytest.mark.parametrize(
    "height, width, size, shape",
    [
        (40, 60, 16, (16, 24)),
        (61, 47, 20, (26, 20)),
        (10, 7, 14, (20, 14)),
        (9, 9, 9, (9, 9)),
        (375, 500, 256, (256, 341)),
        (3, 300, 1, (1, 100)),
        (6, 15, 1, (1, 2)),  # 2.5 is rounded to even
    ],
)
def test_resize_small_averages_over_areas(height, width, size, shape):
    image = pictures.noise(height, width)
    got = resize.BvResizeSmall(size)(tf.constant(image), SEED).numpy()
    assert_truncated(got, area(image, *shape))


def test_the_fraction_is_dropped():
    image = np.array([[[0] * 3, [255] * 3]], np.uint8)
    got = resize.BvResize(4)(tf.constant(image), SEED).numpy()
    assert got[0, :, 0].tolist() == [0, 63, 191, 255]  # 63.75, 191.25
    assert resize.BvResizeSmall(1)(tf.constant(image), SEED).numpy()[0, :, 0].tolist() == [
        0,
        255,
    ]
    tall = np.array([[[1] * 3, [2] * 3]] * 4, np.uint8)
    assert (resize.BvResizeSmall(1)(tf.constant(tall), SEED).numpy() == 1).all()  # 1.5


def test_a_chain_in_a_graph_of_unknown_size():
    chain = "bv_resize_small({size*8//7})|central_crop({size})"
    specs = [tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([2], tf.int64)]
    process = preprocess.apply(preprocess.parse("k", chain, 14))
    image = pictures.noise(30, 41)
    got = tf.function(process, input_signature=specs)(image, tf.constant([0, 0], tf.int64))
    assert_truncated(got.numpy(), area(image, 16, 22)[1:15, 4:18])
