# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Defines the configuration of a model, and how a family makes one from the section `model`.

Rooms ask a configuration what it can do, never which family it belongs to. A family, or a user's
own model, overrides what it can answer better than `ModelConfig`; docs/extending_model.md lists the
members. Start from `ModelConfig`.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar, Self

from vit_jax.config import plugins, schema
from vit_jax.config.sections import Model as Settings
from vit_jax.errors import BadInput, unknown
from vit_jax.sharding import Axes, Rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    import jax
    import numpy as np

    from vit_jax.models.resnet import ResNetConfig


class ModelConfig:
    """Base class of every configuration, which is a frozen dataclass.

    A subclass must have the fields `classes` and `dtype`, and `stride`, `make`, `forward_flops` and
    `AXES`. Everything else has a default, which suits a model about which nothing more is known.

    Attributes:
      AXES: parameter path pattern -> logical axes, see `sharding.param_axes`.
      FAMILY: name of the family in `describe` and in tables of weight formats.
      FORMS: the fields that a platform may choose: `unrolled`, `attention`, `in_order`, `remat`.
      RESIZES_KERNEL: whether weights with patches of another size are taken, and their kernel on
        pixels is resized (`weights.fitting`).
      RESNET: name of the field that holds the ResNet inside the model; "" without one.
      TILED: whether tokens must tile the image exactly; otherwise the last ones may hang over.
    """

    if TYPE_CHECKING:
        classes: Any  # fields of every subclass
        dtype: Any
        unrolled: Any  # these four exist if FORMS has them
        attention: Any
        in_order: Any
        remat: Any
        __dataclass_fields__: ClassVar[dict[str, Any]]
    AXES: ClassVar[Axes] = {}
    FAMILY: ClassVar[str] = "own"
    FORMS: ClassVar[tuple[str, ...]] = ()
    RESIZES_KERNEL: ClassVar[bool] = False
    RESNET: ClassVar[str] = ""
    TILED: ClassVar[bool] = True

    # ------------------------------------------------------------ required

    @property
    def stride(self) -> int:
        """Returns the pixels per position of the last grid in each direction."""
        raise self._missing("stride")

    def make(self, rules: Rules | None) -> Any:
        """Returns the Linen module, with the fields `cfg` (this object) and `rules`.

        The module uses `rules` for `sharding.constrain`.

        Its call maps `(images_BHWC, *, train=False, key=None)` to float32 [B, Y]. Its parameters
        include a head named `head`, which transfer initialises afresh.
        """
        raise self._missing("make")

    def forward_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs (2 per multiply-add) of one RGB image, for utilisation and plans."""
        raise self._missing("forward_flops")

    def training_flops(self, height: int, width: int) -> int:
        """Returns the FLOPs of the forward pass of one RGB image in a training step."""
        return self.forward_flops(height, width)

    def channel_flops(self, height: int, width: int) -> int:
        """Returns how many of these FLOPs each channel of an image costs.

        `forward_flops` counts three channels. Without an answer, 0, it counts any image as RGB.
        """
        inner = self.inner_resnet
        return 0 if inner is None else 2 * inner.channel_multiply_adds(height, width)

    def _missing(self, name: str) -> BadInput:
        return BadInput(f"{type(self).__name__} has no {name}; see docs/extending_model.md.")

    # ------------------------------------------------------------ shape

    @property
    def parameter_axes(self) -> Axes:
        """Returns the map from parameter path pattern to logical axes, of all parts."""
        inner = self.inner_resnet
        return self.AXES if inner is None else inner.AXES | self.AXES

    def described_fields(self) -> dict[str, Any]:
        """Returns every field of the model and of its ResNet, for people and for JSON."""
        fields = dataclasses.asdict(self)
        for only_training in ("patch_outputs", "maps", "tokens", "class_std"):
            fields.pop(only_training, None)
        resnet = fields.pop(self.RESNET, None) or {}
        if resnet:
            resnet["root_width"] = resnet.pop("width")
            resnet["stages"] = list(resnet["stages"])
        return fields | resnet

    def in_words(self) -> str:
        """Describes the model in a few words, for captions."""
        return f"a {type(self).__name__}"

    def patch_grid(self, height: int, width: int) -> tuple[int, int]:
        """Returns the rows and columns of what is pooled, for an image size."""
        if self.TILED:
            return height // self.stride, width // self.stride
        return -(-height // self.stride), -(-width // self.stride)

    def parameter_grid(self, height: int, width: int) -> tuple[int, int]:
        """Returns the rows and columns that parameters with a row for each position are made for.

        They are those of `patch_grid`, unless the model resizes its position embeddings itself.
        """
        return self.patch_grid(height, width)

    def at_patch(self, patch: int) -> Self:
        """Returns the model with another patch size; `weights.fitting` can resize its kernel.

        Raises:
          BadInput: the model has no patches of pixels, or has weights for one number of them.
        """
        raise BadInput(f"patch={patch}: {self.in_words()} has a fixed patch size; leave it out.")

    def ordinary(
        self, params: dict[str, Any], height: int, width: int
    ) -> "tuple[ModelConfig, dict[str, Any]]":
        """Returns what computes the same outside training, for images of one size.

        A model with parts that only training needs can return a simpler one here, which predicts,
        is exported and shown in its place.
        """
        return self, params

    def stream_size(self, height: int, width: int) -> int:
        """Returns the numbers that pass between the blocks for one image, over all blocks.

        Plans count from them what tensor parallelism sends; 0 leaves it out.
        """
        return 0

    @property
    def two_heads(self) -> bool:
        """Returns True if `apart=True` gives [B, 2, Y]: logits of labels, and of a teacher."""
        return False

    @property
    def inner_resnet(self) -> "ResNetConfig | None":
        """Returns the ResNet inside the model; None if it has none."""
        return getattr(self, self.RESNET) if self.RESNET else None

    def small_stem(self) -> Self | None:
        """Returns the same model with the stem for small images; None if it has no other stem."""
        inner = self.inner_resnet
        if inner is None or inner.stem == "small":
            return None
        small = dataclasses.replace(inner, stem="small")
        return dataclasses.replace(self, **{self.RESNET: small})

    def check_image_size(self, height: int, width: int) -> None:
        """Raises BadInput unless the model accepts images of this size.

        The message names sides that fit. Tokens must tile the image, and the grid must have at
        least 2 x 2 positions.
        """
        pixels = self.stride
        least = 2 * pixels if self.TILED else pixels + 1
        for side in (height, width):
            low = side // pixels * pixels
            if side < least:
                raise BadInput(
                    f"image size {side} gives a grid of {self.patch_grid(side, side)[0]} positions "
                    f"a side, and 2 is the least; use {least} or more (--config.data.image_size)"
                    f"{self._or_small(height, width)}."
                )
            if side % pixels and self.TILED:
                raise BadInput(
                    f"image size {side} is not divisible by the {pixels} pixels of a token; use "
                    f"{low} or {low + pixels} (--config.data.image_size)"
                    f"{self._or_small(height, width)}."
                )

    def _or_small(self, height: int, width: int) -> str:
        """Returns advice to use the small stem, if that accepts images of this size."""
        small = self.small_stem()
        if small is None:
            return ""
        try:
            small.check_image_size(height, width)
        except BadInput:
            return ""
        return ", or model.stem=small"

    # ------------------------------------------------------------ forms and heads

    def in_form(self, **choices: Any) -> Self:
        """Returns the same function with other values of `FORMS`; leaves out the rest."""
        possible = {name: value for name, value in choices.items() if name in self.FORMS}
        return dataclasses.replace(self, **possible)

    def fused_refusal(self) -> str:
        """Returns why no fused path can compute the attention; "" if one can.

        A model with `attention` in `FORMS` also has the fields `width` and `heads`.
        """
        return ""

    def for_images(self, classes: int) -> Self:
        """Returns the model that maps an image to logits; with 0 classes, to its representation."""
        whole = {"maps": ()} if self.levels else {}
        return dataclasses.replace(self, classes=classes, **whole)

    @property
    def levels(self) -> int:
        """Returns the number of blocks or stages that can give a feature map; 0 if none can.

        A model with levels has the field `maps`.
        """
        return 0

    def for_maps(self, levels: tuple[int, ...]) -> Self:
        """Returns the model that maps an image to its feature maps, and has no head.

        They are a tuple of float32 [B, rows, columns, C]. Tokens of every level go through the last
        norm, as in DINOv2. Stages have the grids and channels of a pyramid.

        Args:
          levels: which blocks or stages, counted from 1 to `self.levels`.

        Raises:
          BadInput: the model does not have these levels.
        """
        if not self.levels:
            raise BadInput(
                f"{self.in_words()} gives no feature maps; use a ViT, a hybrid or a Mixer with "
                "model.pool=token or gap, or BiT."
            )
        if not levels or (bad := [level for level in levels if not 1 <= level <= self.levels]):
            wrong = ", ".join(map(str, bad)) if levels else "none"
            raise BadInput(
                f"feature maps of levels {wrong}: {self.in_words()} has levels 1 to {self.levels}."
            )
        return dataclasses.replace(self, classes=0, maps=levels)

    @property
    def predicts_patches(self) -> bool:
        """Returns True if `for_patches` exists, which masked patch prediction needs."""
        return False

    def for_patches(self, outputs: int) -> Self:
        """Returns the model with that many outputs for each patch, and no other head."""
        raise self._missing("for_patches")

    def for_tokens(self) -> Self:
        """Returns the model that maps an image to its representation and patches, without a head.

        They are one array, float32 [B, 1 + L, D], and the patches are those after the last norm.
        Its call also takes `source_BL`, and `size` for images of another size, as that of a ViT.

        Raises:
          BadInput: the model cannot do so.
        """
        raise BadInput(
            f"{self.in_words()} gives no tokens of masked images; use a ViT or a hybrid."
        )

    # ------------------------------------------------------------ figures and weights

    def pixel_filters(self, params: dict[str, Any]) -> "tuple[jax.Array, str] | None":
        """Returns the kernel on pixels [h, w, C, D], and words for its layer; None if unknown."""
        inner = self.inner_resnet
        return None if inner is None else (inner.pixel_filters(params), "the first convolution")

    @property
    def attends(self) -> bool:
        """Returns True if `analysis.maps` can read the attention, and positions, of the model."""
        return False

    def lacking_figures(self) -> list[str]:
        """Returns which figures the model cannot have and why, one sentence each."""
        if type(self).pixel_filters is ModelConfig.pixel_filters and self.inner_resnet is None:
            return ["No figure shows the inside of a user's own model."]
        return ["Only the filters of a user's own model are shown."]

    @property
    def published_heads(self) -> int:
        """Returns the attention heads, which a file of weights may not tell; 0 without any."""
        return 0

    @property
    def weight_formats(self) -> tuple[Any, ...]:
        """Returns a user's own tables of names in weight files, each a `name_table.Format`."""
        return ()

    def unwritten(self, weight_format: str) -> str:
        """Returns a setting that no tensor in a file of this format shows; "" if there is none."""
        inner = self.inner_resnet
        return "" if inner is None or inner.stem == "standard" else f"stem={inner.stem}"

    def unheld(
        self, constants: "Mapping[str, Any]", takes: frozenset[str], *, everything: bool
    ) -> list[str]:
        """Returns the options that a table of names cannot hold, as KEY=VALUE.

        Args:
          constants: options that the table stands for.
          takes: options that its models may have or lack.
          everything: whether its models also have one pool and no registers.
        """
        return []

    def weights_side(self, flat: "Mapping[str, np.ndarray]") -> int:
        """Returns the pixels per side of images that the weights were made for; 0 if unknown.

        Raises:
          BadInput: the weights are for images that are not square.
        """
        return 0


