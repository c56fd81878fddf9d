# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`model.dtype=bfloat16_products`: float32 activations, products of bfloat16 with float32 sums."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import tiny
from test_attention import chosen, weighted

from vit_jax.errors import BadInput
from vit_jax.models import custom, products

DTYPE = "bfloat16_products"
AXES = (((2,), (0,)), ((), ()))


def rounded(x):
    """float64 with the values of bfloat16."""
    return np.asarray(x, ml_dtypes.bfloat16).astype(np.float64)


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape)


def test_a_product_rounds_its_factors_and_not_its_sums_forward_and_backward():
    x, kernel, grad = normal(2, 5, 64), normal(64, 3, seed=1), normal(2, 5, 3, seed=2)
    multiply = products.product(None, DTYPE)
    out, back = jax.vjp(lambda *a: multiply(*a, AXES), x, kernel)
    x_grad, kernel_grad = back(grad)
    exact = (
        np.einsum("blc,cd->bld", rounded(x), rounded(kernel)),
        np.einsum("bld,cd->blc", rounded(grad), rounded(kernel)),
        np.einsum("blc,bld->cd", rounded(x), rounded(grad)),
    )
    for found, expected in zip((out, x_grad, kernel_grad), exact, strict=True):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert np.abs(out - np.einsum("blc,cd->bld", x, kernel)).max() > 1e-3  # it rounds at all


def test_a_convolution_rounds_its_factors_and_not_its_sums_forward_and_backward():
    x, kernel = normal(2, 6, 6, 3), normal(2, 2, 3, 4, seed=1)

    def patches(x, kernel):
        names = ("NHWC", "HWIO", "NHWC")
        return products.convolution(DTYPE)(x, kernel, (2, 2), "VALID", dimension_numbers=names)

    out, back = jax.vjp(jax.jit(patches), x, kernel)
    grad = normal(*out.shape, seed=2)
    x_grad, kernel_grad = back(grad)
    cut = rounded(x).reshape(2, 3, 2, 3, 2, 3)
    exact = (
        np.einsum("byuxvc,uvcd->byxd", cut, rounded(kernel)),
        np.einsum("byxd,uvcd->byuxvc", rounded(grad), rounded(kernel)).reshape(x.shape),
        np.einsum("byuxvc,byxd->uvcd", cut, rounded(grad)),
    )
    for found, expected in zip((out, x_grad, kernel_grad), exact, strict=True):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_all_factors_but_the_heads_are_bfloat16_and_the_stream_is_float32():
    cfg = tiny.config(dtype=DTYPE, depth=2, scan=False, attention="plain")
    text = weighted(cfg).lower(tiny.params(cfg), tiny.images(2)).as_text()
    factors = re.findall(r"dot_general.*: \(tensor<[^>]*x(\w+)>, tensor<[^>]*x(\w+)>\)", text)
    assert set(factors) == {("bf16", "bf16"), ("f32", "f32")}
    assert factors.count(("f32", "f32")) == 3  # the head, and its gradients
    assert factors.count(("bf16", "bf16")) == 2 * 3 * 8  # 4 projections, 2 of attention, 2 of MLP
    sums = re.findall(r"stablehlo.add .*: tensor<2x7x32x(\w+)>", text)
    assert set(sums) == {"f32"}


@pytest.mark.integration
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_family_is_closer_to_float32_than_bfloat16_is(family):
    of, small = {}, {"stages": (1,)} if family in ("hybrid", "bit") else {}
    small |= {"depth": 1} if family != "bit" else {}
    for dtype in ("float32", DTYPE, "bfloat16"):
        cfg = tiny.FAMILIES[family](dtype=dtype, **small)
        value, grads = weighted(cfg)(tiny.params(cfg), tiny.images_of(cfg))
        leaves = [np.ravel(x) for x in jax.tree.leaves(grads)]
        assert {x.dtype for x in leaves} == {np.dtype("float32")}
        of[dtype] = np.concatenate(leaves)
        assert np.isfinite(value)
    far, near = (np.linalg.norm(of[d] - of["float32"]) for d in ("bfloat16", DTYPE))
    assert 0 < near < far


@functools.lru_cache
def of_path(name):
    cfg = dataclasses.replace(tiny.config(dtype=DTYPE, depth=2), attention=name)
    return weighted(cfg)(tiny.params(cfg), tiny.images())


@pytest.mark.integration
@pytest.mark.parametrize("path", ["memory_efficient", "packed", "xla"])
def test_all_paths_of_attention_agree(path):
    leaves = (jax.tree.leaves(of_path(name)) for name in (path, "plain"))
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.1, atol=0.1 * (1 + np.abs(other).max()))


def test_a_gpu_uses_fused_attention_with_it():
    assert chosen(dtype=DTYPE)[0] == "cudnn"
    assert chosen(dtype="float32")[0] == "memory_efficient"


def test_a_model_of_ones_own_refuses_it():
    with pytest.raises(BadInput, match=r"bfloat16_products.*--config.model.dtype=float32"):
        custom.config("mine:Model", 2, {"dtype": DTYPE})
