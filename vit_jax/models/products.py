# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Products of activations and weights, in the form that is fast where the arrays are.

Axes: B batch, H height, W width, C channels, L tokens, D width of a token. Start from `product`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.sharding import Rules


def stream(dtype: Any) -> jnp.dtype:
    """Returns the dtype of activations between products: bfloat16_products keeps float32."""
    return jnp.dtype("float32" if _only_products(dtype) else dtype)


def factors(dtype: Any) -> jnp.dtype:
    """Returns the dtype of what is multiplied."""
    return jnp.dtype("bfloat16" if _only_products(dtype) else dtype)


def _only_products(dtype: Any) -> bool:
    return isinstance(dtype, str) and dtype == "bfloat16_products"


def product(rules: Rules | None, dtype: Any = "float32") -> Callable[..., jax.Array]:
    """Returns the `dot_general` with which Flax's dense layers multiply tokens and weights.

    On a CPU it first turns all tokens into rows of one matrix. The sums are the same. Without it,
    XLA copies and transposes the gradient of the output to compute the gradient of the kernel.

    Args:
      rules: placement; tokens stay as they are for None, or if the axes to join are split over
        devices.
      dtype: `model.dtype`; bfloat16_products rounds both factors, see `_bfloat16_product`.
    """
    multiply = _bfloat16_product if _only_products(dtype) else jax.lax.dot_general
    return functools.partial(_rows_product, multiply) if as_rows(rules) else multiply


def as_rows(rules: Rules | None) -> bool:
    """Returns True where tokens become rows of one matrix, see `product`."""
    if rules is None or _platform(rules) != "cpu":
        return False
    return all(rules.parts(axis) == 1 for axis in ("act_tokens", "act_embed", "head_dim"))


def on_gpu(rules: Rules | None) -> bool:
    """Returns True where the arrays are on GPUs."""
    return _platform(rules) == "gpu"


def on_tpu(rules: Rules | None) -> bool:
    """Returns True where the arrays are on TPUs."""
    return _platform(rules) == "tpu"


def _platform(rules: Rules | None) -> str | None:
    return None if rules is None else rules.mesh.devices.flat[0].platform


_Axes = tuple[tuple[tuple[int, ...], tuple[int, ...]], Any]  # summed of each, batch: none


def _bfloat16_product(x: jax.Array, kernel: jax.Array, axes: _Axes, **_: Any) -> jax.Array:
    """Multiplies float32 arrays as a TPU does by default: bfloat16 factors, float32 sums.

    The products of the backward pass round their factors too, the gradient of the output among
    them. All results are float32. The arguments are those of `_rows_product`.
    """
    (summed, first), _batch = axes
    return _rounded_product(x, kernel, ((tuple(summed), tuple(first)), ((), ())))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rounded_product(x: jax.Array, kernel: jax.Array, axes: _Axes) -> jax.Array:
    return _rounded_forward(x, kernel, axes)[0]


def _rounded_forward(x: Any, kernel: Any, axes: _Axes) -> Any:
    x, kernel = x.astype(jnp.bfloat16), kernel.astype(jnp.bfloat16)
    return _float32_dot(x, kernel, *axes[0]), (x, kernel)


def _rounded_backward(axes: _Axes, kept: Any, grad: jax.Array) -> tuple[jax.Array, jax.Array]:
    (x, kernel), summed = kept, len(axes[0][0])
    grad, rows = grad.astype(jnp.bfloat16), tuple(range(x.ndim - summed))
    columns = tuple(range(len(rows), grad.ndim)), tuple(range(summed, kernel.ndim))
    return _float32_dot(grad, kernel, *columns), _float32_dot(x, grad, rows, rows)


_rounded_product.defvjp(_rounded_forward, _rounded_backward)


def _float32_dot(a: jax.Array, b: jax.Array, of_a: Any, of_b: Any) -> jax.Array:
    axes = ((of_a, of_b), ((), ()))
    return jax.lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


def convolution(dtype: Any) -> Callable[..., jax.Array]:
    """Returns the `conv_general_dilated` of a `model.dtype`, as `product` does.

    With bfloat16_products the factors hold bfloat16 values in float32: jax cannot differentiate a
    convolution of bfloat16 with a result of float32. The result is the same; a GPU multiplies them
    as TF32, which holds every bfloat16, at half the rate.
    """
    return _rounded_convolution if _only_products(dtype) else jax.lax.conv_general_dilated


