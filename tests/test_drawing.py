# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Drawing: pictures of any number of layers, heads and patches; what is where."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from vit_jax.analysis.filters import Components
from vit_jax.reports import drawing

RNG = np.random.default_rng(0)


def pixels(png):
    """float [H, W, 3] in [0, 1] of what must be a PNG about as wide as others."""
    image = Image.open(io.BytesIO(png))
    assert image.format == "PNG"
    return np.asarray(image.convert("RGB"), float) / 255


def share(picture, colour, near=0.02):
    """Of the pixels that have a colour."""
    return np.mean(np.abs(picture - colour).max(axis=-1) < near)


def table(rows, columns):
    return RNG.uniform(-1, 1, (rows, columns, rows, columns))


@pytest.mark.parametrize("draw", [
    lambda: drawing.filters(Components(RNG.normal(size=(28, 16, 16, 3)), np.full(28, 0.02))),
    lambda: drawing.similarity({"": table(4, 4)}),
    lambda: drawing.similarity({"": table(32, 32)}),
    lambda: drawing.similarity({"layer 1": table(2, 9), "layer 4": table(2, 9)}),
    lambda: drawing.distance(RNG.uniform(0, 99, (4, 3)), 60.0),
    lambda: drawing.distance(RNG.uniform(0, 99, (32, 16)), 60.0),
    lambda: drawing.distance(RNG.uniform(0, 99, (1, 1)), 60.0),
    lambda: drawing.distance(RNG.uniform(0, 99, (4, 3)), 60.0, RNG.uniform(0, 99, (4, 3))),
    lambda: drawing.rollout(RNG.integers(0, 255, (3, 20, 30, 3), np.uint8), np.ones((3, 20, 30))),
])  # fmt: skip
def test_pictures_are_as_wide_as_a_page_and_need_no_global_state(draw, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # its import fails
    picture = pixels(draw())
    assert 560 <= picture.shape[1] <= 850
    assert 0.03 < 1 - share(picture, (1, 1, 1)) < 1


def test_the_same_numbers_make_the_same_picture():
    given = RNG.uniform(0, 99, (4, 3))
    assert drawing.distance(given, 60.0) == drawing.distance(given.copy(), 60.0)
    assert drawing.distance(given, 60.0) != drawing.distance(given + 5, 60.0)


def test_printed_distances_are_rings_at_their_own_heights():
    given, rows = RNG.uniform(0, 99, (4, 3)), []
    for printed in (None, given + 300, 0 * given):
        picture = pixels(drawing.distance(given, 60.0, printed))
        red = np.abs(picture - (0.76, 0.15, 0.18)).max(axis=-1) < 0.1
        rows.append(np.nonzero(red)[0])
    assert len(rows[0]) == 0 < len(rows[1])
    assert rows[1].mean() < 0.5 * rows[2].mean()


def test_zero_of_a_filter_is_grey_and_its_largest_number_full():
    images = np.zeros((2, 4, 4, 3))
    images[0, :2, :, 0] = 0.5  # half of it red
    images[1, :, :, 2] = -0.1  # all of it without blue
    picture = pixels(drawing.filters(Components(images, np.array([0.75, 0.25]))))
    tile = share(picture, (0.5, 0.5, 0))
    assert tile > 0.2
    assert share(picture, (1, 0.5, 0.5)) == pytest.approx(tile / 2, rel=0.1)
    assert share(picture, (0.5, 0.5, 0.5)) == pytest.approx(tile / 2, rel=0.1)


def test_few_components_or_none_make_a_picture():
    for count in (0, 1, 9):
        pixels(drawing.filters(Components(np.ones((count, 3, 3, 3)), np.ones(count))))


@pytest.mark.parametrize("side, step", [(2, 1), (7, 1), (8, 1), (9, 2), (14, 2), (24, 3), (32, 4)])
def test_tiles_are_thinned_out_where_they_would_be_too_small(side, step):
    assert drawing.thinned(side) == step
    down, right, _ = drawing._tiles(side, 5)
    assert len(down) <= drawing.TILES
    assert list(right) == [0, 1, 2, 3, 4]


def test_a_tile_stands_in_the_row_and_column_of_its_patch():
    rows, columns = 3, 10
    numbers = np.arange(900.0).reshape(rows, columns, rows, columns)
    picture = drawing._mosaic(numbers)
    assert picture.shape == (3 * 4 - 1, 5 * 11 - 1)  # every second column, gaps of 1
    np.testing.assert_array_equal(picture[4:7, 11:21], numbers[1, 2])
    np.testing.assert_array_equal(picture[8:, 44:], numbers[2, 8])
    assert np.isnan(picture[3]).all()
    assert np.isnan(picture[:, 10]).all()


def test_an_image_is_dark_where_it_is_not_attended_to():
    pictures = np.full((1, 30, 30, 3), (250, 128, 0), np.uint8)
    attended = np.ones((1, 30, 30))
    both = share(pixels(drawing.rollout(pictures, attended)), (250 / 255, 128 / 255, 0))
    attended[0, :, 15:] = 0
    half = pixels(drawing.rollout(pictures, attended))
    orange, black = share(half, (250 / 255, 128 / 255, 0)), share(half, (0, 0, 0))
    assert orange == pytest.approx(0.75 * both, rel=0.05)
    assert black == pytest.approx(0.25 * both, rel=0.15)


def test_names_in_scripts_that_the_font_lacks_are_no_warnings():
    """Warnings are errors here."""
    names = ["猫", "বিড়াল", "बिल्ली", "แมว", "🐈"]
    assert pixels(drawing.confusions(names, np.eye(5, dtype=int))).size
    assert pixels(drawing.accuracies(names, np.ones(5), np.ones(5, int))).size
