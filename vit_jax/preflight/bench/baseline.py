# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The same ViT as one would write it in jax in an afternoon, as a baseline for measurements.

It has one function for each part, a Python loop over layers, gradients by `jax.grad` and AdamW by
hand. Its steps share no line with the rest of the package. Its logits are those of `ViT` on the
same weights. Axes: B batch, L tokens, D width, N heads, K head dim. Start from `logits`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax.models import variants, vit
from vit_jax.preflight.bench.interleaved import Asked, Timed
from vit_jax.preflight.bench.our_steps import CLASSES, begin, config

Params = dict[str, Any]


def config_of(asked: Asked) -> vit.ViTConfig | None:
    """Returns the sizes of a plain ViT with a class token; None for any other model."""
    return vit.plain(variants.of(config(asked).model, CLASSES))


def init(key: jax.Array, cfg: vit.ViTConfig, side: int) -> Params:
    """Makes random weights, with qkv in one matrix."""
    keys = iter(jax.random.split(key, 4 + 4 * cfg.depth))

    def dense(rows: int, columns: int) -> Params:
        w = jax.random.normal(next(keys), (rows, columns)) * (2 / (rows + columns)) ** 0.5
        return {"w": w, "b": jnp.zeros(columns)}

    def norm() -> Params:
        return {"scale": jnp.ones(d), "bias": jnp.zeros(d)}

    d = cfg.width
    return {
        "embed": dense(cfg.patch**2 * 3, d),
        "cls": jnp.zeros((1, 1, d)),
        "posemb": 0.02 * jax.random.normal(next(keys), (1, (side // cfg.patch) ** 2 + 1, d)),
        "blocks": [
            {
                "norm1": norm(),
                "qkv": dense(d, 3 * d),
                "out": dense(d, d),
                "norm2": norm(),
                "up": dense(d, cfg.mlp),
                "down": dense(cfg.mlp, d),
            }
            for _ in range(cfg.depth)
        ],
        "norm": norm(),
        "head": dense(d, cfg.classes),
    }


def _dense(p: Params, x: jax.Array) -> jax.Array:
    return x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype)


def _norm(p: Params, x_BLD: jax.Array) -> jax.Array:
    x = x_BLD.astype(jnp.float32)
    x = x - x.mean(axis=-1, keepdims=True)
    x = x * jax.lax.rsqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
    return (x * p["scale"] + p["bias"]).astype(x_BLD.dtype)


def _attention(p: Params, x_BLD: jax.Array, heads: int) -> jax.Array:
    b, length, d = x_BLD.shape
    q, k, v = jnp.split(_dense(p["qkv"], x_BLD).reshape(b, length, 3 * heads, -1), 3, axis=2)
    scores_BNLL = jnp.einsum("bqnk,bmnk->bnqm", q, k) * (d // heads) ** -0.5
    weights_BNLL = jax.nn.softmax(scores_BNLL.astype(jnp.float32)).astype(x_BLD.dtype)
    mixed_BLD = jnp.einsum("bnqm,bmnk->bqnk", weights_BNLL, v).reshape(b, length, d)
    return _dense(p["out"], mixed_BLD)


def logits(params: Params, images: jax.Array, cfg: vit.ViTConfig) -> jax.Array:
    """Maps uint8 [B, H, W, 3] to float32 [B, Y]."""
    x = (images.astype(jnp.float32) / 127.5 - 1).astype(cfg.dtype)
    b, grid, p = x.shape[0], x.shape[1] // cfg.patch, cfg.patch
    x = x.reshape(b, grid, p, grid, p, 3).transpose(0, 1, 3, 2, 4, 5).reshape(b, grid * grid, -1)
    x = _dense(params["embed"], x)
    cls = jnp.broadcast_to(params["cls"].astype(x.dtype), (b, 1, cfg.width))
    x = jnp.concatenate([cls, x], axis=1) + params["posemb"].astype(x.dtype)
    for block in params["blocks"]:
        x = x + _attention(block, _norm(block["norm1"], x), cfg.heads)
        x = x + _dense(block["down"], jax.nn.gelu(_dense(block["up"], _norm(block["norm2"], x))))
    return _dense(params["head"], _norm(params["norm"], x)[:, 0].astype(jnp.float32))


def train(asked: Asked) -> Timed:
    """Prepares training steps, see `step`."""
    cfg, (images, labels) = _begin(asked)
    trained = state(cfg, asked.resolution)
    jitted = jax.jit(step(cfg), donate_argnums=0)
    trained, value = jitted(trained, images, labels)
    value.block_until_ready()

    def once() -> jax.Array:
        nonlocal trained
        trained, value = jitted(trained, images, labels)
        return value

    return Timed(once, jax.block_until_ready, {})


def state(cfg: vit.ViTConfig, side: int) -> Any:
    """Makes (number of the step, parameters, first moments, second moments)."""
    params = init(jax.random.key(0), cfg, side)
    zeros = jax.tree.map(jnp.zeros_like, params)
    return (jnp.float32(1), params, zeros, jax.tree.map(jnp.copy, zeros))


def step(cfg: vit.ViTConfig) -> Callable[..., tuple[Any, jax.Array]]:
    """Returns (state, images, labels) -> (state, loss).

    It has AdamW with weight decay, clipping at 1 and softmax cross-entropy.
    """

    def loss(params: Params, images: jax.Array, labels: jax.Array) -> jax.Array:
        logp = jax.nn.log_softmax(logits(params, images, cfg))
        return -jnp.take_along_axis(logp, labels[:, None], axis=1).mean()

    def update(state: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, jax.Array]:
        t, params, mean, square = state
        value, grads = jax.value_and_grad(loss)(params, images, labels)
        norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * jnp.minimum(1.0, 1.0 / norm), grads)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, grads)
        square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, square, grads)

        def updated(p: jax.Array, m: jax.Array, s: jax.Array) -> jax.Array:
            direction = m / (1 - 0.9**t) / (jnp.sqrt(s / (1 - 0.999**t)) + 1e-8)
            return p - 1e-3 * (direction + 0.1 * p * (p.ndim > 1))

        return (t + 1, jax.tree.map(updated, params, mean, square), mean, square), value

    return update


def predict(asked: Asked) -> Timed:
    """Prepares predictions: the probabilities of all classes."""
    cfg, (images, _) = _begin(asked)
    params = init(jax.random.key(0), cfg, asked.resolution)
    jitted = jax.jit(lambda params, images: jax.nn.softmax(logits(params, images, cfg)))
    jitted(params, images).block_until_ready()
    return Timed(lambda: jitted(params, images), jax.block_until_ready, {})


def _begin(asked: Asked) -> tuple[vit.ViTConfig, tuple[jax.Array, jax.Array]]:
    """Returns sizes, and random images and labels on the device."""
    begin(config(asked))
    cfg = config_of(asked)
    assert cfg is not None, asked
    random = np.random.default_rng(0)
    shape = (asked.batch, asked.resolution, asked.resolution, 3)
    images = jnp.asarray(random.integers(0, 256, shape, np.uint8))
    return cfg, (images, jnp.asarray(random.integers(0, CLASSES, asked.batch)))
