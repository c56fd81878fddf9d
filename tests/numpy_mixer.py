# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""MLP-Mixer of arXiv:2105.01601 in plain numpy at float64; shares no code with ours."""

import numpy as np
from numpy_vit import Weights, as_float64, flat, layer_norm, linear, mlp, patches


def forward(
    weights: Weights, images: np.ndarray, *, patch: int, gelu: str, ln_epsilon: float
) -> np.ndarray:
    """Logits of normalised images, from parameters in the loop layout (equation 1)."""
    weights = as_float64(weights)
    x = linear(patches(images.astype(np.float64), patch), flat(weights["embedding"]))
    layer = 0
    while f"block_{layer}" in weights:
        w = weights[f"block_{layer}"]
        u = x.copy()
        for channel in range(x.shape[-1]):
            column = layer_norm(x, w["token_norm"], ln_epsilon)[:, :, channel]
            u[:, :, channel] += mlp(column, w["token_mlp"], gelu)
        x = u.copy()
        for token in range(x.shape[1]):
            row = layer_norm(u, w["channel_norm"], ln_epsilon)[:, token]
            x[:, token] += mlp(row, w["channel_mlp"], gelu)
        layer += 1
    pooled = layer_norm(x, weights["norm"], ln_epsilon).mean(axis=1)
    return linear(pooled, weights["head"]) if "head" in weights else pooled
