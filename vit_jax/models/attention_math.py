# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Values weighted by the softmax of scores, and a written-out backward pass for them.

Axes: B batch, L tokens (M memory tokens), N heads, K head dim. With automatic differentiation, a
layer keeps the weights twice. It also moves heads in front of tokens again for each product of the
backward pass. `memory_efficient` keeps the moved arrays, and the weights once, in the dtype of the
products. Start from `plain`.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name


def plain(
    query_BLNK: jax.Array,
    key_BMNK: jax.Array,
    value_BMNK: jax.Array,
    bias_BNLM: jax.Array | None,
    keep_BNLM: jax.Array | None,
    rate: float,
) -> jax.Array:
    """Computes the attention of every head (arXiv:2010.11929, equations 6 and 7), [B, L, N, K].

    It uses `checkpoint_name` for query, key, value (heads before tokens), weights and attention.

    Args:
      query_BLNK: queries, already divided by the square root of K.
      key_BMNK: keys in the dtype of the queries, which is also the dtype of the products.
      value_BMNK: values in the same dtype.
      bias_BNLM: term to add to the scores, if given.
      keep_BNLM: bool mask of the weights that dropout keeps, if given.
      rate: rate of that dropout.
    """
    return _forward(query_BLNK, key_BMNK, value_BMNK, bias_BNLM, keep_BNLM, rate)[0]


# `plain` for reverse-mode derivatives only: jax refuses `jvp` of it.
memory_efficient = jax.custom_vjp(plain, nondiff_argnums=(5,))


def weights(query_BNLK: jax.Array, key_BNMK: jax.Array, bias_BNLM: Any) -> jax.Array:
    """Returns the softmax of the scores in float32 [B, N, L, M], before dropout."""
    scores_BNLM = _products(query_BNLK, key_BNMK, (3, 3))
    if bias_BNLM is not None:
        scores_BNLM += bias_BNLM
    return jax.nn.softmax(scores_BNLM.astype(jnp.float32))


def swap(x: jax.Array) -> jax.Array:
    """Turns [B, L, N, K] into [B, N, L, K], and back."""
    return jnp.swapaxes(x, 1, 2)


def _products(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Returns the products for each image and head, summed over one axis of each argument."""
    return lax.dot_general(a, b, (((axes[0],), (axes[1],)), ((0, 1), (0, 1))))


def _dropped(x: jax.Array, keep: jax.Array | None, rate: float) -> jax.Array:
    return x if keep is None else jnp.where(keep, x / jnp.asarray(1.0 - rate, x.dtype), 0)


def _forward(query: Any, key: Any, value: Any, bias: Any, keep: Any, rate: float) -> Any:
    query = checkpoint_name(swap(query), "query")
    key = checkpoint_name(swap(key), "key")
    value = checkpoint_name(swap(value), "value")
    shares = checkpoint_name(weights(query, key, bias).astype(value.dtype), "weights")
    mixed = swap(_products(_dropped(shares, keep, rate), value, (3, 2)))
    dtype = None if bias is None else jnp.zeros((), bias.dtype)
    return checkpoint_name(mixed, "attention"), (query, key, value, shares, keep, dtype)


def _backward(rate: float, kept: Any, grad_BLNK: jax.Array) -> Any:
    query, key, value, shares, keep, dtype = kept
    grad = swap(grad_BLNK)
    value_grad = _products(_dropped(shares, keep, rate), grad, (2, 2))
    weights_grad = _dropped(_products(grad, value, (3, 3)), keep, rate).astype(jnp.float32)
    mean_BNL1 = jnp.sum(shares * weights_grad, axis=-1, keepdims=True)
    scores_grad = (shares * (weights_grad - mean_BNL1)).astype(query.dtype)
    query_grad = _products(scores_grad, key, (3, 2))
    key_grad = _products(scores_grad, query, (2, 2))
    bias_grad = None if dtype is None else scores_grad.astype(dtype.dtype)
    return swap(query_grad), swap(key_grad), swap(value_grad), bias_grad, None


memory_efficient.defvjp(_forward, _backward)
