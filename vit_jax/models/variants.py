# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Models by name, e.g. `B/16`, `R50+B/16`, `BiT-R50x1`, `Mixer-B/16`, and with free sizes.

The fields of `Settings` are the keys of the config section `model`. Start from `config`, then
`make`.
"""

import dataclasses
import re
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp

from vit_jax.config import plugins, synonyms
from vit_jax.errors import BadInput, unknown
from vit_jax.models import attention, bit, custom, layers, mixer, posemb, resnet, vit
from vit_jax.models.published import hint
from vit_jax.sharding import Axes, Rules

Config = vit.ViTConfig | bit.BiTConfig | mixer.MixerConfig | custom.OwnConfig
Model = vit.ViT | bit.BiT | mixer.Mixer
Family = Literal["vit", "bit", "mixer", "own"]
FREE = "custom"  # the size of a variant whose numbers the user gives

# Parameter path pattern -> logical axes, for every built-in model; see sharding.param_axes.
AXES: Axes = resnet.AXES | mixer.AXES | vit.AXES

# The models of the papers, which `vit_jax models` lists.
NAMED: tuple[str, ...] = (
    *("Ti/16", "S/16", "S/32", "b/32", "B/8", "B/16", "B/32", "L/16", "L/32", "H/14"),
    *("So400m/14", "g/14", "g-opt/16", "G/14", "G-opt/16", "e/14"),
    *("R+Ti/16", "R26+S/32", "R26+B/32", "R50+B/16", "R50+B/32", "R50+L/16", "R50+L/32"),
    *("BiT-R50x1", "BiT-R50x2", "BiT-R50x3", "BiT-R101x1", "BiT-R101x3"),
    *("BiT-R152x1", "BiT-R152x2", "BiT-R152x4", "BiT-R200x3"),
    *("Mixer-S/8", "Mixer-S/16", "Mixer-S/32", "Mixer-B/16", "Mixer-B/32"),
    *("Mixer-L/16", "Mixer-L/32"),
)
_POOLED = ("So400m", "g", "g-opt", "G", "G-opt", "e")  # published with a MAP head


@dataclasses.dataclass(frozen=True)
class Settings:
    """The keys of the section `model`; 0, () and "auto" leave a value to the variant."""

    variant: str
    width: int = 0
    depth: int = 0
    mlp: int = 0
    heads: int = 0
    token_mlp: int = 0
    stages: tuple[int, ...] = ()
    root_width: int = 0
    stem: str = "standard"
    stem_stride: int = 0
    root_pool: str = "auto"
    pool: str = "token"
    posemb: str = "learned1d"
    posemb_at: str = "stem"
    registers: int = 0
    representation: int = 0
    head_bias: float = 0.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    drop_path: float = 0.0
    gelu: str = "auto"
    ln_epsilon: float = 0.0
    gn_epsilon: float = 0.0
    ws_epsilon: float = 0.0
    ws_epsilon_in: str = "auto"
    dtype: str = "float32"
    scan: bool = True
    remat: str = "none"
    attention: str = "auto"


_OPTIONS: dict[str, tuple[str, ...]] = {
    "pool": get_args(vit.Pool),
    "posemb": get_args(posemb.Posemb),
    "posemb_at": get_args(posemb.PosembAt),
    "stem": get_args(resnet.Stem),
    "root_pool": ("auto", *get_args(resnet.Pool)),
    "gelu": ("auto", *get_args(layers.Gelu)),
    "ws_epsilon_in": ("auto", *get_args(resnet.EpsilonIn)),
    "dtype": get_args(layers.Dtype),
    "attention": get_args(attention.Wanted),
}
# The settings that each kind of model accepts, in addition to those that all accept.
_BACKBONE = {"stages", "root_width", "stem", "stem_stride", "gn_epsilon", "ws_epsilon"}
_BACKBONE |= {"ws_epsilon_in"}
_TOKENS = {"width", "depth", "mlp", "drop_path", "gelu", "ln_epsilon", "scan"}
_VIT = _TOKENS | {"heads", "pool", "posemb", "posemb_at", "registers", "representation"}
_VIT |= {"dropout", "attention_dropout", "attention"}
_ALL = {"variant", "head_bias", "dtype", "remat"}


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
    given = Settings(**settings)
    for field, options in _OPTIONS.items():
        if (value := getattr(given, field)) not in options:
            raise unknown(f"model.{field}", value, options, synonyms.hint(f"model.{field}", value))
    _check_ranges(given)
    name = given.variant
    if plugins.is_own(name):
        return custom.config(name, classes, _changed(given))
    if match := re.fullmatch(r"(?:BiT-)?R(\d+)x(\d+)|BiT-custom", name):
        return _bit(given, classes, match)
    if match := re.fullmatch(r"Mixer-(\w+)/(\d+)", name):
        return _mixer(given, classes, *match.groups())
    if match := re.fullmatch(r"(?:R(\d*)\+)?(?:ViT-)?([\w-]+)/(\d+)", name):
        return _vit(given, classes, *match.groups())
    raise _unknown(given.variant)


def published(variant: str) -> dict[str, Any]:
    """Returns the settings of a published variant that differ from the defaults."""
    return {"pool": "map"} if variant.partition("/")[0] in _POOLED else {}


def make(cfg: Config, rules: Rules | None = None) -> Model:
    """Makes the model of a configuration; `rules` place its activations."""
    if isinstance(cfg, custom.OwnConfig):
        return cfg.make(rules)
    if isinstance(cfg, vit.ViTConfig):
        return vit.ViT(cfg, rules)
    return bit.BiT(cfg, rules) if isinstance(cfg, bit.BiTConfig) else mixer.Mixer(cfg, rules)


def family(cfg: Config) -> Family:
    """Returns which of the three kinds of model it is, or "own" for a user's own."""
    kinds: dict[type, Family] = {
        vit.ViTConfig: "vit", bit.BiTConfig: "bit", mixer.MixerConfig: "mixer"
    }  # fmt: skip
    return kinds.get(type(cfg), "own")


