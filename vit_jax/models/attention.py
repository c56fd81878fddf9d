# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Multi-head attention, and the code paths that compute it.

Axes: B batch, L tokens (M memory tokens), D width, N heads, K head dim, R offsets. The softmax is
computed in float32. Start from `Attention`; `build.execution` chooses the path.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from vit_jax.models import attention_math
from vit_jax.models.layers import factors, product, stream
from vit_jax.sharding import Rules, constrain

# `plain` is written out and differentiable in every way. `memory_efficient` and `packed` have a
# written-out backward pass too: they keep less in memory, but have no forward-mode derivative. The
# others never hold all scores in memory (flash attention, arXiv:2205.14135), but for `xla`: `cudnn`
# and `xla` call jax.nn.dot_product_attention, `splash` calls jax's Pallas kernel for TPUs.
Path = Literal["plain", "memory_efficient", "packed", "splash", "xla", "cudnn"]

_BLOCK = 512  # tokens that splash attention computes at once

# Parameter path within a block -> logical axes; see sharding.param_axes.
ATTENTION_AXES: dict[str, tuple[str | None, ...]] = {
    r"(query|key|value)/kernel": ("embed", "heads", "head_dim"),
    r"(query|key|value)/bias": ("heads", "head_dim"),
    r"out/kernel": ("heads", "head_dim", "embed"),
    r"out/bias": ("embed",),
    r"relative": (None, "heads", "head_dim"),
}

# Names that `layers.rematerialised` can keep.
KEEPABLE = ("query", "key", "value", "weights", "attention", "attention_out")


def not_fused(*, dropout: float, relative: bool) -> str:
    """Returns why no fused path can compute this attention on any device; "" if one can."""
    if relative:
        return "fused attention has no term for relative positions (model.posemb=relative)"
    if dropout:
        return f"fused attention has no dropout on its weights (model.attention_dropout={dropout})"
    return ""


def not_cudnn(*, dtype: str, head_dim: int, capability: str) -> str:
    """Returns why cuDNN's flash attention cannot be used; "" if it can.

    The limits are those of jax 0.10 and 0.11. Sequences may have any length; see `Attention`.

    Args:
      dtype: dtype of the computation.
      head_dim: K.
      capability: compute capability of the GPU, e.g. "9.0".
    """
    major = int(capability.partition(".")[0]) if capability.replace(".", "").isdigit() else 0
    widest = 256 if major >= 9 else 128
    if major < 8:
        return f"cuDNN's flash attention needs compute capability 8.0, this GPU has {capability!r}"
    if dtype != "bfloat16":
        return f"cuDNN's flash attention computes in bfloat16, not in model.dtype={dtype}"
    if head_dim % 8 or head_dim > widest:
        return f"cuDNN takes heads of 8, 16, ... {widest} numbers, these have {head_dim}"
    return ""


