# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Similarity of position embeddings (Figures 7, centre, and 10 of arXiv:2010.11929).

Start from `of_model`.
"""

from typing import Any

import numpy as np

from vit_jax import tree
from vit_jax.models import posemb, variants, vit, vit_block


def of_model(cfg: vit.ViTConfig, params: dict[str, Any], size: tuple[int, int]) -> np.ndarray:
    """Returns the cosine similarity of any two patches' position embeddings.

    The embeddings are those that the model adds.

    Args:
      cfg: configuration with a `posemb` of its own; see `has_embeddings`.
      params: parameters for images of that size.
      size: rows and columns of pixels.

    Returns:
      float32 [T, rows, columns, rows, columns] in [-1, 1]. T is the number of layers if each has
      its own embeddings (posemb_at=every), else 1.
    """
    grid = variants.grid(cfg, *size)
    tables = [params]
    if cfg.posemb_at == "every":
        looped = tree.unstack_blocks(params)
        tables = [looped[f"block_{i}"] for i in range(cfg.depth)]
    return np.stack([of_grid(_patches(cfg, table, grid), grid) for table in tables])


def has_embeddings(cfg: vit.ViTConfig) -> bool:
    """Returns True if the model adds position embeddings to patches."""
    return cfg.posemb not in posemb.WITHOUT_TABLE


def _patches(cfg: vit.ViTConfig, params: dict[str, Any], grid: tuple[int, int]) -> np.ndarray:
    """Returns the embeddings that are added to the patches, float32 [L, D]."""
    added_1LD = vit_block.position_table(cfg, lambda name, *_: params[name], grid)
    return np.asarray(added_1LD, np.float32)[0, -grid[0] * grid[1] :]


def of_grid(posemb_LD: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """Returns the cosine similarity of any two rows, [rows, columns, rows, columns].

    It is 0 for a row of zeros.
    """
    lengths_L1 = np.linalg.norm(posemb_LD, axis=1, keepdims=True)
    unit_LD = posemb_LD / np.maximum(lengths_L1, np.finfo(np.float32).tiny)
    return (unit_LD @ unit_LD.T).clip(-1, 1).reshape(*grid, *grid)
