# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The Vision Transformer (arXiv:2010.11929), section 3.1 and appendix B.

Axes: B batch, H W C image, P patch side, L tokens, D width, Y classes, S layers. Parameters are a
plain dict: `embedding`, `cls`, `posemb`, `blocks` (stacked over layers; `block_0`, ... without
scan), `norm` or `map_head`, `pre_logits`, `head`. Start from `ViT.__call__`.
"""

import dataclasses
import re
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput, unknown
from vit_jax.models.layers import (
    ATTENTION_AXES,
    MLP_AXES,
    NORM_AXES,
    Attention,
    Mlp,
    dropout,
    layer_norm,
)  # fmt: skip
from vit_jax.sharding import Rules, constrain

Pool = Literal["token", "gap", "map"]
Remat = Literal["none", "dots", "full"]

# name -> (width D, layers S, MLP width F, heads N). B, L, H: Table 1 of the paper; Ti, S:
# arXiv:2106.10270, Table 2; g, G: arXiv:2106.04560, Table 2; e: arXiv:2209.06794; So400m:
# arXiv:2305.13035.
SIZES: dict[str, tuple[int, int, int, int]] = {
    "Ti": (192, 12, 768, 3),
    "S": (384, 12, 1536, 6),
    "B": (768, 12, 3072, 12),
    "L": (1024, 24, 4096, 16),
    "H": (1280, 32, 5120, 16),
    "g": (1408, 40, 6144, 16),
    "G": (1664, 48, 8192, 16),
    "e": (1792, 56, 15360, 16),
    "So400m": (1152, 27, 4304, 16),
}

# Parameter path pattern -> logical axes, see sharding.param_axes.
AXES: dict[str, tuple[str | None, ...]] = {
    r"embedding/kernel": ("patch", "patch", None, "embed"),
    r"embedding/bias": ("embed",),
    r"cls": (None, None, "embed"),
    r"posemb": (None, "act_tokens", "embed"),
    r"probe": (None, None, "embed"),
    r"pre_logits/kernel": ("embed", None),
    r"pre_logits/bias": (None,),
    r"head/kernel": ("embed", "classes"),
    r"head/bias": ("classes",),
    **ATTENTION_AXES,
    **MLP_AXES,
    **NORM_AXES,
}


@dataclasses.dataclass(frozen=True)
class ViTConfig:
    """What a ViT is. `config` builds one from a variant name."""

    patch: int  # P, pixels
    width: int  # D
    depth: int  # S
    mlp: int  # F
    heads: int  # N
    classes: int  # Y
    pool: Pool = "token"
    representation: int = 0  # width of the tanh pre-logits layer, 0: none
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0  # of the last block; the first has 0, linear between
    dtype: Literal["float32", "bfloat16"] = "float32"
    scan: bool = True
    remat: Remat = "none"


def config(
    *, variant: str, width: int = 0, depth: int = 0, mlp: int = 0, heads: int = 0, **rest: Any
) -> ViTConfig:
    """A named size and patch, e.g. `"B/16"`, with any of its numbers replaced where not 0.

    Args:
      variant: one of `SIZES`, a slash, and the patch side in pixels.
      width: D, and so on.
      depth: S.
      mlp: F.
      heads: N; divides D.
      **rest: the other fields of `ViTConfig`.

    Raises:
      BadInput: unknown variant or option, heads that do not divide the width, a rate out of range.
    """
    match = re.fullmatch(r"(\w+)/(\d+)", variant)
    if match is None or match[1] not in SIZES or int(match[2]) < 1:
        raise unknown(
            "model variant", variant, [f"{size}/16" for size in SIZES] + ["any patch side"]
        )
    numbers = zip((width, depth, mlp, heads), SIZES[match[1]], strict=True)
    width, depth, mlp, heads = (given or named for given, named in numbers)
    made = ViTConfig(int(match[2]), width, depth, mlp, heads, **rest)
    if min(made.width, made.depth, made.mlp, made.heads) < 1 or made.width % made.heads:
        near = [n for n in range(1, made.width + 1) if made.width % n == 0]
        raise BadInput(
            f"model {variant}: width {made.width}, depth {made.depth}, mlp {made.mlp}, heads "
            f"{made.heads}: all are positive and heads divide width; heads that fit: {near}."
        )
    for field, options in (
        ("pool", Pool),
        ("remat", Remat),
        ("dtype", Literal["float32", "bfloat16"]),
    ):
        if getattr(made, field) not in options.__args__:
            raise unknown(f"model.{field}", getattr(made, field), options.__args__)
    for field in ("dropout", "attention_dropout", "drop_path"):
        if not 0.0 <= getattr(made, field) < 1.0:
            raise BadInput(f"model.{field}={getattr(made, field)} is a rate; give one in [0, 1).")
    return made


def check_image_size(image_size: int, patch: int) -> None:
    """Raises BadInput unless the patch divides the image; names the nearest sizes that fit."""
    if image_size % patch or image_size < patch:
        low = image_size // patch * patch
        fits = f"{low} or {low + patch}" if low else f"{patch}"
        raise BadInput(
            f"image size {image_size} is not divisible by the patch {patch}; "
            f"use {fits} (--config.data.image_size)."
        )


class EncoderBlock(nn.Module):
    """x + Drop(MHSA(LN x)), then x + MLP(LN x); equations 2 and 3."""

    cfg: ViTConfig
    rules: Rules | None

    @nn.compact
    def __call__(
        self, tokens_BLD: jax.Array, layer: tuple[jax.Array, jax.Array] | None
    ) -> tuple[jax.Array, None]:
        """One layer; `layer` is (drop-path rate, key) of this layer in training, else None."""
        cfg, dtype = self.cfg, jnp.dtype(self.cfg.dtype)
        path_rate, keys = (
            (0.0, [None] * 5) if layer is None else (layer[0], jax.random.split(layer[1], 5))
        )
        path_rate = path_rate if cfg.drop_path else 0.0
        axes = ("act_batch", "act_tokens", "act_embed")

        x_BLD = layer_norm("attn_norm", dtype)(tokens_BLD)
        x_BLD = Attention(cfg.heads, cfg.attention_dropout, dtype, self.rules, name="attn")(
            x_BLD, x_BLD, keys[0]
        )
        x_BLD = dropout(x_BLD, cfg.dropout, keys[1])
        tokens_BLD = tokens_BLD + dropout(x_BLD, path_rate, keys[2], per_example=True)

        x_BLD = layer_norm("mlp_norm", dtype)(tokens_BLD)
        x_BLD = Mlp(cfg.mlp, cfg.dropout, dtype, self.rules, name="mlp")(x_BLD, keys[3])
        tokens_BLD = tokens_BLD + dropout(x_BLD, path_rate, keys[4], per_example=True)
        return constrain(tokens_BLD, axes, self.rules), None


class MapHead(nn.Module):
    """Multi-head attention pooling by one learned probe (arXiv:2106.04560, section 3.3)."""

    cfg: ViTConfig
    rules: Rules | None

    @nn.compact
    def __call__(self, tokens_BLD: jax.Array) -> jax.Array:
        """[B, L, D] to [B, D]; no dropout."""
        cfg, dtype = self.cfg, jnp.dtype(self.cfg.dtype)
        probe_11D = self.param("probe", nn.initializers.xavier_uniform(), (1, 1, cfg.width))
        probe_B1D = jnp.tile(probe_11D.astype(dtype), (tokens_BLD.shape[0], 1, 1))
        x_B1D = Attention(cfg.heads, 0.0, dtype, self.rules, name="attn")(
            probe_B1D, tokens_BLD, None
        )
        y_B1D = layer_norm("norm", dtype)(x_B1D)
        return (x_B1D + Mlp(cfg.mlp, 0.0, dtype, self.rules, name="mlp")(y_B1D, None))[:, 0]


class ViT(nn.Module):
    """Images to logits.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None applies without a mesh.
    """

    cfg: ViTConfig
    rules: Rules | None = None

    @nn.compact
    def __call__(
        self, images_BHWC: jax.Array, *, train: bool = False, key: jax.Array | None = None
    ) -> jax.Array:
        """Logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, 3]; H and W are multiples of the patch.
          train: whether dropout and stochastic depth act.
          key: typed key, needed in training when any rate is above 0.

        Returns:
          float32 [B, Y].
        """
        cfg, dtype = self.cfg, jnp.dtype(self.cfg.dtype)
        rates = max(cfg.dropout, cfg.attention_dropout, cfg.drop_path)
        key = key if train and rates > 0 else None
        stem_key, blocks_key = (None, None) if key is None else jax.random.split(key)

        tokens_BLD = self._embed(images_BHWC, dtype)
        tokens_BLD = dropout(tokens_BLD, cfg.dropout, stem_key)
        tokens_BLD = constrain(tokens_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)
        tokens_BLD = self._encode(tokens_BLD, blocks_key)
        tokens_BLD = layer_norm("norm", dtype)(tokens_BLD)

        if cfg.pool == "map":
            x_BD = MapHead(cfg, self.rules, name="map_head")(tokens_BLD)
        else:
            x_BD = tokens_BLD[:, 0] if cfg.pool == "token" else jnp.mean(tokens_BLD, axis=1)
        x_BD = x_BD.astype(jnp.float32)
        if cfg.representation:
            x_BD = jnp.tanh(nn.Dense(cfg.representation, name="pre_logits")(x_BD))
        return nn.Dense(
            cfg.classes,
            kernel_init=nn.initializers.zeros,
            bias_init=nn.initializers.constant(cfg.head_bias),
            name="head",
        )(x_BD)

    def _embed(self, images_BHWC: jax.Array, dtype: Any) -> jax.Array:
        """Equation 1: patches, class token, learned 1-D position embedding."""
        cfg = self.cfg
        patches_BhwD = nn.Conv(
            cfg.width, (cfg.patch, cfg.patch), (cfg.patch, cfg.patch), "VALID", dtype=dtype,
            name="embedding",
        )(images_BHWC.astype(dtype))  # fmt: skip
        tokens_BLD = patches_BhwD.reshape(patches_BhwD.shape[0], -1, cfg.width)
        if cfg.pool == "token":
            cls_11D = self.param("cls", nn.initializers.zeros, (1, 1, cfg.width))
            cls_B1D = jnp.tile(cls_11D.astype(dtype), (tokens_BLD.shape[0], 1, 1))
            tokens_BLD = jnp.concatenate([cls_B1D, tokens_BLD], axis=1)
        posemb_1LD = self.param("posemb", nn.initializers.normal(0.02), (1, *tokens_BLD.shape[1:]))
        return tokens_BLD + posemb_1LD.astype(dtype)

    def _encode(self, tokens_BLD: jax.Array, key: jax.Array | None) -> jax.Array:
        """All blocks; draws the same numbers with and without scan."""
        cfg = self.cfg
        block = EncoderBlock
        if cfg.remat != "none":
            policy = {"dots": jax.checkpoint_policies.checkpoint_dots, "full": None}[cfg.remat]
            block = nn.remat(block, policy=policy, prevent_cse=not cfg.scan)
        layers_S = None
        if key is not None:
            layers_S = (
                jnp.linspace(0.0, cfg.drop_path, cfg.depth),
                jax.random.split(key, cfg.depth),
            )
        if cfg.scan:
            blocks = nn.scan(
                block, variable_axes={"params": 0}, split_rngs={"params": True}, length=cfg.depth
            )
            return blocks(cfg, self.rules, name="blocks")(tokens_BLD, layers_S)[0]
        for i in range(cfg.depth):
            layer = None if layers_S is None else (layers_S[0][i], layers_S[1][i])
            tokens_BLD, _ = block(cfg, self.rules, name=f"block_{i}")(tokens_BLD, layer)
        return tokens_BLD
