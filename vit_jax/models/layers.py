# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The parts that models share: dropout, norm, attention, MLP, and a row of equal blocks.

Axes: B batch, L tokens, D width, N heads, K head dim, F mlp width, S layers, R offsets. Softmax
and norms are computed in float32.
"""

from typing import Any, Literal, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.sharding import Rules, constrain

Gelu = Literal["tanh", "erf"]
Remat = Literal["none", "dots", "full"]
Dtype = Literal["float32", "bfloat16"]

# Parameter path within a block -> logical axes; see sharding.param_axes.
ATTENTION_AXES: dict[str, tuple[str | None, ...]] = {
    r"(query|key|value)/kernel": ("embed", "heads", "head_dim"),
    r"(query|key|value)/bias": ("heads", "head_dim"),
    r"out/kernel": ("heads", "head_dim", "embed"),
    r"out/bias": ("embed",),
    r"relative": (None, "heads", "head_dim"),
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


def layer_norm(name: str, epsilon: float, dtype: Any) -> nn.LayerNorm:
    """LayerNorm over the last axis: float32 inside, `dtype` outside."""
    return nn.LayerNorm(epsilon=epsilon, dtype=dtype, name=name)


def relative_scores(query_BLNK: jax.Array, table_RNK: jax.Array) -> jax.Array:
    """Each query against the embedding of its offset to each key: [B, N, L, L].

    Args:
      query_BLNK: [B, L, N, K], scaled.
      table_RNK: [2L - 1, N, K]; row L - 1 + i - j belongs to query i and key j.
    """
    length = query_BLNK.shape[1]
    scores_BNLR = jnp.einsum("blnk,rnk->bnlr", query_BLNK, table_RNK)
    offset_LM = jnp.arange(length)[:, None] - jnp.arange(length)[None, :] + length - 1
    return jnp.take_along_axis(scores_BNLR, offset_LM[None, None], axis=-1)


class Attention(nn.Module):
    """Multi-head attention (arXiv:2010.11929, appendix A) with a bias on each projection.

    Attributes:
      heads: N, divides D.
      dropout: rate on attention weights.
      dtype: of computation; softmax is float32.
      rules: placement of activations.
      relative: whether scores have a term for the offset of query and key in the sequence
        (appendix D.4; self-attention only).
    """

    heads: int
    dropout: float
    dtype: Any
    rules: Rules | None
    relative: bool = False

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
        if self.relative:
            shape = (2 * query_BLD.shape[1] - 1, self.heads, head_dim)
            table_RNK = self.param("relative", nn.initializers.normal(0.02), shape)
            scores_BNLM += relative_scores(query_BLNK, table_RNK.astype(self.dtype))
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
      gelu: exact (`erf`) or its `tanh` approximation; they differ by up to 5e-4.
      dropout: rate after both layers.
      dtype: of computation.
      rules: placement of activations.
      kernel_init: of both layers.
      bias_init: of both layers.
    """

    hidden: int
    gelu: Gelu
    dropout: float
    dtype: Any
    rules: Rules | None
    kernel_init: nn.initializers.Initializer = nn.initializers.xavier_uniform()
    bias_init: nn.initializers.Initializer = nn.initializers.normal(1e-6)

    @nn.compact
    def __call__(self, x_BLD: jax.Array, key: jax.Array | None) -> jax.Array:
        """[B, L, D] to [B, L, D]."""

        def dense(features: int, name: str) -> nn.Dense:
            return nn.Dense(
                features,
                dtype=self.dtype,
                kernel_init=self.kernel_init,
                bias_init=self.bias_init,
                name=name,
            )

        up_key, down_key = (None, None) if key is None else jax.random.split(key)
        hidden_BLF = dense(self.hidden, "up")(x_BLD)
        hidden_BLF = constrain(hidden_BLF, ("act_batch", "act_tokens", "act_mlp"), self.rules)
        hidden_BLF = nn.gelu(hidden_BLF, approximate=self.gelu == "tanh")
        hidden_BLF = dropout(hidden_BLF, self.dropout, up_key)
        out_BLD = dense(x_BLD.shape[-1], "down")(hidden_BLF)
        return dropout(out_BLD, self.dropout, down_key)


def rematerialised(module: type[nn.Module], remat: str, *, inside_scan: bool) -> type[nn.Module]:
    """The module with what its backward pass recomputes: `none`, all but `dots`, or `full`."""
    if remat == "none":
        return module
    policy = {"dots": jax.checkpoint_policies.checkpoint_dots, "full": None}[remat]
    return nn.remat(module, policy=policy, prevent_cse=not inside_scan)


class Deep(Protocol):
    """What `apply_blocks` reads of a model's configuration."""

    @property
    def depth(self) -> int: ...
    @property
    def drop_path(self) -> float: ...
    @property
    def scan(self) -> bool: ...
    @property
    def remat(self) -> Remat: ...


Layer = tuple[jax.Array, jax.Array] | None  # drop-path rate and key of a layer; None: evaluation


def apply_blocks(
    block: type[nn.Module],
    attributes: tuple[Any, ...],
    x_BLD: jax.Array,
    cfg: Deep,
    key: jax.Array | None,
    shared: jax.Array | None = None,
) -> jax.Array:
    """S equal blocks one after another; draws the same numbers with and without scan.

    Call it inside a compact method. A block maps (x, `Layer`, shared) to (x, None).

    Args:
      block: the module.
      attributes: of every block.
      x_BLD: [B, L, D].
      cfg: depth, drop path, scan and remat.
      key: typed key; None is evaluation.
      shared: what every block is given alike.
    """
    block = rematerialised(block, cfg.remat, inside_scan=cfg.scan)
    layers_S = None
    if key is not None:
        layers_S = (jnp.linspace(0.0, cfg.drop_path, cfg.depth), jax.random.split(key, cfg.depth))
    if cfg.scan:
        blocks = nn.scan(
            block,
            variable_axes={"params": 0},
            split_rngs={"params": True},
            in_axes=(0, nn.broadcast),  # type: ignore[arg-type]
            length=cfg.depth,
        )
        return blocks(*attributes, name="blocks")(x_BLD, layers_S, shared)[0]
    for i in range(cfg.depth):
        layer = None if layers_S is None else (layers_S[0][i], layers_S[1][i])
        x_BLD, _ = block(*attributes, name=f"block_{i}")(x_BLD, layer, shared)
    return x_BLD


def head(x_BD: jax.Array, classes: int, bias: float) -> jax.Array:
    """float32 [B, D] to logits [B, Y]: a zero kernel and a constant bias to start from.

    With 0 classes the model has no head and the representation is the result.
    """
    if not classes:
        return x_BD
    return nn.Dense(
        classes,
        kernel_init=nn.initializers.zeros,
        bias_init=nn.initializers.constant(bias),
        name="head",
    )(x_BD)
