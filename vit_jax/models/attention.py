# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Multi-head attention, and the code paths that compute it.

Axes: B batch, L tokens (M memory tokens), D width, N heads, K head dim, R offsets. The softmax is
computed in float32. Start from `Attention`; `build.execution` chooses the path.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from vit_jax.config.model_section import Biases, Rope
from vit_jax.models import attention_math, layers
from vit_jax.models.products import Projection, factors, on_tpu, stream
from vit_jax.models.windows import Windows, attended
from vit_jax.sharding import Rules, constrain

# `plain` is written out and differentiable in every way. `memory_efficient` and the two that are
# packed have a written-out backward pass too: they keep less in memory, but have no forward-mode
# derivative. The others never hold all scores in memory (flash attention, arXiv:2205.14135), but
# for `xla`: `cudnn` and `xla` call jax.nn.dot_product_attention, `splash` jax's Pallas kernel.
Path = Literal["plain", "memory_efficient", "packed", "packed_keys_first", "splash", "xla", "cudnn"]
_PACKED = ("packed", "packed_keys_first")
_WITH_WEIGHTS = ("plain", "memory_efficient")  # paths that can show weights and take a bias

MASKED = -1e30  # added to the scores of tokens that nothing attends to
_BLOCK = 512  # tokens that splash attention computes at once

# Parameter path within a block -> logical axes; see sharding.param_axes.
ATTENTION_AXES: dict[str, tuple[str | None, ...]] = {
    r"(query|key|value)/kernel": ("embed", "heads", "head_dim"),
    r"(query|key|value)/bias": ("heads", "head_dim"),
    r"out/kernel": ("heads", "head_dim", "embed"),
    r"out/bias": ("embed",),
    r"(query|key)_norm/(scale|bias)": ("head_dim",),
    r"relative": (None, "heads", "head_dim"),
    r"relative_bias": (None, "heads"),
    r"rope": (None, "heads", "head_dim"),
}

# Names that `layers.rematerialised` can keep.
KEEPABLE = ("query", "key", "value", "weights", "attention", "attention_out")


def not_fused(*, dropout: float, relative: bool) -> str:
    """Returns why no fused path can compute this attention on any device; "" if one can."""
    if relative:
        return "fused attention has no term for relative positions (model.posemb=relative...)"
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


def offset_numbers(grid: tuple[int, int], classes: int) -> np.ndarray:
    """Returns which row of a table of offsets belongs to each query and key, int [L, L].

    Rows are the offsets between patches, row by row; with a class token, three more follow: from it
    to a patch, from a patch to it, and to itself (BEiT, arXiv:2106.08254).

    Args:
      grid: rows and columns of patches.
      classes: 1 with a class token, which then is the first token, else 0.
    """
    rows, columns = grid
    y, x = (axis.ravel() for axis in np.indices(grid))
    down, right = y[:, None] - y[None] + rows - 1, x[:, None] - x[None] + columns - 1
    numbers = down * (2 * columns - 1) + right
    if not classes:
        return numbers
    offsets = (2 * rows - 1) * (2 * columns - 1)
    numbers = np.pad(numbers, ((1, 0), (1, 0)))
    numbers[0], numbers[:, 0], numbers[0, 0] = offsets, offsets + 1, offsets + 2
    return numbers


def side_of(offsets: int) -> int:
    """Returns the side of the square grid with so many offsets; 0 if that of no square has them."""
    doubled = math.isqrt(max(offsets, 0))
    return (doubled + 1) // 2 if doubled % 2 and doubled**2 == offsets else 0


