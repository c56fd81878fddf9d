# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""ResNets with group norm and weight standardisation: the backbones of hybrids and of BiT.

The two differ in more than the order of norm and convolution. A hybrid's is post-activation with
SAME padding (arXiv:2010.11929), BiT's is pre-activation with explicit padding (arXiv:1912.11370).
Axes: B batch, H W C. Start from `Backbone`.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from vit_jax.config.model_section import Compute, EpsilonIn, RootPool, Stem
from vit_jax.errors import BadInput
from vit_jax.models import layers, products, settings
from vit_jax.models.layers import Remat, rematerialised
from vit_jax.models.settings import ModelConfig, Settings
from vit_jax.sharding import Axes, Rules, constrain

GROUPS = 32
KEEPABLE = ("conv",)  # names that `layers.rematerialised` can keep

# ResNet-N -> units of each stage.
STAGES: dict[int, tuple[int, ...]] = {
    26: (2, 2, 2, 2),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}

# Parameter path pattern -> logical axes, see sharding.param_axes.
AXES: Axes = {
    r"conv(_root|_proj|\d)/kernel": (None, None, None, "embed"),
    r"norm(_root|_proj|\d)/(scale|bias)": ("embed",),
}


@dataclasses.dataclass(frozen=True)
class ResNetConfig:
    """The architecture of a backbone."""

    AXES: ClassVar[Axes] = AXES
    stages: tuple[int, ...]  # units of each stage; () is the root alone
    width: int  # channels of the root; a unit of stage s has width * 2^s inside, 4 times that out
    gn_epsilon: float
    ws_epsilon: float  # epsilon of weight standardisation
    ws_epsilon_in: EpsilonIn  # w / (std + epsilon), or w / sqrt(variance + epsilon)
    stem: Stem = "standard"  # standard: 7 x 7, stride 2, and a pool; small: 3 x 3 without a pool
    stem_stride: int = 1  # stride of a small stem
    root_pool: RootPool = "zero"  # padding of BiT's pool; a hybrid pools after ReLU

    @property
    def stride(self) -> int:
        """Returns the pixels per position of the output."""
        root = 4 if self.stem == "standard" else self.stem_stride
        return root * 2 ** max(0, len(self.stages) - 1)

    @property
    def features(self) -> int:
        """Returns the channels of the output."""
        return 4 * self.width * 2 ** (len(self.stages) - 1) if self.stages else self.width

    def pixel_filters(self, params: dict[str, Any]) -> jax.Array:
        """Returns the kernel on pixels [h, w, I, O] as it multiplies them, standardised."""
        kernel = jnp.asarray(params["backbone"]["conv_root"]["kernel"], jnp.float32)
        return standardised(kernel, self)

    def channel_multiply_adds(self, height: int, width: int) -> int:
        """Counts the multiply-adds of the root for each channel of an image."""
        side, stride = (7, 2) if self.stem == "standard" else (3, self.stem_stride)
        return -(-height // stride) * -(-width // stride) * side**2 * self.width

    def multiply_adds(self, height: int, width: int) -> int:
        """Counts the multiply-adds of root and stages for an RGB image.

        Convolutions of stride 2 round up with either padding.
        """
        stride = 2 if self.stem == "standard" else self.stem_stride
        h, w = -(-height // stride), -(-width // stride)
        macs = 3 * self.channel_multiply_adds(height, width)
        if self.stem == "standard":
            h, w = -(-h // 2), -(-w // 2)
        channels = self.width
        for s, count in enumerate(self.stages):
            inside, out = self.width * 2**s, 4 * self.width * 2**s
            for u in range(count):
                macs += h * w * channels * inside
                if s > 0 and u == 0:
                    h, w = -(-h // 2), -(-w // 2)
                if u == 0:
                    macs += h * w * channels * out  # projection
                macs += h * w * (9 * inside * inside + inside * out)
                channels = out
        return macs


@dataclasses.dataclass(frozen=True)
class ResNetModelConfig(ModelConfig):
    """What the models share that classify the last feature map of a backbone."""

    AXES: ClassVar[Axes] = layers.HEAD_AXES | layers.NORM_AXES
    FORMS: ClassVar[tuple[str, ...]] = ("remat",)
    RESNET: ClassVar[str] = "resnet"
    TILED: ClassVar[bool] = False
    resnet: ResNetConfig
    classes: int  # Y
    head_bias: float = 0.0
    dtype: Compute = "float32"
    remat: Remat = "none"
    maps: tuple[int, ...] = ()  # see `ModelConfig.for_maps`

    @property
    def levels(self) -> int:
        return len(self.resnet.stages)

    @property
    def stride(self) -> int:
        """Returns the pixels per position of the last feature map in each direction."""
        return self.resnet.stride

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs of one RGB image; see `variants.forward_flops`."""
        macs = self.resnet.multiply_adds(height, width)
        return 2 * (macs + self.resnet.features * self.classes)


def standardised(kernel_hwIO: jax.Array, cfg: ResNetConfig) -> jax.Array:
    """Returns the kernel [h, w, I, O] with mean 0 and variance 1 for each output channel."""
    kernel_hwIO = kernel_hwIO - jnp.mean(kernel_hwIO, axis=(0, 1, 2), keepdims=True)
    variance = jnp.mean(jnp.square(kernel_hwIO), axis=(0, 1, 2), keepdims=True)
    if cfg.ws_epsilon_in == "std":
        return kernel_hwIO / (jnp.sqrt(variance) + cfg.ws_epsilon)
    return kernel_hwIO / jnp.sqrt(variance + cfg.ws_epsilon)


class StdConv(nn.Module):
    """A convolution without bias whose kernel has mean 0 and variance 1 for each output channel.

    Attributes:
      cfg: the epsilon, and where to add it.
      features: output channels.
      side: side of the kernel.
      stride: stride in both directions.
      padding: `SAME`, or pixels on each side.
      dtype: `model.dtype`; the kernel is standardised in float32.
    """

    cfg: ResNetConfig
    features: int
    side: int
    stride: int
    padding: Literal["SAME"] | int
    dtype: Any

    @nn.compact
    def __call__(self, x_BHWC: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to [B, H', W', features]."""
        shape = (self.side, self.side, x_BHWC.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        kernel = standardised(kernel.astype(jnp.float32), self.cfg)
        pixels = self.padding
        padding = "SAME" if pixels == "SAME" else [(pixels, pixels), (pixels, pixels)]
        dtype = products.stream(self.dtype)
        if self.stride > 1 and self.side == 3:
            # Without it, libtpu 0.0.42.1 dies of the gradient after a group norm, on v6e and tpu7x.
            # 0.0.52 does not: to be removed with jax 0.10.
            x_BHWC = jax.lax.optimization_barrier(x_BHWC)
        out_BHWC = products.convolution(self.dtype)(
            x_BHWC.astype(dtype),
            kernel.astype(dtype),
            (self.stride, self.stride),
            padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return checkpoint_name(out_BHWC, "conv")


def group_norm(
    cfg: ResNetConfig, name: str, dtype: Any, scale_init: Any = nn.initializers.ones
) -> nn.GroupNorm:
    """Makes a GroupNorm of 32 groups that computes the variance in two passes."""
    return nn.GroupNorm(
        GROUPS,
        epsilon=cfg.gn_epsilon,
        dtype=products.stream(dtype),
        use_fast_variance=False,
        scale_init=scale_init,
        name=name,
    )


def projected(cfg: ResNetConfig, x_BHWC: jax.Array, out: int, stride: int, dtype: Any) -> jax.Array:
    """Returns what a post-activation unit adds its result to, [B, H / stride, W / stride, out]."""
    if x_BHWC.shape[-1] == out and stride == 1:
        return x_BHWC
    x_BHWC = StdConv(cfg, out, 1, stride, "SAME", dtype, name="conv_proj")(x_BHWC)
    return group_norm(cfg, "norm_proj", dtype)(x_BHWC)


class PostActUnit(nn.Module):
    """Bottleneck unit of hybrids: convolution, norm, ReLU; the last ReLU follows the sum.

    Attributes:
      cfg: the constants.
      inside: channels of the 3 x 3 convolution; the output has 4 times as many.
      stride: stride of the 3 x 3 convolution.
      dtype: `model.dtype`.
      rules: placement of activations.
    """

    cfg: ResNetConfig
    inside: int
    stride: int
    dtype: Any
    rules: Rules | None

    @nn.compact
    def __call__(self, x_BHWC: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to [B, H / stride, W / stride, 4 inside]."""
        cfg, out = self.cfg, 4 * self.inside
        conv = lambda features, side, stride, name: StdConv(  # noqa: E731
            cfg, features, side, stride, "SAME", self.dtype, name=name
        )
        rest = projected(cfg, x_BHWC, out, self.stride, self.dtype)
        y = nn.relu(group_norm(cfg, "norm1", self.dtype)(conv(self.inside, 1, 1, "conv1")(x_BHWC)))
        y = conv(self.inside, 3, self.stride, "conv2")(y)
        y = nn.relu(group_norm(cfg, "norm2", self.dtype)(y))
        y = conv(out, 1, 1, "conv3")(y)
        y = group_norm(cfg, "norm3", self.dtype, nn.initializers.zeros)(y)
        return constrain(nn.relu(rest + y), ("act_batch", None, None, None), self.rules)


class PreActUnit(nn.Module):
    """Bottleneck unit of BiT: norm, ReLU, convolution; the projection takes the activated input.

    Attributes: same as those of `PostActUnit`.
    """

    cfg: ResNetConfig
    inside: int
    stride: int
    dtype: Any
    rules: Rules | None

    @nn.compact
    def __call__(self, x_BHWC: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to [B, H / stride, W / stride, 4 inside]."""
        cfg, out = self.cfg, 4 * self.inside
        y = nn.relu(group_norm(cfg, "norm1", self.dtype)(x_BHWC))
        rest = x_BHWC
        if x_BHWC.shape[-1] != out or self.stride != 1:
            rest = StdConv(cfg, out, 1, self.stride, 0, self.dtype, name="conv_proj")(y)
        y = StdConv(cfg, self.inside, 1, 1, 0, self.dtype, name="conv1")(y)
        y = nn.relu(group_norm(cfg, "norm2", self.dtype)(y))
        y = StdConv(cfg, self.inside, 3, self.stride, 1, self.dtype, name="conv2")(y)
        y = nn.relu(group_norm(cfg, "norm3", self.dtype)(y))
        y = StdConv(cfg, out, 1, 1, 0, self.dtype, name="conv3")(y)
        return constrain(rest + y, ("act_batch", None, None, None), self.rules)


class Backbone(nn.Module):
    """The root and the stages of a ResNet.

    Attributes:
      cfg: the architecture.
      unit: `PostActUnit` for a hybrid, `PreActUnit` for BiT, or another with their attributes.
      remat: policy for each unit; see `layers.rematerialised`.
      dtype: `model.dtype`.
      rules: placement of activations.
    """

    cfg: ResNetConfig
    unit: type[nn.Module]
    remat: Remat
    dtype: Any
    rules: Rules | None

    @nn.compact
    def __call__(self, images_BHWC: jax.Array) -> list[jax.Array]:
        """Maps [B, H, W, C] to the outputs of the root and of each stage.

        The last one is [B, H / stride, W / stride, features].
        """
        x_BHWC = self._root(images_BHWC)
        outputs = [x_BHWC]
        unit: Any = rematerialised(self.unit, self.remat, inside_scan=False)
        for s, count in enumerate(self.cfg.stages):
            for u in range(count):
                stride = 2 if s > 0 and u == 0 else 1
                x_BHWC = unit(
                    self.cfg, self.cfg.width * 2**s, stride, self.dtype, self.rules,
                    name=f"stage{s + 1}_unit{u + 1}",
                )(x_BHWC)  # fmt: skip
            outputs.append(x_BHWC)
        return outputs

    def _root(self, x_BHWC: jax.Array) -> jax.Array:
        cfg, bit = self.cfg, self.unit is PreActUnit
        side, stride = (7, 2) if cfg.stem == "standard" else (3, cfg.stem_stride)
        padding = side // 2 if bit else "SAME"
        x_BHWC = StdConv(cfg, cfg.width, side, stride, padding, self.dtype, name="conv_root")(
            x_BHWC
        )
        if not bit:
            x_BHWC = nn.relu(group_norm(cfg, "norm_root", self.dtype)(x_BHWC))
        if cfg.stem == "small":
            return x_BHWC
        if not bit:
            return nn.max_pool(x_BHWC, (3, 3), (2, 2), "SAME")
        edge = 0.0 if cfg.root_pool == "zero" else -jnp.inf
        padding = ((0, 0), (1, 1), (1, 1), (0, 0))
        x_BHWC = jnp.pad(x_BHWC, padding, constant_values=edge)
        return nn.max_pool(x_BHWC, (3, 3), (2, 2), "VALID")


# ---------------------------------------------------------------- configuration


def config(wanted: Settings, stages: tuple[int, ...], width: int, *, bit: bool) -> ResNetConfig:
    """Makes the backbone, with the constants of the published BiT models or hybrids."""
    if width % GROUPS or width < 1:
        low = max(1, width // GROUPS) * GROUPS
        raise BadInput(
            f"model.root_width={width} is not a multiple of the {GROUPS} groups of its "
            f"norms; use {low} or {low + GROUPS}."
        )
    if wanted.stem_stride not in ((0, 1, 2) if wanted.stem == "small" else (0,)):
        raise BadInput(
            f"model.stem_stride={wanted.stem_stride} with stem={wanted.stem}: a small stem has "
            "stride 1 or 2, the standard one its own; leave it out or set model.stem=small."
        )
    gn, ws, inside = (1e-5, 1e-10, "variance") if bit else (1e-6, 1e-5, "std")
    return ResNetConfig(
        stages=stages,
        width=width,
        gn_epsilon=wanted.gn_epsilon or gn,
        ws_epsilon=wanted.ws_epsilon or ws,
        ws_epsilon_in=inside if wanted.ws_epsilon_in == "auto" else wanted.ws_epsilon_in,  # type: ignore[arg-type]
        stem=wanted.stem,  # type: ignore[arg-type]
        stem_stride=wanted.stem_stride or 1,
        root_pool="zero" if wanted.root_pool == "auto" else wanted.root_pool,  # type: ignore[arg-type]
    )


def hybrid(wanted: Settings, layers: str, pixels: int) -> tuple[ResNetConfig, int]:
    """Returns a hybrid's backbone and its patch side on the feature map, for `pixels` per token.

    With stride 16, the units of stage 4 move into stage 3, so R50+B/16 has stages 3, 4, 9. Section
    4.1 of the paper keeps the depth too. The published name R+Ti/16 counts a root alone as stride
    2, although its pool makes the stride 4. It therefore has 8 x 8 patches, and in fact 32 pixels
    per token.
    """
    if layers and int(layers) not in STAGES:
        raise settings.unknown_variant(wanted.variant)
    stages = wanted.stages or (STAGES[int(layers)] if layers else ())
    if not wanted.stages and len(stages) == 4 and pixels == 16:
        stages = (*stages[:2], stages[2] + stages[3])
    stride = 4 * 2 ** (len(stages) - 1) if stages else 2
    if pixels % stride:
        raise BadInput(
            f"model {wanted.variant}: stages {stages} have stride {stride}, which does not divide "
            f"{pixels}; use /{-(-pixels // stride) * stride} or fewer stages (model.stages)."
        )
    backbone = config(wanted, stages, wanted.root_width or 64, bit=False)
    return backbone, pixels // stride
