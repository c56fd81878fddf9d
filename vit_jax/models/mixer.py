# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""MLP-Mixer (arXiv:2105.01601).

Axes: B batch, H W C image, L tokens, D width, Y classes. Parameters: `embedding`, `blocks` (stacked
over layers; `block_0`, ... without scan), `norm`, `head`. The number of tokens is part of the
model, so a model fits only one image size. Start from `Mixer.__call__`.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.config.model_section import Compute, Gelu
from vit_jax.models import layers, products, settings
from vit_jax.models.layers import Layer, Mlp, Remat, dropout, layer_norm
from vit_jax.models.settings import Settings, TokenConfig, only_filters
from vit_jax.sharding import Axes, Rules, constrain

# name -> (width D, layers S, MLP over channels, MLP over tokens): arXiv:2105.01601, Table 1.
SIZES: dict[str, tuple[int, int, int, int]] = {
    "S": (512, 8, 2048, 256),
    "B": (768, 12, 3072, 384),
    "L": (1024, 24, 4096, 512),
}

# Parameter path pattern -> logical axes, see sharding.param_axes. The axis of tokens is never
# split.
AXES: Axes = {
    r"token_mlp/up/kernel": (None, "mlp"),
    r"token_mlp/down/kernel": ("mlp", None),
    r"token_mlp/down/bias": (None,),
    r"(token|channel)_mlp/up/bias": ("mlp",),
    r"channel_mlp/up/kernel": ("embed", "mlp"),
    r"channel_mlp/down/kernel": ("mlp", "embed"),
    r"channel_mlp/down/bias": ("embed",),
    **layers.STEM_AXES,
    **layers.HEAD_AXES,
    **layers.NORM_AXES,
}


@dataclasses.dataclass(frozen=True)
class MixerConfig(TokenConfig):
    """The architecture of a Mixer; `variants.config` builds one from a name."""

    AXES: ClassVar[Axes] = AXES
    FAMILY: ClassVar[Literal["mixer"]] = "mixer"
    patch: int  # P, pixels
    width: int  # D
    depth: int  # S
    mlp: int  # MLP width over channels
    token_mlp: int  # MLP width over tokens
    classes: int  # Y
    head_bias: float = 0.0
    drop_path: float = 0.0  # rate of the last block; the first has 0, linear in between
    gelu: Gelu = "tanh"
    ln_epsilon: float = 1e-6
    dtype: Compute = "float32"
    scan: bool = True
    unrolled: bool = False  # layers computed one by one: see `layers.apply_blocks`
    remat: Remat = "none"
    maps: tuple[int, ...] = ()  # see `ModelConfig.for_maps`

    @property
    def stride(self) -> int:
        """Returns the pixels per token in each direction."""
        return self.patch

    def make(self, rules: Rules | None) -> "Mixer":
        """Makes the model."""
        return Mixer(self, rules)

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs of one RGB image; see `variants.forward_flops`."""
        tokens, d = (height // self.patch) * (width // self.patch), self.width
        block = 2 * d * tokens * self.token_mlp + 2 * tokens * d * self.mlp
        macs = tokens * self.patch**2 * 3 * d + self.depth * block + d * self.classes
        return 2 * macs

    def in_words(self) -> str:
        return f"an MLP-Mixer of {self.depth} layers"

    def lacking_figures(self) -> list[str]:
        return only_filters("MLP-Mixer")

    def patches_of(self, flat: Any) -> int:
        return flat["block_0/token_mlp/up/kernel"].shape[0]


class MixerBlock(nn.Module):
    """One layer: x + MLP over tokens, then x + MLP over channels, each after LayerNorm."""

    ROUNDS_KERNELS: ClassVar[bool] = True  # see `layers.apply_blocks`
    cfg: MixerConfig
    rules: Rules | None

    @nn.compact
    def __call__(self, x_BLD: jax.Array, layer: Layer, shared: None) -> tuple[jax.Array, None]:
        """Computes one layer; `shared` is unused."""
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        rate, keys = (0.0, [None] * 2) if layer is None else (layer[0], jax.random.split(layer[1]))

        def mlp(hidden: int, name: str) -> Mlp:
            zeros, lecun = nn.initializers.zeros, nn.initializers.lecun_normal()
            return Mlp(hidden, cfg.gelu, 0.0, cfg.dtype, self.rules, lecun, zeros, name=name)

        y_BDL = layer_norm("token_norm", cfg.ln_epsilon, dtype)(x_BLD).swapaxes(1, 2)
        y_BLD = mlp(cfg.token_mlp, "token_mlp")(y_BDL, None).swapaxes(1, 2)
        x_BLD = x_BLD + dropout(y_BLD, rate, keys[0], per_example=True)
        y_BLD = layer_norm("channel_norm", cfg.ln_epsilon, dtype)(x_BLD)
        y_BLD = mlp(cfg.mlp, "channel_mlp")(y_BLD, None)
        x_BLD = x_BLD + dropout(y_BLD, rate, keys[1], per_example=True)
        return constrain(x_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules), None


class Mixer(nn.Module):
    """A model that maps images to logits.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None without a mesh.
    """

    cfg: MixerConfig
    rules: Rules | None = None

    @nn.compact
    def __call__(
        self, images_BHWC: jax.Array, *, train: bool = False, key: jax.Array | None = None
    ) -> Any:
        """Returns the logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, C] of the size that the parameters were made for.
          train: whether stochastic depth is active.
          key: typed key, needed in training if `drop_path` is above 0.

        Returns:
          float32 [B, Y]; for a model that gives feature maps, a tuple of [B, rows, columns, D].
        """
        cfg, dtype = self.cfg, products.stream(self.cfg.dtype)
        key = key if train and cfg.drop_path > 0 else None
        patches_BhwD = nn.Conv(
            cfg.width, (cfg.patch, cfg.patch), (cfg.patch, cfg.patch), "VALID", dtype=dtype,
            conv_general_dilated=products.patches(self.rules, cfg.dtype), name="embedding",
        )(images_BHWC.astype(dtype))  # fmt: skip
        x_BLD = patches_BhwD.reshape(patches_BhwD.shape[0], -1, cfg.width)
        x_BLD = constrain(x_BLD, ("act_batch", "act_tokens", "act_embed"), self.rules)
        attributes = (cfg, self.rules)
        x_BLD, outputs = layers.apply_blocks(self, MixerBlock, attributes, x_BLD, cfg, key)
        norm = layer_norm("norm", cfg.ln_epsilon, dtype)
        if cfg.maps:
            return layers.maps([norm(x) for x in outputs], patches_BhwD.shape[1:3])
        x_BLD = norm(x_BLD)
        return layers.head(jnp.mean(x_BLD.astype(jnp.float32), axis=1), cfg.classes, cfg.head_bias)


def config(wanted: Settings, classes: int, size: str, patch: str) -> MixerConfig:
    """Returns the configuration that settings describe, for `Mixer-SIZE/PATCH`.

    Raises:
      BadInput: a setting does not fit.
    """
    settings.refuse_others(wanted, settings.TOKENS | {"token_mlp"})
    layers.check_remat(wanted.remat, layers.KEEPABLE)
    numbers = settings.sizes(wanted, size, SIZES, ("width", "depth", "mlp", "token_mlp"))
    if int(patch) < 1:
        raise settings.unknown_variant(wanted.variant)
    shared = settings.shared_fields(wanted, "drop_path", "gelu", "ln_epsilon", "scan")
    return MixerConfig(patch=int(patch), classes=classes, **numbers, **shared)
