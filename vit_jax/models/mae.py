# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A ViT that sees some of the patches, and a light decoder that predicts all (arXiv:2111.06377).

The encoder's parameters are those of a ViT, at their usual paths. Those of the decoder lie under
`objective`, so they are lost when the encoder is fine-tuned. Axes: B batch, L patches, K visible
patches, D width, O outputs of a patch. Start from `config`, then `MaskedAutoencoder.__call__`.
"""

import dataclasses
import math
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput
from vit_jax.models import layers, products, vit_config, vit_flops
from vit_jax.models.settings import ModelConfig
from vit_jax.models.vit import ViT
from vit_jax.models.vit_block import EncoderBlock, Shared, position_table
from vit_jax.models.vit_config import ViTConfig
from vit_jax.sharding import Axes, Rules, constrain


@dataclasses.dataclass(frozen=True)
class MaskedAutoencoderConfig(ViTConfig):
    """The architecture of the encoder, and the sizes of the decoder."""

    AXES: ClassVar[Axes] = {
        r"objective/projection/kernel": ("embed", None),
        r"objective/projection/bias": (None,),
        **vit_config.AXES,
    }
    # Without `in_order`, so without heads apart: the decoder's smaller heads would be apart too.
    FORMS: ClassVar[tuple[str, ...]] = ("unrolled", "attention", "remat")
    masked: float = 0.75
    decoder_depth: int = 8
    decoder_width: int = 512
    decoder_heads: int = 16

    def make(self, rules: Rules | None) -> "MaskedAutoencoder":  # type: ignore[override]
        """Makes the model."""
        return MaskedAutoencoder(self, rules)

    def for_images(self, classes: int) -> ViTConfig:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(ViTConfig)}
        return ViTConfig(**fields).for_images(classes)

    def decoder(self) -> ViTConfig:
        """Returns the decoder as a ViT: its blocks, and fixed positions.

        Blocks have parameters of their own, because only `blocks` at the top may be stacked.
        """
        return dataclasses.replace(
            self.for_images(0), depth=self.decoder_depth, width=self.decoder_width,
            heads=self.decoder_heads, mlp=4 * self.decoder_width, posemb="sincos2d", scan=False,
            drop_path=0.0, dropout=0.0, attention_dropout=0.0,
        )  # fmt: skip

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs of one RGB image: all embedded, K encoded, all decoded.

        The decoder predicts pixels with as many FLOPs as a stem of its width takes.
        """
        patches, encoder, decoder = self._patches(height, width), self.for_images(0), self.decoder()
        seen = visible(self.masked, patches)

        def of_tokens(cfg: ViTConfig, seen: int) -> int:
            whole = dataclasses.replace(cfg, unrolled=False, pool="gap", class_token=False)
            whole = dataclasses.replace(whole, registers=cfg.prefix, representation=0)
            return vit_flops.flops(whole, height, width, seen)

        projection = 2 * (seen + encoder.prefix) * self.width * self.decoder_width
        return of_tokens(encoder, seen) + projection + of_tokens(decoder, patches)

    def channel_flops(self, height: int, width: int) -> int:
        patches = self._patches(height, width)
        return 2 * patches * self.patch**2 * (self.width + self.decoder_width)

    def stream_size(self, height: int, width: int) -> int:
        patches = self._patches(height, width)
        decoded = self.decoder_depth * patches * self.decoder_width
        return self.depth * visible(self.masked, patches) * self.width + decoded

    def _patches(self, height: int, width: int) -> int:
        return math.prod(self.patch_grid(height, width))


class MaskedAutoencoder(nn.Module):
    """The encoder and the decoder; `rules` place activations.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None without a mesh.
    """

    cfg: MaskedAutoencoderConfig
    rules: Rules | None = None

    def setup(self) -> None:
        self.encoder = ViT(self.cfg.for_images(0), self.rules)
        nn.share_scope(self, self.encoder)
        self.objective = Decoder(self.cfg.decoder(), self.rules)

    def __call__(
        self,
        images_BHWC: jax.Array,
        *,
        train: bool = False,
        key: jax.Array | None = None,
        keys_B: jax.Array | None = None,
    ) -> jax.Array:
        """Predicts all patches from some.

        Args:
          images_BHWC: float32 [B, H, W, C], normalised; H and W are multiples of the patch.
          train: whether dropout and stochastic depth of the encoder are active.
          key: typed key, needed in training if any rate is above 0.
          keys_B: typed keys that choose the visible patches of each image, see `ranks`; None takes
            the first ones.

        Returns:
          float32 [B, L, O], the pixels of each patch row by row: O = P * P * C.
        """
        batch, height, width, channels = images_BHWC.shape
        grid = self.cfg.patch_grid(height, width)
        patches = math.prod(grid)
        if keys_B is None:
            rank_BL = jnp.tile(jnp.arange(patches)[None], (batch, 1))
        else:
            rank_BL = ranks(keys_B, patches)
        visible_BK = jnp.argsort(rank_BL, axis=1)[:, : visible(self.cfg.masked, patches)]
        tokens_BKD = self.encoder(images_BHWC, train=train, key=key, visible_BK=visible_BK)
        return self.objective(tokens_BKD, rank_BL, grid, self.cfg.patch**2 * channels)


