# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The Vision Transformer and its hybrid (arXiv:2010.11929), section 3.1 and appendices B and D.

Axes: B batch, H W C image, L tokens, D width, Y classes, S layers. Parameters are a plain dict:
`backbone` (hybrids), `embedding`, `cls`, `dist`, `registers`, `posemb` (see `posemb`), `stem_norm`,
`blocks` (stacked over layers; `block_0`, ... without scan), `norm`, `map_head`, `pre_logits`,
`head`, `dist_head`. Models that predict patches (appendix B.1.2) also have `mask_token` and
`patch_head`, those that give tokens `mask_token`. The configuration is in `vit_config`, a layer in
`vit_block`. Start from `ViT.__call__`.
"""

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput
from vit_jax.models import layers, posemb, products
from vit_jax.models.attention import MASKED
from vit_jax.models.layers import dropout
from vit_jax.models.merging import Merged
from vit_jax.models.vit_block import EncoderBlock as EncoderBlock
from vit_jax.models.vit_block import MapHead, Shared, position_table
from vit_jax.models.vit_config import AXES as AXES
from vit_jax.models.vit_config import SIZES as SIZES
from vit_jax.models.vit_config import ViTConfig as ViTConfig
from vit_jax.models.vit_config import config as config
from vit_jax.sharding import Rules, constrain

if TYPE_CHECKING:
    from vit_jax.models import naflex


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
        images_BHWC: "jax.Array | naflex.Canvas | naflex.Unpacked",
        *,
        train: bool = False,
        key: jax.Array | None = None,
        source_BL: jax.Array | None = None,
        real_BL: jax.Array | None = None,
        visible_BK: jax.Array | None = None,
        size: tuple[int, int] | None = None,
        apart: bool = False,
    ) -> Any:
        """Returns the logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, C], of whole patches; or images of any shapes (`naflex`).
          train: whether dropout, also of patches, and stochastic depth are active.
          key: typed key, needed in training if any rate is above 0.
          source_BL: int32 [B, L], for each place the patch whose embedding it receives. -1 means
            the mask token; None leaves every patch in its place. Only for patches and tokens.
          real_BL: bool [B, L], False for patches that no token attends to and no pool reads, such
            as padding; None: all are real. Not with `visible_BK`.
          visible_BK: int32 [B, K], the only patches that the blocks see. The result is then the
            tokens after the last norm, [B, prefix + K, D]; see `mae`.
          size: rows and columns of the images that position embeddings are for; None: of these.
          apart: whether logits of the class and of the distillation token come apart.

        Returns:
          float32 [B, Y], or [B, 2, Y] with `apart`; for a model that predicts patches, [B, L, O];
          for one that gives tokens, [B, 1 + L, D]; for one that gives feature maps, a tuple of
          [B, rows, columns, D]. For several images in a sequence, [B, S, Y].
        """
        if isinstance(images_BHWC, tuple):
            return self._of_canvas(images_BHWC, key if train else None)
        assert real_BL is None or visible_BK is None
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        stem_key, blocks_key = _keys(cfg, key if train else None)
        tokens_BLD, grid = self._embed(images_BHWC, dtype, source_BL)
        tokens_BLD, everywhere_1LD = self._positioned(tokens_BLD, grid, size)
        seen_BK = _drawn(cfg, tokens_BLD, stem_key) if visible_BK is None else visible_BK
        if seen_BK is not None:
            tokens_BLD = _only(tokens_BLD, seen_BK, cfg.prefix)
        tokens_BLD = self._stem_norm(dropout(tokens_BLD, cfg.dropout, stem_key), "tokens")
        tokens_BLD = constrain(tokens_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)
        real_BL = _real(real_BL, seen_BK, cfg.prefix)
        bias_BL = None if real_BL is None else jnp.where(real_BL, 0.0, MASKED)
        shared = Shared(everywhere_1LD, self._places(grid, stem_key), bias_BL)
        own = self._of_single_blocks(short=cfg.last_is_short and visible_BK is None)
        x, shares_BL = tokens_BLD, real_BL
        if cfg.merge and not self.is_initializing():  # which makes the same parameters
            self._check_merging(real_BL, visible_BK)
            x = Merged(tokens_BLD, jnp.ones(tokens_BLD.shape[:2], jnp.float32))
        x, outputs = layers.apply_blocks(
            self, EncoderBlock, (cfg, self.rules, grid), x, cfg, blocks_key, shared, own
        )
        if isinstance(x, Merged):
            x, shares_BL = x
            bias_BL = jnp.log(shares_BL)
        more: dict[str, Any] = {"bare": visible_BK is not None, "apart": apart}
        return self._results(x, outputs, grid, shares_BL, bias_BL, **more)

    def _of_canvas(
        self, canvas: "naflex.Canvas | naflex.Unpacked", key: jax.Array | None
    ) -> jax.Array:
        """Returns the logits of images of any aspect ratio, see `__call__`."""
        from vit_jax.models import naflex

        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        self._check_canvas()
        if isinstance(canvas, naflex.Unpacked):
            packed_RSY = self._of_canvas(naflex.in_rows(canvas, cfg.patch), key)
            return naflex.of_images(packed_RSY, canvas)
        stem_key, blocks_key = _keys(cfg, key)
        packed = canvas.grids.ndim == 3
        grids_BS2 = canvas.grids if packed else canvas.grids[:, None]
        batch, images = grids_BS2.shape[:2]
        tokens_BLD, grid = self._embed(canvas.images_BHWC, dtype, None, images)
        first = images * cfg.prefix
        of = naflex.layout(grids_BS2, tokens_BLD.shape[1] - first)
        tokens_BLD += self._positions_of(of, images).astype(dtype)
        tokens_BLD = self._stem_norm(dropout(tokens_BLD, cfg.dropout, stem_key), "tokens")
        tokens_BLD = constrain(tokens_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)
        before_BP = naflex.of_prefix(batch, images, cfg.prefix)
        segments_BL = jnp.concatenate([before_BP, of.segments_BL], axis=1)
        bias = jnp.where(segments_BL >= 0, 0.0, MASKED)
        if packed:
            bias = naflex.apart(segments_BL, segments_BL)
        own = self._of_single_blocks(short=cfg.last_is_short and not packed)
        x_BLD, _ = layers.apply_blocks(
            self, EncoderBlock, (cfg, self.rules, grid), tokens_BLD, cfg, blocks_key,
            Shared(bias_BL=bias), own,
        )  # fmt: skip
        if not packed:
            return self._results(x_BLD, [], grid, segments_BL >= 0, bias, bare=False, apart=False)
        norm = layers.norm("norm", cfg.norm, cfg.ln_epsilon, dtype)
        x_BLD = norm(x_BLD) if cfg.final_norm == "tokens" else x_BLD
        pooled_BSD = self._pooled_apart(x_BLD, segments_BL, images)
        pooled_BSD = norm(pooled_BSD) if cfg.final_norm == "pooled" else pooled_BSD
        return self._logits([pooled_BSD], apart=False)

    def _positions_of(self, of: "naflex.Layout", images: int) -> jax.Array:
        """Returns the positions of all tokens of a canvas, [B, S * prefix + L, D]."""
        from vit_jax.models import naflex

        cfg, side = self.cfg, self.cfg.naflex
        table_1LD = position_table(cfg, self.param, (side, side))
        table_GGD = table_1LD[0, cfg.prefix :].reshape(side, side, -1)
        patches_BLD = naflex.positions(table_GGD, of, cfg.naflex_filter, square=cfg.naflex_square)
        first_1PD = jnp.tile(table_1LD[:, : cfg.prefix], (len(patches_BLD), images, 1))
        return jnp.concatenate([first_1PD, patches_BLD], axis=1)

    def _check_canvas(self) -> None:
        """Raises BadInput for a model that cannot take images of any aspect ratio."""
        cfg = self.cfg
        if not cfg.naflex:
            raise BadInput(
                "images of any aspect ratio need model.naflex, the side of the table of positions; "
                "give --config.model.naflex=N, or images of one size."
            )
        if cfg.patch_outputs or cfg.maps or cfg.tokens:
            raise BadInput(
                "model.naflex: images of any aspect ratio have no common grid for feature maps or "
                "predictions of patches; give images of one size."
            )

    def _pooled_apart(
        self, tokens_BLD: jax.Array, segments_BL: jax.Array, images: int
    ) -> jax.Array:
        """Returns what the head reads of each image of a sequence, [B, S, D]."""
        cfg, first = self.cfg, images * self.cfg.prefix
        each_BS = jnp.broadcast_to(jnp.arange(images), (len(tokens_BLD), images))
        if cfg.pool == "map":
            from vit_jax.models import naflex

            bias = naflex.apart(each_BS, segments_BL)
            numbers = jnp.arange(tokens_BLD.shape[1])
            register = (numbers < first) & (numbers % max(cfg.prefix, 1) >= cfg.class_rows)
            bias += jnp.where(register, MASKED, 0.0)[None, None]
            return MapHead(cfg, self.rules, name="map_head")(tokens_BLD, bias)
        tokens_BSPD = tokens_BLD[:, :first].reshape(*each_BS.shape, cfg.prefix, cfg.width)
        if cfg.pool == "token":
            return tokens_BSPD[:, :, 0]
        own_BSL = each_BS[..., None] == segments_BL[:, None, first:]
        shares_BSL = own_BSL / jnp.maximum(jnp.sum(own_BSL, axis=2, keepdims=True), 1)
        patches_BLD = tokens_BLD[:, first:].astype(jnp.float32)
        mean_BSD = jnp.einsum("bsl,bld->bsd", shares_BSL, patches_BLD, precision="highest")
        mean_BSD = mean_BSD.astype(tokens_BLD.dtype)
        if cfg.pool == "gap":
            return mean_BSD
        return jnp.concatenate([tokens_BSPD[:, :, 0], mean_BSD], axis=-1)

    def _check_merging(self, real_BL: jax.Array | None, visible_BK: jax.Array | None) -> None:
        """Raises BadInput for a call that has no meaning with merged tokens."""
        asked = {
            "padding among the patches": real_BL is not None,
            "patches that are left out": visible_BK is not None,
            "the attention of each layer": self.is_mutable_collection("intermediates"),
        }
        for name, wanted in asked.items():
            if wanted:
                raise BadInput(
                    f"model.merge={self.cfg.merge}: tokens are merged, and there is no place for "
                    f"{name}; use the model without merging."
                )

    def _of_single_blocks(self, short: bool) -> dict[int, dict[str, Any]]:
        """Returns attributes of single blocks; a `short` last block gives its first token alone."""
        own: dict[int, dict[str, Any]] = {i: {"windowed": True} for i in self.cfg.windowed}
        if short and not self.is_mutable_collection("intermediates"):  # those are of all tokens
            own[self.cfg.depth - 1] = {"first": True}
        return own

    def _results(
        self,
        tokens_BLD: jax.Array,
        outputs: list[jax.Array],
        grid: tuple[int, int],
        shares_BL: jax.Array | None,
        bias_BL: jax.Array | None,
        *,
        bare: bool,
        apart: bool,
    ) -> Any:
        """Returns what the configuration asks for, see `__call__`; `bare`: the normed tokens.

        `shares_BL` are the shares of tokens in a mean: bool, whether they are real, or their sizes.
        """
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        norm = layers.norm("norm", cfg.norm, cfg.ln_epsilon, dtype)
        if cfg.maps:
            return layers.maps([norm(x)[:, cfg.prefix :] for x in outputs], grid)
        if cfg.final_norm == "tokens" or cfg.patch_outputs:
            tokens_BLD = norm(tokens_BLD)
        if bare:
            return tokens_BLD
        if cfg.patch_outputs:
            patches_BLD = tokens_BLD[:, cfg.prefix :]
            return layers.head(
                patches_BLD.astype(jnp.float32), cfg.patch_outputs, 0.0, name="patch_head"
            )
        pooled = self._pooled(tokens_BLD, shares_BL, bias_BL)
        pooled = [norm(x) for x in pooled] if cfg.final_norm == "pooled" else pooled
        if cfg.tokens:
            parts = [pooled[0][:, None], tokens_BLD[:, cfg.prefix :]]
            return jnp.concatenate(parts, axis=1).astype(jnp.float32)
        return self._logits(pooled, apart=apart)

    def _logits(self, pooled: list[jax.Array], *, apart: bool) -> jax.Array:
        """Returns the logits of what the heads read; those of two heads have equal shares.

        With `apart`, those of two heads are [B, 2, Y].
        """
        cfg, x_BD = self.cfg, pooled[0].astype(jnp.float32)
        if cfg.representation:
            x_BD = jnp.tanh(nn.Dense(cfg.representation, name="pre_logits")(x_BD))
        logits_BY = layers.head(x_BD, cfg.classes, cfg.head_bias)
        if not cfg.distillation:
            return logits_BY
        x_BD = pooled[1].astype(jnp.float32)
        taught_BY = layers.head(x_BD, cfg.classes, cfg.head_bias, name="dist_head")
        if apart:
            return jnp.stack([logits_BY, taught_BY], axis=1)
        return (logits_BY + taught_BY) / 2

    def _positioned(
        self, tokens_BLD: jax.Array, grid: tuple[int, int], size: tuple[int, int] | None
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the tokens with their positions, and the positions that every layer adds."""
        cfg = self.cfg
        if cfg.posemb in posemb.WITHOUT_TABLE or cfg.posemb_at == "every":
            return tokens_BLD, None
        if cfg.naflex and not self.is_initializing():
            from vit_jax.models import naflex

            of = naflex.layout(jnp.array([[grid]]), grid[0] * grid[1])
            return tokens_BLD + self._positions_of(of, 1).astype(tokens_BLD.dtype), None
        own = grid if size is None else cfg.patch_grid(*size)
        if cfg.naflex:
            own = cfg.naflex, cfg.naflex
        posemb_1LD = posemb.on_grid(position_table(cfg, self.param, own), grid, own)
        if cfg.posemb_at == "shared":
            return tokens_BLD, posemb_1LD
        return tokens_BLD + posemb_1LD.astype(tokens_BLD.dtype), None

    def _stem_norm(self, x_BLD: jax.Array, of: str) -> jax.Array:
        """Applies the norm of the stem where `model.stem_norm` says."""
        cfg = self.cfg
        if cfg.stem_norm != of:
            return x_BLD
        dtype = products.stream(cfg.dtype)
        return layers.norm("stem_norm", cfg.norm, cfg.ln_epsilon, dtype)(x_BLD)

    def _places(self, grid: tuple[int, int], key: jax.Array | None) -> jax.Array | None:
        """Returns the coordinates of the tokens for rotary positions, if the model has these."""
        cfg = self.cfg
        if cfg.rope == "none":
            return None
        from vit_jax.models import rope

        places_L2 = rope.coordinates(cfg.rope_coordinates, grid, cfg.prefix, cfg.rope_grid)
        if key is None or max(cfg.rope_jitter, cfg.rope_rescale) == 1:
            return places_L2
        key = jax.random.fold_in(key, 1)  # the key itself belongs to dropout
        return rope.scattered(places_L2, key, cfg.rope_jitter, cfg.rope_rescale)

    def _pooled(
        self, tokens_BLD: jax.Array, shares_BL: jax.Array | None, bias_BL: jax.Array | None
    ) -> list[jax.Array]:
        """Returns what the heads read, [B, D] each; two with a distillation token."""
        cfg, pool = self.cfg, self.cfg.pool
        if pool == "map":

            def without_registers(x: jax.Array) -> jax.Array:
                if not (cfg.class_rows and cfg.registers):
                    return x[:, cfg.registers :]
                return jnp.concatenate([x[:, : cfg.class_rows], x[:, cfg.prefix :]], axis=1)

            bias = None if bias_BL is None else without_registers(bias_BL)
            return [MapHead(cfg, self.rules, name="map_head")(without_registers(tokens_BLD), bias)]
        if pool == "token":
            return [tokens_BLD[:, i] for i in range(1 + cfg.distillation)]
        patches_BLD = tokens_BLD[:, cfg.prefix :]
        if shares_BL is None:
            mean_BD = jnp.mean(patches_BLD, axis=1)
        else:
            shares_BL1 = shares_BL[:, cfg.prefix :, None]
            weighted_BLD = patches_BLD * shares_BL1.astype(patches_BLD.dtype)
            total_BD = jnp.sum(jnp.where(shares_BL1 > 0, weighted_BLD, 0), axis=1)
            mean_BD = total_BD / jnp.maximum(jnp.sum(shares_BL1, axis=1), 1).astype(total_BD.dtype)
        if pool == "gap":
            return [mean_BD]
        return [jnp.concatenate([tokens_BLD[:, 0], mean_BD], axis=-1)]

    def _embed(
        self, images_BHWC: jax.Array, dtype: Any, source_BL: jax.Array | None, images: int = 1
    ) -> tuple[jax.Array, tuple[int, int]]:
        """Returns equation 1 without positions, and the grid of patches.

        Tokens are the class token, the distillation token, the registers and the patches. Several
        `images` in a sequence have all tokens before the patches, those of an image together.

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
            use_bias=cfg.stem_bias, conv_general_dilated=products.patches(self.rules, cfg.dtype),
            name="embedding",
        )(x_BHWC)  # fmt: skip
        batch, rows, columns, width = patches_BhwD.shape
        parts = [patches_BhwD.reshape(batch, rows * columns, width)]
        parts = [self._stem_norm(parts[0], "patches")]
        if cfg.patch_outputs or cfg.tokens:
            mask_11D = self.param("mask_token", nn.initializers.normal(0.02), (1, 1, width))
            if source_BL is not None:
                parts = [_corrupted(parts[0], source_BL, mask_11D.astype(dtype))]
        if cfg.registers:
            init, shape = nn.initializers.normal(1e-6), (1, cfg.registers, width)
            parts.insert(0, self._tiled(self.param("registers", init, shape), batch, dtype))
        if cfg.distillation:
            init, shape = nn.initializers.normal(0.02), (1, 1, width)
            parts.insert(0, self._tiled(self.param("dist", init, shape), batch, dtype))
        if cfg.class_rows:
            init = nn.initializers.normal(cfg.class_std) if cfg.class_std else nn.initializers.zeros
            cls_11D = self.param("cls", init, (1, 1, width))
            parts.insert(0, self._tiled(cls_11D, batch, dtype))
        return jnp.concatenate(parts[:-1] * images + parts[-1:], axis=1), (rows, columns)

    @staticmethod
    def _tiled(tokens_1RD: jax.Array, batch: int, dtype: Any) -> jax.Array:
        return jnp.tile(tokens_1RD.astype(dtype), (batch, 1, 1))


def _corrupted(patches_BLD: jax.Array, source_BL: jax.Array, mask_11D: jax.Array) -> jax.Array:
    """Replaces every patch by its source; -1 is the mask token."""
    source_BL1 = source_BL[..., None]
    taken_BLD = jnp.take_along_axis(patches_BLD, jnp.maximum(source_BL1, 0), axis=1)
    return jnp.where(source_BL1 < 0, mask_11D, taken_BLD)


def _keys(cfg: ViTConfig, key: jax.Array | None) -> Any:
    """Returns a key of the stem and one of the blocks; None twice if nothing is drawn."""
    rates = max(cfg.dropout, cfg.attention_dropout, cfg.drop_path, cfg.patch_dropout)
    rates += max(cfg.rope_jitter, cfg.rope_rescale) - 1
    return (None, None) if key is None or rates <= 0 else jax.random.split(key)


def _real(real_BL: jax.Array | None, seen_BK: jax.Array | None, prefix: int) -> jax.Array | None:
    """Returns which tokens are real, of patches those that are seen; None: all."""
    if real_BL is None:
        return None
    if seen_BK is not None:
        real_BL = jnp.take_along_axis(real_BL, seen_BK, axis=1)
    return jnp.pad(real_BL, ((0, 0), (prefix, 0)), constant_values=True)


def _drawn(cfg: ViTConfig, tokens_BLD: jax.Array, key: jax.Array | None) -> jax.Array | None:
    """Draws the patches of each image that the blocks see, int32 [B, K]; None: all."""
    if key is None or not cfg.patch_dropout:
        return None
    key = jax.random.fold_in(key, 2)  # the key itself belongs to dropout, 1 to rotary positions
    batch, patches = len(tokens_BLD), tokens_BLD.shape[1] - cfg.prefix
    order_BL = jnp.argsort(jax.random.uniform(key, (batch, patches)), axis=1)
    return order_BL[:, : cfg.kept(patches)]


def _only(tokens_BLD: jax.Array, visible_BK: jax.Array, prefix: int) -> jax.Array:
    """Returns the tokens before the patches, and the patches with these numbers."""
    patches_BKD = jnp.take_along_axis(tokens_BLD[:, prefix:], visible_BK[..., None], axis=1)
    return jnp.concatenate([tokens_BLD[:, :prefix], patches_BKD], axis=1)
