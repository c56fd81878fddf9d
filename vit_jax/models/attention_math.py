# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Values weighted by the softmax of scores, and a written-out backward pass for them.

Axes: B batch, L tokens (M memory tokens), N heads, K head dim, R offsets. With automatic
differentiation, a layer keeps the weights twice. It also moves heads in front of tokens again for
each product of the backward pass. `memory_efficient` keeps the moved arrays, and the weights once,
in the dtype of the products. `packed` is for TPUs. Start from `plain`.
"""

import functools
from collections.abc import Callable
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
    scores_BNLM = float32_sums(_scores, query_BNLK, key_BNMK)
    if bias_BNLM is not None:
        scores_BNLM += bias_BNLM
    return jax.nn.softmax(scores_BNLM.astype(jnp.float32))


def swap(x: jax.Array) -> jax.Array:
    """Turns [B, L, N, K] into [B, N, L, K], and back."""
    return jnp.swapaxes(x, 1, 2)


def _products(a: jax.Array, b: jax.Array, axes: tuple[int, int], **options: Any) -> jax.Array:
    """Returns the products for each image and head, summed over one axis of each argument."""
    return lax.dot_general(a, b, (((axes[0],), (axes[1],)), ((0, 1), (0, 1))), **options)


_scores = functools.partial(_products, axes=(3, 3))


def float32_sums(products: Callable[..., jax.Array], a: jax.Array, b: jax.Array) -> jax.Array:
    """Computes products of two arrays, such as scores, without rounding the sums to their dtype.

    A score of 45 has an error of up to 0.13 in bfloat16, and its weight one of 13 %. Derivatives
    are rounded to the dtype of the arrays, so that their products stay as fast.

    Args:
      products: a function of two arrays and `preferred_element_type`, linear in each array.
      a: the first array.
      b: the second array, of the same dtype.
    """
    return products(a, b) if a.dtype == jnp.float32 else _float32_sums(products, a, b)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _float32_sums(products: Callable[..., jax.Array], a: jax.Array, b: jax.Array) -> jax.Array:
    return products(a, b, preferred_element_type=jnp.float32)


@_float32_sums.defjvp
def _float32_sums_jvp(products: Any, primals: Any, tangents: Any) -> tuple[jax.Array, jax.Array]:
    (a, b), (da, db) = primals, tangents
    change = products(da, b) + products(a, db)
    return _float32_sums(products, a, b), change.astype(jnp.float32)


_OFFSETS = functools.partial(jnp.einsum, "blnk,rnk->bnlr")


def relative_scores(query_BLNK: jax.Array, table_RNK: jax.Array) -> jax.Array:
    """Returns the scores of the first L queries for their offsets to each key, [B, N, L, M].

    A score is the product of the query with the embedding of the offset.

    Args:
      query_BLNK: [B, L, N, K], scaled.
      table_RNK: [2M - 1, N, K]; row M - 1 + i - j belongs to query i and key j.
    """
    queries, keys = query_BLNK.shape[1], len(table_RNK) // 2 + 1
    scores_BNLR = float32_sums(_OFFSETS, query_BLNK, table_RNK)
    offset_LM = jnp.arange(queries)[:, None] - jnp.arange(keys)[None, :] + keys - 1
    return jnp.take_along_axis(scores_BNLR, offset_LM[None, None], axis=-1)


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


# ---------------------------------------------------------------- packed heads


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def packed(
    query_BLGC: jax.Array,
    key_BMGC: jax.Array,
    value_BMGC: jax.Array,
    head_dim: int,
    keys_first: bool,
) -> jax.Array:
    """Computes `plain` for groups of heads that lie beside each other, [B, L, G, C].

    A TPU computes arrays of 8 x 128 numbers, of which a head of 64 fills half. Here every product
    reads and writes whole groups, and no head moves in front of the tokens: the other factor holds
    a copy for each head of a group, in which the other heads are zero. It uses the names of
    `plain`; `weights` are the scores less the largest of a query. It has reverse-mode derivatives
    only.

    Args:
      query_BLGC: queries, already divided by the square root of K. Axes: G groups, C = heads of a
        group x K.
      key_BMGC: keys in the dtype of the queries.
      value_BMGC: values in the same dtype.
      head_dim: K, divides C.
      keys_first: whether scores have keys before queries, see `build.execution`.
    """
    return _packed_forward(query_BLGC, key_BMGC, value_BMGC, head_dim, keys_first)[0]


def _own_numbers(lanes: int, head_dim: int) -> jax.Array:
    """Returns which of the C numbers of a group belong to each of its R heads, bool [R, C]."""
    return jnp.arange(lanes)[None] // head_dim == jnp.arange(lanes // head_dim)[:, None]


def _of_heads(x_BLGC: jax.Array, own_RC: jax.Array) -> jax.Array:
    """Returns a copy for each of the R heads of a group, with the others zero, [B, R, L, G, C]."""
    return jnp.where(own_RC[None, :, None, None], x_BLGC[:, None], 0)


def _shares(below: jax.Array) -> jax.Array:
    """Returns the exponentials of the softmax, which are not divided by their sum yet."""
    return jnp.exp(below.astype(jnp.float32)).astype(below.dtype)


def _of_pairs(x_BLGC: jax.Array, copies_BRMGC: jax.Array, keys_first: bool) -> jax.Array:
    """Returns the products of each pair of tokens, float32 [B, G, R, M, L] or [B, G, R, L, M]."""
    if keys_first:
        axes, factors = "brmgc,blgc->bgrml", (copies_BRMGC, x_BLGC)
    else:
        axes, factors = "blgc,brmgc->bgrlm", (x_BLGC, copies_BRMGC)
    return jnp.einsum(axes, *factors, preferred_element_type=jnp.float32)


def _axes(keys_first: bool) -> tuple[str, int]:
    """Returns the axes of all pairs of tokens for einsum, and the position of the keys' axis."""
    return ("bgrml", 3) if keys_first else ("bgrlm", 4)