def axes(cfg: Config) -> Axes:
    """Returns the map from parameter path pattern to logical axes; see `sharding.param_axes`."""
    return cfg.AXES if isinstance(cfg, custom.OwnConfig) else AXES


def shapes(cfg: Config, height: int, width: int) -> Any:
    """Returns the parameter tree for an image size as shapes; needs no device."""
    image = jax.ShapeDtypeStruct((1, height, width, 3), jnp.float32)
    key = jax.eval_shape(lambda: jax.random.key(0))
    return jax.eval_shape(make(cfg).init, key, image)["params"]


def describe(variant: str, cfg: Config) -> dict[str, Any]:
    """Returns every field of a model and of its backbone, for people and for JSON."""
    fields = dataclasses.asdict(cfg)
    fields.pop("patch_outputs", None)  # only used in training
    backbone = fields.pop("backbone", None) or fields.pop("resnet", None) or {}
    if backbone:
        backbone["root_width"] = backbone.pop("width")
        backbone["stages"] = list(backbone["stages"])
    return {"variant": variant, "family": family(cfg), **fields, **backbone}


def grid(cfg: Config, height: int, width: int) -> tuple[int, int]:
    """Returns the rows and columns of what is pooled: patches, or BiT's last feature map."""
    pixels = stride(cfg)
    if isinstance(cfg, bit.BiTConfig):
        return -(-height // pixels), -(-width // pixels)
    return height // pixels, width // pixels


def backbone(cfg: Config) -> resnet.ResNetConfig | None:
    """Returns the ResNet inside a model; None if it has none."""
    if isinstance(cfg, bit.BiTConfig):
        return cfg.resnet
    return cfg.backbone if isinstance(cfg, vit.ViTConfig) else None


def stride(cfg: Config) -> int:
    """Returns the pixels per token, or per position of BiT's last feature map, in a direction."""
    if isinstance(cfg, bit.BiTConfig):
        return cfg.resnet.stride
    return cfg.patch if isinstance(cfg, mixer.MixerConfig) else cfg.stride


def check_image_size(cfg: Config, height: int, width: int) -> None:
    """Raises BadInput unless the model accepts images of this size.

    The message names sides that fit.

    Tokens must tile the image, and the grid must have at least 2 x 2 positions.
    """
    pixels, tiled = stride(cfg), not isinstance(cfg, bit.BiTConfig)
    least = 2 * pixels if tiled else pixels + 1
    for side in (height, width):
        low = side // pixels * pixels
        if side < least:
            raise BadInput(
                f"image size {side} gives a grid of {grid(cfg, side, side)[0]} positions a side, "
                f"and 2 is the least; use {least} or more (--config.data.image_size)"
                f"{_or_small(cfg, height, width)}."
            )
        if side % pixels and tiled:
            raise BadInput(
                f"image size {side} is not divisible by the {pixels} pixels of a token; use {low} "
                f"or {low + pixels} (--config.data.image_size){_or_small(cfg, height, width)}."
            )


def _or_small(cfg: Config, height: int, width: int) -> str:
    """Returns advice to use the small stem, if that accepts images of this size."""
    given = backbone(cfg)
    if given is None or given.stem == "small":
        return ""
    field = "resnet" if isinstance(cfg, bit.BiTConfig) else "backbone"
    small: Any = dataclasses.replace(cfg, **{field: dataclasses.replace(given, stem="small")})
    try:
        check_image_size(small, height, width)
    except BadInput:
        return ""
    return ", or model.stem=small"


def _unknown(variant: str) -> BadInput:
    options = [*NAMED, "or any patch side", plugins.USAGE]
    return unknown("model variant", variant, options, hint(variant))


def _check_ranges(given: Settings) -> None:
    for field in ("dropout", "attention_dropout", "drop_path"):
        if not 0.0 <= getattr(given, field) < 1.0:
            raise BadInput(f"model.{field}={getattr(given, field)} is a rate; give one in [0, 1).")
    for field in dataclasses.fields(Settings):
        value = getattr(given, field.name)
        if field.type in (int, float) and field.name != "head_bias" and value < 0:
            raise BadInput(f"model.{field.name}={value} is negative; give 0 or more.")
    if any(not isinstance(n, int) or n < 1 for n in given.stages):
        raise BadInput(f"model.stages={given.stages}: units of each stage, e.g. (3, 4, 9).")


def _refuse_others(given: Settings, takes: set[str]) -> None:
    """Raises BadInput for a setting that this variant does not have."""
    for name, value in _changed(given).items():
        if name not in takes | _ALL:
            raise BadInput(f"model.{name}={value!r}: {given.variant} has no {name}; leave it out.")


def _changed(given: Settings) -> dict[str, Any]:
    """Returns the settings that the user has set."""
    fields = dataclasses.fields(Settings)[1:]
    return {f.name: v for f in fields if (v := getattr(given, f.name)) != f.default}


def _sizes(
    given: Settings, size: str, table: dict[str, tuple[int, ...]], fields: tuple[str, ...]
) -> dict[str, int]:
    """Returns the numbers of a named size, with the given ones replaced."""
    if size != FREE and size not in table:
        raise _unknown(given.variant)
    named = table.get(size, (0,) * len(fields))
    numbers = {f: getattr(given, f) or n for f, n in zip(fields, named, strict=True)}
    lacking = [f"model.{f}" for f, n in numbers.items() if n < 1]
    if lacking:
        raise BadInput(f"model {given.variant}: give {', '.join(lacking)} (from 1 on).")
    return numbers


def _shared(given: Settings, *fields: str) -> dict[str, Any]:
    """Returns the fields that are used as given; "auto" and 0 become the published values."""
    values = {f: getattr(given, f) for f in ("head_bias", "dtype", "remat", *fields)}
    if "gelu" in values:
        values["gelu"] = "tanh" if given.gelu == "auto" else given.gelu
        values["ln_epsilon"] = given.ln_epsilon or 1e-6
    return values


def _resnet(given: Settings, stages: tuple[int, ...], width: int, *, bit: bool) -> Any:
    """Makes the backbone, with the constants of the published BiT models or hybrids."""
    if width % resnet.GROUPS or width < 1:
        low = max(1, width // resnet.GROUPS) * resnet.GROUPS
        raise BadInput(
            f"model.root_width={width} is not a multiple of the {resnet.GROUPS} groups of its "
            f"norms; use {low} or {low + resnet.GROUPS}."
        )
    if given.stem_stride not in ((0, 1, 2) if given.stem == "small" else (0,)):
        raise BadInput(
            f"model.stem_stride={given.stem_stride} with stem={given.stem}: a small stem has "
            "stride 1 or 2, the standard one its own; leave it out or set model.stem=small."
        )
    gn, ws, inside = (1e-5, 1e-10, "variance") if bit else (1e-6, 1e-5, "std")
    return resnet.ResNetConfig(
        stages=stages,
        width=width,
        gn_epsilon=given.gn_epsilon or gn,
        ws_epsilon=given.ws_epsilon or ws,
        ws_epsilon_in=inside if given.ws_epsilon_in == "auto" else given.ws_epsilon_in,  # type: ignore[arg-type]
        stem=given.stem,  # type: ignore[arg-type]
        stem_stride=given.stem_stride or 1,
        root_pool="zero" if given.root_pool == "auto" else given.root_pool,  # type: ignore[arg-type]
    )


def _bit(given: Settings, classes: int, match: re.Match[str]) -> bit.BiTConfig:
    _refuse_others(given, _BACKBONE | {"root_pool"})
    layers.check_remat(given.remat, resnet.KEEPABLE)
    stages, width = given.stages, given.root_width
    if match[1]:
        if int(match[1]) not in resnet.STAGES or int(match[2]) < 1:
            raise _unknown(given.variant)
        stages = stages or resnet.STAGES[int(match[1])]
        width = width or 64 * int(match[2])
    if not stages or not width:
        raise BadInput(f"model {given.variant}: give model.stages and model.root_width.")
    return bit.BiTConfig(_resnet(given, stages, width, bit=True), classes, **_shared(given))


def _mixer(given: Settings, classes: int, size: str, patch: str) -> mixer.MixerConfig:
    _refuse_others(given, _TOKENS | {"token_mlp"})
    layers.check_remat(given.remat, layers.KEEPABLE)
    numbers = _sizes(given, size, mixer.SIZES, ("width", "depth", "mlp", "token_mlp"))
    if int(patch) < 1:
        raise _unknown(given.variant)
    shared = _shared(given, "drop_path", "gelu", "ln_epsilon", "scan")
    return mixer.MixerConfig(patch=int(patch), classes=classes, **numbers, **shared)


def _vit(given: Settings, classes: int, units: str | None, size: str, patch: str) -> vit.ViTConfig:
    _refuse_others(given, _VIT if units is None else _VIT | _BACKBONE)
    keepable = attention.KEEPABLE + layers.KEEPABLE
    layers.check_remat(given.remat, keepable if units is None else keepable + resnet.KEEPABLE)
    numbers = _sizes(given, size, vit.SIZES, ("width", "depth", "mlp", "heads"))
    if numbers["width"] % numbers["heads"]:
        near = [n for n in range(1, numbers["width"] + 1) if numbers["width"] % n == 0]
        raise BadInput(
            f"model {given.variant}: {numbers['heads']} heads do not divide the width "
            f"{numbers['width']}; these do: {near}."
        )
    if int(patch) < 1:
        raise _unknown(given.variant)
    backbone, side = None, int(patch)
    if units is not None:
        backbone, side = _hybrid(given, units, side)
    _check_posemb(given, numbers["width"])
    fields = ("pool", "posemb", "posemb_at", "registers", "representation", "dropout")
    fields += ("attention_dropout", "drop_path", "gelu", "ln_epsilon", "scan")
    shared = _shared(given, *fields)
    shared["attention"] = _attention(given)
    return vit.ViTConfig(patch=side, classes=classes, backbone=backbone, **numbers, **shared)


def _attention(given: Settings) -> attention.Path:
    """Returns a code path that every device supports.

    `build` replaces it if a GPU has a better one.
    """
    rate, relative = given.attention_dropout, given.posemb == "relative"
    why = attention.not_fused(dropout=rate, relative=relative)
    if given.attention == "fused" and why:
        raise BadInput(f"model.attention=fused: {why}; leave model.attention out.")
    return "xla" if given.attention == "fused" else "plain"


def _hybrid(given: Settings, layers: str, pixels: int) -> tuple[resnet.ResNetConfig, int]:
    """Returns a hybrid's backbone and its patch side on the feature map, for `pixels` per token.

    With stride 16, the units of stage 4 move into stage 3, so R50+B/16 has stages 3, 4, 9. Section
    4.1 of the paper keeps the depth too. The published name R+Ti/16 counts a root alone as stride
    2, although its pool makes the stride 4. It therefore has 8 x 8 patches, and in fact 32 pixels
    per token.
    """
    if layers and int(layers) not in resnet.STAGES:
        raise _unknown(given.variant)
    stages = given.stages or (resnet.STAGES[int(layers)] if layers else ())
    if not given.stages and len(stages) == 4 and pixels == 16:
        stages = (*stages[:2], stages[2] + stages[3])
    stride = 4 * 2 ** (len(stages) - 1) if stages else 2
    if pixels % stride:
        raise BadInput(
            f"model {given.variant}: stages {stages} have stride {stride}, which does not divide "
            f"{pixels}; use /{-(-pixels // stride) * stride} or fewer stages (model.stages)."
        )
    backbone = _resnet(given, stages, given.root_width or 64, bit=False)
    return backbone, pixels // stride


def _check_posemb(given: Settings, width: int) -> None:
    if given.posemb in ("none", "relative") and given.posemb_at != "stem":
        where = "lies in the attention of each layer" if given.posemb == "relative" else "is none"
        raise BadInput(
            f"model.posemb_at={given.posemb_at} with posemb={given.posemb}, which {where}; leave "
            "posemb_at out."
        )
    if given.posemb == "learned2d" and width % 2:
        raise BadInput(f"model.posemb=learned2d halves the width, and {width} is odd.")
    if given.posemb == "sincos2d" and (width % 4 or width < 8):
        raise BadInput(f"model.posemb=sincos2d needs a width of 8, 12, 16, ...; got {width}.")