class TokenConfig(ModelConfig):
    """Base class of models that embed patches and have `depth` layers of tokens of one width."""

    if TYPE_CHECKING:
        depth: Any
        width: Any
    FORMS: ClassVar[tuple[str, ...]] = ("unrolled", "remat")

    @property
    def shrinks(self) -> bool:
        """Returns True if layers change the number of tokens, so that they cannot be scanned."""
        return False

    @property
    def levels(self) -> int:
        return 0 if getattr(self, "pool", "") == "map" else self.depth

    def stream_size(self, height: int, width: int) -> int:
        return self.depth * math.prod(self.patch_grid(height, width)) * self.width

    def channel_flops(self, height: int, width: int) -> int:
        rows, columns = self.patch_grid(height, width)
        linear = 2 * rows * columns * self.stride**2 * self.width
        return super().channel_flops(height, width) if self.inner_resnet else linear

    def pixel_filters(self, params: dict[str, Any]) -> "tuple[jax.Array, str] | None":
        embedding = "the linear embedding of patches"
        return super().pixel_filters(params) or (params["embedding"]["kernel"], embedding)

    def patches_of(self, flat: "Mapping[str, np.ndarray]") -> int:
        """Returns the number of patches that weights were made for."""
        raise self._missing("patches_of")

    def weights_side(self, flat: "Mapping[str, np.ndarray]") -> int:
        patches = self.patches_of(flat)
        side = round(patches**0.5)
        if side * side != patches:
            raise BadInput(f"{patches} patches are not a square image; write npz, which takes any.")
        return side * self.stride


