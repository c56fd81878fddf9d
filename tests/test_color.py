# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Colour jitter, blur and 3-Augment, against Pillow, numpy and colorsys."""

import colorsys

import numpy as np
import pictures
import pytest
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import color
from vit_jax.data.tensorflow import tf


def soft(height=20, width=27):
    """A picture where no factor up to 1.4 clips."""
    return (pictures.noise(height, width) // 4 + 60).astype(np.uint8)


def run(chain, image, seed=0):
    (op,) = preprocess.parse("k", chain, 8)
    out = op(tf.constant(image), tf.constant([3, seed], tf.int64))
    assert out.dtype == tf.uint8
    assert out.shape == image.shape
    return out.numpy()


# ---------------------------------------------------------------- jitter


@pytest.mark.parametrize("draw", [-1.0, 0.0, 0.5])
@pytest.mark.parametrize(
    "name, place, enhance",
    [
        ("brightness", 0, ImageEnhance.Brightness),
        ("contrast", 1, ImageEnhance.Contrast),
        ("saturation", 2, ImageEnhance.Color),
    ],
)
def test_each_is_that_of_pillow_with_a_factor_about_one(drawn, name, place, enhance, draw):
    draws = [0.9, -0.9, 0.9, 0.9]
    draws[place] = draw
    drawn(*draws)
    image = soft()
    wanted = np.asarray(enhance(Image.fromarray(image)).enhance(1 + 0.4 * draw))
    got = run(f"color_jitter({name}=0.4)", image)
    assert abs(got.astype(int) - wanted).max() <= 2  # Pillow rounds grey and result
    assert (got == image).all() == (draw == 0)


def test_jitter_together_is_one_after_another(drawn):
    drawn(0.5, -0.5, 0.75, 0.0)
    picture = Image.fromarray(soft())
    for enhance, factor in (("Color", 1.3), ("Brightness", 1.2), ("Contrast", 0.8)):
        picture = getattr(ImageEnhance, enhance)(picture).enhance(factor)
    got = run("color_jitter(0.4, 0.4, 0.4)", soft())
    assert abs(got.astype(int) - np.asarray(picture)).max() <= 3


def test_jitter_clips_and_a_factor_is_never_negative(drawn):
    drawn(1.0, 1.0, 1.0, 0.0)
    image = pictures.noise(9, 9)
    wanted = np.clip(np.round(image * 3.0), 0, 255)
    assert (run("color_jitter(2)", image) == wanted).all()
    drawn(0.0, 0.0, -1.0, 0.0)
    gray = np.asarray(Image.fromarray(image).convert("L"))[..., None]
    assert abs(run("color_jitter(saturation=2)", image).astype(int) - gray).max() <= 1


@pytest.mark.parametrize("draw", [-1.0, 0.4])
def test_hue_turns_by_a_share_of_the_circle(drawn, draw):
    drawn(0.0, 0.0, 0.0, draw)
    image = pictures.noise(6, 7)

    def turned(pixel):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
        return np.array(colorsys.hsv_to_rgb((hue + 0.2 * draw) % 1, saturation, value)) * 255

    wanted = np.apply_along_axis(turned, 2, image.astype(float))
    assert abs(run("color_jitter(hue=0.2)", image) - wanted).max() <= 0.6


def test_factors_are_drawn_evenly_and_apart():
    image = np.full((4, 4, 3), 100, np.uint8)
    levels = np.array([run("color_jitter(0.5)", image, s)[0, 0, 0] for s in range(300)])
    assert 48 < levels.min() < 60
    assert 140 < levels.max() < 152
    assert 93 < levels.mean() < 107
    results = {run("color_jitter(0, 0.4, 0.4)", soft(), s).tobytes() for s in range(20)}
    assert len(results) == 20


def test_jitter_of_nothing_is_the_image():
    image = pictures.noise(9, 9)
    assert (run("color_jitter", image) == image).all()


# ---------------------------------------------------------------- 3-Augment


@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0])
def test_blur_is_a_gaussian(sigma):
    image = pictures.noise(30, 41)
    got = color.blur(tf.constant(image), tf.constant(sigma)).numpy().astype(float)
    offsets = np.arange(-6, 7)
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    weights /= weights.sum()
    wanted = np.pad(image.astype(float), [(6, 6), (6, 6), (0, 0)], "symmetric")
    for axis in (0, 1):
        wanted = np.apply_along_axis(np.convolve, axis, wanted, weights, "valid")
    assert abs(got - wanted).max() <= 0.51
    pillow = Image.fromarray(image).filter(ImageFilter.GaussianBlur(sigma))
    assert abs(got - np.asarray(pillow))[6:-6, 6:-6].mean() < 3


def test_three_augment_takes_one_of_three_then_jitters(monkeypatch):
    monkeypatch.setattr(color.ColorJitter, "__call__", lambda self, image, seed: image)
    image = pictures.noise(12, 15)
    gray = np.asarray(Image.fromarray(image).convert("L"))[..., None].repeat(3, axis=-1)
    solarized = np.asarray(ImageOps.solarize(Image.fromarray(image), 128))
    counts = {"gray": 0, "solarized": 0, "blurred": 0}
    blurred = set()
    for seed in range(240):
        got = run("three_augment", image, seed)
        if abs(got.astype(int) - gray).max() <= 1:
            counts["gray"] += 1
        elif (got == solarized).all():
            counts["solarized"] += 1
        else:
            counts["blurred"] += 1
            blurred.add(round(got.std()))
            assert got.std() <= image.std() + 0.01
            assert abs(got.mean() - image.mean()) < 3
    assert 55 < min(counts.values()) <= max(counts.values()) < 105
    assert len(blurred) > 15


def test_three_augment_jitters_by_three_tenths():
    image = np.full((8, 8, 3), 100, np.uint8)  # what grey and blur leave alone
    levels = [int(run("three_augment", image, s)[0, 0, 0]) for s in range(150)]
    assert 69 <= min(levels) < 76
    assert 124 < max(levels) <= 131


@pytest.mark.parametrize("chain", ["three_augment", "color_jitter(0.3, 0.3, 0.3, 0.1)"])
def test_result_is_a_function_of_the_seed_in_a_graph_of_unknown_size(chain):
    specs = [tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([2], tf.int64)]
    process = preprocess.apply(preprocess.parse("k", chain, 8))
    graph = tf.function(process, input_signature=specs)
    image = pictures.noise(9, 12)

    def results():
        return [graph(image, tf.constant([1, s], tf.int64)).numpy().tobytes() for s in range(12)]

    assert results() == results()
    assert len(set(results())) == 12
