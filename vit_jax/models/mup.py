# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The part of muP (arXiv:2203.03466) in a ViT; the other part, learning rates, is `optim.mup`.

Initial kernels need no change: their deviation falls with the root of the width already, heads
start at zero, and position embeddings and biases do not depend on the width. Start from
`query_scale`.
"""

import math
from typing import TYPE_CHECKING

import flax.linen as nn

if TYPE_CHECKING:
    from vit_jax.models.vit_config import ViTConfig

_HEAD = 64  # numbers of a head for which scores are the usual ones


def query_scale(cfg: "ViTConfig", heads: int = 0) -> float:
    """Returns the factor on queries of `heads`, 0 for those of `cfg`, beside 1 / sqrt(K).

    With muP, scores are divided by K / 8 (definition 4.1), so heads of 64 numbers, which most
    published models have, are as usual.
    """
    return math.sqrt(_HEAD / (cfg.width // (heads or cfg.heads))) if cfg.mup_base_width else 1.0


def initial_probe(cfg: "ViTConfig") -> nn.initializers.Initializer:
    """Returns the initialiser of a probe [1, 1, D]: variance 2 / (1 + D), of D the base width."""
    uniform = nn.initializers.variance_scaling
    return uniform(2.0 / (1 + (cfg.mup_base_width or cfg.width)), "fan_in", "uniform")


def unwritten(cfg: "ViTConfig") -> str:
    """Returns the setting that no weight file shows; "" where the model is as usual."""
    scales = query_scale(cfg), query_scale(cfg, cfg.pool_heads)
    return "" if scales == (1.0, 1.0) else f"mup_base_width={cfg.mup_base_width}"
