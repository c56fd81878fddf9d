# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A Transformer that maps the tokens of texts to vectors, of SigLIP (arXiv:2303.15343) or of BERT.

SigLIP's blocks are those of a ViT, so every token attends to all others, also to those that fill
up. BERT (arXiv:1810.04805) normalises the embeddings and after each branch, and does not read the
tokens that fill up. Parameters lie under `text` of an objective: `tokens`, `posemb`, `block_0` and
so on, `projection`; `norm` and `map_head` of SigLIP, `stem_norm` of BERT. Axes: B batch, L tokens,
D width, V vocabulary, E outputs. Start from `config`, then `TextTower.__call__`.
"""

import dataclasses
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput, unknown
from vit_jax.models import attention, layers, products, vit_config
from vit_jax.models.vit_block import EncoderBlock, MapHead, Shared
from vit_jax.models.vit_config import SIZES, ViTConfig
from vit_jax.sharding import Axes, Rules, constrain

Pool = Literal["last", "first", "map"]
POOLS = ("last", "first", "map")
Blocks = Literal["vit", "bert"]
BLOCKS = ("vit", "bert")
FILLS = 0  # the token that BERT does not read
AXES: Axes = {
    r"text/tokens": ("classes", "embed"),
    r"text/posemb": (None, None, "embed"),
    r"text/projection/kernel": ("embed", None),
    r"text/projection/bias": (None,),
    **{rf"text/(.*/)?{path}": axes for path, axes in vit_config.AXES.items()},
}


@dataclasses.dataclass(frozen=True)
class TextConfig:
    """The architecture of a text tower.

    Attributes:
      blocks: the Transformer, as a ViT without patches.
      vocabulary: V.
      length: L.
      pool: the token that stands for the text, or attention pooling.
      outputs: E; 0: no projection, so D.

    BERT's blocks have `norm_at="post"`.
    """

    blocks: ViTConfig
    vocabulary: int
    length: int
    pool: Pool
    outputs: int

    def flops(self) -> int:
        """Returns the FLOPs of one text, 2 per multiply-add; see `variants.forward_flops`."""
        blocks, tokens = self.blocks, self.length
        d, pooled = blocks.width, 0
        macs = blocks.depth * tokens * (4 * d * d + 2 * d * blocks.mlp + 2 * tokens * d)
        if self.pool == "map":
            pooled = 2 * tokens * d * d + 2 * tokens * d + 2 * d * d + 2 * d * blocks.mlp
        return 2 * (macs + pooled + d * self.outputs)


def config(
    size: str,
    *,
    vocabulary: int,
    length: int,
    pool: Pool,
    outputs: int,
    like: Any,
    kind: Blocks = "vit",
    **numbers: int,
) -> TextConfig:
    """Returns the text tower of a named size, with the given numbers replaced.

    Args:
      size: a size of ViTs, such as B, or `custom`.
      vocabulary: V.
      length: L.
      pool: see `TextConfig`.
      outputs: E.
      like: the image model, whose dtype and `remat` the tower has.
      kind: whether the blocks are those of a ViT or of BERT.
      **numbers: width, depth, mlp, heads; 0: that of the size.

    Raises:
      BadInput: the size is unknown, a number is missing, or the heads do not divide the width.
    """
    if size != "custom" and size not in SIZES:
        raise unknown("size of a text tower", size, ["custom", *SIZES])
    named = SIZES[size] if size in SIZES else (0, 0, 0, 0)
    names = ("width", "depth", "mlp", "heads")
    sizes = {name: numbers[name] or own for name, own in zip(names, named, strict=True)}
    if lacking := [f"text_{name}" for name, number in sizes.items() if number < 1]:
        raise BadInput(f"text='{size}': give {', '.join(lacking)} (1 or more).")
    if sizes["width"] % sizes["heads"]:
        raise BadInput(
            f"text='{size}': text_heads={sizes['heads']} do not divide text_width="
            f"{sizes['width']}; give heads that do."
        )
    dtype: Any = getattr(like, "dtype", "float32")
    remat = getattr(like, "remat", "none")
    keepable = {*layers.KEEPABLE, *attention.KEEPABLE}
    keeps = remat in layers.REMATS or {*remat.split(",")} <= keepable
    of_bert: dict[str, Any] = {"norm_at": "post", "ln_epsilon": 1e-12} if kind == "bert" else {}
    blocks = ViTConfig(
        patch=1, width=sizes["width"], depth=sizes["depth"], mlp=sizes["mlp"],
        heads=sizes["heads"], classes=0, posemb="none", pool="map" if pool == "map" else "gap",
        dtype=dtype, remat=remat if keeps else "full", attention="memory_efficient",
        scan=False,  # blocks have parameters of their own: only `blocks` at the top may be stacked
        **of_bert,
    )  # fmt: skip
    return TextConfig(blocks, vocabulary, length, pool, outputs)


class TextTower(nn.Module):
    """The text tower.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None without a mesh.
    """

    cfg: TextConfig
    rules: Rules | None = None

    @nn.compact
    def __call__(self, tokens_BL: jax.Array) -> jax.Array:
        """Maps int32 [B, L] to float32 [B, E]."""
        cfg, blocks = self.cfg, self.cfg.blocks
        dtype, width = products.stream(blocks.dtype), blocks.width
        normal = nn.initializers.normal(width**-0.5)
        table_VD = self.param("tokens", normal, (cfg.vocabulary, width))
        posemb_1LD = self.param("posemb", normal, (1, cfg.length, width))
        x_BLD = jnp.take(table_VD, tokens_BL, axis=0).astype(dtype) + posemb_1LD.astype(dtype)
        x_BLD = constrain(x_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)
        bert, bias_BL = blocks.norm_at == "post", None
        if bert:
            x_BLD = layers.norm("stem_norm", blocks.norm, blocks.ln_epsilon, dtype)(x_BLD)
            bias_BL = jnp.where(tokens_BL == FILLS, jnp.float32(attention.MASKED), 0)
        attributes = (blocks, self.rules, (1, cfg.length))
        x_BLD, _ = layers.apply_blocks(
            self, EncoderBlock, attributes, x_BLD, blocks, None, Shared(bias_BL=bias_BL)
        )
        if not bert:
            x_BLD = layers.norm("norm", blocks.norm, blocks.ln_epsilon, dtype)(x_BLD)
        if cfg.pool == "map":
            x_BD = MapHead(blocks, self.rules, name="map_head")(x_BLD, bias_BL)
        else:
            x_BD = x_BLD[:, -1 if cfg.pool == "last" else 0]
        x_BD = x_BD.astype(jnp.float32)
        if not cfg.outputs:
            return x_BD
        init = nn.initializers.lecun_normal()
        return nn.Dense(cfg.outputs, kernel_init=init, name="projection")(x_BD)
