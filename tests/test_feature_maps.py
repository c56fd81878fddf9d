# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Feature maps of every family: tokens after a block, stages of a ResNet."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models import resnet, variants

FAMILIES = pytest.mark.parametrize("family", tiny.FAMILIES)


def headless(cfg):
    """The parameters of a model without a head, and two images for it."""
    images = np.random.default_rng(0).normal(size=(2, *tiny.size(cfg), 3)).astype(np.float32)
    return {k: v for k, v in tiny.params(cfg).items() if k != "head"}, images


def applied(cfg, params, images):
    with jax.default_matmul_precision("highest"):
        return jax.jit(variants.make(cfg).apply)({"params": params}, images)


def no_pool(family):
    return {} if family in ("bit", "mixer") else {"pool": "gap"}


@pytest.mark.integration
@FAMILIES
def test_last_map_is_what_is_pooled(family):
    cfg = tiny.FAMILIES[family](**no_pool(family))
    params, images = headless(cfg)
    (last,) = applied(cfg.for_maps((cfg.levels,)), params, images)
    assert last.shape[:3] == (2, *cfg.patch_grid(*tiny.size(cfg)))
    pooled = applied(cfg.for_images(0), params, images)
    np.testing.assert_allclose(last.mean(axis=(1, 2)), pooled, rtol=1e-5, atol=1e-5)
    assert not cfg.for_maps((1,)).for_images(7).maps


@pytest.mark.parametrize("family", ["vit", "hybrid", "mixer"])
def test_map_of_a_block_is_the_last_map_of_a_shorter_model(family):
    cfg = tiny.FAMILIES[family]()
    params, images = headless(cfg)
    first, last = applied(cfg.for_maps((1, cfg.depth)), params, images)
    short = tree.unstack_blocks(params)
    short = {k: v for k, v in short.items() if not k.startswith("block_") or k == "block_0"}
    short = tree.stack_blocks(short)
    (expected,) = applied(dataclasses.replace(cfg, depth=1).for_maps((1,)), short, images)
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(first - last).max() > 0.1


def test_registers_and_class_token_are_not_in_the_map():
    for pool in ("gap", "token"):
        cfg = tiny.config(registers=2, pool=pool)
        params, images = headless(cfg)
        (tokens,) = applied(cfg.for_maps((3,)), params, images)
        assert tokens.shape == (2, 2, 3, 32)
        representation = applied(cfg.for_images(0), params, images)
        if pool == "gap":
            means = tokens.mean(axis=(1, 2))
            np.testing.assert_allclose(means, representation, rtol=1e-5, atol=1e-5)
        else:
            assert np.abs(tokens - representation[:, None, None]).max(axis=-1).min() > 0.1


def test_stages_make_a_pyramid():
    cfg = tiny.bit()
    params, images = headless(cfg)
    first, last = applied(cfg.for_maps((1, 2)), params, images)
    assert first.shape == (2, 9, 12, 128)
    assert last.shape == (2, 5, 6, 256)
    root = dataclasses.replace(cfg.resnet, stages=cfg.resnet.stages[:1])
    backbone = resnet.Backbone(root, resnet.PreActUnit, "none", np.float32, None)
    with jax.default_matmul_precision("highest"):
        expected = jax.jit(backbone.apply)({"params": params["backbone"]}, images)[-1]
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-4)  # up to 10


@FAMILIES
def test_every_form_gives_the_same_maps(family):
    cfg = tiny.FAMILIES[family]()
    params, images = headless(cfg)
    expected = applied(cfg.for_maps((1, 2)), params, images)
    forms = [(cfg.in_form(unrolled=True, remat="full"), params)]
    if family != "bit":
        forms += [(dataclasses.replace(cfg, scan=False), tree.unstack_blocks(params))]
    for form, of_form in forms:
        maps = applied(form.for_maps((1, 2)), of_form, images)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), maps, expected
        )


@pytest.mark.parametrize(
    "cfg, levels, part",
    [(tiny.config(pool="map"), (1,), "gives no feature maps; use"),
     (variants.config(variant="Flexi-Ti/16", classes=2), (1,), "gives no feature maps; use"),
     (tiny.config(), (), "levels none: a ViT of 3 layers"),
     (tiny.bit(), (0, 2, 3), "levels 0, 3: a BiT ResNet of 3 units has levels 1 to 2")],
)  # fmt: skip
def test_levels_that_are_not_there_are_refused(cfg, levels, part):
    with pytest.raises(BadInput, match=part):
        cfg.for_maps(levels)
