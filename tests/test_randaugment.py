# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""RandAugment: each op against Pillow or numpy, what large magnitudes do, and how ops are drawn."""

import numpy as np
import pictures
import pytest
from pictures import with_many_seeds as many
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vit_jax.data.ops import chain as preprocess
from vit_jax.data.ops import randaugment
from vit_jax.data.tensorflow import tf

ODD = (23, 40)
LEVELS = [0.0, 0.5, 1.4]  # 0.5 changes nothing; 1 is the most that is meant


def smooth_noise(height, width, seed=0):
    """A picture with a histogram that is not flat, and with another range in each channel."""
    image = pictures.noise(height, width, seed=seed).astype(float)
    return (image * [0.3, 0.6, 0.2] + [40, 15, 120]).astype(np.uint8)


def apply(name, image, level=1.0, sign=1, y=0.5, x=0.5):
    """One op."""
    draws = tf.constant([0.25 if sign > 0 else 0.75, y, x], tf.float32)
    out = randaugment.OPS[name](tf.constant(image), level, draws)
    assert out.dtype == tf.uint8
    assert out.shape == image.shape
    return out.numpy()


def difference(a, b):
    return abs(np.asarray(a).astype(int) - np.asarray(b).astype(int))


# ---------------------------------------------------------------- colours, exactly


def test_invert():
    image = pictures.noise(*ODD)
    assert (apply("invert", image) == np.asarray(ImageOps.invert(Image.fromarray(image)))).all()


@pytest.mark.parametrize("height, width", [(3, 5), (90, 71)])
def test_equalize_is_that_of_pillow(height, width):
    image = smooth_noise(height, width)
    wanted = np.asarray(ImageOps.equalize(Image.fromarray(image)))
    assert (apply("equalize", image) == wanted).all()
    if height == 90:
        assert difference(wanted, image).mean() > 20


@pytest.mark.parametrize("name", ["equalize", "auto_contrast"])
def test_a_channel_of_one_value_is_left(name):
    for value in (0, 7, 255):
        image = smooth_noise(40, 40)
        image[..., 1] = value
        got = apply(name, image)
        assert (got[..., 1] == value).all()
        assert difference(got, image)[..., 0].mean() > 20


def test_auto_contrast_is_that_of_pillow():
    image = smooth_noise(*ODD)
    wanted = ImageOps.autocontrast(Image.fromarray(image))
    got = apply("auto_contrast", image)
    assert difference(got, wanted).max() <= 1  # Pillow computes in double precision
    assert (got.min(axis=(0, 1)) == 0).all()
    assert (got.max(axis=(0, 1)) >= 254).all()


@pytest.mark.parametrize(
    "level, bits",
    [(0.0, 1), (0.3, 1), (0.5, 2), (1.5, 6), (2.0, 8), (2.8, 1)],
)
def test_posterize_keeps_bits_and_at_least_one(level, bits):
    """More for larger levels; beyond 8 the shift wraps around, and TensorFlow cuts it to 7."""
    image = pictures.noise(9, 11)
    wanted = np.asarray(ImageOps.posterize(Image.fromarray(image), bits))
    assert (apply("posterize", image, level) == wanted).all()


@pytest.mark.parametrize("level, threshold", [(0.0, 0), (0.3, 76), (1.5, 128)])
def test_solarize_inverts_from_a_threshold_that_wraps_around(level, threshold):
    image = pictures.noise(9, 11)
    wanted = np.asarray(ImageOps.solarize(Image.fromarray(image), threshold))
    assert (apply("solarize", image, level) == wanted).all()


@pytest.mark.parametrize("level, added", [(0.0, 0), (0.5, 55), (2.0, 220)])
def test_solarize_add_brightens_what_is_dark(level, added):
    image = pictures.noise(9, 11)
    wanted = np.where(image < 128, np.minimum(image.astype(int) + added, 255), image)
    assert (apply("solarize_add", image, level) == wanted).all()


# ---------------------------------------------------------------- colours, enhanced


