# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The parts that Transformers share: dropout, attention, MLP.

Axes: B batch, L tokens, D width, N heads, K head dim, F mlp width. Numerics follow the published
ViT: LayerNorm epsilon 1e-6, GELU by its tanh approximation, softmax in float32.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.sharding import Rules, constrain

LN_EPSILON = 1e-6
# Parameter path within a block -> logical axes; see sharding.param_axes.
ATTENTION_AXES: dict[str, tuple[str | None, ...]] = {
    r"(query|key|value)/kernel": ("embed", "heads", "head_dim"),
    r"(query|key|value)/bias": ("heads", "head_dim"),
    r"out/kernel": ("heads", "head_dim", "embed"),
    r"out/bias": ("embed",),
}
MLP_AXES: dict[str, tuple[str | None, ...]] = {
    r"mlp/up/kernel": ("embed", "mlp"),
    r"mlp/up/bias": ("mlp",),
    r"mlp/down/kernel": ("mlp", "embed"),
    r"mlp/down/bias": ("embed",),
}
NORM_AXES: dict[str, tuple[str | None, ...]] = {r"[a-z_]*norm/(scale|bias)": ("embed",)}


def dropout(
    x: jax.Array, rate: float | jax.Array, key: jax.Array | None, *, per_example: bool = False
) -> jax.Array:
    """Zeroes entries with probability `rate` and divides the rest by 1 - rate.

    Args:
      x: [B, ...].
      rate: in [0, 1).
      key: typed key; None is evaluation, which leaves x as it is.
      per_example: one draw for each example: stochastic depth (arXiv:1603.09382).
    """
    if key is None or (isinstance(rate, float) and rate == 0.0):
        return x
    shape = (x.shape[0],) + (1,) * (x.ndim - 1) if per_example else x.shape
    keep = jax.random.bernoulli(key, 1.0 - rate, shape)
    return jnp.where(keep, x / jnp.asarray(1.0 - rate, x.dtype), 0).astype(x.dtype)


def layer_norm(name: str, dtype: Any) -> nn.LayerNorm:
    """LayerNorm over the last axis: float32 inside, `dtype` outside."""
    return nn.LayerNorm(epsilon=LN_EPSILON, dtype=dtype, name=name)


class Attention(nn.Module):
    """Multi-head attention (arXiv:2010.11929, appendix A) with a bias on each projection.

    Attributes:
      heads: N, divides D.
      dropout: rate on attention weights.
      dtype: of computation; softmax is float32.
      rules: placement of activations.
    """

    heads: int
    dropout: float
    dtype: Any
    rules: Rules | None

    @nn.compact
    def __call__(
        self, query_BLD: jax.Array, memory_BMD: jax.Array, key: jax.Array | None
    ) -> jax.Array:
        """Queries [B, L, D] attend to memory [B, M, D]; returns [B, L, D]."""
        width = query_BLD.shape[-1]
        head_dim = width // self.heads

        def project(x: jax.Array, name: str) -> jax.Array:
            x = nn.DenseGeneral(
                (self.heads, head_dim),
                kernel_init=nn.initializers.xavier_uniform(),
                dtype=self.dtype,
                name=name,
            )(x)
            return constrain(x, ("act_batch", "act_tokens", "act_heads", None), self.rules)

        query_BLNK = project(query_BLD, "query") / jnp.sqrt(head_dim).astype(self.dtype)
        key_BMNK, value_BMNK = project(memory_BMD, "key"), project(memory_BMD, "value")
        scores_BNLM = jnp.einsum("blnk,bmnk->bnlm", query_BLNK, key_BMNK)
        weights_BNLM = jax.nn.softmax(scores_BNLM.astype(jnp.float32)).astype(self.dtype)
        weights_BNLM = dropout(weights_BNLM, self.dropout, key)
        mixed_BLNK = jnp.einsum("bnlm,bmnk->blnk", weights_BNLM, value_BMNK)
        return nn.DenseGeneral(
            width,
            axis=(-2, -1),
            kernel_init=nn.initializers.xavier_uniform(),
            dtype=self.dtype,
            name="out",
        )(mixed_BLNK)


class Mlp(nn.Module):
    """Dense, GELU, dropout, Dense, dropout: D -> F -> D.

    Attributes:
      hidden: F.
      dropout: rate after both layers.
      dtype: of computation.
      rules: placement of activations.
    """

    hidden: int
    dropout: float
    dtype: Any
    rules: Rules | None

    @nn.compact
    def __call__(self, x_BLD: jax.Array, key: jax.Array | None) -> jax.Array:
        """[B, L, D] to [B, L, D]."""

        def dense(features: int, name: str) -> nn.Dense:
            kernel_init = nn.initializers.xavier_uniform()
            bias_init = nn.initializers.normal(1e-6)
            return nn.Dense(
                features, dtype=self.dtype, kernel_init=kernel_init, bias_init=bias_init, name=name
            )

        up_key, down_key = (None, None) if key is None else jax.random.split(key)
        hidden_BLF = dense(self.hidden, "up")(x_BLD)
        hidden_BLF = constrain(hidden_BLF, ("act_batch", "act_tokens", "act_mlp"), self.rules)
        hidden_BLF = dropout(nn.gelu(hidden_BLF, approximate=True), self.dropout, up_key)
        out_BLD = dense(x_BLD.shape[-1], "down")(hidden_BLF)
        return dropout(out_BLD, self.dropout, down_key)
