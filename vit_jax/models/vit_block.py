# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Position embeddings and attention pooling of a ViT. Start from `MapHead`."""

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models import layers, mup, posemb
from vit_jax.models.attention import Attention
from vit_jax.models.layers import Mlp, layer_norm
from vit_jax.sharding import Rules

if TYPE_CHECKING:
    from vit_jax.models.vit import ViTConfig


def position_table(cfg: "ViTConfig", param: Any, grid: tuple[int, int]) -> jax.Array:
    """Returns the embeddings to add to all tokens, [1, L, D].

    `param` belongs to the owning module.
    """
    class_rows = int(cfg.pool == "token")
    added_1LD = posemb.table(param, cfg.posemb, grid, cfg.width, class_rows, cfg.posemb_std)
    return posemb.with_registers(added_1LD, class_rows, cfg.registers)


class MapHead(nn.Module):
    """Multi-head attention pooling by one learned probe (arXiv:2106.04560, section 3.3)."""

    cfg: "ViTConfig"
    rules: Rules | None

    @nn.compact
    def __call__(self, tokens_BLD: jax.Array) -> jax.Array:
        """Maps [B, L, D] to [B, D], without dropout."""
        cfg, dtype = self.cfg, layers.stream(self.cfg.dtype)
        probe_11D = self.param("probe", mup.initial_probe(cfg), (1, 1, cfg.width))
        probe_B1D = jnp.tile(probe_11D.astype(dtype), (tokens_BLD.shape[0], 1, 1))
        x_B1D = Attention(
            cfg.heads, 0.0, cfg.dtype, self.rules, query_scale=mup.query_scale(cfg), name="attn"
        )(probe_B1D, tokens_BLD, None)
        y_B1D = layer_norm("norm", cfg.ln_epsilon, dtype)(x_B1D)
        mlp = Mlp(cfg.mlp, cfg.gelu, 0.0, cfg.dtype, self.rules, name="mlp")
        return (x_B1D + mlp(y_B1D, None))[:, 0]
