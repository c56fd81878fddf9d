# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Counts the FLOPs of a Vision Transformer. Start from `flops`."""

from typing import TYPE_CHECKING

from vit_jax.models import merging, windows

if TYPE_CHECKING:
    from vit_jax.models.vit_config import ViTConfig


def flops(cfg: "ViTConfig", height: int, width: int, seen: int, images: int = 0) -> int:
    """Returns the FLOPs of an RGB image.

    Args:
      cfg: the model.
      height: rows of pixels.
      width: columns of pixels.
      seen: how many patches the blocks see.
      images: the images of a packed row of this size, see `naflex`; 0: one that is not packed.
    """
    patches = (height // cfg.stride) * (width // cfg.stride)
    each = max(images, 1)
    tokens = seen + each * cfg.prefix
    d, kernels = cfg.width, cfg.width * cfg.mlp * (3 if cfg.gate != "none" else 2)

    def block(tokens: int, queries: int, pairs: int) -> int:
        macs = 2 * tokens * d * d + queries * (2 * d * d + kernels) + 2 * pairs * d
        relative = cfg.posemb == "relative"
        return macs + (queries * (2 * tokens - 1) * d if relative else 0)

    def merged(tokens: int, left: int) -> int:
        """Returns the products of keys in a block, less those of the MLP that it saves."""
        even, gone = -(-tokens // 2), tokens - left
        return even * (tokens - even) * (d // cfg.heads) - gone * kernels if gone else 0

    macs, features = 0, 3
    if cfg.backbone is not None:
        macs, features = cfg.backbone.multiply_adds(height, width), cfg.backbone.features
    macs += patches * cfg.patch**2 * features * d
    within = cfg.windowed
    grid = cfg.patch_grid(height, width)
    for i in range(cfg.depth):
        if i == cfg.depth - 1 and cfg.last_is_short and not images:
            macs += block(tokens, 1, tokens)
        elif i in within:
            pairs = windows.Windows(cfg.window, grid, cfg.prefix).products
            macs += block(tokens, tokens, pairs)
        else:
            left = tokens - merging.pairs(tokens, cfg.prefix, cfg.merge)
            macs += block(tokens, tokens, tokens**2) + merged(tokens, left)
            tokens = left
    if cfg.patch_outputs:
        return 2 * (macs + patches * d * cfg.patch_outputs)
    heads = 1 + cfg.distillation
    macs += each * cfg.pooled_width * cfg.representation
    macs += each * heads * (cfg.representation or cfg.pooled_width) * cfg.classes
    if cfg.pool == "map":
        read = tokens if images else tokens - cfg.registers
        own = 2 * read * d + 2 * d * d + 2 * d * (cfg.pool_mlp or cfg.mlp)
        macs += 2 * read * d * d + each * own
    return 2 * macs