def extrapolated(degenerate, image, level):
    factor = 0.1 + 1.8 * level
    start = np.asarray(degenerate).astype(float)
    return np.clip(start + factor * (image - start), 0, 255)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "name, degenerate",
    [
        ("brightness", lambda image: np.zeros_like(image)),
        ("color", lambda image: Image.fromarray(image).convert("L").convert("RGB")),
        ("contrast", lambda image: np.floor(np.mean(Image.fromarray(image).convert("L")))),
    ],
)
def test_enhancement_goes_from_the_degenerate_image_beyond_the_image(name, degenerate, level):
    """Truncated; Pillow's grey differs by one where rounding is close."""
    image = smooth_noise(*ODD)
    wanted = np.floor(extrapolated(degenerate(image), image, level) + 1e-3)
    bound = 0 if name == "brightness" else 1 + abs(1 - (0.1 + 1.8 * level))
    assert difference(apply(name, image, level), wanted).max() <= bound
    if level == 0.5:
        assert (apply(name, image, level) == image).all()


@pytest.mark.parametrize("name", ["brightness", "color", "contrast"])
def test_enhancement_is_that_of_pillow(name):
    image = smooth_noise(40, 30)
    enhance = getattr(ImageEnhance, name.capitalize())(Image.fromarray(image))
    assert difference(apply(name, image, 1.0), enhance.enhance(1.9)).max() <= 2


@pytest.mark.parametrize("level", LEVELS)
def test_sharpness_is_against_the_smooth_image_but_for_the_rim(level):
    image = pictures.noise(21, 17)
    around = Image.fromarray(image).filter(ImageFilter.SMOOTH)
    got = apply("sharpness", image, level)
    wanted = np.floor(extrapolated(around, image, level) + 1e-3)
    bound = 1 + abs(1 - (0.1 + 1.8 * level))  # Pillow rounds the smooth image
    assert difference(got, wanted)[1:-1, 1:-1].max() <= bound
    for rim in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        assert (got[rim] == image[rim]).all()
    assert (got == image).all() == (level == 0.5)


@pytest.mark.parametrize("value", [0, 13, 100, 255])
def test_sharpness_leaves_a_flat_image(value):
    image = np.full((6, 5, 3), value, np.uint8)
    for level in LEVELS:
        assert (apply("sharpness", image, level) == image).all()


# ---------------------------------------------------------------- places


