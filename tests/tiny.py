# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A ViT of three narrow layers, with every parameter away from its initial value."""

import functools
from typing import Any

import jax
import numpy as np

from vit_jax import tree
from vit_jax.models import variants, vit

HEIGHT, WIDTH, PATCH = 8, 12, 4  # not square, so that a transposed grid shows


def config(**changes: Any) -> vit.ViTConfig:
    sizes = {"variant": f"Ti/{PATCH}", "width": 32, "depth": 3, "mlp": 48, "heads": 4, "classes": 7}
    return variants.config(**sizes | changes)


@functools.lru_cache
def shapes(cfg: vit.ViTConfig, height: int = HEIGHT, width: int = WIDTH) -> Any:
    """The parameter tree of a model as shapes, in the layout of `cfg.scan`."""
    image = jax.ShapeDtypeStruct((1, height, width, 3), np.float32)
    return jax.eval_shape(vit.ViT(cfg).init, jax.random.key(0), image)["params"]


def randomised(abstract: Any, seed: int = 0) -> Any:
    """float32 values for a tree of shapes: kernels of gain 1.5, biases and scales well off 0, 1."""
    rng = np.random.default_rng(seed)

    def one(path: str, leaf: Any) -> np.ndarray:
        shape = leaf.shape[tree.is_stacked(path) :]
        inputs = shape[:1] if path.split("/")[-2] in ("query", "key", "value") else shape[:-1]
        gain = {"kernel": 1.5 / np.sqrt(np.prod(inputs)), "scale": 0.3}
        values = rng.normal(size=leaf.shape) * gain.get(path.split("/")[-1], 0.3)
        return (values + path.endswith("/scale")).astype(np.float32)

    return tree.map_with_path(lambda path, leaf: one("/" + path, leaf), abstract)


def params(cfg: vit.ViTConfig, height: int = HEIGHT, width: int = WIDTH, seed: int = 0) -> Any:
    """Random parameters; equal for the two layouts."""
    looped = randomised(tree.unstack_blocks(_indexable(shapes(cfg, height, width))), seed)
    return tree.stack_blocks(looped) if cfg.scan else looped


def _indexable(abstract: Any) -> Any:
    return jax.tree.map(lambda x: np.broadcast_to(np.float32(0), x.shape), abstract)


def images(batch: int = 5, height: int = HEIGHT, width: int = WIDTH, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(batch, height, width, 3)).astype(np.float32)