class Decoder(nn.Module):
    """Blocks on the encoder's tokens, and a mask token in each place that it has not seen.

    Attributes:
      cfg: the decoder as a ViT.
      rules: placement of activations.
    """

    cfg: ViTConfig
    rules: Rules | None

    @nn.compact
    def __call__(
        self, tokens_BKD: jax.Array, rank_BL: jax.Array, grid: tuple[int, int], outputs: int
    ) -> jax.Array:
        """Maps the encoder's tokens, [B, prefix + K, D], to float32 [B, L, O]."""
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        product = products.product(self.rules, cfg.dtype)
        init = nn.initializers.xavier_uniform()
        projected = nn.Dense(
            cfg.width, dtype=dtype, dot_general=product, kernel_init=init, name="projection"
        )
        tokens_BKD = projected(tokens_BKD)
        mask_11D = self.param("mask_token", nn.initializers.normal(0.02), (1, 1, cfg.width))
        first, seen = tokens_BKD[:, : cfg.prefix], tokens_BKD.shape[1] - cfg.prefix
        place_BL1 = jnp.minimum(rank_BL, seen - 1)[..., None]
        patches_BLD = jnp.take_along_axis(tokens_BKD[:, cfg.prefix :], place_BL1, axis=1)
        patches_BLD = jnp.where(rank_BL[..., None] < seen, patches_BLD, mask_11D.astype(dtype))
        tokens_BLD = jnp.concatenate([first, patches_BLD], axis=1)
        tokens_BLD += position_table(cfg, self.param, grid).astype(dtype)
        tokens_BLD = constrain(tokens_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)
        tokens_BLD, _ = layers.apply_blocks(
            self, EncoderBlock, (cfg, self.rules, grid), tokens_BLD, cfg, None, Shared()
        )
        tokens_BLD = layers.norm("norm", cfg.norm, cfg.ln_epsilon, dtype)(tokens_BLD)
        patches_BLD = tokens_BLD[:, cfg.prefix :].astype(jnp.float32)
        return nn.Dense(outputs, kernel_init=init, name="patch_head")(patches_BLD)


def visible(masked: float, patches: int) -> int:
    """Returns K: (1 - masked) * L rounded down, as in the published code, but 1 to L - 1."""
    return min(vit_config.kept(masked, patches), patches - 1)


def ranks(keys_B: jax.Array, patches: int) -> jax.Array:
    """Returns a permutation for each key, int32 [B, L]; the encoder sees ranks below K."""
    return jax.vmap(lambda key: jax.random.permutation(key, patches))(keys_B)


def config(
    cfg: ModelConfig, *, masked: float, depth: int, width: int, heads: int
) -> MaskedAutoencoderConfig:
    """Returns the masked autoencoder whose encoder is `cfg`, without its head.

    Args:
      cfg: a ViT with a token or a mean as pool, and positions that are added to the patches.
      masked: share of the patches that the encoder does not see.
      depth: layers of the decoder.
      width: D of the decoder, a multiple of 8 times `heads`.
      heads: attention heads of the decoder.

    Raises:
      BadInput: the model is another one.
    """
    if type(cfg) is not ViTConfig or cfg.backbone is not None:
        raise BadInput(
            f"a masked autoencoder takes a ViT that embeds patches of pixels, not {cfg.in_words()};"
            " use B/16, L/16 or H/14."
        )
    usual = ViTConfig(patch=1, width=1, depth=1, mlp=1, heads=1, classes=0)
    fixed = ("posemb_at", "rope", "final_norm", "distillation", "mup_base_width", "patch_dropout")
    fixed += ("merge", "window", "naflex")
    odd = [name for name in fixed if getattr(cfg, name) != getattr(usual, name)]
    odd += ["posemb"] if cfg.posemb.startswith("relative") else []
    odd += ["pool"] if cfg.pool == "map" else []
    if odd:
        given = ", ".join(f"model.{name}={getattr(cfg, name)}" for name in odd)
        raise BadInput(
            f"{given}: the encoder of a masked autoencoder gets only some patches, with their "
            "positions added, and has no pool of its own; leave it out."
        )
    fields = {f.name: getattr(cfg, f.name) for f in dataclasses.fields(ViTConfig)}
    fields |= {"classes": 0, "representation": 0, "class_std": 0.02}
    return MaskedAutoencoderConfig(
        **fields, masked=masked, decoder_depth=depth, decoder_width=width, decoder_heads=heads
    )
