# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The axial ViT of arXiv:2010.11929, appendix D.6 and Figure 13: attention along rows and columns.

Each block of a ViT becomes two. In the first, the patches of a row attend to each other; in the
second, those of a column (arXiv:1912.12180); transposed images exchange the two.

Axes: B batch, h w rows and columns of patches, L = h w tokens, D width, Y classes. Parameters:
`embedding`, `posemb` (see `posemb`), `blocks` with `rows` and `columns` (stacked; `block_0`, ...
without scan), `norm`, `pre_logits`, `head`. Start from `AxialViT.__call__`.

The paper does not say whether there is a class token. This model has none, and takes the mean over
the patches. That is an inference. The exaFLOPs of Figure 13 are those of 196 and 49 tokens within
0.1 %; one token more would add 0.5 and 2 %. The authors' later code has no class token with axial
blocks either, and takes the mean by default (google-research/scenic, projects/fast_vit).
"""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.config.model_section import Compute, Gelu, Posemb
from vit_jax.errors import BadInput
from vit_jax.models import layers, posemb, products, settings, vit
from vit_jax.models.attention import Attention
from vit_jax.models.layers import Layer, Mlp, Remat, dropout, layer_norm
from vit_jax.models.settings import Settings, TokenConfig
from vit_jax.sharding import Axes, Rules, constrain

_TAKES = settings.TOKENS | {"heads", "pool", "posemb", "representation", "dropout"}
_TAKES |= {"attention_dropout"}


@dataclasses.dataclass(frozen=True)
class AxialViTConfig(TokenConfig):
    """The architecture of an axial ViT; `variants.config` builds one from a name."""

    AXES: ClassVar[Axes] = vit.AXES
    FAMILY: ClassVar[Literal["axial_vit"]] = "axial_vit"
    patch: int  # P, pixels
    width: int  # D
    depth: int  # pairs of a block along rows and a block along columns
    mlp: int  # width of every MLP
    heads: int  # N
    classes: int  # Y
    posemb: Posemb = "learned1d"  # added to the patches before the blocks
    representation: int = 0  # width of the tanh pre-logits layer; 0 leaves it out
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0  # rate of the last pair; the first has 0, linear in between
    gelu: Gelu = "tanh"
    ln_epsilon: float = 1e-6
    dtype: Compute = "float32"
    scan: bool = True
    unrolled: bool = False  # pairs computed one by one: see `layers.apply_blocks`
    remat: Remat = "none"
    maps: tuple[int, ...] = ()  # see `ModelConfig.for_maps`; a level is a pair

    @property
    def stride(self) -> int:
        """Returns the pixels per token in each direction."""
        return self.patch

    def make(self, rules: Rules | None) -> "AxialViT":
        """Makes the model."""
        return AxialViT(self, rules)

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs of one RGB image; see `variants.forward_flops`."""
        rows, columns = self.patch_grid(height, width)
        d, tokens = self.width, rows * columns
        pair = 2 * tokens * (4 * d * d + 2 * d * self.mlp) + 2 * tokens * (columns + rows) * d
        macs = tokens * self.patch**2 * 3 * d + self.depth * pair
        return 2 * (macs + d * self.representation + (self.representation or d) * self.classes)

    def stream_size(self, height: int, width: int) -> int:
        return 2 * super().stream_size(height, width)

    def in_words(self) -> str:
        return (
            f"an axial ViT of {self.depth} pairs of layers with {self.heads} heads, {self.patch} x "
            f"{self.patch} pixels a patch"
        )

    def lacking_figures(self) -> list[str]:
        return [
            "The figures of positions and attention are those of a ViT whose patches all attend to "
            "each other. Of an axial ViT, only its filters are shown."
        ]


class Half(nn.Module):
    """One layer along one axis: x + Drop(MHSA(LN x)), then x + MLP(LN x); equations 2 and 3.

    Attributes:
      cfg: the architecture.
      rules: placement of activations.
      grid: rows and columns of patches.
      along: `rows` if the patches of a row attend to each other, else `columns`.
    """

    cfg: AxialViTConfig
    rules: Rules | None
    grid: tuple[int, int]
    along: Literal["rows", "columns"]

    @nn.compact
    def __call__(self, x_BLD: jax.Array, layer: Layer) -> jax.Array:
        """Computes the layer, [B, L, D]."""
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        rate, keys = (
            (0.0, [None] * 5) if layer is None else (layer[0], jax.random.split(layer[1], 5))
        )
        rate = rate if cfg.drop_path else 0.0
        y_BLD = layer_norm("attn_norm", cfg.ln_epsilon, dtype)(x_BLD)
        y_BhwD = y_BLD.reshape(x_BLD.shape[0], *self.grid, -1)
        y_BhwD = y_BhwD if self.along == "rows" else y_BhwD.swapaxes(1, 2)
        lines = y_BhwD.reshape(-1, *y_BhwD.shape[2:])  # [B h, w, D] or [B w, h, D]
        attend = Attention(cfg.heads, cfg.attention_dropout, cfg.dtype, self.rules, name="attn")
        y_BhwD = attend(lines, lines, keys[0]).reshape(y_BhwD.shape)
        y_BhwD = y_BhwD if self.along == "rows" else y_BhwD.swapaxes(1, 2)
        y_BLD = dropout(y_BhwD.reshape(x_BLD.shape), cfg.dropout, keys[1])
        x_BLD = x_BLD + dropout(y_BLD, rate, keys[2], per_example=True)

        y_BLD = layer_norm("mlp_norm", cfg.ln_epsilon, dtype)(x_BLD)
        y_BLD = Mlp(cfg.mlp, cfg.gelu, cfg.dropout, cfg.dtype, self.rules, name="mlp")(
            y_BLD, keys[3]
        )
        x_BLD = x_BLD + dropout(y_BLD, rate, keys[4], per_example=True)
        return constrain(x_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)


