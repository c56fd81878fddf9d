# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""AxialResNet (arXiv:2003.07853): a ResNet whose 3 x 3 convolutions are attention along two axes.

`AxialResNet50` is the baseline of Figure 13 of arXiv:2010.11929, by the code that its authors
published later (google-research/scenic, projects/baselines): group norm and weight standardisation
in place of batch norm, 8 heads, the widths of a ResNet-50. `AxialResNet-S` has the widths of
arXiv:2003.07853: half of the channels of a ResNet-50, and twice as many inside a unit. Axes: B
batch, H W C, L positions of a line, N heads, K head dim. Parameters: `backbone`, `head`. Embeddings
of offsets fit one image size. Start from `AxialUnit`.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from vit_jax.models import layers, products, resnet, settings
from vit_jax.models.settings import Settings
from vit_jax.sharding import Axes, Rules, constrain

SIZES = {"50": (64, 1), "-S": (32, 2)}  # name -> channels of the root, `widening`
GN_EPSILON = 1e-4  # of the published code
KEEPABLE = (*resnet.KEEPABLE, "qkv", "weights", "attention")  # names that `remat` can keep


@dataclasses.dataclass(frozen=True)
class AxialBackbone(resnet.ResNetConfig):
    """The architecture of the root and the stages."""

    AXES: ClassVar[Axes] = resnet.AXES | {
        r"(height|width)/qkv/kernel": (None, "embed"),
        r"(height|width)/relative": (None, None),
    }
    widening: int = 1  # channels inside a unit, as a multiple of those of a ResNet
    heads: int = 8  # N

    def multiply_adds(self, height: int, width: int) -> int:
        """Counts the multiply-adds of root and stages for an RGB image.

        A position and a key cost 3.5 C: C / 2 for each of three scores, C for the value and C for
        its offset.
        """
        root = dataclasses.replace(self, stages=())
        macs = resnet.ResNetConfig.multiply_adds(root, height, width)
        h, w = (-(-side // root.stride) for side in (height, width))
        channels = self.width
        for s, count in enumerate(self.stages):
            inside, out = self.widening * self.width * 2**s, 4 * self.width * 2**s
            for u in range(count):
                lines = 4 * inside * inside + 7 * (h + w) * inside // 2
                macs += h * w * (channels * inside + lines)
                if s > 0 and u == 0:
                    h, w = -(-h // 2), -(-w // 2)
                if channels != out or (s > 0 and u == 0):
                    macs += h * w * channels * out  # projection
                macs += h * w * inside * out
                channels = out
        return macs


@dataclasses.dataclass(frozen=True)
class AxialResNetConfig(resnet.ResNetModelConfig):
    """The architecture of an AxialResNet; `variants.config` builds one from a name."""

    FAMILY: ClassVar[Literal["axial_resnet"]] = "axial_resnet"

    def make(self, rules: Rules | None) -> "AxialResNet":
        """Makes the model."""
        return AxialResNet(self, rules)

    def in_words(self) -> str:
        return f"an AxialResNet of {sum(self.resnet.stages)} units"

    def lacking_figures(self) -> list[str]:
        return [
            "The figures of positions and attention are those of patches. Of an AxialResNet, only "
            "its filters are shown."
        ]


class LineAttention(nn.Module):
    """Position-sensitive attention along one axis of a feature map (arXiv:2003.07853, equation 4).

    Queries and keys have half as many channels as values. Embeddings of the offset between two
    positions, shared by all heads, add to the scores of queries and of keys, and to the values. As
    in the published code, norms follow the projection and the attention, each over one line, and
    take the place of a scale of the scores. In that code the key beside an offset is the one of the
    query's own position; here, as in the equation, it is the one that the query attends to.

    Attributes:
      cfg: constants and heads.
      along: the axis, 1 (`height`) or 2 (`width`).
      dtype: `model.dtype`, of the projection and of the result; the rest is float32.
    """

    cfg: AxialBackbone
    along: Literal[1, 2]
    dtype: Any

    @nn.compact
    def __call__(self, x_BHWC: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to the same shape; 8 heads of an even number of channels divide C."""
        x_BMLC = x_BHWC.swapaxes(1, 2) if self.along == 1 else x_BHWC  # M lines of L positions
        lines_XLC = x_BMLC.reshape(-1, *x_BMLC.shape[2:])
        length, channels = lines_XLC.shape[1:]
        head_dim = channels // self.cfg.heads
        dense = nn.Dense(
            2 * channels,
            use_bias=False,
            dtype=products.stream(self.dtype),
            dot_general=products.product(None, self.dtype),
            name="qkv",
        )
        qkv_XLC = checkpoint_name(dense(lines_XLC), "qkv")
        qkv_XLC = resnet.group_norm(self.cfg, "qkv_norm", jnp.float32)(qkv_XLC)
        qkv_XLNK = qkv_XLC.reshape(-1, length, self.cfg.heads, 2 * head_dim)

        init, shape = nn.initializers.normal(1 / head_dim), (2 * length - 1, 2 * head_dim)
        table_RK = self.param("relative", init, shape)
        offset_LL = jnp.arange(length)[None] - jnp.arange(length)[:, None] + length - 1  # key-query
        parts = [head_dim // 2, head_dim]
        query, key, value = jnp.split(qkv_XLNK, parts, axis=-1)
        of_query, of_key, of_value = jnp.split(table_RK[offset_LL], parts, axis=-1)
        scores = jnp.einsum("xink,xjnk->xnij", query, key)
        scores += jnp.einsum("xink,ijk->xnij", query, of_query)
        scores += jnp.einsum("xjnk,ijk->xnij", key, of_key)
        weights = checkpoint_name(jax.nn.softmax(scores), "weights")
        mixed = jnp.einsum("xnij,xjnk->xink", weights, value)
        mixed += jnp.einsum("xnij,ijk->xink", weights, of_value)
        mixed_XLC = checkpoint_name(mixed, "attention").reshape(lines_XLC.shape)
        mixed_XLC = resnet.group_norm(self.cfg, "out_norm", self.dtype)(mixed_XLC)
        mixed_BMLC = mixed_XLC.reshape(x_BMLC.shape)
        return mixed_BMLC.swapaxes(1, 2) if self.along == 1 else mixed_BMLC


class AxialUnit(nn.Module):
    """A unit of `resnet.PostActUnit` with attention along height, then width, for a convolution.

    A stride is a mean after both. Attributes: same as those of `resnet.PostActUnit`.
    """

    cfg: AxialBackbone
    inside: int
    stride: int
    dtype: Any
    rules: Rules | None

    @nn.compact
    def __call__(self, x_BHWC: jax.Array) -> jax.Array:
        """Maps [B, H, W, C] to [B, H / stride, W / stride, 4 inside]."""
        cfg, out = self.cfg, 4 * self.inside

        def conv(features: int, name: str) -> resnet.StdConv:
            return resnet.StdConv(cfg, features, 1, 1, "SAME", self.dtype, name=name)

        rest = resnet.projected(cfg, x_BHWC, out, self.stride, self.dtype)
        y = conv(cfg.widening * self.inside, "conv1")(x_BHWC)
        y = nn.relu(resnet.group_norm(cfg, "norm1", self.dtype)(y))
        y = LineAttention(cfg, 1, self.dtype, name="height")(y)
        y = LineAttention(cfg, 2, self.dtype, name="width")(y)
        if self.stride != 1:
            sides = (self.stride, self.stride)
            y = nn.avg_pool(y, sides, sides, "SAME", count_include_pad=False)
        y = conv(out, "conv3")(nn.relu(y))
        y = resnet.group_norm(cfg, "norm3", self.dtype, nn.initializers.zeros)(y)
        return constrain(nn.relu(rest + y), ("act_batch", None, None, None), self.rules)


class AxialResNet(nn.Module):
    """A model that maps images to logits.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None without a mesh.
    """

    cfg: AxialResNetConfig
    rules: Rules | None = None

    @nn.compact
    def __call__(
        self, images_BHWC: jax.Array, *, train: bool = False, key: jax.Array | None = None
    ) -> Any:
        """Returns the logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, C] of the size that the parameters were made for.
          train: same as for every model; AxialResNet draws nothing at random.
          key: same as for every model.

        Returns:
          float32 [B, Y]; for a model that gives feature maps, a tuple of [B, rows, columns, C].
        """
        cfg = self.cfg
        outputs = resnet.Backbone(
            cfg.resnet, AxialUnit, cfg.remat, cfg.dtype, self.rules, name="backbone"
        )(images_BHWC)
        if cfg.maps:
            return tuple(outputs[level].astype(jnp.float32) for level in cfg.maps)
        x_BC = jnp.mean(outputs[-1].astype(jnp.float32), axis=(1, 2))
        return layers.head(x_BC, cfg.classes, cfg.head_bias)


def config(wanted: Settings, classes: int, size: str) -> AxialResNetConfig:
    """Returns the configuration that settings describe, for `AxialResNet50` or `AxialResNet-S`.

    Raises:
      BadInput: a setting does not fit.
    """
    settings.refuse_others(wanted, settings.BACKBONE)
    layers.check_remat(wanted.remat, KEEPABLE)
    width, widening = SIZES[size]
    epsilon = dataclasses.replace(wanted, gn_epsilon=wanted.gn_epsilon or GN_EPSILON)
    stages = wanted.stages or resnet.STAGES[50]
    plain = resnet.config(epsilon, stages, wanted.root_width or width, bit=False)
    backbone = AxialBackbone(**vars(plain), widening=widening)
    return AxialResNetConfig(backbone, classes, **settings.shared_fields(wanted))
