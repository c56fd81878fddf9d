# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The Vision Transformer of arXiv:2010.11929 in plain numpy at float64; shares no code with ours.

`z` is a sequence of token vectors [batch, tokens, width], as in equations 1 to 4 of the paper.
"""

import math
from typing import Any

import numpy as np

Weights = dict[str, Any]


def forward(
    weights: Weights,
    images: np.ndarray,
    *,
    patch: int,
    pool: str,
    posemb: str = "learned1d",
    posemb_at: str = "stem",
    gelu: str = "tanh",
    ln_epsilon: float = 1e-6,
    seen: list[np.ndarray] | None = None,
) -> np.ndarray:
    """Logits of normalised images (or of a feature map), from parameters in the loop layout.

    Without a head in the weights the result is what the head would take. Attention weights
    [batch, heads, tokens, tokens] of the layers, then of a map head, are appended to `seen`.
    """
    seen = [] if seen is None else seen
    weights = as_float64(weights)
    z = linear(patches(images.astype(np.float64), patch), flat(weights["embedding"]))
    grid = images.shape[1] // patch, images.shape[2] // patch
    extra = [weights[name] for name in ("cls", "registers") if name in weights]
    z = np.concatenate([*(np.repeat(tokens, len(z), axis=0) for tokens in extra), z], axis=1)

    def add_positions(z: np.ndarray, w: Weights) -> np.ndarray:
        if posemb in ("none", "relative"):
            return z
        z = z.copy()
        own, others = _positions(w, posemb, grid, z.shape[-1])
        if pool == "token":
            z[:, 0] += own
        z[:, z.shape[1] - len(others) :] += others  # registers stay as they are
        return z

    if posemb_at == "stem":
        z = add_positions(z, weights)
    layer = 0
    while f"block_{layer}" in weights:
        w = weights[f"block_{layer}"]
        if posemb_at != "stem":
            z = add_positions(z, w if posemb_at == "every" else weights)
        normed = layer_norm(z, w["attn_norm"], ln_epsilon)
        z = z + _attention(normed, normed, w["attn"], seen)
        z = z + mlp(layer_norm(z, w["mlp_norm"], ln_epsilon), w["mlp"], gelu)
        layer += 1
    z = layer_norm(z, weights["norm"], ln_epsilon)
    if pool == "token":
        y = z[:, 0]
    elif pool == "gap":
        y = z[:, -grid[0] * grid[1] :].mean(axis=1)
    else:
        w, pooling = weights["map_head"], z[:, -grid[0] * grid[1] :]
        pooled = _attention(np.repeat(w["probe"], len(z), axis=0), pooling, w["attn"], seen)
        y = (pooled + mlp(layer_norm(pooled, w["norm"], ln_epsilon), w["mlp"], gelu))[:, 0]
    if "pre_logits" in weights:
        y = np.tanh(linear(y, weights["pre_logits"]))
    return linear(y, weights["head"]) if "head" in weights else y


def as_float64(weights: Any) -> Any:
    if isinstance(weights, dict):
        return {name: as_float64(value) for name, value in weights.items()}
    return np.asarray(weights, np.float64)


def flat(conv: Weights) -> Weights:
    return {"kernel": conv["kernel"].reshape(-1, conv["bias"].size), "bias": conv["bias"]}


def patches(images: np.ndarray, patch: int) -> np.ndarray:
    rows, columns = images.shape[1] // patch, images.shape[2] // patch
    cut = [
        images[:, r * patch : (r + 1) * patch, c * patch : (c + 1) * patch].reshape(len(images), -1)
        for r in range(rows)
        for c in range(columns)
    ]
    return np.stack(cut, axis=1)


def linear(x: np.ndarray, w: Weights) -> np.ndarray:
    return x @ w["kernel"] + w["bias"]


def layer_norm(x: np.ndarray, w: Weights, epsilon: float) -> np.ndarray:
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * w["scale"] + w["bias"]


def mlp(x: np.ndarray, w: Weights, gelu: str) -> np.ndarray:
    h = linear(x, w["up"])
    if gelu == "tanh":
        h = 0.5 * h * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (h + 0.044715 * h**3)))
    else:
        h = 0.5 * h * (1.0 + np.vectorize(math.erf)(h / np.sqrt(2.0)))
    return linear(h, w["down"])


def _positions(
    w: Weights, kind: str, grid: tuple[int, int], width: int
) -> tuple[np.ndarray | float, np.ndarray]:
    """Returns what is added to the class token, and to the patches row by row."""
    rows, columns = grid
    if kind == "learned1d":
        table = w["posemb"][0]
        return table[0], table[len(table) - rows * columns :]
    if kind == "learned2d":
        own = w["posemb_cls"][0, 0] if "posemb_cls" in w else 0.0
        pairs = [
            np.concatenate([w["posemb_x"][0, c], w["posemb_y"][0, r]])
            for r in range(rows)
            for c in range(columns)
        ]
        return own, np.stack(pairs)
    table = np.zeros((rows, columns, width))
    quarter = width // 4
    for r in range(rows):
        for c in range(columns):
            for k in range(quarter):
                omega = 1.0 / 10_000 ** (k / (quarter - 1))
                table[r, c, k] = math.sin(c * omega)
                table[r, c, quarter + k] = math.cos(c * omega)
                table[r, c, 2 * quarter + k] = math.sin(r * omega)
                table[r, c, 3 * quarter + k] = math.cos(r * omega)
    return 0.0, table.reshape(rows * columns, width)


def _attention(z: np.ndarray, memory: np.ndarray, w: Weights, seen: list[np.ndarray]) -> np.ndarray:
    """One head after the other, as appendix A writes it."""
    heads, head_dim = w["query"]["bias"].shape
    of_heads = []
    result = np.zeros((*z.shape[:-1], w["out"]["bias"].size)) + w["out"]["bias"]
    for head in range(heads):
        q = z @ w["query"]["kernel"][:, head] + w["query"]["bias"][head]
        k = memory @ w["key"]["kernel"][:, head] + w["key"]["bias"][head]
        v = memory @ w["value"]["kernel"][:, head] + w["value"]["bias"][head]
        scores = q @ k.swapaxes(1, 2) / np.sqrt(head_dim)
        if "relative" in w:
            for i in range(z.shape[1]):
                for j in range(z.shape[1]):
                    offset = w["relative"][z.shape[1] - 1 + i - j, head]
                    scores[:, i, j] += q[:, i] @ offset / np.sqrt(head_dim)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = scores / scores.sum(axis=-1, keepdims=True)
        result += weights @ v @ w["out"]["kernel"][head]
        of_heads.append(weights)
    seen.append(np.stack(of_heads, axis=1))
    return result
