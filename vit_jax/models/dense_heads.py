# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Heads that map the feature maps of a backbone to one logit of each class per position.

They compute in float32. Axes: B batch, h w grid, L = h w positions, D features, E width of the
head, Y classes. Start from `make`.
"""

from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models.attention import Attention
from vit_jax.models.layers import MLP_AXES, Mlp, dropout, layer_norm, unit
from vit_jax.sharding import Axes

Kind = Literal["linear", "mask_transformer", "upsampling"]
KINDS: tuple[str, ...] = ("linear", "mask_transformer", "upsampling")

# Heads are small, and may have one attention head: that axis is not split.
AXES: Axes = {
    r"objective/decoder_\d+/attn/(query|key|value)/kernel": ("embed", None, None),
    r"objective/decoder_\d+/attn/(query|key|value)/bias": (None, None),
    r"objective/decoder_\d+/attn/out/kernel": (None, None, "embed"),
    r"objective/decoder_\d+/attn/out/bias": (None,),
    **{rf"objective/decoder_\d+/{path}": axes for path, axes in MLP_AXES.items()},
    r"objective/(decoder_\d+/)?\w*norm(_\d)?/(scale|bias)": (None,),
    r"objective/class_tokens": (None, None, "embed"),
    r"objective/project/kernel": ("embed", None),
    r"objective/(of_patches|of_classes)": ("embed", None),
    r"objective/classify/kernel": ("embed", None),
    r"objective/up_\d/kernel": (None, None, "embed", None),
    r"objective/(project|classify|up_\d)/bias": (None,),
}
_HEAD_DIM = 64
_EPSILON = 1e-6
_SEGMENTERS_EPSILON = 1e-5  # the default of torch, in the authors' mask transformer
# timm's trunc_normal_(std=0.02), as in the authors' code, cuts at -2 and 2, so nothing.
_NORMAL = nn.initializers.normal(0.02)


def make(kind: Kind, classes: int, *, width: int, layers: int, rate: float) -> nn.Module:
    """Returns a head, a module that maps [B, h, w, D] and a key to logits [B, h', w', Y].

    Args:
      kind: `linear`: one layer per position. `mask_transformer`: Segmenter's (arXiv:2105.05633,
        section 3.2). `upsampling`: two transposed convolutions, so h' = 4 h, and a linear layer.
      classes: Y.
      width: E; 0: that of the features for a mask transformer, 256 for upsampling.
      layers: number of blocks of a mask transformer.
      rate: rate of dropout in a mask transformer.
    """
    if kind == "linear":
        return Linear(classes)
    if kind == "upsampling":
        return Upsampling(classes, width or 256)
    return MaskTransformer(classes, width, layers, rate)


def multiply_adds(
    kind: Kind, classes: int, *, width: int, layers: int, positions: int, features: int
) -> int:
    """Returns the multiply-adds of a head for an image of L = `positions` and D = `features`.

    The other arguments are those of `make`.
    """
    if kind == "linear":
        return positions * features * classes
    if kind == "upsampling":
        width = width or 256
        return 4 * positions * width * (features + 4 * width + 4 * classes)
    width, tokens = width or features, positions + classes
    block = 12 * tokens * width**2 + 2 * tokens**2 * width
    products = positions * width * (features + classes)
    return products + layers * block + tokens * width**2


class Linear(nn.Module):
    """One linear layer on each position, as DINOv2 evaluates (arXiv:2304.07193, section 7.4).

    There is no batch norm before it, so that no statistics pass between examples.
    """

    classes: int

    @nn.compact
    def __call__(self, x_BhwD: jax.Array, key: jax.Array | None) -> jax.Array:
        """Maps [B, h, w, D] to [B, h, w, Y]."""
        return _classify(x_BhwD, self.classes)


class Upsampling(nn.Module):
    """Doubles the grid twice by transposed convolutions with LayerNorm and GELU, and classifies."""

    classes: int
    width: int

    @nn.compact
    def __call__(self, x_BhwD: jax.Array, key: jax.Array | None) -> jax.Array:
        """Maps [B, h, w, D] to [B, 4 h, 4 w, Y]."""
        for number in range(2):
            x_BhwD = nn.ConvTranspose(self.width, (2, 2), (2, 2), name=f"up_{number}")(x_BhwD)
            x_BhwD = nn.gelu(layer_norm(f"up_norm_{number}", _EPSILON, "float32")(x_BhwD))
        return _classify(x_BhwD, self.classes)


def _classify(x: jax.Array, classes: int) -> jax.Array:
    """A linear layer that starts as in mmseg, and so in DINOv2; it belongs to the caller."""
    return nn.Dense(classes, kernel_init=nn.initializers.normal(0.01), name="classify")(x)


def _heads(width: int) -> int:
    """Returns how many heads of at least 64 numbers divide a width; 1 for a narrow one."""
    return next(n for n in range(max(1, width // _HEAD_DIM), 0, -1) if width % n == 0)


class MaskTransformer(nn.Module):
    """Lets learned tokens of the classes and patches attend to each other (arXiv:2105.05633, 3.2).

    A logit is the product of the unit vectors of a patch and a class, after a LayerNorm over
    classes as in the authors' code.

    Attributes:
      classes: Y.
      width: E, or 0 for D.
      layers: number of blocks.
      rate: dropout of attention's weights, and after attention and MLP layers.
    """

    classes: int
    width: int
    layers: int
    rate: float

    @nn.compact
    def __call__(self, x_BhwD: jax.Array, key: jax.Array | None) -> jax.Array:
        """Maps [B, h, w, D] to [B, h, w, Y]."""
        batch, rows, columns, features = x_BhwD.shape
        width = self.width or features
        patches_BLE = nn.Dense(width, kernel_init=_NORMAL, name="project")(
            x_BhwD.reshape(batch, -1, features)
        )
        tokens_1YE = self.param("class_tokens", _NORMAL, (1, self.classes, width))
        tokens_BYE = jnp.broadcast_to(tokens_1YE, (batch, self.classes, width))
        x_BLE = jnp.concatenate([patches_BLE, tokens_BYE], axis=1)
        for number in range(self.layers):
            own = None if key is None else jax.random.fold_in(key, number)
            x_BLE = _Block(_heads(width), self.rate, name=f"decoder_{number}")(x_BLE, own)
        x_BLE = layer_norm("decoder_norm", _SEGMENTERS_EPSILON, "float32")(x_BLE)
        own_init = nn.initializers.normal(width**-0.5)
        products = [
            unit(x @ self.param(name, own_init, (width, width)), -1)
            for name, x in (
                ("of_patches", x_BLE[:, : rows * columns]),
                ("of_classes", x_BLE[:, rows * columns :]),
            )
        ]
        masks_BLY = jnp.einsum("ble,bye->bly", *products)
        masks_BLY = layer_norm("mask_norm", _SEGMENTERS_EPSILON, "float32")(masks_BLY)
        return masks_BLY.reshape(batch, rows, columns, self.classes)


class _Block(nn.Module):
    """A layer of an encoder, see `vit.EncoderBlock`."""

    heads: int
    rate: float

    @nn.compact
    def __call__(self, x_BLE: jax.Array, key: jax.Array | None) -> jax.Array:
        keys: Any = [None] * 3 if key is None else jax.random.split(key, 3)
        y_BLE = layer_norm("attn_norm", _SEGMENTERS_EPSILON, "float32")(x_BLE)
        attention = Attention(self.heads, self.rate, "float32", None, name="attn")
        x_BLE += dropout(attention(y_BLE, y_BLE, keys[2]), self.rate, keys[0])
        y_BLE = layer_norm("mlp_norm", _SEGMENTERS_EPSILON, "float32")(x_BLE)
        mlp = Mlp(
            4 * x_BLE.shape[-1], "erf", self.rate, "float32", None, _NORMAL,
            nn.initializers.zeros, name="mlp",
        )  # fmt: skip
        return x_BLE + mlp(y_BLE, keys[1])
