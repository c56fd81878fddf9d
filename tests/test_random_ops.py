# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random ops: the same seed, the same image; and over many seeds, what they promise."""

import colorsys

import numpy as np
import pictures
import pytest
from pictures import with_many_seeds as many
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

from vit_jax.data.ops import augment, color
from vit_jax.data.ops import chain as preprocess
from vit_jax.data.tensorflow import tf
from vit_jax.errors import BadInput

# --- flips, crops, affine maps ---


CHAINS = [
    "flip_lr",
    "random_crop(5)",
    "shift(2)",
    "inception_crop(8)",
    "affine(30)",
    "affine(0, 0.3)",
    "affine(0, 0, 2)",
]


def coordinates(height, width):
    """Channel 0 is x, channel 1 is y, so that a crop tells where it was taken."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([x, y, 0 * x], axis=-1).astype(np.uint8)


# ---------------------------------------------------------------- all of them


@pytest.mark.parametrize("chain", CHAINS)
def test_result_is_a_function_of_the_seed(chain):
    image = pictures.noise(9, 12)
    once, again = many(chain, image, 24), many(chain, image, 24)
    assert once.dtype == np.uint8
    assert (once == again).all()
    different = {result.tobytes() for result in once}
    assert len(different) == 2 if chain == "flip_lr" else len(different) > 12


@pytest.mark.parametrize("chain", CHAINS)
def test_first_half_of_the_seed_counts_too(chain):
    """The first half is the seed of the run, the second the position of the example."""
    (op,) = preprocess.parse("data.train_ops", chain, 8)
    image = tf.constant(pictures.noise(9, 12))
    seeds = [tf.constant([seed, 7], tf.int64) for seed in range(12)]
    assert len({op(image, seed).numpy().tobytes() for seed in seeds}) > 1


# ---------------------------------------------------------------- flip, crop, shift


def test_flip_mirrors_half_of_the_time():
    image = pictures.noise(3, 5)
    results = many("flip_lr", image, 1000)
    flipped = (results == image[:, ::-1]).all(axis=(1, 2, 3))
    kept = (results == image).all(axis=(1, 2, 3))
    assert (flipped | kept).all()
    assert 430 < flipped.sum() < 570


def test_random_crop_takes_every_window_alike():
    results = many("random_crop(6)", coordinates(8, 9), 1200)
    assert results.shape == (1200, 6, 6, 3)
    corners = results[:, 0, 0, :2]
    offsets, counts = np.unique(corners, axis=0, return_counts=True)
    assert offsets.tolist() == [[x, y] for x in range(4) for y in range(3)]
    assert 60 < counts.min() <= counts.max() < 145  # 100 expected
    assert (results == coordinates(6, 6) + results[:, :1, :1]).all()


def test_shift_moves_by_at_most_so_many_pixels_and_fills_with_black():
    pixels = 2
    image = pictures.noise(6, 7) | 1  # nothing in it is black
    margin = [(pixels, pixels), (pixels, pixels), (0, 0)]
    padded = np.pad(image, margin)
    offsets = range(2 * pixels + 1)
    wanted = {padded[y : y + 6, x : x + 7].tobytes() for y in offsets for x in offsets}
    assert {result.tobytes() for result in many(f"shift({pixels})", image, 400)} == wanted


def test_shift_by_nothing_is_the_image():
    image = pictures.noise(6, 7)
    assert (many("shift(0)", image, 3) == image).all()


# ---------------------------------------------------------------- inception crop


def test_inception_crop_takes_boxes_of_the_area_and_aspect_it_says():
    results = many("inception_crop(64)", coordinates(200, 160), 600).astype(float)
    assert results.shape == (600, 64, 64, 3)
    # The outermost of 64 samples lie half a sample inside the box.
    width = (results[:, 32, -1, 0] - results[:, 32, 0, 0]) * 64 / 63
    height = (results[:, -1, 32, 1] - results[:, 0, 32, 1]) * 64 / 63
    area, aspect = width * height / (200 * 160), width / height
    assert 0.04 < area.min() < 0.12
    assert 0.8 < area.max() <= 1.02
    assert 0.72 < aspect.min() < 0.8
    assert 1.25 < aspect.max() < 1.37
    assert 0.3 < area.mean() < 0.6  # TensorFlow draws the height evenly, not the area
    assert results[:, 0, 0, 0].max() > 80  # anywhere in the image
    assert results[:, 0, 0, 1].max() > 100


def test_inception_crop_of_a_least_area():
    results = many("inception_crop(64, area_min=0.5)", coordinates(200, 200), 300).astype(float)
    width = (results[:, 32, -1, 0] - results[:, 32, 0, 0]) * 64 / 63
    height = (results[:, -1, 32, 1] - results[:, 0, 32, 1]) * 64 / 63
    assert (width * height / 200**2).min() > 0.47


def test_inception_crop_does_not_average_over_pixels():
    """As the published code: of a fine checkerboard it keeps the contrast."""
    image = np.indices((96, 96)).sum(axis=0)[..., None] % 2 * np.full(3, 255)
    assert many("inception_crop(8, area_min=0.9)", image.astype(np.uint8), 20).std() > 25


# ---------------------------------------------------------------- affine


def affine(image, **arguments):
    return augment.Affine(**arguments)(tf.constant(image), tf.constant([0, 0], tf.int64)).numpy()


def test_affine_without_arguments_is_the_identity():
    image = pictures.noise(5, 12)
    assert (many("affine", image, 5) == image).all()


@pytest.mark.parametrize("side, turns", [(8, -1), (9, 1), (9, 2)])
def test_affine_turns_about_the_centre(drawn, side, turns):
    """A positive draw turns counter-clockwise."""
    drawn(np.sign(turns), 0, 0, 0, 0)
    image = pictures.smooth(side, side)
    got = affine(image, degrees=90.0 * abs(turns)).astype(int)
    wanted = np.rot90(image, turns).astype(int)
    assert abs(got - wanted)[1:-1, 1:-1].max() <= 1
    assert (got[0] == wanted[0]).mean() > 0.5  # the rim may lie a rounding error outside


def test_affine_turns_by_half_of_the_angle_for_half_of_the_draw(drawn):
    image = pictures.smooth(33, 33)
    drawn(0.5, 0, 0, 0, 0)
    half = affine(image, degrees=60.0)
    drawn(1.0, 0, 0, 0, 0)
    assert (half == affine(image, degrees=30.0)).all()
    # 30 degrees counter-clockwise: what is above the centre comes from its upper right.
    y, x = 16 - 10 * np.cos(np.pi / 6), 16 + 10 * np.sin(np.pi / 6)
    assert abs(half[6, 16, :2] - np.array([255 * x / 33, 255 * y / 33])).max() <= 2


@pytest.mark.parametrize(
    "draws, step_x, step_y", [((1, 0), 0.5, 1), ((0, 1), 1, 0.5), ((-0.5, 0), 2, 1)]
)
def test_affine_zooms_each_side(drawn, draws, step_x, step_y):
    """A positive draw enlarges: from one pixel to the next the input moves by less."""
    drawn(0, *draws, 0, 0)
    got = affine(coordinates(41, 41) * 4, scale=1.0).astype(float) / 4
    assert got[20, 20, :2].tolist() == [20, 20]
    assert got[20, 24, 0] - 20 == pytest.approx(4 * step_x, abs=0.2)
    assert got[24, 20, 1] - 20 == pytest.approx(4 * step_y, abs=0.2)


def test_affine_turns_what_it_has_zoomed_without_shear(drawn):
    """With both sides alike the matrix is a rotation times a number, also off the axes."""
    drawn(1, 1, 1, 0, 0)
    got = affine(coordinates(41, 41) * 4, degrees=30.0, scale=0.25).astype(float) / 4
    right = got[20, 28, :2] - got[20, 20, :2]
    down = got[28, 20, :2] - got[20, 20, :2]
    assert np.hypot(*right) == pytest.approx(8 / 1.25, abs=0.3)
    assert np.hypot(*down) == pytest.approx(8 / 1.25, abs=0.3)
    assert right @ down == pytest.approx(0, abs=3)


@pytest.mark.parametrize("move_x, move_y", [(2, 0), (0, 1), (-2, -1)])
def test_affine_moves_by_pixels_and_fills_with_black(drawn, move_x, move_y):
    drawn(0, 0, 0, move_x / 2, move_y / 2)
    image = pictures.noise(6, 7) | 1
    padded = np.pad(image, [(2, 2), (2, 2), (0, 0)])
    wanted = padded[2 + move_y : 8 + move_y, 2 + move_x : 9 + move_x]
    assert (affine(image, shift=2.0) == wanted).all()


def test_affine_draws_evenly_from_both_sides():
    """Over many seeds the image neither drifts nor turns on average, and keeps to its bounds."""
    image = np.zeros((21, 21, 3), np.uint8)
    image[10, 10] = 255
    results = many("affine(0, 0, 4)", image, 400)[..., 0].astype(float)
    y, x = np.mgrid[0:21, 0:21]
    weight = results.sum(axis=(1, 2))
    at_x, at_y = (results * x).sum((1, 2)) / weight, (results * y).sum((1, 2)) / weight
    for at in (at_x, at_y):
        assert 5.9 < at.min() < 7
        assert 13 < at.max() < 14.1
        assert abs(at.mean() - 10) < 0.4
    assert abs(np.corrcoef(at_x, at_y)[0, 1]) < 0.2


def test_affine_keeps_pixels_in_range():
    image = np.where(pictures.noise(16, 16) > 127, 255, 0).astype(np.uint8)
    results = many("affine(45, 0.5, 3)", image, 50)
    assert results.dtype == np.uint8
    assert results.max() == 255
    assert results.min() == 0


# --- random erasing ---


def erased_boxes(results, image):
    """(top, left, height, width) of what changed; fails where that is not a box."""
    found = []
    for changed in (results != image).any(axis=-1):
        rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        if rows.size:
            top, left = rows[0], columns[0]
            height, width = rows[-1] - top + 1, columns[-1] - left + 1
            assert changed.sum() == height * width
            found.append((top, left, height, width))
    return np.array(found, float).reshape(-1, 4)


BLACK = np.zeros((60, 80, 3), np.uint8)


@pytest.mark.parametrize("probability", [0.0, 0.25, 1.0])
def test_an_image_is_erased_as_often_as_it_says(probability):
    found = erased_boxes(many(f"random_erasing({probability}, fill=9)", BLACK), BLACK)
    assert abs(len(found) / 400 - probability) <= (0.07 if 0 < probability < 1 else 0)


@pytest.mark.parametrize("area_min, area_max", [(0.02, 0.4), (0.1, 0.2)])
def test_boxes_have_the_area_and_aspect_it_says(area_min, area_max):
    chain = f"random_erasing(1.0, {area_min}, {area_max}, fill=9)"
    found = erased_boxes(many(chain, BLACK, 800), BLACK)
    share, aspect = found[:, 2] * found[:, 3] / 4800, found[:, 2] / found[:, 3]
    assert area_min * 0.85 < share.min() < area_min * 1.2
    assert area_max * 0.85 < share.max() < area_max * 1.1
    assert 0.27 < aspect.min() < 0.34
    assert aspect.max() > 2
    if area_max == 0.2:  # where all fit
        assert share.mean() == pytest.approx(0.15, rel=0.03)
        assert np.log(aspect).mean() == pytest.approx(0, abs=0.08)


def test_boxes_are_anywhere():
    erased = many("random_erasing(1.0, 0.02, 0.05, fill=9)", BLACK, 1500)[..., 0] == 9
    where = erased.mean(axis=0)
    assert where[0].max() > 0
    assert where[-1].max() > 0
    assert where[:, 0].max() > 0
    assert where[:, -1].max() > 0
    inner = where[12:-12, 15:-15]
    assert inner.max() < 3 * inner.min()


@pytest.mark.parametrize("fill", [0, 128, 255])
def test_fill_is_one_grey(fill):
    image = pictures.noise(30, 20) // 3 + 80  # 80 to 164, never equal to all of a box
    results = many(f"random_erasing(1.0, 0.2, fill={fill})", image, 40)
    for result in results:
        changed = (result != image).any(axis=-1)
        assert (result[changed] == fill).all()
        assert changed.sum() > 80


def test_noise_is_even_and_differs_for_each_value_and_image():
    results = many("random_erasing(1.0, 0.4, 0.4)", BLACK, 30)
    values = results[(results != 0).any(axis=-1)].astype(float)
    assert values.min() == 0
    assert values.max() == 255
    assert values.mean() == pytest.approx(127.5, abs=1)
    assert np.bincount(values.astype(int).ravel()).min() > 0.8 * values.size / 256
    assert abs(np.corrcoef(values.T) - np.eye(3)).max() < 0.03
    assert len({result.tobytes() for result in results}) == 30


def test_erasing_is_a_function_of_the_seed():
    image = pictures.noise(20, 20)
    assert (many("random_erasing", image, 30) == many("random_erasing", image, 30)).all()


def test_an_image_that_no_box_fits_is_left_alone():
    image = np.zeros((2, 90, 3), np.uint8)
    assert (many("random_erasing(1.0, 0.9, 0.9, fill=9)", image, 5) == image).all()


def test_areas_in_the_wrong_order():
    with pytest.raises(BadInput, match=r"area_min=0.5 is above area_max=0.4"):
        preprocess.parse("k", "random_erasing(0.5, 0.5)", 8)


# --- colours and 3-Augment ---


def soft(height=20, width=27):
    """A picture where no factor up to 1.4 clips."""
    return (pictures.noise(height, width) // 4 + 60).astype(np.uint8)


def colored(chain, image, seed=0):
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
    got = colored(f"color_jitter({name}=0.4)", image)
    assert abs(got.astype(int) - wanted).max() <= 2  # Pillow rounds grey and result
    assert (got == image).all() == (draw == 0)


def test_jitter_together_is_one_after_another(drawn):
    drawn(0.5, -0.5, 0.75, 0.0)
    picture = Image.fromarray(soft())
    for enhance, factor in (("Color", 1.3), ("Brightness", 1.2), ("Contrast", 0.8)):
        picture = getattr(ImageEnhance, enhance)(picture).enhance(factor)
    got = colored("color_jitter(0.4, 0.4, 0.4)", soft())
    assert abs(got.astype(int) - np.asarray(picture)).max() <= 3


def test_jitter_clips_and_a_factor_is_never_negative(drawn):
    drawn(1.0, 1.0, 1.0, 0.0)
    image = pictures.noise(9, 9)
    wanted = np.clip(np.round(image * 3.0), 0, 255)
    assert (colored("color_jitter(2)", image) == wanted).all()
    drawn(0.0, 0.0, -1.0, 0.0)
    gray = np.asarray(Image.fromarray(image).convert("L"))[..., None]
    assert abs(colored("color_jitter(saturation=2)", image).astype(int) - gray).max() <= 1


@pytest.mark.parametrize("draw", [-1.0, 0.4])
def test_hue_turns_by_a_share_of_the_circle(drawn, draw):
    drawn(0.0, 0.0, 0.0, draw)
    image = pictures.noise(6, 7)

    def turned(pixel):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255))
        return np.array(colorsys.hsv_to_rgb((hue + 0.2 * draw) % 1, saturation, value)) * 255

    wanted = np.apply_along_axis(turned, 2, image.astype(float))
    assert abs(colored("color_jitter(hue=0.2)", image) - wanted).max() <= 0.6


@pytest.mark.integration
def test_factors_are_drawn_evenly_and_apart():
    image = np.full((4, 4, 3), 100, np.uint8)
    levels = np.array([colored("color_jitter(0.5)", image, s)[0, 0, 0] for s in range(300)])
    assert 48 < levels.min() < 60
    assert 140 < levels.max() < 152
    assert 93 < levels.mean() < 107
    results = {colored("color_jitter(0, 0.4, 0.4)", soft(), s).tobytes() for s in range(20)}
    assert len(results) == 20


def test_jitter_of_nothing_is_the_image():
    image = pictures.noise(9, 9)
    assert (colored("color_jitter", image) == image).all()


# ---------------------------------------------------------------- 3-Augment


@pytest.mark.parametrize("sigma", [0.1, 1.0, 2.0])
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


@pytest.mark.integration
def test_three_augment_takes_one_of_three_then_jitters(monkeypatch):
    monkeypatch.setattr(color.ColorJitter, "__call__", lambda self, image, seed: image)
    image = pictures.noise(12, 15)
    gray = np.asarray(Image.fromarray(image).convert("L"))[..., None].repeat(3, axis=-1)
    solarized = np.asarray(ImageOps.solarize(Image.fromarray(image), 128))
    counts = {"gray": 0, "solarized": 0, "blurred": 0}
    blurred = set()
    for seed in range(240):
        got = colored("three_augment", image, seed)
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


@pytest.mark.integration
def test_three_augment_jitters_by_three_tenths():
    image = np.full((8, 8, 3), 100, np.uint8)  # what grey and blur leave alone
    levels = [int(colored("three_augment", image, s)[0, 0, 0]) for s in range(150)]
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

    first = results()
    assert first == results()
    assert len(set(first)) == 12


# ---------------------------------------------------------------- ops of self-supervised recipes


def changed(chain, image):
    """The distinct results of a chain that are not the image, and their share, over 300 seeds."""
    results = many(chain, image, 300)
    others = results[(results != image).any(axis=(1, 2, 3))]
    return others, len(others) / 300


def test_grayscale_and_solarize_are_those_of_pillow_as_often_as_they_say():
    image = pictures.noise(9, 12)
    gray, share = changed("grayscale(0.3)", image)
    wanted = np.asarray(Image.fromarray(image).convert("L"))[..., None]
    assert abs(gray.astype(int) - wanted).max() <= 1
    assert (gray == gray[..., :1]).all()
    assert 0.22 < share < 0.38
    solarized, share = changed("solarize", image)
    assert (solarized == np.asarray(ImageOps.solarize(Image.fromarray(image), 128))).all()
    assert 0.13 < share < 0.27
    for name, widths in (("grayscale", ""), ("solarize", ""), ("gaussian_blur", ", 1")):
        assert changed(f"{name}(1.0{widths})", image)[1] == 1
        assert changed(f"{name}(0.0{widths})", image)[1] == 0


@pytest.mark.parametrize("side, reach", [(32, 1), (64, 3), (224, 6)])
def test_gaussian_blur_has_a_kernel_of_a_tenth_of_the_side(drawn, side, reach):
    image = pictures.noise(side, side + 6)
    drawn(0.3, 0.75)  # below the probability; sigma = 0.5 + 1.5 * 0.75
    got = colored("gaussian_blur(0.5, 0.5, 2.0)", image).astype(float)
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * 1.625**2))
    wanted = np.pad(image.astype(float), [(reach, reach), (reach, reach), (0, 0)], "symmetric")
    for axis in (0, 1):
        wanted = np.apply_along_axis(np.convolve, axis, wanted, weights / weights.sum(), "valid")
    assert abs(got - wanted).max() <= 0.51
    drawn(0.6, 0.75)
    assert (colored("gaussian_blur(0.5, 0.5, 2.0)", image) == image).all()


def test_gaussian_blur_draws_its_width():
    image = pictures.noise(40, 40)
    spread, share = changed("gaussian_blur(0.5, 0.1, 2.0)", image)
    assert 0.35 < share < 0.55  # a Gaussian of 0.1 to 0.25 pixels changes nothing
    assert len(np.unique(spread.std(axis=(1, 2, 3)).round())) > 15


def test_gaussian_blur_needs_a_size_and_widths_in_order():
    process = preprocess.apply(preprocess.parse("k", "gaussian_blur", 8))
    graph = tf.function(process, autograph=False)
    with pytest.raises(BadInput, match=r"put it after an op that sets the size"):
        graph.get_concrete_function(
            tf.TensorSpec([None, None, 3], tf.uint8), tf.TensorSpec([2], tf.int64)
        )
    with pytest.raises(BadInput, match=r"sigma_min=3 is above sigma_max=2\.0"):
        preprocess.parse("k", "gaussian_blur(0.5, 3)", 8)


def test_jitter_with_a_probability_is_the_jitter_or_nothing():
    always = many("color_jitter(0.4, 0.4, 0.4, 0.1)", soft(), 200)
    often = many("color_jitter(0.4, 0.4, 0.4, 0.1, probability=0.8)", soft(), 200)
    jittered = (often == always).all(axis=(1, 2, 3))
    assert (often[~jittered] == soft()).all()
    assert 0.72 < jittered.mean() < 0.88
