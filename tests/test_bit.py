# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""BiT: numerics of the published models at any image size, initial values, nothing at random."""

import dataclasses

import jax
import numpy as np
import numpy_resnet
import pytest
import tiny

from vit_jax import tree
from vit_jax.models import variants


def constants(cfg):
    given = cfg.resnet
    return numpy_resnet.Constants(*(getattr(given, f) for f in numpy_resnet.Constants._fields))


def both(cfg, weights, images):
    """Logits of ours and of numpy."""
    return tiny.logits(cfg, weights, images), numpy_resnet.bit(weights, images, constants(cfg))


@pytest.mark.parametrize(
    "size, changes",
    [
        ((33, 47), {}),
        ((40, 36), {}),  # even at every stage, where SAME padding would be another
        ((33, 47), {"root_pool": "-inf"}),
        ((33, 47), {"root_width": 64, "stages": (1, 1)}),
        ((33, 47), {"classes": 0}),
        ((33, 47), {"gn_epsilon": 0.1, "ws_epsilon": 0.1, "ws_epsilon_in": "std"}),
        ((9, 17), {"stem": "small"}),
        ((12, 17), {"stem": "small", "stem_stride": 2}),
    ],
    ids=str,
)
def test_forward_equals_independent_numpy_bit(size, changes):
    cfg = tiny.bit(**changes)
    found, expected = both(cfg, tiny.params(cfg), tiny.images(5, *size))
    assert expected.std() > (0.5 if cfg.classes else 0.2)
    assert expected.std(axis=0).mean() > 0.02  # between images
    assert found.shape == (5, cfg.classes or 256)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_parameters_fit_images_of_any_size():
    cfg = tiny.bit()
    for size in ((33, 47), (8, 8), (64, 40)):
        assert tree.difference(tiny.shapes(cfg, *size), tiny.shapes(cfg)) == ""


def test_padding_of_the_root_pool_changes_logits():
    zero, low = tiny.bit(root_pool="zero"), tiny.bit(root_pool="-inf")
    weights, images = tiny.params(zero), tiny.images_of(zero)
    found = tiny.logits(zero, weights, images)
    assert np.abs(found - tiny.logits(low, weights, images)).max() > 0.01
    assert variants.config(variant="BiT-R50x1", classes=3).resnet.root_pool == "zero"


@pytest.mark.parametrize("inside, epsilon", [("std", 1e-5), ("variance", 1e-10)])
def test_epsilon_of_weight_standardisation_shows_with_tiny_kernels(inside, epsilon):
    cfg = tiny.bit(ws_epsilon_in=inside, ws_epsilon=epsilon)
    weights = tree.map_with_path(  # deviations near 1e-5
        lambda p, x: x * np.float32(1e-4) if "conv" in p else x, tiny.params(cfg)
    )
    images = tiny.images_of(cfg)
    found, expected = both(cfg, weights, images)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    other = {"std": "variance", "variance": "std"}[inside]
    given = constants(cfg)
    for change in ({"ws_epsilon_in": other}, {"ws_epsilon": 1.5 * epsilon}):
        otherwise = numpy_resnet.bit(weights, images, given._replace(**change))
        assert np.abs(otherwise - expected).max() > 1e-3


def test_every_norm_starts_at_one_and_the_head_at_zero():
    cfg = tiny.bit(head_bias=-7.0, stages=(1, 1))
    images = tiny.images_of(cfg, 2)
    init = jax.jit(variants.make(cfg).init_with_output)
    found, variables = init(jax.random.key(0), images)
    np.testing.assert_array_equal(found, np.full((2, 7), -7.0, np.float32))
    leaves = dict(tree.leaves_with_paths(variables["params"]))
    assert not np.any(leaves["head/kernel"])
    scales = [np.asarray(x) for path, x in leaves.items() if path.endswith("/scale")]
    assert len(scales) == 2 * 3 + 1
    assert all(np.all(scale == 1) for scale in scales)


def test_training_draws_nothing_at_random():
    cfg = tiny.bit(stages=(1,))
    weights, images = tiny.params(cfg), tiny.images_of(cfg)
    plain = tiny.logits(cfg, weights, images)
    np.testing.assert_array_equal(tiny.logits(cfg, weights, images, True, jax.random.key(0)), plain)
    np.testing.assert_array_equal(tiny.logits(cfg, weights, images, True), plain)


def test_published_constants_are_the_default_and_give_way():
    cfg = variants.config(variant="BiT-R50x3", classes=3).resnet
    assert (cfg.gn_epsilon, cfg.ws_epsilon, cfg.ws_epsilon_in) == (1e-5, 1e-10, "variance")
    assert (cfg.width, cfg.stages, cfg.stem) == (192, (3, 4, 6, 3), "standard")
    given = {"gn_epsilon": 1e-3, "ws_epsilon": 1e-4, "ws_epsilon_in": "std", "root_width": 96}
    given |= {"stages": (1, 2), "stem": "small", "stem_stride": 2, "root_pool": "-inf"}
    found = variants.config(variant="BiT-R50x3", classes=3, **given).resnet
    assert dataclasses.asdict(found) == {"width": given.pop("root_width"), **given}