def heads_in_group(heads: int, head_dim: int, rules: Rules | None) -> int:
    """Returns how many heads lie in the 128 numbers that a TPU computes beside each other."""
    on_device = heads // (1 if rules is None else rules.parts("act_heads"))
    return next(n for n in range(max(1, 128 // head_dim), 0, -1) if on_device % n == 0)


class Projection(nn.Module):
    """A dense layer between a token and its heads, with a kernel [*inputs, *outputs] and a bias.

    Attributes:
      inputs: shape of what the parameters map.
      outputs: shape of the result.
      dtype: dtype of the computation.
      rules: placement of activations.
    """

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    dtype: Any
    rules: Rules | None

    @nn.compact
    def __call__(self, x: jax.Array, result: tuple[int, ...]) -> jax.Array:
        """Maps [B, L, *any shape of `inputs`] to [B, L, *result], a shape of `outputs`."""
        shape = (*self.inputs, *self.outputs)

        def init(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
            flat = math.prod(self.inputs), math.prod(self.outputs)
            return nn.initializers.xavier_uniform()(key, flat).reshape(shape)

        kernel = self.param("kernel", init, shape)
        bias = self.param("bias", nn.initializers.zeros, self.outputs)
        x, kernel, bias = (a.astype(stream(self.dtype)) for a in (x, kernel, bias))
        summed = x.shape[2:]
        axes = tuple(range(2, x.ndim)), tuple(range(len(summed)))
        sums = product(self.rules, self.dtype)(
            x, kernel.reshape(*summed, *result), (axes, ((), ()))
        )
        return sums + bias.reshape(1, 1, *result)


_OFFSETS = functools.partial(jnp.einsum, "blnk,rnk->bnlr")


def relative_scores(query_BLNK: jax.Array, table_RNK: jax.Array) -> jax.Array:
    """Returns the scores of the first L queries for their offsets to each key, [B, N, L, M].

    A score is the product of the query with the embedding of the offset.

    Args:
      query_BLNK: [B, L, N, K], scaled.
      table_RNK: [2M - 1, N, K]; row M - 1 + i - j belongs to query i and key j.
    """
    queries, keys = query_BLNK.shape[1], len(table_RNK) // 2 + 1
    scores_BNLR = attention_math.float32_sums(_OFFSETS, query_BLNK, table_RNK)
    offset_LM = jnp.arange(queries)[:, None] - jnp.arange(keys)[None, :] + keys - 1
    return jnp.take_along_axis(scores_BNLR, offset_LM[None, None], axis=-1)


class Attention(nn.Module):
    """Multi-head attention (arXiv:2010.11929, appendix A) with a bias on each projection.

    Attributes:
      heads: N, divides D.
      dropout: dropout rate of the attention weights.
      dtype: dtype of the computation, or `model.dtype`; scores and softmax are float32.
      rules: placement of activations.
      relative: whether the scores include a term for the offset between query and key in the
        sequence (appendix D.4; self-attention only).
      path: code path; all but plain and memory_efficient support neither dropout nor relative
        scores, see `not_fused`.
      query_scale: factor on the queries, beside the division of scores by sqrt(K).
    """

    heads: int
    dropout: float
    dtype: Any
    rules: Rules | None
    relative: bool = False
    path: Path = "plain"
    query_scale: float = 1.0

    @nn.compact
    def __call__(
        self, query_BLD: jax.Array, memory_BMD: jax.Array, key: jax.Array | None
    ) -> jax.Array:
        """Lets queries [B, L, D] attend to memory [B, M, D]; returns [B, L, D]."""
        width = query_BLD.shape[-1]
        heads = self.heads, width // self.heads
        grouped = heads
        if self.path == "packed":
            beside = heads_in_group(self.heads, heads[1], self.rules)
            grouped = self.heads // beside, beside * heads[1]

        def project(x: jax.Array, name: str) -> jax.Array:
            x = Projection((width,), heads, self.dtype, self.rules, name=name)(x, grouped)
            return constrain(x, ("act_batch", "act_tokens", "act_heads", None), self.rules)

        query_BLNK = project(query_BLD, "query")
        if self.query_scale != 1.0:
            query_BLNK *= jnp.asarray(self.query_scale, query_BLNK.dtype)
        key_BMNK, value_BMNK = (
            project(memory_BMD, name).astype(factors(self.dtype)) for name in ("key", "value")
        )
        if self.path in ("plain", "memory_efficient"):
            mixed_BLNK = self._plain(query_BLNK, key_BMNK, value_BMNK, key)
        else:
            assert not not_fused(dropout=self.dropout, relative=self.relative)
            mixed_BLNK = self._without_weights(query_BLNK, key_BMNK, value_BMNK, heads[1])
        out = Projection(heads, (width,), self.dtype, self.rules, name="out")
        return checkpoint_name(out(mixed_BLNK, (width,)), "attention_out")

    def _without_weights(
        self, query_BLNK: jax.Array, key_BMNK: jax.Array, value_BMNK: jax.Array, head_dim: int
    ) -> jax.Array:
        if self.path == "packed":
            query_BLNK = self._scaled(query_BLNK, head_dim)
            return attention_math.packed(query_BLNK, key_BMNK, value_BMNK, head_dim)
        query_BLNK = checkpoint_name(query_BLNK.astype(factors(self.dtype)), "query")
        key_BMNK = checkpoint_name(key_BMNK, "key")
        value_BMNK = checkpoint_name(value_BMNK, "value")
        fused = self._splash if self.path == "splash" else self._fused
        mixed_BLNK = self._on_each_device(fused, query_BLNK, key_BMNK, value_BMNK)
        return checkpoint_name(mixed_BLNK, "attention")

    def _scaled(self, query_BLNK: jax.Array, head_dim: int) -> jax.Array:
        """Divides the queries by the square root of K, before they are rounded for products."""
        scaled_BLNK = query_BLNK / jnp.sqrt(head_dim).astype(stream(self.dtype))
        return scaled_BLNK.astype(factors(self.dtype))

    def _plain(
        self, query_BLNK: jax.Array, key_BMNK: jax.Array, value_BMNK: jax.Array, key: Any
    ) -> jax.Array:
        """Returns the values weighted by the softmax of the scores, [B, L, N, K]."""
        batch, length, heads, head_dim = key_BMNK.shape
        query_BLNK = self._scaled(query_BLNK, head_dim)
        bias_BNLM = keep_BNLM = None
        if self.relative:
            shape = (2 * length - 1, heads, head_dim)
            table_RNK = self.param("relative", nn.initializers.normal(0.02), shape)
            bias_BNLM = relative_scores(query_BLNK, table_RNK.astype(factors(self.dtype)))
        if self.is_mutable_collection("intermediates"):  # only if the caller asks for them
            looked_BNLM = attention_math.weights(
                attention_math.swap(query_BLNK), attention_math.swap(key_BMNK), bias_BNLM
            )
            self.sow("intermediates", "weights", looked_BNLM)
        if key is not None and self.dropout:
            shape = (batch, heads, query_BLNK.shape[1], length)
            keep_BNLM = jax.random.bernoulli(key, 1.0 - self.dropout, shape)
        attended = (
            attention_math.memory_efficient
            if self.path == "memory_efficient"
            else attention_math.plain
        )
        return attended(query_BLNK, key_BMNK, value_BMNK, bias_BNLM, keep_BNLM, self.dropout)

    def _fused(self, *arrays_BLNK: jax.Array) -> jax.Array:
        """Runs `jax.nn.dot_product_attention` on query, key and value, [B, L, N, K]."""
        batch, length = arrays_BLNK[0].shape[:2]
        lengths = None
        if length % 2:  # jax refuses odd lengths for cuDNN's gradient: pad by a masked token
            arrays_BLNK = _padded(arrays_BLNK, length + 1)
            lengths = jnp.full(batch, length, jnp.int32)
        mixed_BLNK = jax.nn.dot_product_attention(
            *arrays_BLNK,
            key_value_seq_lengths=lengths,
            implementation="cudnn" if self.path == "cudnn" else "xla",
        )
        return mixed_BLNK[:, :length]

    def _splash(self, *arrays_BLNK: jax.Array) -> jax.Array:
        """Runs jax's splash attention on query, key and value, [B, L, N, K]."""
        from jax.experimental.pallas.ops.tpu.splash_attention import (
            splash_attention_kernel as kernel_lib,
        )
        from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask

        length, heads, head_dim = arrays_BLNK[0].shape[1:]
        padded = -(-length // _BLOCK) * _BLOCK
        real_LM = np.broadcast_to(np.arange(padded) < length, (padded, padded))
        mask = splash_attention_mask.NumpyMask(np.array(real_LM))
        names = ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")
        sizes: dict[str, Any] = {f"block_{name}": _BLOCK for name in names}
        on_tpu = self.rules is not None and self.rules.mesh.devices.flat[0].platform == "tpu"
        attend: Any = kernel_lib.make_splash_mha(
            splash_attention_mask.MultiHeadMask([mask] * heads),
            block_sizes=kernel_lib.BlockSizes(**sizes),
            head_shards=1,
            q_seq_shards=1,
            interpret=not on_tpu,
        )
        query, key, value = map(attention_math.swap, _padded(arrays_BLNK, padded))
        mixed_BNLK = jax.vmap(attend)(query / jnp.sqrt(head_dim).astype(query.dtype), key, value)
        return attention_math.swap(mixed_BNLK)[:, :length]

    def _on_each_device(
        self, attend: Callable[..., jax.Array], *arrays_BLNK: jax.Array
    ) -> jax.Array:
        """Runs `attend` on the images and heads of each device."""
        if self.rules is None:
            return attend(*arrays_BLNK)
        axes = ("act_batch", None, "act_heads", None)
        spec = self.rules.spec(axes, arrays_BLNK[0].shape, "attention")
        on_each = jax.shard_map(
            attend, mesh=self.rules.mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False
        )
        return on_each(*arrays_BLNK)


def _padded(arrays_BLNK: tuple[jax.Array, ...], length: int) -> tuple[jax.Array, ...]:
    """Appends zeros to the tokens up to a length."""
    more = length - arrays_BLNK[0].shape[1]
    return tuple(jnp.pad(x, ((0, 0), (0, more), (0, 0), (0, 0))) for x in arrays_BLNK)
