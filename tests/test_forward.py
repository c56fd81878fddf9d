# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The function that is exported."""

import exports
import jax
import numpy as np
import tiny

from vit_jax.inference.export import forward
from vit_jax.step.normalise import normalise
from vit_jax.weights.formats.json_config import Images


def test_function_is_the_model():
    """Of every kind: test_stablehlo."""
    model = exports.model()
    made = forward.make(model, None)
    images = tiny.images_of(model.cfg, 2)
    found = made.reference(images)
    np.testing.assert_allclose(found, tiny.logits(model.cfg, model.params, images), atol=1e-6)
    assert (made.output, made.dtype, made.size) == ("logits", "float32", tiny.size(model.cfg))
    assert all(type(leaf) is np.ndarray for leaf in jax.tree.leaves(made.params))


def test_training_in_bfloat16_is_exported_in_float32():
    one, two = exports.model(), exports.model(dtype="bfloat16", remat="full", attention="fused")
    assert two.cfg.attention == "xla"  # which has no free batch
    images = tiny.images_of(one.cfg, 2)
    found = [forward.make(model, None).reference(images) for model in (one, two)]
    np.testing.assert_array_equal(*found)
    rounded = tiny.logits(exports.model(dtype="bfloat16").cfg, one.params, images)
    assert np.abs(rounded - found[0]).max() > 1e-3


def test_uint8_is_normalised_inside():
    model = exports.model()
    said = Images(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))
    pixels = np.random.default_rng(0).integers(0, 256, (2, *tiny.size(model.cfg), 3), np.uint8)
    made = forward.make(model, said)
    assert made.dtype == "uint8"
    normalised = np.asarray(normalise(jax.numpy.asarray(pixels), said.mean, said.std))
    expected = forward.make(model, None).reference(normalised)
    np.testing.assert_allclose(made.reference(pixels), expected, atol=1e-5)


def test_without_a_head_it_is_the_representation():
    model = exports.model(classes=0)
    made = forward.make(model, None)
    assert made.output == "representation"
    assert made.reference(tiny.images_of(model.cfg, 2)).shape == (2, 32)
    assert forward.facts(made, model, None)["output"] == {
        "name": "representation", "shape": ["B", 32], "dtype": "float32",
    }  # fmt: skip


def test_facts_say_what_goes_in_and_what_comes_out():
    model = exports.model(names=exports.NAMES)
    said = Images(mean=(0.1, 0.2, 0.3))
    found = forward.facts(forward.make(model, said), model, said)
    assert found["input"] == {"name": "images", "shape": ["B", 8, 12, 3], "dtype": "uint8"}
    assert found["output"] == {"name": "logits", "shape": ["B", 7], "dtype": "float32"}
    assert found["normalisation"] == {"mean": (0.1, 0.2, 0.3), "std": (0.5, 0.5, 0.5)}
    assert found["normalised_inside"]
    assert found["chain"] == "decode|resize({size})"
    assert found["classes"] == list(exports.NAMES)
    assert found["probabilities"] == "softmax"
    assert found["model"]["variant"] == "Ti/4"
    assert found["jax"] == jax.__version__
    assert forward.facts(forward.make(model, None), model, None)["normalisation"] is None
