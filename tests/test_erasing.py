# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Random erasing: how often, how large, of which shape, where, and with what."""

import numpy as np
import pictures
import pytest
from pictures import with_many_seeds as many

from vit_jax.data.ops import chain as preprocess
from vit_jax.errors import BadInput


def boxes(results, image):
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
    found = boxes(many(f"random_erasing({probability}, fill=9)", BLACK), BLACK)
    assert abs(len(found) / 400 - probability) <= (0.07 if 0 < probability < 1 else 0)


@pytest.mark.parametrize("area_min, area_max", [(0.02, 0.4), (0.1, 0.2)])
def test_boxes_have_the_area_and_aspect_it_says(area_min, area_max):
    chain = f"random_erasing(1.0, {area_min}, {area_max}, fill=9)"
    found = boxes(many(chain, BLACK, 800), BLACK)
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


def test_result_is_a_function_of_the_seed():
    image = pictures.noise(20, 20)
    assert (many("random_erasing", image, 30) == many("random_erasing", image, 30)).all()


def test_an_image_that_no_box_fits_is_left_alone():
    image = np.zeros((2, 90, 3), np.uint8)
    assert (many("random_erasing(1.0, 0.9, 0.9, fill=9)", image, 5) == image).all()


def test_areas_in_the_wrong_order():
    with pytest.raises(BadInput, match=r"area_min=0.5 is above area_max=0.4"):
        preprocess.parse("k", "random_erasing(0.5, 0.5)", 8)