@dataclasses.dataclass(frozen=True)
class Extras:
    """Options of an attention beyond appendix A of arXiv:2010.11929.

    Attributes:
      norm: norm of queries and keys within each head (arXiv:2302.05442), or "".
      epsilon: epsilon of these norms.
      biases: which projections have a bias.
      rope: kind of rotary positions.
      rope_base: see `rope.axial`.
      offsets: grid of patches and 1 with a class token, for a learned bias of each offset; None
        without one.
      query_scale: factor on the queries, beside the division of scores by sqrt(K).
      windows: the windows within which tokens attend to each other; None: to all.
    """

    norm: Literal["", "layer", "rms"] = ""
    epsilon: float = 1e-6
    biases: Biases = "all"
    rope: Rope = "none"
    rope_base: float = 100.0
    offsets: tuple[tuple[int, int], int] | None = None
    query_scale: float = 1.0
    windows: Windows | None = None

    def has_bias(self, name: str) -> bool:
        """Returns True if the projection `query`, `key`, `value` or `out` has a bias."""
        without = {"all": (), "no_key": ("key",), "no_qkv": ("query", "key", "value")}
        return self.biases != "none" and name not in without[self.biases]


class Attention(nn.Module):
    """Multi-head attention (arXiv:2010.11929, appendix A).

    Attributes:
      heads: N, divides D.
      dropout: dropout rate of the attention weights.
      dtype: dtype of the computation, or `model.dtype`; scores and softmax are float32.
      rules: placement of activations.
      relative: whether the scores include a term for the offset between query and key in the
        sequence (appendix D.4; self-attention only).
      path: code path; all but plain and memory_efficient support neither dropout nor relative
        scores, see `not_fused`.
      extras: further options.
      gives_keys: whether to return the keys too; only with the paths plain and memory_efficient.
    """

    heads: int
    dropout: float
    dtype: Any
    rules: Rules | None
    relative: bool = False
    path: Path = "plain"
    extras: Extras = Extras()
    gives_keys: bool = False

    @nn.compact
    def __call__(
        self,
        query_BLD: jax.Array,
        memory_BMD: jax.Array,
        key: jax.Array | None,
        places_M2: jax.Array | None = None,
        bias_BM: jax.Array | None = None,
    ) -> Any:
        """Lets queries [B, L, D] attend to memory [B, M, D]; returns [B, L, D].

        With `gives_keys` it also returns the keys, mean over the heads, float32 [B, M, K].

        Args:
          query_BLD: queries; with rotary positions or offsets, the first L of the memory.
          memory_BMD: memory.
          key: typed key of dropout; None in evaluation.
          places_M2: `rope.coordinates` of the memory, for rotary positions.
          bias_BM: float32, added to the scores of each token of the memory, such as `MASKED` for
            one that nothing attends to; or [B, L, M], for each query. Only the paths plain and
            memory_efficient take it.
        """
        length, seen = query_BLD.shape[1], memory_BMD.shape[1]
        if self.path in ("cudnn", "xla"):
            query_BLD, memory_BMD, places_M2 = map(self._even, (query_BLD, memory_BMD, places_M2))
        width = query_BLD.shape[-1]
        heads = self.heads, width // self.heads
        grouped = heads
        if self.path in _PACKED:
            beside = heads_in_group(self.heads, heads[1], self.rules)
            grouped = self.heads // beside, beside * heads[1]
        extras, angles_MNP = self.extras, self._angles(places_M2, heads)

        def project(x: jax.Array, name: str) -> jax.Array:
            bias = extras.has_bias(name)
            projection = Projection((width,), heads, self.dtype, self.rules, bias, name=name)
            x = projection(x, grouped)
            if name != "value" and (extras.norm or angles_MNP is not None):
                x = self._normed_and_rotated(x, name, heads, angles_MNP).reshape(x.shape)
            return constrain(x, ("act_batch", "act_tokens", "act_heads", None), self.rules)

        query_BLNK = project(query_BLD, "query")
        if extras.query_scale != 1.0:
            query_BLNK *= jnp.asarray(extras.query_scale, query_BLNK.dtype)
        key_BMNK, value_BMNK = (
            project(memory_BMD, name).astype(factors(self.dtype)) for name in ("key", "value")
        )
        # With windows, whoever asks for the weights gets all pairs, with zeros between windows.
        shown = self.path in _WITH_WEIGHTS and self.is_mutable_collection("intermediates")
        if extras.windows is None or shown:
            mixed_BLNK = self._mixed(query_BLNK, key_BMNK, value_BMNK, key, bias_BM, seen)
        else:
            mixed_BLNK = attended(
                self._mixed, query_BLNK, key_BMNK, value_BMNK, key, bias_BM, extras.windows
            )
        bias = extras.has_bias("out")
        out = Projection(heads, (width,), self.dtype, self.rules, bias, name="out")
        out_BLD = checkpoint_name(out(mixed_BLNK, (width,))[:, :length], "attention_out")
        if not self.gives_keys:
            return out_BLD
        return out_BLD, jnp.mean(key_BMNK.astype(jnp.float32), axis=2)

    def _mixed(
        self,
        query_BLNK: jax.Array,
        key_BMNK: jax.Array,
        value_BMNK: jax.Array,
        key: Any,
        bias_BM: jax.Array | None,
        seen: int | None = None,
    ) -> jax.Array:
        """Returns the values that each query mixes, [B, L, N, K], by the code path.

        After `seen` tokens, if any are given, cuDNN's memory is padding.
        """
        if self.path in _WITH_WEIGHTS:
            return self._plain(query_BLNK, key_BMNK, value_BMNK, key, bias_BM)
        relative = self.relative or self.extras.offsets is not None
        assert not not_fused(dropout=self.dropout, relative=relative)
        assert bias_BM is None, self.path
        head_dim = query_BLNK.shape[2] * query_BLNK.shape[3] // self.heads
        return self._without_weights(query_BLNK, key_BMNK, value_BMNK, head_dim, seen)

    def _angles(self, places_M2: jax.Array | None, heads: tuple[int, int]) -> jax.Array | None:
        """Returns the angles of rotary positions, [M, N or 1, P]; None without any."""
        base = self.extras.rope_base
        if self.extras.rope == "none" or places_M2 is None:
            return None
        from vit_jax.models import rope

        if self.extras.rope == "axial":
            return rope.axial(places_M2, base, heads[1])
        init = functools.partial(rope.initial_speeds, base=base)
        return rope.mixed(places_M2, self.param("rope", init, (2, heads[0], heads[1] // 2)))

    def _normed_and_rotated(
        self, x: jax.Array, name: str, heads: tuple[int, int], angles_MNP: jax.Array | None
    ) -> jax.Array:
        """Returns queries or keys, [B, L, N, K], after their norm and rotation."""
        x_BLNK = x.reshape(*x.shape[:2], *heads)
        if self.extras.norm:
            norm = layers.norm(
                f"{name}_norm", self.extras.norm, self.extras.epsilon, stream(self.dtype)
            )
            x_BLNK = norm(x_BLNK)
        if angles_MNP is None:
            return x_BLNK
        from vit_jax.models import rope

        return rope.rotate(x_BLNK, angles_MNP[: x_BLNK.shape[1]])

    def _even(self, x: Any) -> Any:
        """Pads an odd number of tokens, [..., L, D].

        jax refuses an odd number for cuDNN's gradient: it takes a missing bias for one. Done before
        the projections, padding costs no copies of queries, keys and values. Devices that share the
        tokens get one each.
        """
        if x is None:
            return None
        more = x.shape[-2] % 2 * (1 if self.rules is None else self.rules.parts("act_tokens"))
        return jnp.pad(x, [*[(0, 0)] * (x.ndim - 2), (0, more), (0, 0)])

    def _without_weights(
        self,
        query_BLNK: jax.Array,
        key_BMNK: jax.Array,
        value_BMNK: jax.Array,
        head_dim: int,
        seen: int | None,
    ) -> jax.Array:
        if self.path in _PACKED:
            query_BLNK = self._scaled(query_BLNK, head_dim)
            keys_first = self.path == "packed_keys_first"
            return attention_math.packed(query_BLNK, key_BMNK, value_BMNK, head_dim, keys_first)
        query_BLNK = checkpoint_name(query_BLNK.astype(factors(self.dtype)), "query")
        key_BMNK = checkpoint_name(key_BMNK, "key")
        value_BMNK = checkpoint_name(value_BMNK, "value")
        fused = functools.partial(self._fused, seen)
        if self.path == "splash":
            fused = self._splash
        mixed_BLNK = self._on_each_device(fused, query_BLNK, key_BMNK, value_BMNK)
        return checkpoint_name(mixed_BLNK, "attention")

    def _scaled(self, query_BLNK: jax.Array, head_dim: int) -> jax.Array:
        """Divides the queries by the square root of K, before they are rounded for products."""
        scaled_BLNK = query_BLNK / jnp.sqrt(head_dim).astype(stream(self.dtype))
        return scaled_BLNK.astype(factors(self.dtype))

    def _plain(
        self,
        query_BLNK: jax.Array,
        key_BMNK: jax.Array,
        value_BMNK: jax.Array,
        key: Any,
        bias_BM: jax.Array | None,
    ) -> jax.Array:
        """Returns the values weighted by the softmax of the scores, [B, L, N, K]."""
        batch, length, heads, head_dim = key_BMNK.shape
        query_BLNK = self._scaled(query_BLNK, head_dim)
        bias_BNLM = keep_BNLM = None
        if self.relative:
            shape = (2 * length - 1, heads, head_dim)
            table_RNK = self.param("relative", nn.initializers.normal(0.02), shape)
            bias_BNLM = attention_math.relative_scores(
                query_BLNK, table_RNK.astype(factors(self.dtype))
            )
        if self.extras.offsets is not None:
            bias_BNLM = self._offset_bias(batch, query_BLNK.shape[1])
        if bias_BM is not None:
            shape = (batch, heads, query_BLNK.shape[1], length)
            bias_BQM = bias_BM if bias_BM.ndim == 3 else bias_BM[:, None]
            of_memory_BNLM = jnp.broadcast_to(bias_BQM[:, None], shape)
            bias_BNLM = of_memory_BNLM if bias_BNLM is None else bias_BNLM + of_memory_BNLM
        if self.is_mutable_collection("intermediates"):  # only if the caller asks for them
            if self.extras.windows is not None:
                apart_LM = jnp.where(self.extras.windows.seen(), 0.0, MASKED)
                shape = (batch, heads, *apart_LM.shape)
                apart_BNLM = jnp.broadcast_to(apart_LM, shape)
                bias_BNLM = apart_BNLM if bias_BNLM is None else bias_BNLM + apart_BNLM
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

    def _offset_bias(self, batch: int, queries: int) -> jax.Array:
        """Returns the learned bias of each offset between a query and a key, [B, N, L, M]."""
        assert self.extras.offsets is not None
        (rows, columns), classes = self.extras.offsets
        count = (2 * rows - 1) * (2 * columns - 1) + 3 * classes
        init = nn.initializers.truncated_normal(0.02)
        table_RN = self.param("relative_bias", init, (count, self.heads))
        bias_LMN = table_RN[offset_numbers((rows, columns), classes)[:queries]]
        shape = (batch, self.heads, *bias_LMN.shape[:2])
        return jnp.broadcast_to(bias_LMN.transpose(2, 0, 1), shape)

    def _fused(self, seen: int | None, query_BLNK: jax.Array, *memory_BMNK: jax.Array) -> jax.Array:
        """Runs `jax.nn.dot_product_attention` on query, key and value."""
        batch, length = memory_BMNK[0].shape[:2]
        lengths = None
        if seen is not None and seen < length:
            lengths = jnp.full(batch, seen, jnp.int32)
            # Nothing says what cuDNN writes into the gradient of padding: this makes it zero.
            zeros = jnp.zeros_like(memory_BMNK[0][:, seen:])
            memory_BMNK = tuple(
                jax.lax.dynamic_update_slice(x, zeros, (0, seen, 0, 0)) for x in memory_BMNK
            )
        return jax.nn.dot_product_attention(
            query_BLNK,
            *memory_BMNK,
            key_value_seq_lengths=lengths,
            implementation="cudnn" if self.path == "cudnn" else "xla",
        )

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
        attend: Any = kernel_lib.make_splash_mha(
            splash_attention_mask.MultiHeadMask([mask] * heads),
            block_sizes=kernel_lib.BlockSizes(**sizes),
            head_shards=1,
            q_seq_shards=1,
            interpret=not on_tpu(self.rules),
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
