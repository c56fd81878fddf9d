# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The Vision Transformer of arXiv:2010.11929 in plain numpy at float64; shares no code with ours.

`z` is a sequence of token vectors [batch, tokens, width], as in equations 1 to 4 of the paper.
"""

from typing import Any

import numpy as np

Weights = dict[str, Any]


def forward(weights: Weights, images: np.ndarray, *, patch: int, pool: str) -> np.ndarray:
    """Logits of normalised images, from parameters in the loop layout."""
    weights = _as_float64(weights)
    z = _linear(_patches(images.astype(np.float64), patch), _flat(weights["embedding"]))
    if pool == "token":
        z = np.concatenate([np.repeat(weights["cls"], len(z), axis=0), z], axis=1)
    z = z + np.repeat(weights["posemb"], len(z), axis=0)
    layer = 0
    while f"block_{layer}" in weights:
        w = weights[f"block_{layer}"]
        normed = _layer_norm(z, w["attn_norm"])
        z = z + _attention(normed, normed, w["attn"])
        z = z + _mlp(_layer_norm(z, w["mlp_norm"]), w["mlp"])
        layer += 1
    z = _layer_norm(z, weights["norm"])
    if pool == "token":
        y = z[:, 0]
    elif pool == "gap":
        y = z.sum(axis=1) / z.shape[1]
    else:
        w = weights["map_head"]
        pooled = _attention(np.repeat(w["probe"], len(z), axis=0), z, w["attn"])
        y = (pooled + _mlp(_layer_norm(pooled, w["norm"]), w["mlp"]))[:, 0]
    if "pre_logits" in weights:
        y = np.tanh(_linear(y, weights["pre_logits"]))
    return _linear(y, weights["head"])


def _as_float64(weights: Any) -> Any:
    if isinstance(weights, dict):
        return {name: _as_float64(value) for name, value in weights.items()}
    return np.asarray(weights, np.float64)


def _flat(conv: Weights) -> Weights:
    return {"kernel": conv["kernel"].reshape(-1, conv["bias"].size), "bias": conv["bias"]}


def _patches(images: np.ndarray, patch: int) -> np.ndarray:
    rows, columns = images.shape[1] // patch, images.shape[2] // patch
    cut = [
        images[:, r * patch : (r + 1) * patch, c * patch : (c + 1) * patch].reshape(len(images), -1)
        for r in range(rows)
        for c in range(columns)
    ]
    return np.stack(cut, axis=1)


def _linear(x: np.ndarray, w: Weights) -> np.ndarray:
    return x @ w["kernel"] + w["bias"]


def _layer_norm(x: np.ndarray, w: Weights) -> np.ndarray:
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-6) * w["scale"] + w["bias"]


def _mlp(x: np.ndarray, w: Weights) -> np.ndarray:
    h = _linear(x, w["up"])
    h = 0.5 * h * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (h + 0.044715 * h**3)))
    return _linear(h, w["down"])


def _attention(z: np.ndarray, memory: np.ndarray, w: Weights) -> np.ndarray:
    """One head after the other, as appendix A writes it."""
    heads, head_dim = w["query"]["bias"].shape
    result = np.zeros((*z.shape[:-1], w["out"]["bias"].size)) + w["out"]["bias"]
    for head in range(heads):
        q = z @ w["query"]["kernel"][:, head] + w["query"]["bias"][head]
        k = memory @ w["key"]["kernel"][:, head] + w["key"]["bias"][head]
        v = memory @ w["value"]["kernel"][:, head] + w["value"]["bias"][head]
        scores = q @ k.swapaxes(1, 2) / np.sqrt(head_dim)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = scores / scores.sum(axis=-1, keepdims=True)
        result += weights @ v @ w["out"]["kernel"][head]
    return result