class Pair(nn.Module):
    """A layer along rows, then a layer along columns; attributes as those of `Half`."""

    cfg: AxialViTConfig
    rules: Rules | None
    grid: tuple[int, int]

    @nn.compact
    def __call__(self, x_BLD: jax.Array, layer: Layer, shared: None) -> tuple[jax.Array, None]:
        """Computes both layers; `shared` is unused."""
        halves: list[Layer] = [None, None]
        if layer is not None:
            halves = [(layer[0], key) for key in jax.random.split(layer[1])]
        attributes = self.cfg, self.rules, self.grid
        x_BLD = Half(*attributes, "rows", name="rows")(x_BLD, halves[0])
        return Half(*attributes, "columns", name="columns")(x_BLD, halves[1]), None


class AxialViT(nn.Module):
    """A model that maps images to logits.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None without a mesh.
    """

    cfg: AxialViTConfig
    rules: Rules | None = None

    @nn.compact
    def __call__(
        self, images_BHWC: jax.Array, *, train: bool = False, key: jax.Array | None = None
    ) -> Any:
        """Returns the logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, C]; H and W are multiples of the patch.
          train: whether dropout and stochastic depth are active.
          key: typed key, needed in training if any rate is above 0.

        Returns:
          float32 [B, Y]; for a model that gives feature maps, a tuple of [B, rows, columns, D].
        """
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        rates = max(cfg.dropout, cfg.attention_dropout, cfg.drop_path)
        key = key if train and rates > 0 else None
        stem_key, blocks_key = (None, None) if key is None else jax.random.split(key)
        patches_BhwD = nn.Conv(
            cfg.width, (cfg.patch, cfg.patch), (cfg.patch, cfg.patch), "VALID", dtype=dtype,
            conv_general_dilated=products.patches(self.rules, cfg.dtype), name="embedding",
        )(images_BHWC.astype(dtype))  # fmt: skip
        batch, rows, columns, width = patches_BhwD.shape
        x_BLD = patches_BhwD.reshape(batch, rows * columns, width)
        if cfg.posemb != "none":
            table_1LD = posemb.table(self.param, cfg.posemb, (rows, columns), width, 0)
            x_BLD += table_1LD.astype(dtype)
        x_BLD = dropout(x_BLD, cfg.dropout, stem_key)
        x_BLD = constrain(x_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)
        attributes = cfg, self.rules, (rows, columns)
        x_BLD, outputs = layers.apply_blocks(self, Pair, attributes, x_BLD, cfg, blocks_key)
        norm = layer_norm("norm", cfg.ln_epsilon, dtype)
        if cfg.maps:
            return layers.maps([norm(x) for x in outputs], (rows, columns))
        x_BD = jnp.mean(norm(x_BLD).astype(jnp.float32), axis=1)
        if cfg.representation:
            x_BD = jnp.tanh(nn.Dense(cfg.representation, name="pre_logits")(x_BD))
        return layers.head(x_BD, cfg.classes, cfg.head_bias)


def config(wanted: Settings, classes: int, size: str, patch: str) -> AxialViTConfig:
    """Returns the configuration that settings describe, for `AxialViT-SIZE/PATCH`.

    Raises:
      BadInput: a setting does not fit.
    """
    settings.refuse_others(wanted, _TAKES)
    if wanted.pool == "map":
        raise BadInput(f"model {wanted.variant} takes the mean over patches (model.pool=gap).")
    if wanted.posemb == "relative":
        raise BadInput(
            f"model {wanted.variant} adds positions to its patches: posemb is learned1d, learned2d,"
            " sincos2d or none, not relative."
        )
    cfg = vit.config(wanted, classes, None, size, patch)
    names = [field.name for field in dataclasses.fields(AxialViTConfig)]
    return AxialViTConfig(**{name: getattr(cfg, name) for name in names})
