# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Shows where a ViT or a hybrid looks in images: attention distance and attention rollout.

The devices reduce the attention weights. The explicit path of attention computes these, however the
model was trained. Axes: S layers, B images, N heads, L tokens, h w patches. Start from `look`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vit_jax import sharding
from vit_jax.errors import RunFailed
from vit_jax.models import variants, vit

BYTES = 2**28  # attention weights per device at a time, or those of one image
MOST = 64  # largest number of images per device at a time


@dataclasses.dataclass(frozen=True)
class Seen:
    """The attention of a model.

    Attributes:
      distance_SN: float64, mean attention distance of each head in pixels, as a mean over images.
      rollout_Bhw: float32, share of each patch in the representation at the output. Together with
        the shares of class token and registers, which are not included, they sum to 1.
    """

    distance_SN: np.ndarray
    rollout_Bhw: np.ndarray


def attention(
    cfg: vit.ViTConfig, params: Any, images_BHW3: jax.Array, rules: sharding.Rules | None = None
) -> tuple[jax.Array, jax.Array | None]:
    """Returns the attention weights of the blocks and of a map head.

    They are float32 [S, B, N, L, L] and [B, N, 1, L]. Tokens are class token, registers and
    patches, in that order.

    The map head sees no registers. The function is jittable.
    """
    cfg = dataclasses.replace(cfg, classes=0, patch_outputs=0, attention="plain", remat="none")
    _, state = variants.make(cfg, rules).apply(
        {"params": params}, images_BHW3, train=False, mutable=["intermediates"]
    )
    sown: Any = state["intermediates"]
    if cfg.scan:
        layers_SBNLL = sown["blocks"]["attn"]["weights"][0]
    else:
        blocks = [sown[f"block_{i}"] for i in range(cfg.depth)]
        layers_SBNLL = jnp.stack([block["attn"]["weights"][0] for block in blocks])
    pooling = sown["map_head"]["attn"]["weights"][0] if cfg.pool == "map" else None
    return layers_SBNLL, pooling


def read_at_output(
    cfg: vit.ViTConfig, weights_SBNLL: jax.Array, pooling_BN1L: jax.Array | None
) -> jax.Array:
    """Returns the shares of output tokens in the representation, float32 [B, L].

    Rollout starts from them.

    They are the class token alone, all patches equally, or the attention of a map head.
    """
    _, batch, _, tokens, _ = weights_SBNLL.shape
    if pooling_BN1L is not None:
        shares_BL = jnp.mean(pooling_BN1L, axis=(1, 2))
        none = jnp.zeros((batch, cfg.registers), shares_BL.dtype)
        parts = [shares_BL[:, : cfg.class_rows], none, shares_BL[:, cfg.class_rows :]]
        return jnp.concatenate(parts, axis=1)
    places = jnp.arange(tokens)
    class_L, patches_L = places <= cfg.distillation, places >= cfg.prefix
    read = {"token": [class_L], "gap": [patches_L], "token+gap": [class_L, patches_L]}[cfg.pool]
    read_L = sum(part_L / jnp.sum(part_L) for part_L in read) / len(read)
    return jnp.broadcast_to(read_L, (batch, tokens)).astype(jnp.float32)


