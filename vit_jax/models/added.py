# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What fine-tuning adds to layers: low-rank matrices (LoRA) and adapters.

A dense layer whose parameters have `lora_a` and `lora_b` multiplies with kernel + A B
(arXiv:2106.09685, equation 3). It adds up the matrices and not their products with the tokens,
which are larger. Its backward pass computes no gradient of the kernel, a third of the work of a
layer. The output x of a module with `adapter` becomes x + up(GELU(down(x))) (arXiv:1902.00751).
Start from `to_layers`.

Axes: I inputs, O outputs, R rank.
"""

import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


def to_layers(*, factors: Any, rows: bool) -> Any:
    """Makes modules inside a `with` use the additions among their parameters.

    A dense layer maps its first argument [..., *in] with a `kernel` [*in, *out], and may add a
    `bias` [*out].

    Args:
      factors: dtype of what is multiplied.
      rows: whether to turn all tokens into rows of one matrix first, see `products.product`.
    """

    def add(layer: Any, args: Any, kwargs: Any, context: Any) -> Any:
        out, module = layer(*args, **kwargs), context.module
        if context.method_name != "__call__":
            return out
        if module.has_variable("params", "adapter"):
            adapter = module.variables["params"]["adapter"]
            return out + _dense(adapter["up"], nn.gelu(_dense(adapter["down"], out)))
        if not module.has_variable("params", "lora_a"):
            return out
        # Of `out` only the shape and the dtype are used, so a compiler leaves its product out.
        params: Any = module.variables["params"]
        a, b = params["lora_a"], params["lora_b"]
        a_IR, b_RO = a.reshape(-1, a.shape[-1]), b.reshape(len(b), -1)
        kernel_IO = params["kernel"].reshape(len(a_IR), -1)
        x = args[0].astype(out.dtype)
        tokens = x.ndim - a.ndim + 1  # the first axes
        x = x.reshape(*((-1,) if rows else x.shape[:tokens]), len(a_IR))
        y: Any = _product(jnp.dtype(factors), x, kernel_IO, a_IR, b_RO)
        y = y.reshape(out.shape)
        if "bias" in params:
            bias = params["bias"].astype(out.dtype)
            y = y + bias.reshape((1,) * tokens + out.shape[tokens:])
        return y

    return nn.intercept_methods(add)


def _dense(params: Any, x: jax.Array) -> jax.Array:
    kernel, bias = params["kernel"].astype(x.dtype), params["bias"].astype(x.dtype)
    return _dot(x, kernel, 0, x.dtype) + bias.reshape((1,) * (x.ndim - 1) + bias.shape)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _product(
    factors: Any, x: jax.Array, kernel_IO: jax.Array, a_IR: jax.Array, b_RO: jax.Array
) -> jax.Array:
    """Returns x (kernel + A B) for x [..., I]; its gradient by the kernel is left out: 0."""
    return _dot(x.astype(factors), _sum(kernel_IO, a_IR, b_RO, factors), 0, x.dtype)


def _forward(factors: Any, x: jax.Array, *matrices: jax.Array) -> Any:
    return _product(factors, x, *matrices), (x, *matrices)


def _backward(factors: Any, kept: Any, grad: jax.Array) -> Any:
    x, kernel_IO, a_IR, b_RO = kept
    a, b, x_in, grad = (array.astype(factors) for array in (a_IR, b_RO, x, grad))
    of_x = _dot(grad, _sum(kernel_IO, a_IR, b_RO, factors), 1, x.dtype)
    of_a_RI = _over_tokens(_dot(grad, b, 1, factors), x_in, a_IR.dtype)
    of_b_RO = _over_tokens(_dot(x_in, a, 0, factors), grad, b_RO.dtype)
    return of_x, None, of_a_RI.T, of_b_RO


_product.defvjp(_forward, _backward)


def _sum(kernel_IO: jax.Array, a_IR: jax.Array, b_RO: jax.Array, factors: Any) -> jax.Array:
    """Returns kernel + A B as a factor; the sum is that of the merged weights, in float32."""
    return (kernel_IO + jnp.dot(a_IR, b_RO, precision="highest")).astype(factors)


def _dot(x: jax.Array, y: jax.Array, axis: int, dtype: Any) -> jax.Array:
    """Returns the product summed over the last axis of x and an axis of the matrix y."""
    axes = (((x.ndim - 1,), (axis,)), ((), ()))
    return jax.lax.dot_general(x, y, axes, preferred_element_type=dtype)


def _over_tokens(x: jax.Array, y: jax.Array, dtype: Any) -> jax.Array:
    """Returns the product of [..., R] and [..., I] summed over all tokens, [R, I]."""
    tokens = tuple(range(x.ndim - 1))
    axes = ((tokens, tokens), ((), ()))
    return jax.lax.dot_general(x, y, axes, preferred_element_type=dtype)
