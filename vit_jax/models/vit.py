# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The Vision Transformer and its hybrid (arXiv:2010.11929), section 3.1 and appendices B and D.

Axes: B batch, H W C image, L tokens, D width, Y classes, S layers. Parameters are a plain dict:
`backbone` (hybrids), `embedding`, `cls`, `registers`, `posemb` (see `posemb`), `blocks` (stacked
over layers; `block_0`, ... without scan), `norm`, `map_head`, `pre_logits`, `head`. Models that
predict patches (appendix B.1.2) also have `mask_token` and `patch_head`, those that give tokens
`mask_token`. Start from `ViT.__call__`.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.config.sections import Compute, Gelu, Pool, Posemb, PosembAt
from vit_jax.errors import BadInput
from vit_jax.models import attention, layers, mup, posemb, settings
from vit_jax.models.attention import ATTENTION_AXES, Attention, Path
from vit_jax.models.layers import (
    HEAD_AXES,
    MLP_AXES,
    NORM_AXES,
    STEM_AXES,
    Layer,
    Mlp,
    Remat,
    dropout,
    layer_norm,
)
from vit_jax.models.settings import Settings, TokenConfig
from vit_jax.models.vit_block import MapHead
from vit_jax.models.vit_block import position_table as position_table
from vit_jax.sharding import Axes, Rules, constrain

if TYPE_CHECKING:
    from vit_jax.models import resnet

# name -> (width D, layers S, MLP width F, heads N). B, L, H: Table 1 of the paper; b: its Figure 4;
# Ti, S: arXiv:2106.10270, Table 2; g, G: arXiv:2106.04560, Table 2; e: arXiv:2209.06794; So400m:
# arXiv:2305.13035; g-opt, G-opt: big_vision.
SIZES: dict[str, tuple[int, int, int, int]] = {
    "Ti": (192, 12, 768, 3),
    "S": (384, 12, 1536, 6),
    "b": (384, 12, 1536, 12),
    "B": (768, 12, 3072, 12),
    "L": (1024, 24, 4096, 16),
    "H": (1280, 32, 5120, 16),
    "g": (1408, 40, 6144, 16),
    "g-opt": (1536, 40, 6144, 16),
    "G": (1664, 48, 8192, 16),
    "G-opt": (1536, 48, 8192, 16),
    "e": (1792, 56, 15360, 16),
    "So400m": (1152, 27, 4304, 16),
}

# Parameter path pattern -> logical axes, see sharding.param_axes.
AXES: Axes = {
    r"cls": (None, None, "embed"),
    r"registers": (None, None, "embed"),
    r"probe": (None, None, "embed"),
    r"mask_token": (None, None, "embed"),
    r"pre_logits/kernel": ("embed", None),
    r"pre_logits/bias": (None,),
    **STEM_AXES,
    **HEAD_AXES,
    **posemb.AXES,
    **ATTENTION_AXES,
    **MLP_AXES,
    **NORM_AXES,
}


