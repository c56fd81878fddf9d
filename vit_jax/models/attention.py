# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Multi-head attention, and the choice of the code path that computes it on a device.

Axes: B batch, L tokens (M memory tokens), D width, N heads, K head dim, R offsets. The softmax is
computed in float32. Start from `Attention`; `for_devices` chooses the path.
"""

import dataclasses
import logging
from typing import Any, Literal, Protocol

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from vit_jax.config.sections import Attention as Wanted
from vit_jax.errors import BadInput
from vit_jax.models import attention_math
from vit_jax.models.layers import product
from vit_jax.sharding import Rules, constrain

log = logging.getLogger("vit_jax")

# `plain` is written out and differentiable in every way. `memory_efficient` has a written-out
# backward pass too: it keeps less in memory, but has no forward-mode derivative. The other two call
# jax.nn.dot_product_attention: `xla` keeps the scores too, `cudnn` (flash attention,
# arXiv:2205.14135) never holds them in memory.
Path = Literal["plain", "memory_efficient", "xla", "cudnn"]

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


class Attending(Protocol):
    """The fields of a model's configuration that `for_devices` reads."""

    @property
    def width(self) -> int: ...
    @property
    def heads(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def posemb(self) -> str: ...
    @property
    def attention_dropout(self) -> float: ...
    @property
    def attention(self) -> Path: ...


def for_devices(cfg: Attending, wanted: Wanted, rules: Rules) -> Any:
    """Returns the configuration to train: cuDNN's attention if possible, else `memory_efficient`.

    Logs the reason if a GPU cannot use cuDNN's attention.

    Args:
      cfg: configuration of a model with attention, in the form that every device can compute.
      wanted: `model.attention`.
      rules: the mesh; its first device stands for all.

    Raises:
      BadInput: `wanted` is "fused" and the GPU cannot use cuDNN's attention.
    """
    device = rules.mesh.devices.flat[0]
    memory_efficient: Any = cfg
    if cfg.attention == "plain":
        memory_efficient = dataclasses.replace(cfg, attention="memory_efficient")  # type: ignore
    if wanted == "plain" or device.platform != "gpu":
        return memory_efficient
    why = not_fused(dropout=cfg.attention_dropout, relative=cfg.posemb == "relative") or not_cudnn(
        dtype=cfg.dtype,
        head_dim=cfg.width // cfg.heads,
        capability=str(device.compute_capability),
    )
    if why and wanted == "fused":
        raise BadInput(f"model.attention=fused: {why}; leave model.attention out.")
    if why:
        log.info("attention: plain, since %s", why)
        return memory_efficient
    return dataclasses.replace(cfg, attention="cudnn")  # type: ignore[type-var]


def relative_scores(query_BLNK: jax.Array, table_RNK: jax.Array) -> jax.Array:
    """Returns the scores of the first L queries for their offsets to each key, [B, N, L, M].

    A score is the product of the query with the embedding of the offset.

    Args:
      query_BLNK: [B, L, N, K], scaled.
      table_RNK: [2M - 1, N, K]; row M - 1 + i - j belongs to query i and key j.
    """
    queries, keys = query_BLNK.shape[1], len(table_RNK) // 2 + 1
    scores_BNLR = jnp.einsum("blnk,rnk->bnlr", query_BLNK, table_RNK)
    offset_LM = jnp.arange(queries)[:, None] - jnp.arange(keys)[None, :] + keys - 1
    return jnp.take_along_axis(scores_BNLR, offset_LM[None, None], axis=-1)


class Attention(nn.Module):
    """Multi-head attention (arXiv:2010.11929, appendix A) with a bias on each projection.

    Attributes:
      heads: N, divides D.
      dropout: dropout rate of the attention weights.
      dtype: dtype of the computation; the softmax is float32.
      rules: placement of activations.
      relative: whether the scores include a term for the offset between query and key in the
        sequence (appendix D.4; self-attention only).
      path: code path; xla and cudnn support neither dropout nor relative scores, see `not_fused`.
    """

    heads: int
    dropout: float
    dtype: Any
    rules: Rules | None
    relative: bool = False
    path: Path = "plain"

    @nn.compact
    def __call__(
        self, query_BLD: jax.Array, memory_BMD: jax.Array, key: jax.Array | None
    ) -> jax.Array:
        """Lets queries [B, L, D] attend to memory [B, M, D]; returns [B, L, D]."""
        width = query_BLD.shape[-1]
        head_dim = width // self.heads

        def project(x: jax.Array, name: str) -> jax.Array:
            x = nn.DenseGeneral(
                (self.heads, head_dim),
                kernel_init=nn.initializers.xavier_uniform(),
                dtype=self.dtype,
                dot_general=product(self.rules),
                name=name,
            )(x)
            return constrain(x, ("act_batch", "act_tokens", "act_heads", None), self.rules)

        query_BLNK = project(query_BLD, "query")
        key_BMNK, value_BMNK = project(memory_BMD, "key"), project(memory_BMD, "value")
        if self.path in ("plain", "memory_efficient"):
            mixed_BLNK = self._plain(query_BLNK, key_BMNK, value_BMNK, key)
        else:
            assert not not_fused(dropout=self.dropout, relative=self.relative)
            query_BLNK = checkpoint_name(query_BLNK, "query")
            key_BMNK = checkpoint_name(key_BMNK, "key")
            value_BMNK = checkpoint_name(value_BMNK, "value")
            mixed_BLNK = self._fused(query_BLNK, key_BMNK, value_BMNK)
            mixed_BLNK = checkpoint_name(mixed_BLNK, "attention")
        out_BLD = nn.DenseGeneral(
            width,
            axis=(-2, -1),
            kernel_init=nn.initializers.xavier_uniform(),
            dtype=self.dtype,
            dot_general=product(self.rules),
            name="out",
        )(mixed_BLNK)
        return checkpoint_name(out_BLD, "attention_out")

    def _plain(
        self, query_BLNK: jax.Array, key_BMNK: jax.Array, value_BMNK: jax.Array, key: Any
    ) -> jax.Array:
        """Returns the values weighted by the softmax of the scores, [B, L, N, K]."""
        batch, length, heads, head_dim = key_BMNK.shape
        query_BLNK = query_BLNK / jnp.sqrt(head_dim).astype(self.dtype)
        bias_BNLM = keep_BNLM = None
        if self.relative:
            shape = (2 * length - 1, heads, head_dim)
            table_RNK = self.param("relative", nn.initializers.normal(0.02), shape)
            bias_BNLM = relative_scores(query_BLNK, table_RNK.astype(self.dtype))
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

    def _fused(self, query_BLNK: jax.Array, key_BLNK: jax.Array, value_BLNK: jax.Array) -> Any:
        """Runs `jax.nn.dot_product_attention` on the images and heads of a device, [B, L, N, K]."""
        length = query_BLNK.shape[1]

        def local(*arrays: jax.Array) -> jax.Array:
            lengths = None
            if length % 2:  # jax refuses odd lengths for cuDNN's gradient: pad by a masked token
                arrays = tuple(jnp.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) for x in arrays)
                lengths = jnp.full(len(arrays[0]), length, jnp.int32)
            query, key, value = arrays
            mixed = jax.nn.dot_product_attention(
                query,
                key,
                value,
                key_value_seq_lengths=lengths,
                implementation="cudnn" if self.path == "cudnn" else "xla",
            )
            return mixed[:, :length]

        if self.rules is None:
            return local(query_BLNK, key_BLNK, value_BLNK)
        axes = ("act_batch", None, "act_heads", None)
        spec = self.rules.spec(axes, query_BLNK.shape, "attention")
        on_each = jax.shard_map(
            local, mesh=self.rules.mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False
        )
        return on_each(query_BLNK, key_BLNK, value_BLNK)
