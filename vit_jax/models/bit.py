# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""BiT: ResNet-v2 with group norm and weight standardisation (arXiv:1912.11370).

Axes: B batch, H W C image, Y classes. Parameters: `backbone`, `norm`, `head`. Start from
`BiT.__call__`.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp

from vit_jax.errors import BadInput
from vit_jax.models import layers, resnet, settings
from vit_jax.models.settings import Settings, only_filters
from vit_jax.sharding import Rules

IMAGE_SIZE = 224  # of pre-training; the weights fit any size


@dataclasses.dataclass(frozen=True)
class BiTConfig(resnet.ResNetModelConfig):
    """The architecture of a BiT model; `variants.config` builds one from a name."""

    FAMILY: ClassVar[Literal["bit"]] = "bit"

    def make(self, rules: Rules | None) -> "BiT":
        """Makes the model."""
        return BiT(self, rules)

    def in_words(self) -> str:
        return f"a BiT ResNet of {sum(self.resnet.stages)} units"

    def lacking_figures(self) -> list[str]:
        return only_filters("BiT")

    def weights_side(self, flat: Any) -> int:
        return IMAGE_SIZE


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
    ) -> Any:
        """Returns the logits of normalised images.

        Args:
          images_BHWC: float32 [B, H, W, C] of any size.
          train: same as for every model; BiT draws nothing at random.
          key: same as for every model.

        Returns:
          float32 [B, Y]; for a model that gives feature maps, a tuple of [B, rows, columns, C].
        """
        cfg, dtype = self.cfg, self.cfg.dtype
        *stages, x_BHWC = resnet.Backbone(
            cfg.resnet, resnet.PreActUnit, cfg.remat, dtype, self.rules, name="backbone"
        )(images_BHWC)
        x_BHWC = nn.relu(resnet.group_norm(cfg.resnet, "norm", dtype)(x_BHWC))
        if cfg.maps:
            outputs = [*stages, x_BHWC]
            return tuple(outputs[level].astype(jnp.float32) for level in cfg.maps)
        x_BC = jnp.mean(x_BHWC.astype(jnp.float32), axis=(1, 2))
        return layers.head(x_BC, cfg.classes, cfg.head_bias)


def config(wanted: Settings, classes: int, number: str | None, factor: str | None) -> BiTConfig:
    """Returns the configuration that settings describe.

    Args:
      wanted: the settings.
      classes: Y.
      number: the N of `BiT-RNxW`; None for the size `custom`.
      factor: its W, likewise.

    Raises:
      BadInput: a setting does not fit.
    """
    settings.refuse_others(wanted, settings.BACKBONE | {"root_pool"})
    layers.check_remat(wanted.remat, resnet.KEEPABLE)
    stages, width = wanted.stages, wanted.root_width
    if number and factor:
        if int(number) not in resnet.STAGES or int(factor) < 1:
            raise settings.unknown_variant(wanted.variant)
        stages = stages or resnet.STAGES[int(number)]
        width = width or 64 * int(factor)
    if not stages or not width:
        raise BadInput(f"model {wanted.variant}: give model.stages and model.root_width.")
    backbone = resnet.config(wanted, stages, width, bit=True)
    return BiTConfig(backbone, classes, **settings.shared_fields(wanted))
