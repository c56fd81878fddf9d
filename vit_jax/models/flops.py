# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Multiply-adds of a forward pass, counted by hand. Start from `forward_flops`."""

from vit_jax.models.vit import ViTConfig


def forward_flops(cfg: ViTConfig, height: int, width: int) -> int:
    """FLOPs (2 per multiply-add) of one image through the model.

    Counts patch embedding, projections, attention products, MLPs, pooling by attention,
    pre-logits and head; not norms, softmax, GELU and biases. A training step costs 3 times this.

    Args:
      cfg: the architecture.
      height: of the image in pixels, a multiple of the patch.
      width: likewise.
    """
    patches = (height // cfg.patch) * (width // cfg.patch)
    tokens = patches + (cfg.pool == "token")
    d, f = cfg.width, cfg.mlp
    block = tokens * (4 * d * d + 2 * d * f) + 2 * tokens * tokens * d
    head_in = cfg.representation or d
    macs = patches * cfg.patch**2 * 3 * d + cfg.depth * block + head_in * cfg.classes
    macs += d * cfg.representation
    if cfg.pool == "map":
        macs += 2 * tokens * d * d + 2 * tokens * d + 2 * d * d + 2 * d * f
    return 2 * macs
