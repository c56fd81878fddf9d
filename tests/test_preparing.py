# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What an export says of images."""

import exports
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.errors import BadInput
from vit_jax.inference.export import preprocessing_facts
from vit_jax.step.normalise import normalise
from vit_jax.weights import loading
from vit_jax.weights.convert import ORIGINAL
from vit_jax.weights.formats.json_config import Images

SIZE = (32, 32)


def found(form, images, size=SIZE):
    return preprocessing_facts.describe(exports.weights(form=form, images=images), size)


@pytest.mark.parametrize(
    "chain, shorter, antialias",
    [
        ("decode", 0, None),
        ("decode(exif=True)|resize({size})", 0, False),
        ("resize(32, antialias=True)", 0, True),
        ("decode|bv_resize(32)", 0, False),
        ("decode|resize_small({size*8//7})|central_crop({size})", 36, True),
        ("decode|resize_small(40, antialias=False)|central_crop({size})", 40, False),
        ("decode|bv_resize_small(40)|central_crop(32)", 40, True),
        ("decode|central_crop({size})", None, None),
        ("decode|resize_small(40)", None, None),
        ("decode|resize(40)|central_crop(32)", None, None),
        ("decode|resize({size})|flip_lr", None, None),
    ],
)
def test_chain_of_a_run(chain, shorter, antialias):
    said, words = found("run", exports.OWN | {"ops": chain})
    mean, std = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    assert said == Images(mean, std, "bilinear", shorter or 0, antialias=antialias)
    assert words == (f"the chain {chain}" if shorter is None else "")


@pytest.mark.parametrize("form", ["npz", "big_vision"])
def test_original_files(form):
    assert found(form, {}) == (ORIGINAL, "")


@pytest.mark.parametrize(
    "given, expected, unsaid",
    [
        ({"crop_pct": 1.0, "crop_mode": "squash", "interpolation": "bilinear", "mean": [0.5] * 3,
          "std": [0.5] * 3}, Images(antialias=True), False),
        ({"mean": None, "crop_pct": 0.9},
         Images((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 35, (), True), False),
        ({"crop_mode": "border"},
         Images((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 0, (), True), True),
        ({"crop_mode": "squash", "crop_pct": 0.9},
         Images((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 0, (), True), True),
    ],
)  # fmt: skip
def test_configuration_of_timm(given, expected, unsaid):
    said, words = found("timm", given)
    assert said == expected
    assert bool(words) == unsaid


@pytest.mark.parametrize(
    "given, shorter, kind, unsaid",
    [
        ({"size": {"height": 32, "width": 32}}, 0, "bilinear", False),
        ({"size": {"shortest_edge": 40}, "do_center_crop": True, "resample": 3,
          "crop_size": {"height": 32, "width": 32}}, 40, "bicubic", False),
        ({"size": {"height": 40, "width": 40}, "do_center_crop": True,
          "crop_size": {"height": 32, "width": 32}}, 0, "bilinear", True),
        ({"do_resize": False}, 0, "bilinear", True),
        ({"do_resize": False, "do_rescale": False, "image_mean": [100, 110, 120],
          "image_std": [50, 60, 70]}, 0, "bilinear", True),
        ({"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]},
         0, "bilinear", False),
        ({"do_normalize": False}, 0, "bilinear", False),
        ({"image_mean": None, "image_std": None, "resample": None}, 0, "bilinear", False),
        ({"image_processor_type": "DeiTImageProcessor", "crop_size": 32,
          "size": {"shortest_edge": 36}}, 36, "bicubic", False),
    ],
)  # fmt: skip
def test_configuration_of_transformers(given, shorter, kind, unsaid):
    said, words = found("hf", given)
    assert (said.shorter_side, said.interpolation, bool(words)) == (shorter, kind, unsaid)
    assert said.antialias


@pytest.mark.parametrize(
    "form, given",
    [
        ("run", exports.OWN),
        ("npz", {}),
        ("timm", {"crop_pct": 1.0, "mean": [0.1, 0.2, 0.3]}),
        ("hf", {"image_mean": [0.3, 0.2, 0.1]}),
        ("hf", {"do_rescale": False, "image_mean": [100, 110, 120], "image_std": [50, 60, 70]}),
        ("hf", {"rescale_factor": 1 / 127.5, "image_mean": [1, 1, 1], "image_std": [1, 1, 1]}),
        ("hf", {"do_normalize": False}),
    ],
)
def test_normalisation_is_that_of_the_reader(form, given):
    """On images of the model's size, where resizing does nothing."""
    weights = exports.weights(form=form, images=given)
    said, _ = preprocessing_facts.describe(weights, SIZE)
    pixels = np.random.default_rng(0).integers(0, 256, (1, *SIZE, 3), np.uint8)
    expected = loading.reader(weights, SIZE)(pixels)
    normalised = normalise(jnp.asarray(pixels), said.mean, said.std)
    np.testing.assert_allclose(normalised, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["timm", "hf"])
def test_what_nothing_speaks_of_is_not_guessed(form):
    assert found(form, {}) == (None, "no file beside the weights says how to prepare images")


def test_damaged_configuration_is_refused():
    with pytest.raises(BadInput, match="crop_pct='much'"):
        found("timm", {"crop_pct": "much"})
