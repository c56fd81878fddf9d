# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A small model of every family, with every parameter away from its initial value."""

import functools
from typing import Any

import jax
import numpy as np

from vit_jax import sharding, tree
from vit_jax.models import bit as bit_lib
from vit_jax.models import mixer as mixer_lib
from vit_jax.models import variants, vit

HEIGHT, WIDTH, PATCH = 8, 12, 4  # not square, so that a transposed grid shows
ENCODER = {"width": 32, "depth": 3, "mlp": 48, "heads": 4, "classes": 7}
RESNET = {"stages": (2, 1), "root_width": 32}  # a unit of each kind: with stride, without, plain


def config(**changes: Any) -> vit.ViTConfig:
    """A ViT of three narrow layers."""
    return variants.config(**{"variant": f"Ti/{PATCH}"} | ENCODER | changes)


def hybrid(**changes: Any) -> vit.ViTConfig:
    """Three units, then two layers; 8 pixels per token."""
    return variants.config(**{"variant": "R+Ti/8"} | ENCODER | RESNET | {"depth": 2} | changes)


def bit(**changes: Any) -> bit_lib.BiTConfig:
    """Three units; 8 pixels per position."""
    return variants.config(**{"variant": "BiT-custom", "classes": 7} | RESNET | changes)


def mixer(**changes: Any) -> mixer_lib.MixerConfig:
    """Three narrow layers."""
    sizes = {"width": 32, "depth": 3, "mlp": 48, "token_mlp": 20, "classes": 7}
    return variants.config(**{"variant": f"Mixer-custom/{PATCH}"} | sizes | changes)


FAMILIES = {"vit": config, "hybrid": hybrid, "bit": bit, "mixer": mixer}


def size(cfg: variants.Config) -> tuple[int, int]:
    """Height and width of images for a model: 2 x 3 tokens, or what only BiT can take."""
    if isinstance(cfg, bit_lib.BiTConfig):
        return 33, 47
    stride = cfg.stride if isinstance(cfg, vit.ViTConfig) else cfg.patch
    return 2 * stride, 3 * stride


@functools.lru_cache
def shapes(cfg: variants.Config, height: int = 0, width: int = 0) -> Any:
    """The parameter tree of a model as shapes, in the layout of `cfg.scan`; 0: as `size` says."""
    return variants.shapes(cfg, *((height, width) if height else size(cfg)))


def randomised(abstract: Any, seed: int = 0) -> Any:
    """float32 values for a tree of shapes: kernels of gain 1.5, biases and scales well off 0, 1.

    Kernels that a model standardises have a mean and another gain for each output channel. The head
    of BiT, which sees means over positions, makes up for how little they vary.
    """
    rng = np.random.default_rng(seed)
    of_means = isinstance(abstract, dict) and "backbone" in abstract and "embedding" not in abstract

    def one(path: str, leaf: Any) -> np.ndarray:
        shape = leaf.shape[tree.is_stacked(path) :]
        inputs = shape[:1] if path.split("/")[-2] in ("query", "key", "value") else shape[:-1]
        gain = {"kernel": 1.5 / np.sqrt(np.prod(inputs)), "scale": 0.3}
        values = rng.normal(size=leaf.shape) * gain.get(path.split("/")[-1], 0.3)
        if "/conv" in path:
            values = (values + 0.5 * gain["kernel"]) * rng.uniform(0.5, 2.0, size=shape[-1:])
        if path == "/head/kernel" and of_means:
            values *= 4.0
        return (values + path.endswith("/scale")).astype(np.float32)

    return tree.map_with_path(lambda path, leaf: one("/" + path, leaf), abstract)


def params(cfg: variants.Config, height: int = 0, width: int = 0, seed: int = 0) -> Any:
    """Random parameters; equal for the two layouts."""
    looped = randomised(tree.unstack_blocks(indexable(shapes(cfg, height, width))), seed)
    return tree.stack_blocks(looped) if getattr(cfg, "scan", False) else looped


def indexable(abstract: Any) -> Any:
    return jax.tree.map(lambda x: np.broadcast_to(np.float32(0), x.shape), abstract)


def images(batch: int = 5, height: int = HEIGHT, width: int = WIDTH, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, height, width, 3)).astype(np.float32)


def images_of(cfg: variants.Config, batch: int = 5) -> np.ndarray:
    """Images of `size`."""
    return images(batch, *size(cfg))


@functools.lru_cache
def forward(cfg: variants.Config, train: bool = False, rules: sharding.Rules | None = None) -> Any:
    """Jitted (params, images, key) -> logits."""
    model = variants.make(cfg, rules)
    return jax.jit(lambda p, x, key: model.apply({"params": p}, x, train=train, key=key))


def logits(cfg: variants.Config, params: Any, images: Any, train: bool = False, key: Any = None):
    """Logits with products in full float32."""
    with jax.default_matmul_precision("highest"):
        return np.asarray(forward(cfg, train)(params, images, key))
