# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a GPU or a TPU computes in another form than a CPU: the results are the same."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vit_jax import sharding
from vit_jax.hardware import topology
from vit_jax.models import layers, products
from vit_jax.preflight.plan import compile_for, hlo
from vit_jax.runtime.worker_process import Child

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


# ---------------------------------------------------------------- a head whose kernel is split


def rules_over(devices):
    mesh = sharding.make_mesh(replica=1, data=1, fsdp=len(devices), tensor=1, devices=devices)
    return sharding.Rules(mesh, (("embed", ("fsdp",)), ("act_batch", ("fsdp",))))


def updated(multiply):
    """(kernel, x) -> the kernel after a step."""

    def loss(kernel, x):
        return jnp.sum(jnp.sin(multiply(x, kernel, (((1,), (0,)), ((), ())))))

    return lambda kernel, x: kernel - jax.grad(loss)(kernel, x)


def test_the_product_of_a_head_is_the_same_where_its_kernel_is_split():
    kernel, x = (jax.random.normal(jax.random.key(i), shape) for i, shape in
                 enumerate([(12, 7), (8, 12)]))  # fmt: skip
    rules = rules_over(jax.devices()[:4])
    placed = jax.device_put(kernel, rules.sharding(("embed", "classes"), kernel.shape))
    found = jax.jit(updated(products.of_head(rules)))(placed, x)
    np.testing.assert_allclose(found, updated(jax.lax.dot_general)(kernel, x), rtol=0, atol=1e-5)
    assert products.of_head(None) is jax.lax.dot_general


def sending():
    """In a process of its own: (D, Y) -> the bytes that 4 chips send for a step of a head."""
    accelerator = topology.find("v4-8")
    compile_for.start(accelerator, 1)
    rules = rules_over(compile_for.devices(accelerator, 1)[0])

    def sent(size):
        width, _ = size
        kernel, x = (
            jax.ShapeDtypeStruct(shape, jnp.float32, sharding=rules.sharding(axes, shape))
            for shape, axes in [(size, ("embed", "classes")), ((64, width), ("act_batch", None))]
        )
        step = jax.jit(updated(products.of_head(rules)), out_shardings=kernel.sharding)
        text = step.lower(kernel, x).compile().as_text()
        return hlo.collective_bytes(text, dict(rules.mesh.shape))["fsdp"]

    return sent


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
def test_the_gradient_of_a_head_is_scattered_over_tpus():
    size = 512, 18291  # classes of JFT; a part of 512 is as wide as a TPU's registers
    with Child(sending) as child:
        sent = child.ask(size)
    assert "all-reduce" not in sent
    assert sent["reduce-scatter"] == pytest.approx(4 * 512 * 18291, rel=0.01)