def patches(rules: Rules | None, dtype: Any) -> Callable[..., jax.Array]:
    """Returns the `convolution` for patches, which do not overlap.

    On a GPU the pixels of a patch become channels first: cuDNN is slow with three of them.
    """
    convolve = convolution(dtype)
    return functools.partial(_of_channels, convolve) if on_gpu(rules) else convolve


def _of_channels(
    convolve: Callable[..., jax.Array], x: jax.Array, kernel: jax.Array, *_: Any, **kwargs: Any
) -> jax.Array:
    """Computes patches of `kernel`'s size as a convolution of 1 x 1."""
    side_y, side_x, channels = kernel.shape[:3]
    batch, height, width = x.shape[:3]
    rows, columns, pixels = height // side_y, width // side_x, side_y * side_x * channels
    x = x[:, : rows * side_y, : columns * side_x]
    x = x.reshape(batch, rows, side_y, columns, side_x, channels).swapaxes(2, 3)
    x, kernel = x.reshape(batch, rows, columns, pixels), kernel.reshape(1, 1, pixels, -1)
    return convolve(x, kernel, (1, 1), "VALID", **kwargs)


def _rounded_convolution(x: jax.Array, kernel: jax.Array, *args: Any, **kwargs: Any) -> jax.Array:
    out = jax.lax.conv_general_dilated(_round(x, False), _round(kernel, False), *args, **kwargs)
    return _round(out, True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _round(x: jax.Array, gradient: bool) -> jax.Array:
    """Rounds a float32 array to values of bfloat16; with `gradient`, its gradient instead."""
    return x if gradient else jax.lax.reduce_precision(x, 8, 7)


_round.defvjp(
    lambda x, gradient: (_round(x, gradient), None),
    lambda gradient, _, grad: (jax.lax.reduce_precision(grad, 8, 7) if gradient else grad,),
)


def _rows_product(
    multiply: Callable[..., jax.Array], x: jax.Array, kernel: jax.Array, axes: Any, **kwargs: Any
) -> jax.Array:
    """Computes `multiply` over the last axes of [..., D] and the first axes of [D, ...]."""
    (summed, first), batch = axes
    kept = x.shape[: x.ndim - len(summed)]
    assert batch == ((), ()), axes
    assert tuple(first) == tuple(range(len(first))), axes
    assert tuple(summed) == tuple(range(len(kept), x.ndim)), axes

    def flat(x: jax.Array, kernel: jax.Array) -> jax.Array:
        rows = x.reshape(math.prod(kept), math.prod(x.shape[len(kept) :]))
        columns = kernel.reshape(rows.shape[1], -1)
        out = multiply(rows, columns, (((1,), (0,)), ((), ())), **kwargs)
        return out.reshape(*kept, *kernel.shape[len(first) :])

    return jax.checkpoint(flat, prevent_cse=False)(x, kernel)  # keeps no second copy of x or kernel


class Projection(nn.Module):
    """A dense layer between a token and its heads, with a kernel [*inputs, *outputs] and a bias.

    Attributes:
      inputs: shape of what the parameters map.
      outputs: shape of the result.
      dtype: dtype of the computation.
      rules: placement of activations.
      bias: whether there is a bias.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtype: Any
    rules: Rules | None
    bias: bool = True

    @nn.compact
    def __call__(self, x: jax.Array, result: tuple[int, ...]) -> jax.Array:
        """Maps [B, L, *any shape of `inputs`] to [B, L, *result], a shape of `outputs`."""
        shape = (*self.inputs, *self.outputs)

        def init(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            flat = math.prod(self.inputs), math.prod(self.outputs)
            return nn.initializers.xavier_uniform()(key, flat).reshape(shape)

        kernel = self.param("kernel", init, shape)
        dtype = stream(self.dtype)
        x, kernel = x.astype(dtype), kernel.astype(dtype)
        summed = x.shape[2:]
        axes = tuple(range(2, x.ndim)), tuple(range(len(summed)))
        # cuBLAS adds a bias to the rows of a matrix.
        columns = (math.prod(result),) if on_gpu(self.rules) else result
        sums = product(self.rules, self.dtype)(
            x, kernel.reshape(*summed, *columns), (axes, ((), ()))
        )
        if self.bias:
            bias = self.param("bias", nn.initializers.zeros, self.outputs).astype(dtype)
            sums += bias.reshape(1, 1, *columns)
        return sums.reshape(*x.shape[:2], *result)