def only_filters(name: str) -> list[str]:
    """Returns the sentence for a family with neither position embeddings nor attention."""
    return [f"{name} has neither position embeddings nor attention, so only its filters are shown."]


# ---------------------------------------------------------------- settings

FREE = "custom"  # the size of a variant whose numbers the user gives

# Settings that several families accept; those of `_ALL` fit every model.
BACKBONE = {"stages", "root_width", "stem", "stem_stride", "gn_epsilon", "ws_epsilon"}
BACKBONE |= {"ws_epsilon_in"}
TOKENS = {"width", "depth", "mlp", "drop_path", "gelu", "ln_epsilon", "scan"}
_ALL = {"variant", "head_bias", "dtype", "remat"}


def check(wanted: Settings) -> None:
    """Raises BadInput for settings that their declarations do not allow."""
    schema.check((f"model.{f}", d, getattr(wanted, f)) for f, d in schema.keys(Settings).items())


def refuse_others(wanted: Settings, takes: set[str]) -> None:
    """Raises BadInput for settings that this variant does not have."""
    others = {n: value for n, value in changed(wanted).items() if n not in takes | _ALL}
    if others:
        given = ", ".join(f"model.{name}={value!r}" for name, value in others.items())
        unset = [f"--config.model.{n}={getattr(Settings(), n)}" for n in others]
        them = "it" if len(others) == 1 else "them"
        raise BadInput(
            f"{given}: {wanted.variant} has no {' and no '.join(others)}; leave {them} out (where "
            f"a recipe sets {them}: {' '.join(unset)})."
        )


