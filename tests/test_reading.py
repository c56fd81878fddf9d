# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A split through a model's own preprocessing: order, padding, and names of bad images."""

import numpy as np
import pictures
import pytest
from opened_sources import opened

from vit_jax.errors import BadInput
from vit_jax.inference import batches
from vit_jax.weights import preprocessing


@pytest.fixture
def split(tmp_path):
    pictures.folder(tmp_path, *(f"train/{c}/{i}.png" for c in "ab" for i in range(5)), size=8)
    return opened(f"folder:{tmp_path}").splits["train"]


@pytest.mark.parametrize("batch_size", [3, 5, 16])
def test_every_image_once_in_order_as_the_reader_makes_it(split, tmp_path, batch_size):
    reader = preprocessing.original_reader(6, 6)
    found = list(batches.batches(split, reader, batch_size, workers=3))
    assert {len(b["image"]) for b in found} == {batch_size}
    mask = np.concatenate([b["mask"] for b in found])
    assert mask.tolist() == [True] * 10 + [False] * (len(mask) - 10)
    images = np.concatenate([b["image"] for b in found])[mask]
    expected = reader([tmp_path / split.name(i) for i in range(10)])
    np.testing.assert_array_equal(images, expected)
    assert images.dtype == np.float32


def test_pixels_that_are_no_files_are_read():
    digits = opened("digits", test=20).splits["test"]
    first = next(batches.batches(digits, preprocessing.original_reader(8, 8), 4, workers=1))
    assert first["image"].shape == (4, 8, 8, 3)
    assert np.abs(first["image"]).max() <= 1


def test_a_bad_image_is_named(split, tmp_path):
    (tmp_path / split.name(7)).write_bytes(b"no image")
    with pytest.raises(BadInput) as caught:
        list(batches.batches(split, preprocessing.original_reader(6, 6), 4, workers=2))
    assert split.name(7) in str(caught.value)
