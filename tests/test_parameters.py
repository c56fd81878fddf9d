# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Parameters counted by hand are those that the traced model has."""

import dataclasses

import pytest
import tiny

from vit_jax import tree
from vit_jax.models import parameters, variants

SMALL = ["S/16", "L/32", "R+Ti/16", "Mixer-S/16"]


def traced(cfg, height, width):
    return tree.size(variants.shapes(cfg, height, width))


@pytest.mark.parametrize(
    "name",
    [n if n in SMALL else pytest.param(n, marks=pytest.mark.slow) for n in variants.NAMED],
)
def test_named_models(name):
    cfg = variants.config(variant=name, classes=1000, **variants.published(name))
    side = 224 // variants.stride(cfg) * variants.stride(cfg)
    assert parameters.count(cfg, side, side) == traced(cfg, side, side)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_images_that_are_not_square(family):
    cfg = tiny.FAMILIES[family]()
    stride = variants.stride(cfg)
    height, width = 2 * stride, 3 * stride
    assert parameters.count(cfg, height, width) == traced(cfg, height, width)


@pytest.mark.parametrize(
    "given",
    [
        {"posemb": "learned2d"},
        {"posemb": "learned2d", "pool": "gap", "posemb_at": "every"},
        {"posemb": "relative", "registers": 2},
        {"posemb": "sincos2d", "registers": 3, "pool": "map"},
        {"posemb": "none", "representation": 12},
        {"posemb_at": "every"},
        {"posemb_at": "shared", "scan": False},
        {"classes": 0},
    ],
    ids=str,
)
def test_options_of_a_vit(given):
    cfg = tiny.config(**given)
    side = 3 * variants.stride(cfg)
    assert parameters.count(cfg, side, side) == traced(cfg, side, side)


def test_patches_predicted():
    cfg = dataclasses.replace(tiny.config(), classes=0, patch_outputs=7)
    side = 2 * variants.stride(cfg)
    assert parameters.count(cfg, side, side) == traced(cfg, side, side)
