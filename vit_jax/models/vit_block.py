# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The layers of a Vision Transformer and its attention pooling; the options are in `vit_config`.

Axes: B batch, L tokens, D width. Start from `EncoderBlock.__call__`.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models import layers, merging, mup, posemb, products
from vit_jax.models.attention import Attention, Extras
from vit_jax.models.layers import Layer, Mlp, dropout
from vit_jax.models.merging import Merged
from vit_jax.models.vit_config import ViTConfig
from vit_jax.models.windows import Windows
from vit_jax.sharding import Rules, constrain


class Shared(NamedTuple):
    """Arguments that every block receives.

    Attributes:
      posemb_1LD: the embedding that every layer adds, if any.
      places_L2: coordinates of the tokens for rotary positions, if any.
      bias_BL: float32, added to the scores of each token: `attention.MASKED` for tokens that
        nothing attends to, if any; [B, L, L] for pairs of a query and a token.
    """

    posemb_1LD: jax.Array | None = None
    places_L2: jax.Array | None = None
    bias_BL: jax.Array | None = None


class EncoderBlock(nn.Module):
    """One layer: x + Drop(MHSA(LN x)), then x + MLP(LN x); equations 2 and 3.

    Attributes:
      ROUNDS_KERNELS: see `layers.apply_blocks`.
      cfg: the architecture.
      rules: placement of activations.
      grid: rows and columns of patches.
      first: whether to return only the first token, [B, 1, D].
      windowed: whether patches attend within windows; see `windows`.
    """

    ROUNDS_KERNELS: ClassVar[bool] = True
    cfg: ViTConfig
    rules: Rules | None
    grid: tuple[int, int]
    first: bool = False
    windowed: bool = False

    @nn.compact
    def __call__(
        self, x: jax.Array | Merged, layer: Layer, shared: Shared
    ) -> tuple[jax.Array | Merged, None]:
        """Computes one layer of tokens [B, L, D]; of `Merged` tokens, it merges some more."""
        if not isinstance(x, Merged):
            return self._layer(x, None, layer, shared)[0], None
        bias_BL = jnp.log(x.sizes_BL)  # proportional attention
        tokens_BLD, sizes_BL = self._layer(*x, layer, shared._replace(bias_BL=bias_BL))
        assert sizes_BL is not None
        return Merged(tokens_BLD, sizes_BL), None

    def _layer(
        self,
        tokens_BLD: jax.Array,
        sizes_BL: jax.Array | None,
        layer: Layer,
        shared: Shared,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the tokens after the layer, with their sizes if there are any."""
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        path_rate, keys = (
            (0.0, [None] * 5) if layer is None else (layer[0], jax.random.split(layer[1], 5))
        )
        path_rate = path_rate if cfg.drop_path else 0.0

        posemb_1LD = shared.posemb_1LD
        if cfg.posemb_at == "every":
            posemb_1LD = position_table(cfg, self.param, self.grid)
        if posemb_1LD is not None:
            tokens_BLD += posemb_1LD.astype(dtype)

        x_BLD = tokens_BLD if cfg.norm_at == "post" else self._norm("attn_norm", tokens_BLD)
        attended_BLD, keys_BLK = self._attention(x_BLD, shared, keys[0], sizes_BL is not None)
        if self.first:
            x_BLD, tokens_BLD = x_BLD[:, :1], tokens_BLD[:, :1]
        attended_BLD = dropout(attended_BLD, cfg.dropout, keys[1])
        attended_BLD = self._scaled("attn", attended_BLD)
        if cfg.parallel:
            both_BLD = attended_BLD + self._scaled("mlp", self._mlp(x_BLD, keys[3]))
            tokens_BLD = tokens_BLD + dropout(both_BLD, path_rate, keys[2], per_example=True)
            return constrain(tokens_BLD, _ACTIVATIONS, self.rules), sizes_BL

        tokens_BLD = tokens_BLD + dropout(attended_BLD, path_rate, keys[2], per_example=True)
        if cfg.norm_at == "post":
            tokens_BLD = self._norm("attn_norm", tokens_BLD)
        if sizes_BL is not None and not self.first:
            assert keys_BLK is not None
            both = Merged(tokens_BLD, sizes_BL)
            tokens_BLD, sizes_BL = merging.merged(both, keys_BLK, cfg.prefix, cfg.merge)
        x_BLD = tokens_BLD if cfg.norm_at == "post" else self._norm("mlp_norm", tokens_BLD)
        x_BLD = self._scaled("mlp", self._mlp(x_BLD, keys[3]))
        tokens_BLD = tokens_BLD + dropout(x_BLD, path_rate, keys[4], per_example=True)
        if cfg.norm_at == "post":
            tokens_BLD = self._norm("mlp_norm", tokens_BLD)
        return constrain(tokens_BLD, _ACTIVATIONS, self.rules), sizes_BL

    def _attention(
        self, x_BLD: jax.Array, shared: Shared, key: jax.Array | None, gives_keys: bool
    ) -> tuple[jax.Array, jax.Array | None]:
        """Lets the tokens attend to each other, or with `first` the first one to all.

        Returns what they read, and the keys, see `Attention`, if they are asked for.
        """
        cfg, queries_BLD, path = self.cfg, x_BLD, self.cfg.attention
        if self.first:
            queries_BLD = x_BLD[:, :1]
            if path != "memory_efficient":
                path = "plain"  # the other paths gain nothing with one query
        extras, biased = cfg.extras(self.grid), shared.bias_BL is not None
        if self.windowed:
            windows = Windows(cfg.window, self.grid, cfg.prefix)
            extras = dataclasses.replace(extras, windows=windows)
            path = windows.path(path, masked=biased)
        elif biased and path != "memory_efficient":
            path = "plain"  # the others take no bias
        attention = Attention(
            cfg.heads, cfg.attention_dropout, cfg.dtype, self.rules, cfg.posemb == "relative",
            path, extras, gives_keys, name="attn",
        )  # fmt: skip
        result = attention(queries_BLD, x_BLD, key, shared.places_L2, shared.bias_BL)
        return result if gives_keys else (result, None)

    def _mlp(self, x_BLD: jax.Array, key: jax.Array | None) -> jax.Array:
        cfg = self.cfg
        mlp = Mlp(
            cfg.mlp, cfg.gelu, cfg.dropout, cfg.dtype, self.rules, gate=cfg.gate,
            bias=cfg.biases != "none", norm=cfg.norm if cfg.mlp_norm else "",
            epsilon=cfg.ln_epsilon, name="mlp",
        )  # fmt: skip
        return mlp(x_BLD, key)

    def _norm(self, name: str, x_BLD: jax.Array) -> jax.Array:
        cfg = self.cfg
        return layers.norm(name, cfg.norm, cfg.ln_epsilon, products.stream(cfg.dtype))(x_BLD)

    def _scaled(self, branch: str, x_BLD: jax.Array) -> jax.Array:
        """Returns the end of a branch: its second norm and LayerScale, if there are any."""
        if self.cfg.norm_at == "sandwich":
            x_BLD = self._norm(f"{branch}_out_norm", x_BLD)
        if self.cfg.layer_scale:
            init = nn.initializers.constant(self.cfg.layer_scale)
            scale_D = self.param(f"{branch}_scale", init, x_BLD.shape[-1:])
            x_BLD *= scale_D.astype(x_BLD.dtype)[None, None]
        return x_BLD


_ACTIVATIONS = ("act_batch", "act_tokens", "act_embed")


def position_table(cfg: ViTConfig, param: Any, grid: tuple[int, int]) -> jax.Array:
    """Returns the embeddings to add to all tokens, [1, L, D].

    `param` belongs to the owning module.
    """
    added_1LD = posemb.table(param, cfg.posemb, grid, cfg.width, cfg.class_rows, cfg.posemb_std)
    return posemb.with_registers(added_1LD, cfg.class_rows, cfg.registers)


class MapHead(nn.Module):
    """Multi-head attention pooling by one learned probe (arXiv:2106.04560, section 3.3)."""

    cfg: ViTConfig
    rules: Rules | None

    @nn.compact
    def __call__(self, tokens_BLD: jax.Array, bias_BL: jax.Array | None = None) -> jax.Array:
        """Maps [B, L, D] to [B, D], without dropout; `bias_BL` is that of `Attention`.

        With a bias [B, S, L], the probe looks S times, and the result is [B, S, D].
        """
        several = bias_BL is not None and bias_BL.ndim == 3
        looks = bias_BL.shape[1] if bias_BL is not None and several else 1
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        probe_11D = self.param("probe", mup.initial_probe(cfg), (1, 1, cfg.width))
        probe_B1D = jnp.tile(probe_11D.astype(dtype), (tokens_BLD.shape[0], looks, 1))
        extras = Extras(query_scale=mup.query_scale(cfg, cfg.pool_heads))
        attention = Attention(
            cfg.pool_heads or cfg.heads, 0.0, cfg.dtype, self.rules, extras=extras, name="attn"
        )
        x_B1D = attention(probe_B1D, tokens_BLD, None, None, bias_BL)
        y_B1D = layers.norm("norm", cfg.norm, cfg.ln_epsilon, dtype)(x_B1D)
        mlp = Mlp(cfg.pool_mlp or cfg.mlp, cfg.gelu, 0.0, cfg.dtype, self.rules, name="mlp")
        pooled_B1D = x_B1D + mlp(y_B1D, None)
        return pooled_B1D if several else pooled_B1D[:, 0]