def look(
    cfg: vit.ViTConfig,
    params: Any,
    images_BHW3: np.ndarray,
    rules: sharding.Rules | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Seen:
    """Computes attention distance and rollout of images, a few images at a time.

    Args:
      cfg: configuration of the model.
      params: parameters, on the mesh of the rules or anywhere.
      images_BHW3: float32, normalised, at least one image; the same in every process.
      rules: mesh and placement; None uses the default device.
      progress: called with the number of finished images.

    Raises:
      RunFailed: the attention is not finite.
    """
    count, height, width, _ = images_BHW3.shape
    grid = variants.grid(cfg, height, width)
    pixels_LL = pixels_between(grid, cfg.stride)

    def step(params: Any, images_BHW3: jax.Array) -> tuple[jax.Array, jax.Array]:
        weights_SBNLL, pooling_BN1L = attention(cfg, params, images_BHW3, rules)
        start_BL = read_at_output(cfg, weights_SBNLL, pooling_BN1L)
        shares_BL = rollout(weights_SBNLL, start_BL)[:, -len(pixels_LL) :]
        distance_SBN = distance(weights_SBNLL, pixels_LL)
        return distance_SBN.swapaxes(0, 1), shares_BL.reshape(-1, *grid)

    run = jax.jit(step, out_shardings=rules.replicated if rules else None)
    size = batch_size(cfg, len(pixels_LL), count, rules.batch_parts if rules else 1)
    batches = []
    for start in range(0, count, size):
        part = images_BHW3[start : start + size]
        padded = np.pad(part, ((0, size - len(part)), (0, 0), (0, 0), (0, 0)))
        arrays = jax.device_get(run(params, _placed(padded, rules)))
        batches.append([array[: len(part)] for array in arrays])
        progress(start + len(part))
    distance_BSN, rollout_Bhw = (np.concatenate(arrays) for arrays in zip(*batches, strict=True))
    if not (np.isfinite(distance_BSN).all() and np.isfinite(rollout_Bhw).all()):
        raise RunFailed("attention is not finite: the weights are damaged or have diverged.")
    return Seen(distance_BSN.mean(axis=0, dtype=np.float64), rollout_Bhw)


def batch_size(cfg: vit.ViTConfig, patches: int, count: int, ways: int) -> int:
    """Returns how many images fit at a time with all attention weights, a multiple of `ways`."""
    tokens = patches + cfg.prefix
    each = 4 * cfg.depth * cfg.heads * tokens**2
    return ways * min(max(1, BYTES // each), MOST, -(-count // ways))


def _placed(images_BHW3: np.ndarray, rules: sharding.Rules | None) -> Any:
    if rules is None:
        return images_BHW3
    over = rules.sharding(("act_batch",), images_BHW3.shape[:1], "images")
    return jax.make_array_from_callback(images_BHW3.shape, over, lambda where: images_BHW3[where])


def rollout(weights_SBNLL: jax.Array, start_BL: jax.Array) -> jax.Array:
    """Returns the share of each input token in the representation at the output.

    This is attention rollout (Abnar and Zuidema, arXiv:2005.00928; Figure 6 of arXiv:2010.11929).
    Each layer mixes tokens by its attention, averaged over heads, and keeps half of each token
    because of the residual connection. The matrices of the layers are multiplied.

    Args:
      weights_SBNLL: attention weights of the S layers.
      start_BL: shares of the output tokens in the representation; they sum to 1.

    Returns:
      float32 [B, L], shares of the input tokens; they sum to 1.
    """

    def back(shares_BL: jax.Array, weights_BNLL: jax.Array) -> tuple[jax.Array, None]:
        mixed_BLL = jnp.mean(weights_BNLL.astype(jnp.float32), axis=1)
        mixed_BLL /= jnp.sum(mixed_BLL, axis=-1, keepdims=True)
        through_BL = jnp.einsum("bl,blm->bm", shares_BL, mixed_BLL, precision="highest")
        return 0.5 * shares_BL + 0.5 * through_BL, None

    return jax.lax.scan(back, start_BL, weights_SBNLL, reverse=True)[0]


def upsampled(shares_Bhw: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Returns shares of patches as multiples of their mean, float32 [B, H, W].

    Values are bilinear between the centres of patches.

    Args:
      shares_Bhw: [B, rows, columns].
      size: rows and columns of pixels.
    """
    even_B11 = shares_Bhw.mean(axis=(1, 2), keepdims=True)
    shape = (len(shares_Bhw), *size)
    return np.asarray(jax.image.resize(shares_Bhw / even_B11, shape, "bilinear"))


def pixels_between(grid: tuple[int, int], stride: int) -> np.ndarray:
    """Returns the pixels between the centres of any two patches, float32 [L, L].

    Patches are counted row by row.

    Args:
      grid: rows and columns.
      stride: pixels per patch in each direction.
    """
    places_L2 = stride * np.indices(grid).reshape(2, -1).T.astype(np.float32)
    return np.linalg.norm(places_L2[:, None] - places_L2, axis=-1)


def even_distance(grid: tuple[int, int], stride: int) -> float:
    """Returns the distance under uniform attention to all patches: the mean of `pixels_between`."""
    return float(pixels_between(grid, stride).mean(dtype=np.float64))


def distance(weights_LM: jax.Array, pixels_LL: np.ndarray) -> jax.Array:
    """Returns the attention-weighted distance from a patch to the others, as a mean over patches.

    Figures 7 (right) and 11 of arXiv:2010.11929 show it.

    Weights of tokens without a patch are left out, and the rest is normalised to sum to 1. A patch
    that attends to no patch counts as 0.

    Args:
      weights_LM: attention weights [..., M, M]; the class token and registers come first.
      pixels_LL: distances [L, L] from `pixels_between`, L <= M.

    Returns:
      float32 [...], in pixels.
    """
    patches = len(pixels_LL)
    weights_LL = weights_LM[..., -patches:, -patches:].astype(jnp.float32)
    far_L = jnp.einsum("...lm,lm->...l", weights_LL, pixels_LL, precision="highest")
    total_L = jnp.maximum(jnp.sum(weights_LL, axis=-1), jnp.finfo(jnp.float32).tiny)
    return jnp.mean(far_L / total_L, axis=-1)
