# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws figures of the inside of a model, with captions.

Start from `draw_weights`, which needs only the parameters, and `draw_attention`.
`ModelConfig.lacking_figures` tells which figures a model cannot have.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from vit_jax import sharding
from vit_jax.analysis import filters, maps, similarity
from vit_jax.models import variants, vit, vit_config
from vit_jax.paper import results
from vit_jax.reports import drawing

IMAGES = 128  # number in the paper's mean
PRINTED = 224  # pixels a side of the images of Figures 7 and 11
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


def draw_weights(
    cfg: variants.Config, params: dict[str, Any], size: tuple[int, int]
) -> list[Figure]:
    """Draws the filters, and the similarity of position embeddings if the model has any.

    Args:
      cfg: configuration of the model.
      params: nested dict of arrays, for images of that size.
      size: rows and columns of pixels.
    """
    kernel = cfg.pixel_filters(params)
    drawn = [] if kernel is None else [_filters(cfg, filters.components(kernel[0]), kernel[1])]
    if attends(cfg) and similarity.has_embeddings(cfg):
        drawn.append(_similarity(cfg, similarity.of_model(cfg, params, size)))
    return drawn


def draw_attention(
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
      images: float32 [N, H, W, C], normalised for the model, N at least 1; the paper has `IMAGES`.
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
    """Returns True if a model has attention, which `draw_attention` needs."""
    return cfg.attends


def chosen(count: int, most: int) -> np.ndarray:
    """Returns at most `most` numbers of 0 to count - 1, evenly spaced and including both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def counted(images: int) -> str:
    """Returns a number of images in words."""
    return "1 image" if images == 1 else f"{images} images"


def _filters(cfg: variants.Config, components: filters.Components, layer: str) -> Figure:
    count, rows, columns, channels = components.images_ChwI.shape
    kind = "RGB" if channels == 3 else f"{channels} channels, drawn as their mean"
    caption = (
        f"The first {count} principal components of the filters of {layer} "
        f"({rows} x {columns} pixels, {kind}), around their mean, in {cfg.in_words()}. Together "
        f"they explain {components.shares_C.sum():.0%} of the variance of the filters; the share "
        "of each is written above it. Grey is 0, and each component is scaled by its largest "
        "number."
    )
    return Figure(
        "filters",
        "Filters of RGB values" if channels == 3 else "Filters",
        caption,
        drawing.filters(components),
    )


def _similarity(cfg: vit.ViTConfig, similarities: np.ndarray) -> Figure:
    layers = chosen(len(similarities), 3)
    _, rows, columns, _, _ = similarities.shape
    more = ""
    if len(similarities) > 1:
        count = len(similarities)
        more += f" Each of the {count} layers has its own embeddings; {len(layers)} are shown."
    steps = drawing.thinned(rows), drawing.thinned(columns)
    if max(steps) > 1:
        more += (
            f" To stay legible, the figure has one tile for every {steps[0]} rows and {steps[1]} "
            "columns; each tile is whole."
        )
    caption = (
        "Each tile shows the cosine similarity of one patch's position embedding to those of all "
        "patches. The edges give the row and column of that patch. The model is "
        f"{cfg.in_words()} ({cfg.posemb}, a grid of {rows} x {columns}).{more}"
    )
    several = len(layers) > 1
    png = drawing.similarity(
        {f"layer {layer + 1}" if several else "": similarities[layer] for layer in layers}
    )
    return Figure("posemb", "Similarity of position embeddings", caption, png)


def _distance(
    cfg: vit.ViTConfig, distance_SN: np.ndarray, size: tuple[int, int], images: int
) -> Figure:
    even = maps.even_distance(variants.grid(cfg, *size), cfg.stride)
    grid = " of its token grid" if cfg.backbone else ""
    caption = (
        f"How far each head looks in each layer: the distance from a patch{grid} to the patches "
        "that it attends to, weighted by attention without class token and registers. It is a "
        f"mean over patches and {counted(images)}, in {cfg.in_words()}. Images are {size[1]} "
        f"pixels wide; uniform attention would have a distance of {even:.0f} pixels (dashed). "
    )
    model, printed_SN = _printed(cfg, size)
    if printed_SN is None:
        caption += (
            "The paper's own values (Figures 7 and 11) are not drawn: they are of "
            f"{' and '.join(results.attention_distance())} at {PRINTED} x {PRINTED} pixels."
        )
    else:
        caption += (
            f"Rings are the paper's values for {model} (Figures 7 and 11, read off the figure), "
            "the heads of a layer in ascending order. The paper says neither which images these "
            "were nor which weights."
        )
    png = drawing.distance(distance_SN, even, printed_SN)
    return Figure("attention_distance", "Mean attention distance", caption, png)


def _printed(cfg: vit.ViTConfig, size: tuple[int, int]) -> tuple[str, np.ndarray | None]:
    """Returns the model of Figures 7 and 11 that `cfg` is, with its distances; else ("", None)."""
    for model, printed in results.attention_distance().items():
        theirs = variants.config(variant=model, classes=0)
        fields = ("patch", "width", "depth", "mlp", "heads", "pool", "posemb", "registers")
        fields = (*fields, *vit_config.OPTIONS)
        alike = all(getattr(cfg, field) == getattr(theirs, field) for field in fields)
        stages = [one and one.stages for one in (cfg.inner_resnet, theirs.inner_resnet)]
        if alike and stages[0] == stages[1] and size == (PRINTED, PRINTED):
            return model, np.array(printed)
    return "", None


def _rollout(cfg: vit.ViTConfig, pictures: np.ndarray, attended: np.ndarray, images: int) -> Figure:
    start = {
        "token": "the class token reads",
        "gap": "the mean over patches reads",
        "map": "the pooling head reads",
        "token+gap": "the class token and the mean over patches read",
    }[cfg.pool]
    some = "" if images == len(pictures) else f" {len(pictures)} of {images} images are shown."
    caption = (
        f"The parts of an image that {start} at the output, through all layers of "
        f"{cfg.in_words()} (mean over heads, half of each token kept). Left: the image that the "
        "model receives. Middle: the image, as bright as its attention. Right: the attention, as "
        f"multiples of its mean over the patches of that image.{some}"
    )
    return Figure("rollout", "Attention rollout", caption, drawing.rollout(pictures, attended))
