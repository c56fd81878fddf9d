# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Figures of the inside of a model, with captions.

Start from `of_weights`, which needs only the parameters, and `of_images`. `absent` tells which
figures a model cannot have.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from vit_jax import sharding
from vit_jax.analysis import filters, maps, similarity
from vit_jax.models import bit, custom, mixer, variants, vit
from vit_jax.reports import drawing

IMAGES = 128  # number in the paper's mean
SHOWN = 6  # images in the rollout figure


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture with its title and caption.

    Attributes:
      name: file name without `.png`.
      title: a few words.
      caption: content of the picture, the model and the number of images; plain text.
      png: the picture as PNG.
    """

    name: str
    title: str
    caption: str
    png: bytes = dataclasses.field(repr=False)


def of_weights(cfg: variants.Config, params: dict[str, Any], size: tuple[int, int]) -> list[Figure]:
    """Draws the filters, and the similarity of position embeddings if the model has any.

    Args:
      cfg: configuration of the model.
      params: nested dict of arrays, for images of that size.
      size: rows and columns of pixels.
    """
    if isinstance(cfg, custom.OwnConfig):
        return []
    made = [_filters(cfg, filters.of_model(cfg, params))]
    if attends(cfg) and similarity.has_embeddings(cfg):
        made.append(_similarity(cfg, similarity.of_model(cfg, params, size)))
    return made


def of_images(
    cfg: variants.Config,
    params: dict[str, Any],
    images: np.ndarray,
    pictures: np.ndarray,
    rules: sharding.Rules | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Figure]:
    """Draws the mean attention distance over the images, and rollout over some of them.

    Returns [] for a model without attention.

    Args:
      cfg: configuration of the model.
      params: nested dict of arrays.
      images: float32 [N, H, W, 3], normalised for the model, N at least 1; the paper has `IMAGES`.
      pictures: uint8 [N, H, W, 3], the same images to look at.
      rules: mesh and placement; None uses the default device.
      progress: called with the number of finished images.

    Raises:
      RunFailed: the attention is not finite.
    """
    if not attends(cfg):
        return []
    seen = maps.look(cfg, params, images, rules, progress)
    size = images.shape[1:3]
    which = chosen(len(images), SHOWN)
    attended = maps.upsampled(seen.rollout_Bhw[which], size)
    return [
        _distance(cfg, seen.distance_SN, size, len(images)),
        _rollout(cfg, pictures[which], attended, len(images)),
    ]


def attends(cfg: variants.Config) -> TypeGuard[vit.ViTConfig]:
    """Returns whether a model has attention, which `of_images` needs."""
    return isinstance(cfg, vit.ViTConfig)


def absent(cfg: variants.Config) -> list[str]:
    """Returns which figures a model cannot have and why, one sentence each."""
    if isinstance(cfg, custom.OwnConfig):
        return ["Of the inside of a model of one's own nothing is shown."]
    if not attends(cfg):
        name = {"bit": "BiT", "mixer": "MLP-Mixer"}[variants.family(cfg)]
        return [
            f"{name} has neither position embeddings nor attention: of what is inside it, only "
            "its filters are shown."
        ]
    if cfg.posemb == "none":
        return ["This model has no position embeddings (posemb=none), so none are compared."]
    if cfg.posemb == "relative":
        return [
            "This model's positions are offsets inside attention (posemb=relative), not "
            "embeddings that could be compared."
        ]
    return []


def chosen(count: int, most: int) -> np.ndarray:
    """Returns at most `most` numbers of 0 to count - 1, evenly spaced and including both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def counted(images: int) -> str:
    """Returns a number of images in words."""
    return "1 image" if images == 1 else f"{images} images"


def described(cfg: variants.Config) -> str:
    """Describes a model in a few words."""
    if isinstance(cfg, bit.BiTConfig):
        return f"a BiT ResNet of {sum(cfg.resnet.stages)} units"
    if isinstance(cfg, mixer.MixerConfig):
        return f"an MLP-Mixer of {cfg.depth} layers"
    if isinstance(cfg, custom.OwnConfig):
        return f"a {type(cfg).__name__}"
    return (
        f"a {'hybrid' if cfg.backbone else 'ViT'} of {cfg.depth} layers with {cfg.heads} heads, "
        f"{cfg.stride} x {cfg.stride} pixels a patch"
    )


def _filters(cfg: variants.Config, found: filters.Components) -> Figure:
    count, rows, columns, _ = found.images_Chw3.shape
    convolution = variants.backbone(cfg) is not None
    what = "the first convolution" if convolution else "the linear embedding of patches"
    caption = (
        f"The first {count} principal components of the filters of {what} "
        f"({rows} x {columns} pixels, RGB), around their mean, of {described(cfg)}. Together they "
        f"are {found.shares_C.sum():.0%} of the variance of the filters, each as much as is "
        "written above it. Grey is 0; each is scaled by its own largest number."
    )
    return Figure("filters", "Filters of RGB values", caption, drawing.filters(found))


def _similarity(cfg: vit.ViTConfig, found: np.ndarray) -> Figure:
    layers = chosen(len(found), 3)
    _, rows, columns, _, _ = found.shape
    more = ""
    if len(found) > 1:
        more += f" Each of the {len(found)} layers has its own; shown are {len(layers)}."
    steps = drawing.thinned(rows), drawing.thinned(columns)
    if max(steps) > 1:
        more += (
            f" So many tiles would not be legible: there is one for every {steps[0]} rows and "
            f"{steps[1]} columns, and each is whole."
        )
    caption = (
        "Cosine similarity of the position embedding of a patch, whose row and column are "
        f"written at the edges, to those of all patches, of {described(cfg)} "
        f"({cfg.posemb}, a grid of {rows} x {columns}).{more}"
    )
    png = drawing.similarity({int(layer) + 1: found[layer] for layer in layers})
    return Figure("posemb", "Similarity of position embeddings", caption, png)


def _distance(
    cfg: vit.ViTConfig, found_SN: np.ndarray, size: tuple[int, int], images: int
) -> Figure:
    even = maps.even_distance(variants.grid(cfg, *size), cfg.stride)
    grid = " of its token grid" if cfg.backbone else ""
    caption = (
        f"How far each head looks in each layer: the distance of a patch{grid} to those that it "
        "attends to, weighted by attention without the class token and registers, as a mean over "
        f"patches and {counted(images)}, of {described(cfg)}. Images are {size[1]} pixels wide; "
        f"attention to all patches alike would have {even:.0f} pixels (dashed)."
    )
    png = drawing.distance(found_SN, even)
    return Figure("attention_distance", "Mean attention distance", caption, png)


def _rollout(cfg: vit.ViTConfig, pictures: np.ndarray, attended: np.ndarray, images: int) -> Figure:
    start = {
        "token": "the class token reads",
        "gap": "the mean over patches reads",
        "map": "the pooling head reads",
    }[cfg.pool]
    some = "" if images == len(pictures) else f" {len(pictures)} of {images} images are shown."
    caption = (
        f"Attention rollout: from where in an image {start} at the output, through all layers of "
        f"{described(cfg)} (mean over heads, half of each token kept). Left the image as the model "
        "gets it, in the middle as bright as it is attended to, right the attention itself; 1 "
        f"is the mean over patches of that image.{some}"
    )
    return Figure("rollout", "Attention rollout", caption, drawing.rollout(pictures, attended))
