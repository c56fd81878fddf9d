# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a GPU computes in another form than a CPU, on a CPU: the results are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax.models import layers, products

NAMES = jax.lax.conv_dimension_numbers((1, 1, 1, 1), (1, 1, 1, 1), ("NHWC", "HWIO", "NHWC"))


@pytest.fixture
def as_a_gpu(monkeypatch):
    """Calls a function as if the arrays were on a GPU."""

    def call(function, *args):
        with monkeypatch.context() as patch:
            patch.setattr(products, "on_gpu", lambda rules: True)
            return function(*args)

    return call


@pytest.mark.parametrize("size", [(8, 12), (11, 15)], ids=["whole patches", "a rest"])
@pytest.mark.parametrize("patch", [(4, 4), (2, 3), (1, 1)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16_products"])
def test_patches_are_those_of_a_convolution(as_a_gpu, size, patch, dtype):
    images = jax.random.normal(jax.random.key(0), (2, *size, 3))
    kernel = jax.random.normal(jax.random.key(1), (*patch, 3, 5))

    def differentiated():
        convolve = products.patches(None, dtype)
        assert (convolve is products.convolution(dtype)) == (not products.on_gpu(None))

        def loss(images, kernel):
            out = convolve(images, kernel, patch, "VALID", dimension_numbers=NAMES)
            return jnp.sum(jnp.sin(out)), out

        (_, out), grads = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))(images, kernel)
        return out, *grads

    for found, expected in zip(as_a_gpu(differentiated), differentiated(), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("gelu", ["tanh", "erf", "quick"])
def test_the_gradient_of_an_activation_needs_its_argument_alone(as_a_gpu, gelu):
    act, x = layers.activation(gelu), jnp.linspace(-6, 6, 101)
    kept = as_a_gpu(layers._from_input, act, None)
    np.testing.assert_array_equal(kept(x), act(x))
    expected = jax.vmap(jax.grad(act))(x)
    np.testing.assert_allclose(jax.vmap(jax.grad(kept))(x), expected, rtol=0, atol=1e-6)
    _, backward = jax.vjp(kept, x)
    assert [leaf.shape for leaf in jax.tree.leaves(backward)] == [x.shape]
