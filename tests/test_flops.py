# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""FLOPs of a forward pass: against the compiler's own count, and against published figures."""

import dataclasses

import jax
import numpy as np
import pytest
import tiny

from vit_jax.models import flops, variants, vit


def compiled_flops(cfg: vit.ViTConfig, side: int) -> float:
    """What XLA counts for one image; blocks unrolled, since it counts the body of a loop once."""
    cfg = dataclasses.replace(cfg, scan=False)
    image = jax.ShapeDtypeStruct((1, side, side, 3), np.float32)
    forward = jax.jit(lambda p, x: vit.ViT(cfg).apply({"params": p}, x))
    compiled = forward.lower(tiny.shapes(cfg, side, side), image).compile()
    return compiled.cost_analysis()["flops"]


@pytest.mark.parametrize(
    "pool, representation, classes", [("token", 0, 50), ("gap", 4000, 500), ("map", 0, 20000)]
)
def test_flops_equal_those_of_the_compiler(pool, representation, classes):
    cfg = variants.config(
        variant="Ti/8",
        width=256,
        depth=2,
        mlp=768,
        heads=4,
        pool=pool,
        representation=representation,
        classes=classes,
    )
    # The compiler also counts norms, softmax and GELU, one to two percent here.
    ratio = compiled_flops(cfg, 32) / flops.forward_flops(cfg, 32, 32)
    assert 1.0 <= ratio < 1.04


def test_attention_products_count_where_they_dominate():
    cfg = variants.config(variant="Ti/2", width=64, depth=2, mlp=16, heads=1, classes=2)
    ratio = compiled_flops(cfg, 48) / flops.forward_flops(cfg, 48, 48)
    assert 0.97 < ratio < 1.10  # softmax is a few percent


@pytest.mark.parametrize(
    "variant, side, gmacs",
    [("B/16", 224, 17.58), ("B/16", 384, 55.5), ("S/16", 224, 4.61), ("L/16", 224, 61.6)],
)
def test_flops_are_the_published_ones(variant, side, gmacs):
    cfg = variants.config(variant=variant, classes=1000)
    assert flops.forward_flops(cfg, side, side) == pytest.approx(2e9 * gmacs, rel=0.005)


def test_parts_add_their_multiply_adds():
    def macs(pool="gap", classes=10, representation=0, height=8):
        cfg = tiny.config(pool=pool, classes=classes, representation=representation)
        return flops.forward_flops(cfg, height, 12) / 2

    width, mlp, patches = 32, 48, 6
    assert macs(classes=11) - macs() == width
    assert macs(representation=20) - macs() == width * 20 + 20 * 10 - width * 10
    probe = 2 * patches * width**2 + 2 * width**2 + 2 * patches * width + 2 * width * mlp
    assert macs(pool="map") - macs() == probe
    token = 3 * (4 * width**2 + 2 * width * mlp + 2 * (7**2 - 6**2) * width)
    assert macs(pool="token") - macs() == token
    more = 3 * (4 * width**2 + 2 * width * mlp) * 3 + 3 * 2 * (9**2 - 6**2) * width
    assert macs(height=12) - macs() == more + 3 * 4 * 4 * 3 * width
