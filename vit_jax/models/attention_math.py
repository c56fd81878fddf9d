# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Values weighted by the softmax of scores, also with a backward pass written out.

Axes: B batch, L tokens (M of the memory), N heads, K head dim. Left to differentiation, a layer
keeps the weights twice, and moves heads in front of tokens again for each product of the backward
pass; `lean` keeps what moved, and the weights once, in the dtype of the products. Start from
`plain`.
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
    """Attention of every head (arXiv:2010.11929, equations 6 and 7), [B, L, N, K].

    Names of `checkpoint_name`: query, key, value (heads before tokens), weights, attention.

    Args:
      query_BLNK: divided by the square root of K already.
      key_BMNK: in the dtype of the query, which is that of the products.
      value_BMNK: likewise.
      bias_BNLM: added to the scores, if given.
      keep_BNLM: bool, the weights that dropout leaves, if given.
      rate: of that dropout.
    """
    return _forward(query_BLNK, key_BMNK, value_BMNK, bias_BNLM, keep_BNLM, rate)[0]


# The same for reverse-mode derivatives alone: jax refuses `jvp` of it.
lean = jax.custom_vjp(plain, nondiff_argnums=(5,))


def weights(query_BNLK: jax.Array, key_BNMK: jax.Array, bias_BNLM: Any) -> jax.Array:
    """Softmax of scores in float32, before dropout; float32 [B, N, L, M]."""
    scores_BNLM = _products(query_BNLK, key_BNMK, (3, 3))
    if bias_BNLM is not None:
        scores_BNLM += bias_BNLM
    return jax.nn.softmax(scores_BNLM.astype(jnp.float32))


def swap(x: jax.Array) -> jax.Array:
    """[B, L, N, K] to [B, N, L, K], and back."""
    return jnp.swapaxes(x, 1, 2)


def _products(a: jax.Array, b: jax.Array, axes: tuple[int, int]) -> jax.Array:
    """Of each image and head, summed over one axis of either."""
    return lax.dot_general(a, b, (((axes[0],), (axes[1],)), ((0, 1), (0, 1))))


def _dropped(x: jax.Array, keep: jax.Array | None, rate: float) -> jax.Array:
    return x if keep is None else jnp.where(keep, x / jnp.asarray(1.0 - rate, x.dtype), 0)


def _forward(query: Any, key: Any, value: Any, bias: Any, keep: Any, rate: float) -> Any:
    query = checkpoint_name(swap(query), "query")
    key = checkpoint_name(swap(key), "key")
    value = checkpoint_name(swap(value), "value")
    found = checkpoint_name(weights(query, key, bias).astype(value.dtype), "weights")
    mixed = swap(_products(_dropped(found, keep, rate), value, (3, 2)))
    dtype = None if bias is None else jnp.zeros((), bias.dtype)
    return checkpoint_name(mixed, "attention"), (query, key, value, found, keep, dtype)


def _backward(rate: float, kept: Any, grad_BLNK: jax.Array) -> Any:
    query, key, value, found, keep, dtype = kept
    grad = swap(grad_BLNK)
    value_grad = _products(_dropped(found, keep, rate), grad, (2, 2))
    weights_grad = _dropped(_products(grad, value, (3, 3)), keep, rate).astype(jnp.float32)
    mean_BNL1 = jnp.sum(found * weights_grad, axis=-1, keepdims=True)
    scores_grad = (found * (weights_grad - mean_BNL1)).astype(query.dtype)
    query_grad = _products(scores_grad, key, (3, 2))
    key_grad = _products(scores_grad, query, (2, 2))
    bias_grad = None if dtype is None else scores_grad.astype(dtype.dtype)
    return swap(query_grad), swap(key_grad), swap(value_grad), bias_grad, None


lean.defvjp(_forward, _backward)