@dataclasses.dataclass(frozen=True)
class ViTConfig(TokenConfig):
    """The architecture of a ViT; `variants.config` builds one from a name."""

    AXES: ClassVar[Axes] = AXES
    FAMILY: ClassVar[Literal["vit"]] = "vit"
    FORMS: ClassVar[tuple[str, ...]] = ("unrolled", "attention", "remat")
    RESNET: ClassVar[str] = "backbone"
    attends: ClassVar[bool] = True
    patch: int  # P, in pixels; for a hybrid, in positions of its feature map
    width: int  # D
    depth: int  # S
    mlp: int  # F
    heads: int  # N
    classes: int  # Y
    pool: Pool = "token"
    posemb: Posemb = "learned1d"
    posemb_at: PosembAt = "stem"
    posemb_std: float = 0.02  # standard deviation of the initial position embeddings
    registers: int = 0  # number of tokens without a patch (arXiv:2309.16588)
    representation: int = 0  # width of the tanh pre-logits layer; 0 leaves it out
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0  # rate of the last block; the first has 0, linear in between
    gelu: Gelu = "tanh"
    ln_epsilon: float = 1e-6
    dtype: Compute = "float32"
    scan: bool = True
    unrolled: bool = False  # layers computed one by one: see `layers.apply_blocks`
    remat: Remat = "none"
    attention: Path = "plain"
    backbone: "resnet.ResNetConfig | None" = None
    patch_outputs: int = 0  # O, outputs per patch; 0: no mask token, logits per image
    maps: tuple[int, ...] = ()  # see `ModelConfig.for_maps`
    tokens: bool = False  # see `ModelConfig.for_tokens`
    mup_base_width: int = 0  # 0 without muP (arXiv:2203.03466)

    @property
    def stride(self) -> int:
        """Returns the pixels per token in each direction."""
        return self.patch * (self.backbone.stride if self.backbone else 1)

    @property
    def last_is_short(self) -> bool:
        """Returns True if the last block computes only the first token, which the head reads.

        This is False with dropout, because the scan would draw other numbers.
        """
        of_one = self.pool == "token" and not (self.patch_outputs or self.maps or self.tokens)
        return (
            self.scan and self.unrolled and of_one and not (self.dropout or self.attention_dropout)
        )

    def make(self, rules: Rules | None) -> "ViT":
        """Makes the model."""
        return ViT(self, rules)

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs of one RGB image; see `variants.forward_flops`."""
        patches = (height // self.stride) * (width // self.stride)
        tokens = patches + (self.pool == "token") + self.registers
        d, f = self.width, self.mlp

        def block(queries: int) -> int:
            macs = 2 * tokens * d * d + queries * (2 * d * d + 2 * d * f + 2 * tokens * d)
            relative = self.posemb == "relative"
            return macs + (queries * (2 * tokens - 1) * d if relative else 0)

        macs, features = 0, 3
        if self.backbone is not None:
            macs, features = self.backbone.multiply_adds(height, width), self.backbone.features
        macs += patches * self.patch**2 * features * d
        macs += (self.depth - 1) * block(tokens) + block(1 if self.last_is_short else tokens)
        if self.patch_outputs:
            return 2 * (macs + patches * d * self.patch_outputs)
        macs += d * self.representation + (self.representation or d) * self.classes
        if self.pool == "map":
            macs += 2 * patches * d * d + 2 * patches * d + 2 * d * d + 2 * d * f
        return 2 * macs

    def in_words(self) -> str:
        kind, side = "hybrid" if self.backbone else "ViT", self.stride
        return (
            f"a {kind} of {self.depth} layers with {self.heads} heads, {side} x {side} pixels a "
            "patch"
        )

    def at_patch(self, patch: int) -> Self:
        if self.backbone is not None:
            return super().at_patch(patch)
        return dataclasses.replace(self, patch=patch)

    def fused_refusal(self) -> str:
        relative = self.posemb == "relative"
        return attention.not_fused(dropout=self.attention_dropout, relative=relative)

    def for_images(self, classes: int) -> "ViTConfig":
        return dataclasses.replace(self, classes=classes, patch_outputs=0, maps=(), tokens=False)

    @property
    def predicts_patches(self) -> bool:
        return self.pool != "map"

    def for_patches(self, outputs: int) -> "ViTConfig":
        return dataclasses.replace(self, classes=0, patch_outputs=outputs)

    def for_tokens(self) -> "ViTConfig":
        if self.pool == "map" or self.posemb == "relative" or self.posemb_at == "every":
            raise BadInput(
                f"model.pool={self.pool}, posemb={self.posemb} at {self.posemb_at}: tokens of "
                "views need pool=token or gap, and position embeddings at the stem, not relative."
            )
        return dataclasses.replace(self.for_images(0), representation=0, tokens=True)

    def lacking_figures(self) -> list[str]:
        return posemb.without_embeddings(self.posemb)

    @property
    def published_heads(self) -> int:
        return self.heads

    def unwritten(self, weight_format: str) -> str:
        kinds = ("learned1d", "sincos2d") if weight_format == "big_vision" else ("learned1d",)
        shown = self.posemb in kinds and self.posemb_at == "stem"
        positions = "" if shown else f"posemb={self.posemb} at {self.posemb_at}"
        return super().unwritten(weight_format) or mup.unwritten(self) or positions

    def patches_of(self, flat: Any) -> int:
        return flat["posemb"].shape[1] - ("cls" in flat)


class EncoderBlock(nn.Module):
    """One layer: x + Drop(MHSA(LN x)), then x + MLP(LN x); equations 2 and 3.

    Attributes:
      cfg: the architecture.
      rules: placement of activations.
      grid: rows and columns of patches.
      first: whether to return only the first token, [B, 1, D].
    """

    cfg: ViTConfig
    rules: Rules | None
    grid: tuple[int, int]
    first: bool = False

    @nn.compact
    def __call__(
        self, tokens_BLD: jax.Array, layer: Layer, posemb_1LD: jax.Array | None
    ) -> tuple[jax.Array, None]:
        """Computes one layer; `posemb_1LD` is the embedding that every layer adds, if any."""
        cfg, dtype = self.cfg, layers.stream(self.cfg.dtype)
        path_rate, keys = (
            (0.0, [None] * 5) if layer is None else (layer[0], jax.random.split(layer[1], 5))
        )
        path_rate = path_rate if cfg.drop_path else 0.0

        if cfg.posemb_at == "every":
            posemb_1LD = position_table(cfg, self.param, self.grid)
        if posemb_1LD is not None:
            tokens_BLD += posemb_1LD.astype(dtype)

        x_BLD = layer_norm("attn_norm", cfg.ln_epsilon, dtype)(tokens_BLD)
        queries_BLD, path = x_BLD, cfg.attention
        if self.first:
            queries_BLD, tokens_BLD = x_BLD[:, :1], tokens_BLD[:, :1]
            if path != "memory_efficient":
                path = "plain"  # the other paths gain nothing with one query
        x_BLD = Attention(
            cfg.heads, cfg.attention_dropout, cfg.dtype, self.rules, cfg.posemb == "relative",
            path, mup.query_scale(cfg), name="attn",
        )(queries_BLD, x_BLD, keys[0])  # fmt: skip
        x_BLD = dropout(x_BLD, cfg.dropout, keys[1])
        tokens_BLD = tokens_BLD + dropout(x_BLD, path_rate, keys[2], per_example=True)

        x_BLD = layer_norm("mlp_norm", cfg.ln_epsilon, dtype)(tokens_BLD)
        mlp = Mlp(cfg.mlp, cfg.gelu, cfg.dropout, cfg.dtype, self.rules, name="mlp")
        x_BLD = mlp(x_BLD, keys[3])
        tokens_BLD = tokens_BLD + dropout(x_BLD, path_rate, keys[4], per_example=True)
        return constrain(tokens_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules), None


class ViT(nn.Module):
    """A model that maps images to logits, of each image or of each of its patches.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None without a mesh.
    """

    cfg: ViTConfig
    rules: Rules | None = None

    @nn.compact
    def __call__(
        self,
        images_BHWC: jax.Array,
        *,
        train: bool = False,
        key: jax.Array | None = None,
        source_BL: jax.Array | None = None,
        size: tuple[int, int] | None = None,
    ) -> Any:
        """Returns the logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, C]; H and W are multiples of the patch.
          train: whether dropout and stochastic depth are active.
          key: typed key, needed in training if any rate is above 0.
          source_BL: int32 [B, L], for each place the patch whose embedding it receives. -1 means
            the mask token; None leaves every patch in its place. Only used to predict patches,
            and by a model that gives tokens.
          size: rows and columns of the images that position embeddings are for; None: of these.

        Returns:
          float32 [B, Y]; for a model that predicts patches, [B, L, O]; for one that gives tokens,
          [B, 1 + L, D]; for one that gives feature maps, a tuple of [B, rows, columns, D].
        """
        cfg, dtype = self.cfg, layers.stream(self.cfg.dtype)
        rates = max(cfg.dropout, cfg.attention_dropout, cfg.drop_path)
        key = key if train and rates > 0 else None
        stem_key, blocks_key = (None, None) if key is None else jax.random.split(key)

        tokens_BLD, grid = self._embed(images_BHWC, dtype, source_BL)
        posemb_1LD = self._positions(grid, size)
        everywhere_1LD = posemb_1LD if cfg.posemb_at == "shared" else None
        if posemb_1LD is not None and everywhere_1LD is None:
            tokens_BLD += posemb_1LD.astype(dtype)
        tokens_BLD = dropout(tokens_BLD, cfg.dropout, stem_key)
        tokens_BLD = constrain(tokens_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)
        attributes, last = (cfg, self.rules, grid), (cfg.last_is_short,)
        tokens_BLD, outputs = layers.apply_blocks(
            self, EncoderBlock, attributes, tokens_BLD, cfg, blocks_key, everywhere_1LD, last
        )
        norm, extra = (
            layer_norm("norm", cfg.ln_epsilon, dtype),
            cfg.registers + (cfg.pool == "token"),
        )
        if cfg.maps:
            return layers.maps([norm(x)[:, extra:] for x in outputs], grid)
        tokens_BLD = norm(tokens_BLD)
        if cfg.patch_outputs:
            patches_BLD = tokens_BLD[:, extra:]
            return layers.head(
                patches_BLD.astype(jnp.float32), cfg.patch_outputs, 0.0, name="patch_head"
            )
        x_BD = self._pooled(tokens_BLD).astype(jnp.float32)
        if cfg.tokens:
            return jnp.concatenate(
                [x_BD[:, None], tokens_BLD[:, extra:].astype(x_BD.dtype)], axis=1
            )
        if cfg.representation:
            x_BD = jnp.tanh(nn.Dense(cfg.representation, name="pre_logits")(x_BD))
        return layers.head(x_BD, cfg.classes, cfg.head_bias)

    def _positions(self, grid: tuple[int, int], size: tuple[int, int] | None) -> jax.Array | None:
        """Returns the embeddings that are added once or in every block, [1, L, D], if any."""
        cfg = self.cfg
        if cfg.posemb in ("none", "relative") or cfg.posemb_at == "every":
            return None
        own = grid if size is None else cfg.patch_grid(*size)
        return posemb.on_grid(position_table(cfg, self.param, own), grid, own)

    def _pooled(self, tokens_BLD: jax.Array) -> jax.Array:
        """Returns what the head reads, [B, D]."""
        cfg = self.cfg
        if cfg.pool == "token":
            return tokens_BLD[:, 0]
        if cfg.pool == "map":
            return MapHead(cfg, self.rules, name="map_head")(tokens_BLD[:, cfg.registers :])
        return jnp.mean(tokens_BLD[:, cfg.registers :], axis=1)

    def _embed(
        self, images_BHWC: jax.Array, dtype: Any, source_BL: jax.Array | None
    ) -> tuple[jax.Array, tuple[int, int]]:
        """Returns equation 1 without positions, and the grid of patches.

        Tokens are the class token, the registers and the patches.

        A hybrid takes its patches from the feature map of the backbone. This method also corrupts
        the patches.
        """
        cfg = self.cfg
        x_BHWC = images_BHWC.astype(dtype)
        if cfg.backbone is not None:
            from vit_jax.models import resnet

            x_BHWC = resnet.Backbone(
                cfg.backbone, resnet.PostActUnit, cfg.remat, cfg.dtype, self.rules, name="backbone"
            )(x_BHWC)[-1]
        patches_BhwD = nn.Conv(
            cfg.width, (cfg.patch, cfg.patch), (cfg.patch, cfg.patch), "VALID", dtype=dtype,
            conv_general_dilated=layers.convolution(cfg.dtype), name="embedding",
        )(x_BHWC)  # fmt: skip
        batch, rows, columns, width = patches_BhwD.shape
        parts = [patches_BhwD.reshape(batch, rows * columns, width)]
        if cfg.patch_outputs or cfg.tokens:
            mask_11D = self.param("mask_token", nn.initializers.normal(0.02), (1, 1, width))
            if source_BL is not None:
                parts = [_corrupted(parts[0], source_BL, mask_11D.astype(dtype))]
        if cfg.registers:
            init, shape = nn.initializers.normal(1e-6), (1, cfg.registers, width)
            parts.insert(0, self._tiled(self.param("registers", init, shape), batch, dtype))
        if cfg.pool == "token":
            cls_11D = self.param("cls", nn.initializers.zeros, (1, 1, width))
            parts.insert(0, self._tiled(cls_11D, batch, dtype))
        return jnp.concatenate(parts, axis=1), (rows, columns)

    @staticmethod
    def _tiled(tokens_1RD: jax.Array, batch: int, dtype: Any) -> jax.Array:
        return jnp.tile(tokens_1RD.astype(dtype), (batch, 1, 1))


def _corrupted(patches_BLD: jax.Array, source_BL: jax.Array, mask_11D: jax.Array) -> jax.Array:
    """Replaces every patch by its source; -1 is the mask token."""
    source_BL1 = source_BL[..., None]
    taken_BLD = jnp.take_along_axis(patches_BLD, jnp.maximum(source_BL1, 0), axis=1)
    return jnp.where(source_BL1 < 0, mask_11D, taken_BLD)


# ---------------------------------------------------------------- configuration


_TAKES = settings.TOKENS | {"heads", "pool", "posemb", "posemb_at", "posemb_std", "registers"}
_TAKES |= {"representation", "dropout", "attention_dropout", "attention"}


def config(wanted: Settings, classes: int, units: str | None, size: str, patch: str) -> ViTConfig:
    """Returns the configuration that settings describe.

    Args:
      wanted: the settings.
      classes: Y.
      units: the N of a hybrid `RN+SIZE/PATCH`, "" for `R+SIZE/PATCH`; None without a backbone.
      size: SIZE.
      patch: PATCH, pixels per token.

    Raises:
      BadInput: a setting does not fit.
    """
    more = {"mup_base_width"} if units is None else settings.BACKBONE
    settings.refuse_others(wanted, _TAKES | more)
    keepable = attention.KEEPABLE + layers.KEEPABLE
    if units is not None:
        from vit_jax.models import resnet

        keepable += resnet.KEEPABLE
    layers.check_remat(wanted.remat, keepable)
    numbers = settings.sizes(wanted, size, SIZES, ("width", "depth", "mlp", "heads"))
    if numbers["width"] % numbers["heads"]:
        near = [n for n in range(1, numbers["width"] + 1) if numbers["width"] % n == 0]
        raise BadInput(
            f"model {wanted.variant}: {numbers['heads']} heads do not divide the width "
            f"{numbers['width']}; these do: {near}."
        )
    if int(patch) < 1:
        raise settings.unknown_variant(wanted.variant)
    backbone, side = None, int(patch)
    if units is not None:
        from vit_jax.models import resnet

        backbone, side = resnet.hybrid(wanted, units, side)
    posemb.check(wanted.posemb, wanted.posemb_at, numbers["width"], wanted.posemb_std)
    fields = ("pool", "posemb", "posemb_at", "posemb_std", "registers", "representation")
    fields += ("dropout", "attention_dropout", "drop_path", "gelu", "ln_epsilon", "scan")
    shared = settings.shared_fields(wanted, *fields, "mup_base_width")
    cfg = ViTConfig(patch=side, classes=classes, backbone=backbone, **numbers, **shared)
    if wanted.attention != "fused":
        return cfg
    if why := cfg.fused_refusal():
        raise BadInput(f"model.attention=fused: {why}; leave model.attention out.")
    return dataclasses.replace(cfg, attention="xla")  # `build` may choose a better path
