# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The configuration of a Vision Transformer: sizes, options, FLOPs, and what goes together.

Start from `config`, which makes a `ViTConfig` from the section `model`.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from vit_jax.config.model_section import (
    Biases,
    Compute,
    FinalNorm,
    Gate,
    Gelu,
    NaFlexFilter,
    Norm,
    NormAt,
    Pool,
    Posemb,
    PosembAt,
    Rope,
    RopeCoordinates,
    StemNorm,
)
from vit_jax.errors import BadInput
from vit_jax.models import (
    attention,
    layers,
    mup,
    posemb,
    settings,
    vit_flops,
    vit_options,
    windows,
)
from vit_jax.models.attention import ATTENTION_AXES, Extras, Path
from vit_jax.models.layers import HEAD_AXES, MLP_AXES, NORM_AXES, STEM_AXES, Remat
from vit_jax.models.settings import Settings, TokenConfig
from vit_jax.models.vit_options import OPTIONS
from vit_jax.sharding import Axes, Rules

if TYPE_CHECKING:
    from vit_jax.models import resnet
    from vit_jax.models.vit import ViT

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
    r"dist": (None, None, "embed"),
    r"(attn|mlp)_scale": ("embed",),
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
    FORMS: ClassVar[tuple[str, ...]] = ("unrolled", "attention", "in_order", "remat")
    RESNET: ClassVar[str] = "backbone"
    patch: int  # P, in pixels; for a hybrid, in positions of its feature map
    width: int  # D
    depth: int  # S
    mlp: int  # F
    heads: int  # N
    classes: int  # Y
    pool: Pool = "token"
    pool_heads: int = 0  # heads of attention pooling; 0: those of the blocks
    pool_mlp: int = 0  # width of its MLP; 0: that of the blocks
    class_token: bool = False  # keeps the class token of a pool that does not read it
    distillation: bool = False  # a second class token, with a head of its own
    posemb: Posemb = "learned1d"
    posemb_at: PosembAt = "stem"
    posemb_std: float = 0.02  # standard deviation of the initial position embeddings
    class_std: float = 0.0  # standard deviation of the initial class token
    registers: int = 0  # number of tokens without a patch (arXiv:2309.16588)
    rope: Rope = "none"  # see `models.rope`
    rope_base: float = 100.0
    rope_coordinates: RopeCoordinates = "unit"
    rope_grid: int = 0
    rope_jitter: float = 1.0
    rope_rescale: float = 1.0
    stem_bias: bool = True
    stem_norm: StemNorm = "none"
    norm: Norm = "layer"
    norm_at: NormAt = "pre"
    final_norm: FinalNorm = "tokens"
    parallel: bool = False  # attention and MLP at once (arXiv:2302.05442, equations 1 to 3)
    layer_scale: float = 0.0  # initial factors of the branches (arXiv:2103.17239); 0: none
    qk_norm: bool = False
    gate: Gate = "none"
    mlp_norm: bool = False
    biases: Biases = "all"
    representation: int = 0  # width of the tanh pre-logits layer; 0 leaves it out
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0  # rate of the last block; the first has 0, linear in between
    patch_dropout: float = 0.0  # share of patches left out in training (arXiv:2208.07220)
    naflex: int = 0  # side of a table of positions for images of any aspect ratio; see `naflex`
    naflex_filter: NaFlexFilter = "bilinear"
    naflex_square: bool = False
    merge: int = 0  # pairs of tokens that each layer merges, see `merging`
    window: int = 0  # side in patches of the windows of most blocks, see `windows`; 0: no windows
    global_blocks: int = 4
    gelu: Gelu = "tanh"
    ln_epsilon: float = 1e-6
    dtype: Compute = "float32"
    scan: bool = True
    unrolled: bool = False  # layers computed one by one: see `layers.apply_blocks`
    remat: Remat = "none"
    attention: Path = "plain"
    in_order: bool = False  # unrolled layers get tokens in one memory order: `unrolled_blocks`
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
    def attends(self) -> bool:
        return not self.naflex  # whose patches are not at their places in the image

    @property
    def class_rows(self) -> int:
        """Returns how many class tokens stand before the registers, and have positions."""
        return int(self.class_token or self.pool in ("token", "token+gap")) + self.distillation

    @property
    def two_heads(self) -> bool:
        return self.distillation

    @property
    def prefix(self) -> int:
        """Returns how many tokens without a patch stand before the patches."""
        return self.class_rows + self.registers

    @property
    def pooled_width(self) -> int:
        """Returns the width of what the head reads."""
        return 2 * self.width if self.pool == "token+gap" else self.width

    def extras(self, grid: tuple[int, int]) -> Extras:
        """Returns the options of the attention in a block, for a grid of patches."""
        offsets = (grid, self.class_rows) if self.posemb == "relative2d" else None
        norm = self.norm if self.qk_norm else ""
        return Extras(
            norm, self.ln_epsilon, self.biases, self.rope, self.rope_base, offsets,
            mup.query_scale(self),
        )  # fmt: skip

    @property
    def windowed(self) -> tuple[int, ...]:
        """Returns the numbers, from 0 on, of the blocks with windows."""
        return windows.numbers(self.depth, self.global_blocks) if self.window else ()

    @property
    def last_is_short(self) -> bool:
        """Returns True if the last block computes only the first token, which the head reads.

        This is False with dropout, because the scan would draw other numbers.
        """
        more = self.patch_outputs or self.maps or self.tokens or self.distillation
        of_one = self.pool == "token" and not more
        return (
            self.scan and self.unrolled and of_one and not (self.dropout or self.attention_dropout)
        )

    def make(self, rules: Rules | None) -> "ViT":
        """Makes the model."""
        from vit_jax.models import vit

        return vit.ViT(self, rules)

    @property
    def shrinks(self) -> bool:
        return self.merge > 0

    def kept(self, patches: int) -> int:
        """Returns how many of the patches of an image the blocks see in training."""
        return kept(self.patch_dropout, patches)

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs of one RGB image; see `variants.forward_flops`."""
        return vit_flops.flops(self, height, width, math.prod(self.patch_grid(height, width)))

    def training_flops(self, height: int, width: int) -> int:
        if not self.patch_dropout:
            return self.forward_flops(height, width)
        return vit_flops.flops(
            self, height, width, self.kept(math.prod(self.patch_grid(height, width)))
        )

    def packed_flops(self, height: int, width: int, images: float) -> int:
        """Returns the FLOPs of a row of RGB pixels for `images` images on average."""
        from vit_jax.models import naflex

        seen = math.prod(self.patch_grid(height, width))
        return vit_flops.flops(self, height, width, seen, naflex.slots(images))

    def stream_size(self, height: int, width: int) -> int:
        return self.depth * self.kept(math.prod(self.patch_grid(height, width))) * self.width

    def in_words(self) -> str:
        kind, side = "hybrid" if self.backbone else "ViT", self.stride
        return (
            f"a {kind} of {self.depth} layers with {self.heads} heads, {side} x {side} pixels a "
            "patch"
        )

    def parameter_grid(self, height: int, width: int) -> tuple[int, int]:
        side = self.naflex
        return (side, side) if side else self.patch_grid(height, width)

    def at_patch(self, patch: int) -> Self:
        if self.backbone is not None:
            return super().at_patch(patch)
        return dataclasses.replace(self, patch=patch)

    def fused_refusal(self) -> str:
        if self.naflex:
            return f"fused attention has no mask for padding (model.naflex={self.naflex})"
        relative = self.posemb in ("relative", "relative2d")
        return attention.not_fused(dropout=self.attention_dropout, relative=relative)

    def for_images(self, classes: int) -> "ViTConfig":
        return dataclasses.replace(self, classes=classes, patch_outputs=0, maps=(), tokens=False)

    @property
    def predicts_patches(self) -> bool:
        return self.pool in ("token", "gap") and not self.distillation

    def _check_whole(self, needed: str) -> None:
        """Raises BadInput if layers merge tokens, which then have no place in the image."""
        if self.merge:
            raise BadInput(
                f"model.merge={self.merge}: merged tokens have no place in the image, and {needed} "
                "need one; leave model.merge out."
            )

    def for_patches(self, outputs: int) -> "ViTConfig":
        self._check_whole("predictions of patches")
        return dataclasses.replace(self, classes=0, patch_outputs=outputs, patch_dropout=0.0)

    def for_maps(self, levels: tuple[int, ...]) -> Self:
        self._check_whole("feature maps")
        return dataclasses.replace(super().for_maps(levels), patch_dropout=0.0)

    def for_tokens(self) -> "ViTConfig":
        self._check_whole("tokens of views")
        if self.pool not in ("token", "gap") or self.distillation:
            raise BadInput(
                f"model.pool={self.pool}, distillation={self.distillation}: tokens of views need "
                "pool=token or gap, without a distillation token."
            )
        if self.final_norm == "pooled":
            raise BadInput(
                "model.final_norm=pooled norms no patches, and views are compared by these too; "
                "use final_norm=tokens."
            )
        if self.posemb in ("relative", "relative2d") or self.posemb_at == "every":
            raise BadInput(
                f"model.posemb={self.posemb} at {self.posemb_at}: views of several sizes need "
                "position embeddings at the stem, not relative ones."
            )
        return dataclasses.replace(
            self.for_images(0), representation=0, tokens=True, patch_dropout=0.0
        )

    def lacking_figures(self) -> list[str]:
        if self.naflex:
            return ["Images of any aspect ratio have no common grid to draw attention on (naflex)."]
        rotary = f"{self.rope} rope" if self.rope != "none" else ""
        return posemb.without_embeddings(self.posemb, rotary)

    @property
    def published_heads(self) -> int:
        return self.heads

    def unwritten(self, weight_format: str) -> str:
        kinds = ("learned1d", "sincos2d") if weight_format == "big_vision" else ("learned1d",)
        shown = self.posemb in kinds and self.posemb_at == "stem"
        shown |= self.posemb == "none" and self.rope != "none"
        shown |= self.posemb == "relative2d" and weight_format == "timm"  # its BEiT
        positions = "" if shown else f"posemb={self.posemb} at {self.posemb_at}"
        return super().unwritten(weight_format) or mup.unwritten(self) or positions

    def unheld(self, constants: Any, takes: frozenset[str], *, everything: bool) -> list[str]:
        keys = {*OPTIONS, *(("pool", "registers") if everything else ())}
        keys -= takes | {"rope_jitter", "rope_rescale", "patch_dropout"}  # only training has these
        if "relative2d" in (self.posemb, constants.get("posemb")):
            keys.add("posemb")
        usual = {field.name: field.default for field in dataclasses.fields(self)}

        def differs(key: str) -> bool:
            value, want = getattr(self, key), constants.get(key, usual[key])
            return bool(value) != bool(want) if key == "layer_scale" else value != want

        ordered = sorted(keys, key=lambda key: (key != "posemb", key))  # it tells a family
        return [f"{key}={getattr(self, key)}" for key in ordered if differs(key)]

    def patches_of(self, flat: Any) -> int:
        if "block_0/attn/relative_bias" in flat:
            offsets = flat["block_0/attn/relative_bias"].shape[0] - 3 * self.class_rows
            if not (side := attention.side_of(offsets)):
                raise BadInput(f"{offsets} offsets are not those of a square image; keep the run.")
            return side**2
        if "posemb" not in flat:  # made for any size; that of most evaluations
            return (max(224, 2 * self.stride) // self.stride) ** 2
        return flat["posemb"].shape[1] - self.class_rows


def kept(share_left_out: float, patches: int) -> int:
    """Returns how many patches are left, rounded down, but at least 1."""
    return max(1, math.floor((1.0 - share_left_out) * patches + 1e-6))


# ---------------------------------------------------------------- from settings


_TAKES = settings.TOKENS | {"heads", "pool", "posemb", "posemb_at", "posemb_std", "registers"}
_TAKES |= {"representation", "dropout", "attention_dropout", "attention"}
_TAKES |= set(OPTIONS)
_PIXELS = {"mup_base_width", "naflex_filter", "naflex_square"}  # not of hybrids


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
    takes = _TAKES | _PIXELS if units is None else _TAKES - _PIXELS | settings.BACKBONE
    settings.refuse_others(wanted, takes)
    keepable = attention.KEEPABLE + layers.KEEPABLE
    if units is not None:
        from vit_jax.models import resnet

        keepable += resnet.KEEPABLE
    if wanted.gate != "none":
        keepable += layers.GATE_KEEPABLE
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
    if wanted.rope != "none":
        from vit_jax.models import rope

        rope.check(wanted.rope, numbers["width"], numbers["heads"])
    vit_options.check(wanted, numbers["width"], hybrid=backbone is not None)
    if wanted.window and wanted.global_blocks >= numbers["depth"]:
        raise BadInput(
            f"model.global_blocks={wanted.global_blocks}: none of the {numbers['depth']} layers is "
            "left for model.window; give a smaller number."
        )
    fields = (*OPTIONS, "pool", "posemb", "posemb_at", "posemb_std", "registers", "representation")
    fields += ("dropout", "attention_dropout", "drop_path", "gelu", "ln_epsilon", "scan")
    shared = settings.shared_fields(wanted, *fields, "mup_base_width")
    cfg = ViTConfig(patch=side, classes=classes, backbone=backbone, **numbers, **shared)
    if wanted.attention != "fused":
        return cfg
    if why := cfg.fused_refusal():
        raise BadInput(f"model.attention=fused: {why}; leave model.attention out.")
    return dataclasses.replace(cfg, attention="xla")  # `build` may choose a better path