def warped(image, matrix):
    """Each pixel is the nearest one to matrix (x, y, 1), 128 from outside; and which are sure."""
    height, width = image.shape[:2]
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    at_x, at_y = (m[0] * x + m[1] * y + m[2] for m in matrix)
    sure = np.minimum(abs(at_x % 1 - 0.5), abs(at_y % 1 - 0.5)) > 1e-4  # which is nearest
    at_x, at_y = np.round(at_x).astype(int), np.round(at_y).astype(int)
    inside = (at_x >= 0) & (at_x < width) & (at_y >= 0) & (at_y < height)
    clipped = image[np.clip(at_y, 0, height - 1), np.clip(at_x, 0, width - 1)]
    return np.where(inside[..., None], clipped, 128), sure


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("level", [0.0, 0.4, 1.5])
@pytest.mark.parametrize("name", ["shear_x", "shear_y"])
def test_shear(name, level, sign):
    image = pictures.noise(31, 44)
    slope = sign * 0.3 * level
    matrix = [(1, slope, 0), (0, 1, 0)] if name == "shear_x" else [(1, 0, 0), (slope, 1, 0)]
    wanted, sure = warped(image, matrix)
    assert (apply(name, image, level, sign) == wanted)[sure].all()
    assert sure.mean() > 0.85


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("level", [0.0, 0.4, 2.0])
def test_rotate_turns_about_the_middle(level, sign):
    height, width = 31, 44
    image = pictures.noise(height, width)
    angle = sign * np.radians(30 * level)
    cos, sin = np.cos(angle), np.sin(angle)
    y, x = (height - 1) / 2, (width - 1) / 2
    matrix = [(cos, -sin, x - cos * x + sin * y), (sin, cos, y - sin * x - cos * y)]
    got = apply("rotate", image, level, sign)
    wanted, sure = warped(image, matrix)
    assert (got == wanted)[sure].all()
    assert sure.mean() > 0.85
    turned = Image.fromarray(image).rotate(np.degrees(angle), fillcolor=(128, 128, 128))
    assert (difference(got, turned)[sure].max(axis=-1) > 0).mean() < 0.06  # counter-clockwise


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("level", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("name", ["translate_x", "translate_y"])
def test_translate_moves_by_ten_pixels_of_each_magnitude(name, level, sign):
    height, width = 31, 44
    image = pictures.noise(height, width)
    pixels = sign * 100 * level
    move = {"translate_x": [(1, 0, pixels), (0, 1, 0)], "translate_y": [(1, 0, 0), (0, 1, pixels)]}
    got = apply(name, image, level, sign)
    assert (got == warped(image, move[name])[0]).all()
    assert (got == 128).all() == (level * 100 >= (width if name == "translate_x" else height))


@pytest.mark.parametrize("y, x", [(0, 0), (0.5, 0.5), (0.999, 0.1), (0.2, 0.999)])
@pytest.mark.parametrize("level, half", [(0.0, 0), (0.26, 10), (1.5, 60)])
def test_cutout_fills_a_square_about_a_pixel(level, half, y, x):
    image = pictures.noise(60, 90)
    row, column = int(y * 60), int(x * 90)
    wanted = image.copy()
    wanted[max(row - half, 0) : row + half, max(column - half, 0) : column + half] = 128
    assert (apply("cutout", image, level, y=y, x=x) == wanted).all()


# ---------------------------------------------------------------- the whole


@pytest.mark.integration
def test_one_seed_is_one_image_and_many_seeds_are_many():
    image = smooth_noise(24, 30)
    once, again = many("randaug(2, 1)", image, 60), many("randaug(2, 1)", image, 15)
    assert (once[:15] == again).all()
    assert len({result.tobytes() for result in once}) > 35


def test_each_op_is_chosen_as_often_and_always_applied():
    """The ops are told apart by their results on one image; signs and places are drawn too."""
    image = smooth_noise(24, 30)
    names = list(randaugment.OPS)
    known = {}
    for name in names:
        for sign in (1, -1):
            known[apply(name, image, 0.1, sign).tobytes()] = name
    counts = dict.fromkeys([*names, "other"], 0)
    for result in many("randaug(1, 1)", image, 1600):
        counts[known.get(result.tobytes(), "other")] += 1
    counts["cutout"] += counts.pop("other")  # anywhere in the image
    assert 60 < min(counts.values()) <= max(counts.values()) < 145  # 100 expected
    assert len(known) == 11 + 2 * 5


@pytest.mark.parametrize("name", ["rotate", "shear_x", "translate_y"])
def test_both_signs_come_as_often(name, monkeypatch):
    monkeypatch.setattr(randaugment, "OPS", {name: randaugment.OPS[name]})
    image = smooth_noise(24, 30)
    results = many("randaug(1, 1)", image, 400)
    positive = (results == apply(name, image, 0.1, 1)).all(axis=(1, 2, 3))
    negative = (results == apply(name, image, 0.1, -1)).all(axis=(1, 2, 3))
    assert (positive ^ negative).all()
    assert 150 < positive.sum() < 250


def test_cutout_is_anywhere(monkeypatch):
    monkeypatch.setattr(randaugment, "OPS", {"cutout": randaugment.OPS["cutout"]})
    image = np.zeros((12, 17, 3), np.uint8)
    cut = many("randaug(1, 0.5)", image, 1500)[..., 0] == 128  # squares of side 4
    first = {(int(c.any(1).argmax()), int(c.any(0).argmax()), int(c.sum())) for c in cut}
    assert len({(r, c) for r, c, _ in first}) == (12 - 2) * (17 - 2)
    assert max(n for *_, n in first) == 16
    assert min(n for *_, n in first) == 4


def test_layers_draw_for_themselves(monkeypatch):
    monkeypatch.setattr(randaugment, "OPS", {"translate_x": randaugment.OPS["translate_x"]})
    image = np.zeros((2, 30, 3), np.uint8)
    moved = (many("randaug(2, 1)", image, 300)[:, 0, :, 0] == 128).sum(axis=1)
    assert set(moved.tolist()) == {10, 20}  # there and back, or twice the same way


def test_magnitude_nothing_is_not_the_identity():
    image = smooth_noise(24, 30)
    results = many("randaug(2, 0)", image, 200)
    assert 0.1 < (results == image).all(axis=(1, 2, 3)).mean() < 0.3  # 7 of 16 ops, twice: 0.19


@pytest.mark.parametrize("magnitude, shape", [(0, [8, 9, 3]), (30, [None, None, 3])])
def test_static_and_dynamic_shape_stay(magnitude, shape):
    process = preprocess.apply(preprocess.parse("k", f"randaug(1, {magnitude})", 8))
    specs = [tf.TensorSpec(shape, tf.uint8), tf.TensorSpec([2], tf.int64)]
    graph = tf.function(process, input_signature=specs)
    assert graph.get_concrete_function().output_shapes.as_list() == shape
    for seed in range(20):
        assert graph(pictures.noise(8, 9), tf.constant([1, seed], tf.int64)).shape == (8, 9, 3)