def changed(wanted: Settings) -> dict[str, Any]:
    """Returns the settings that the user has set."""
    fields = dataclasses.fields(Settings)[1:]
    return {f.name: v for f in fields if (v := getattr(wanted, f.name)) != f.default}


def sizes(
    wanted: Settings, size: str, table: dict[str, tuple[int, ...]], fields: tuple[str, ...]
) -> dict[str, int]:
    """Returns the numbers of a named size, with the given ones replaced."""
    if size != FREE and size not in table:
        raise unknown_variant(wanted.variant)
    named = table.get(size, (0,) * len(fields))
    numbers = {f: getattr(wanted, f) or n for f, n in zip(fields, named, strict=True)}
    lacking = [f"model.{f}" for f, n in numbers.items() if n < 1]
    if lacking:
        raise BadInput(f"model {wanted.variant}: give {', '.join(lacking)} (1 or more).")
    return numbers


def shared_fields(wanted: Settings, *fields: str) -> dict[str, Any]:
    """Returns the fields that are used as given; "auto" and 0 become the published values."""
    values = {f: getattr(wanted, f) for f in ("head_bias", "dtype", "remat", *fields)}
    values["remat"] = "none" if wanted.remat == "auto" else wanted.remat
    if "gelu" in values:
        values["gelu"] = "tanh" if wanted.gelu == "auto" else wanted.gelu
        values["ln_epsilon"] = wanted.ln_epsilon or 1e-6
    return values


def unknown_variant(variant: str) -> BadInput:
    """Returns the error for an unknown variant, with the most similar names."""
    from vit_jax.models.published import hint
    from vit_jax.models.variants import NAMED

    options = [*NAMED, "or any patch side", plugins.USAGE]
    return unknown("model variant", variant, options, hint(variant))
