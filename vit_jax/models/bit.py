# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""BiT: ResNet-v2 with group norm and weight standardisation (arXiv:1912.11370).

Axes: B batch, H W C image, Y classes. Parameters: `backbone`, `norm`, `head`. Start from
`BiT.__call__`.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.models import layers, resnet
from vit_jax.models.layers import Dtype, Remat
from vit_jax.sharding import Rules


@dataclasses.dataclass(frozen=True)
class BiTConfig:
    """The architecture of a BiT model; `variants.config` builds one from a name."""

    resnet: resnet.ResNetConfig
    classes: int  # Y
    head_bias: float = 0.0
    dtype: Dtype = "float32"
    remat: Remat = "none"


class BiT(nn.Module):
    """A model that maps images to logits.

    Attributes:
      cfg: the architecture.
      rules: placement of activations; None without a mesh.
    """

    cfg: BiTConfig
    rules: Rules | None = None

    @nn.compact
    def __call__(
        self, images_BHWC: jax.Array, *, train: bool = False, key: jax.Array | None = None
    ) -> jax.Array:
        """Returns the logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, 3] of any size.
          train: same as for every model; BiT draws nothing at random.
          key: same as for every model.

        Returns:
          float32 [B, Y].
        """
        cfg, dtype = self.cfg, jnp.dtype(self.cfg.dtype)
        x_BHWC = resnet.Backbone(
            cfg.resnet, resnet.PreActUnit, cfg.remat, dtype, self.rules, name="backbone"
        )(images_BHWC)
        x_BHWC = nn.relu(resnet.group_norm(cfg.resnet, "norm", dtype)(x_BHWC))
        x_BC = jnp.mean(x_BHWC.astype(jnp.float32), axis=(1, 2))
        return layers.head(x_BC, cfg.classes, cfg.head_bias)
