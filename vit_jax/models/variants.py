# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Models by name, e.g. `B/16`, `R50+B/16`, `BiT-R50x1`, `Mixer-B/16`, and with free sizes.

A family of models is a module that is imported on use. It has `config`, which turns settings into
the family's configuration. Start from `of` or `config`, then `make`.
"""

import functools
import re
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from vit_jax.config import plugins
from vit_jax.config.plugins import Registry
from vit_jax.models import settings as settings_lib
from vit_jax.models.settings import FREE as FREE
from vit_jax.models.settings import ModelConfig
from vit_jax.models.settings import Settings as Settings
from vit_jax.sharding import Axes, Rules

if TYPE_CHECKING:
    from vit_jax.models import bit, mixer, resnet, vit

    Model = vit.ViT | bit.BiT | mixer.Mixer
else:
    Model = Any
Config = ModelConfig

# The models of the papers, which `vit_jax models` lists.
NAMED: tuple[str, ...] = (
    *("Ti/16", "S/16", "S/32", "b/32", "B/8", "B/16", "B/32", "L/16", "L/32", "H/14"),
    *("So400m/14", "g/14", "g-opt/16", "G/14", "G-opt/16", "e/14"),
    *("R+Ti/16", "R26+S/32", "R26+B/32", "R50+B/16", "R50+B/32", "R50+L/16", "R50+L/32"),
    *("BiT-R50x1", "BiT-R50x2", "BiT-R50x3", "BiT-R101x1", "BiT-R101x3"),
    *("BiT-R152x1", "BiT-R152x2", "BiT-R152x4", "BiT-R200x3"),
    *("Mixer-S/8", "Mixer-S/16", "Mixer-S/32", "Mixer-B/16", "Mixer-B/32"),
    *("Mixer-L/16", "Mixer-L/32"),
    *("AxialViT-B/16", "AxialViT-B/32", "AxialResNet50", "AxialResNet-S"),
)

# Pattern of a variant's name -> the function that makes its configuration. The first match counts;
# the groups of the pattern are arguments.
_FAMILIES = Registry(
    {
        r"(?:BiT-)?R(\d+)x(\d+)|BiT-custom": "vit_jax.models.bit:config",
        r"Mixer-(\w+)/(\d+)": "vit_jax.models.mixer:config",
        r"Flexi-([\w-]+)/(\d+)": "vit_jax.models.flexi:config",
        r"AxialViT-([\w-]+)/(\d+)": "vit_jax.models.axial_vit:config",
        r"AxialResNet(50|-S)": "vit_jax.models.axial_resnet:config",
        r"(?:R(\d*)\+)?(?:ViT-)?([\w-]+)/(\d+)": "vit_jax.models.vit:config",
    }
)
_POOLED = ("So400m", "g", "g-opt", "G", "G-opt", "e")  # published with a MAP head


def config(*, classes: int, **settings: Any) -> Config:
    """Returns the configuration of a named model, with the given numbers replaced.

    Args:
      classes: Y; with 0 the model has no head.
      **settings: the fields of `Settings`. `variant` is `SIZE/PATCH` of a ViT (`B/16`),
        `R[N]+SIZE/PATCH` of a hybrid (`R50+B/16`), `BiT-RNxW` (`BiT-R50x1`) or `Mixer-SIZE/PATCH`.
        The size `custom` requires all numbers. PATCH is the number of pixels per token with the
        standard stem. `MODULE:CLASS(key=value)` is a user's own model, see `custom`.

    Raises:
      BadInput: an unknown variant or option, a setting that the variant lacks, sizes that do not go
        together, or a number out of range.
    """
    return of(Settings(**settings), classes)


def of(wanted: Settings, classes: int) -> Config:
    """Returns the configuration of the model that a section `model` describes; see `config`."""
    settings_lib.check(wanted)
    if plugins.is_own(wanted.variant):
        from vit_jax.models import custom

        return custom.config(wanted.variant, classes, settings_lib.changed(wanted))
    for pattern in _FAMILIES:
        if match := re.fullmatch(pattern, wanted.variant):
            return _FAMILIES[pattern](wanted, classes, *match.groups())
    raise settings_lib.unknown_variant(wanted.variant)


def published(variant: str) -> dict[str, Any]:
    """Returns the settings of a published variant that differ from the defaults."""
    return {"pool": "map"} if variant.partition("/")[0] in _POOLED else {}


def make(cfg: Config, rules: Rules | None = None) -> Model:
    """Makes the model of a configuration; `rules` place its activations."""
    return cfg.make(rules)


def family(cfg: Config) -> str:
    """Returns the name of a model's family; "own" for a user's own model."""
    return cfg.FAMILY


def axes(cfg: Config) -> Axes:
    """Returns the map from parameter path pattern to logical axes; see `sharding.param_axes`."""
    return cfg.parameter_axes


def shapes(cfg: Config, height: int, width: int, channels: int = 3) -> Any:
    """Returns the parameter tree for images of a shape, as shapes; needs no device."""
    image = jax.ShapeDtypeStruct((1, height, width, channels), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(make(cfg).init, key, image)["params"]


@functools.cache
def shapes_of_maps(cfg: Config, height: int, width: int) -> list[tuple[int, int, int]]:
    """Returns rows, columns and width of each feature map of a model for an RGB image."""
    image = jax.ShapeDtypeStruct((1, height, width, 3), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    maps, _ = jax.eval_shape(make(cfg).init_with_output, key, image)
    return [x.shape[1:] for x in maps]


def describe(variant: str, cfg: Config) -> dict[str, Any]:
    """Returns every field of a model and of its backbone, for people and for JSON."""
    return {"variant": variant, "family": cfg.FAMILY, **cfg.described_fields()}


def plain_vit(cfg: Config) -> "vit.ViTConfig | None":
    """Returns a ViT with a class token and without a backbone; None for any other model."""
    from vit_jax.models import vit

    is_plain = isinstance(cfg, vit.ViTConfig) and not cfg.backbone and cfg.pool == "token"
    return cfg if is_plain else None  # type: ignore[return-value]


def grid(cfg: Config, height: int, width: int) -> tuple[int, int]:
    """Returns the rows and columns of what is pooled: patches, or BiT's last feature map."""
    return cfg.patch_grid(height, width)


def backbone(cfg: Config) -> "resnet.ResNetConfig | None":
    """Returns the ResNet inside a model; None if it has none."""
    return cfg.inner_resnet


def stride(cfg: Config) -> int:
    """Returns the pixels per token, or per position of BiT's last feature map, in a direction."""
    return cfg.stride


def forward_flops(cfg: Config, height: int, width: int, channels: int = 3) -> int:
    """Returns the FLOPs (2 per multiply-add) of one image through the model.

    Counts convolutions, projections, attention products, MLPs, attention pooling, pre-logits and
    heads. Leaves out norms, softmax, GELU, biases and weight standardisation. A training step costs
    3 times as much.

    Args:
      cfg: the architecture.
      height: height of the image in pixels, which must fit the model.
      width: width of the image, likewise.
      channels: channels of the image.
    """
    more = (channels - 3) * cfg.channel_flops(height, width) if channels != 3 else 0
    return cfg.forward_flops(height, width) + more


def check_image_size(cfg: Config, height: int, width: int) -> None:
    """Raises BadInput unless the model accepts images of this size; see `ModelConfig`."""
    cfg.check_image_size(height, width)