def _summed(shares: jax.Array, value_BMGC: jax.Array, own_RC: jax.Array, pairs: str) -> jax.Array:
    """Returns the values that each query mixes, times the sum of its shares, float32 [B, L, G, C].

    With ones for values, this is the sum of the shares, repeated for each number of a head.
    """
    factors = shares, _of_heads(value_BMGC, own_RC)
    return jnp.einsum(f"{pairs},brmgc->blgc", *factors, preferred_element_type=jnp.float32)


def _packed_forward(query: Any, key: Any, value: Any, head_dim: int, keys_first: bool) -> Any:
    pairs, axis = _axes(keys_first)
    query = checkpoint_name(query, "query")
    key = checkpoint_name(key, "key")
    value = checkpoint_name(value, "value")
    own_RC = _own_numbers(query.shape[-1], head_dim)
    scores = _of_pairs(query, _of_heads(key, own_RC), keys_first)
    # Rounded only below the largest score of a query: the closer to it, the less the error.
    below = (scores - jnp.max(scores, axis=axis, keepdims=True)).astype(query.dtype)
    several = len(own_RC) > 1
    if several and keys_first:  # otherwise the compilers for v6e and tpu7x keep float32 scores
        below = lax.optimization_barrier(below)
    below = checkpoint_name(below, "weights")

    summed = _summed(_shares(below), value, own_RC, pairs)
    if several or head_dim <= 64:  # for these, a sum would be a pass of its own
        total = _summed(_shares(below), jnp.ones_like(value), own_RC, pairs)
    else:
        total_BG1L = jnp.sum(_shares(below), axis=axis, dtype=jnp.float32)
        total = jnp.moveaxis(total_BG1L, 3, 1)
    mixed = checkpoint_name((summed / total).astype(value.dtype), "attention")
    return mixed, (query, key, value, below, total, mixed)


def _packed_backward(head_dim: int, keys_first: bool, kept: Any, grad_BLGC: jax.Array) -> Any:
    query, key, value, below, total, mixed = kept
    pairs, axis = _axes(keys_first)
    # Behind a barrier, so that the compiler does not keep the copies of the forward pass (v6e).
    own_RC = lax.optimization_barrier(_own_numbers(query.shape[-1], head_dim))
    shares, grad = _shares(below), (grad_BLGC / total).astype(value.dtype)
    value_grad = jnp.einsum(f"{pairs},brlgc->bmgc", shares, _of_heads(grad, own_RC))
    # The mean of the gradients of a query's weights, from the output (arXiv:2205.14135, appendix
    # B): known before them, it needs no second pass over all pairs of tokens. It is subtracted
    # from what it was not computed from, so both have the precision of float32.
    products_BLGC, ones_RC = grad.astype(jnp.float32) * mixed, own_RC.astype(jnp.float32)
    mean_BGRL = jnp.einsum("blgc,rc->bgrl", products_BLGC, ones_RC, precision="high")
    weights_grad = _of_pairs(grad, _of_heads(value, own_RC), keys_first)
    mean = jnp.expand_dims(mean_BGRL, axis)
    scores_grad = (shares * (weights_grad - mean)).astype(query.dtype)
    query_grad = jnp.einsum(f"{pairs},brmgc->blgc", scores_grad, _of_heads(key, own_RC))
    key_grad = jnp.einsum(f"{pairs},brlgc->bmgc", scores_grad, _of_heads(query, own_RC))
    return query_grad, key_grad, value_grad


packed.defvjp(_packed_forward, _packed_backward)
