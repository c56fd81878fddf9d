# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The head of DINO, whose outputs are cosines with prototypes, and targets that use all of these.

Axes: B images, R rows of an image, D width, K prototypes. Start from `cosines`.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from vit_jax.models.layers import unit
from vit_jax.sharding import Axes
from vit_jax.step import block_masks
from vit_jax.step.objective import PARAMETERS

_LAYERS = ("first", "second", "bottleneck")
_ITERATIONS, _LEFT_OUT = 3, -1e9  # of Sinkhorn-Knopp; the logit of a row that does not count
AXES: Axes = {
    r"objective/\w+/first/kernel": ("embed", "mlp"),
    r"objective/\w+/first/bias": ("mlp",),
    r"objective/\w+/second/kernel": ("mlp", "embed"),
    r"objective/\w+/second/bias": ("embed",),
    r"objective/\w+/bottleneck/kernel": ("embed", None),
    r"objective/\w+/bottleneck/bias": (None,),
    # By prototypes: then devices exchange vectors of the bottleneck in place of this kernel.
    r"objective/\w+/prototypes/kernel": (None, "embed"),
}


def head(key: jax.Array, sizes: Sequence[int]) -> dict[str, Any]:
    """Returns the parameters of a head (arXiv:2104.14294, appendix C).

    Args:
      key: typed key.
      sizes: D, the widths of the two hidden layers, that of the bottleneck, and K.
    """
    normal, keys = jax.nn.initializers.truncated_normal(0.02), jax.random.split(key, 4)
    shapes = zip(keys, sizes[:-1], sizes[1:], strict=True)
    kernels = [normal(own, (rows, columns)) for own, rows, columns in shapes]
    layers = {
        name: {"kernel": kernel, "bias": jnp.zeros(kernel.shape[1])}
        for name, kernel in zip(_LAYERS, kernels[:3], strict=True)
    }
    return layers | {"prototypes": {"kernel": kernels[3]}}


def cosines(params: Any, name: str, x: jax.Array, frozen: Any = False) -> jax.Array:
    """Maps float32 [..., D] to cosines with the prototypes of a head, or of the only one, [..., K].

    The prototypes are a layer without bias whose weights have norm 1 (weight normalisation with a
    fixed gain). Where `frozen`, bool [], is True, they get no gradient.
    """
    heads = params[PARAMETERS]
    head = heads.get(name, heads["dino"])
    for layer in _LAYERS:
        bias = head[layer]["bias"]
        x = x @ head[layer]["kernel"] + bias.reshape(*[1] * (x.ndim - 1), -1)
        x = jax.nn.gelu(x, approximate=False) if layer != "bottleneck" else x
    kernel = head["prototypes"]["kernel"]
    kernel = jnp.where(frozen, jax.lax.stop_gradient(kernel), kernel)
    return unit(x, -1) @ unit(kernel, 0)


def multiply_adds(sizes: Sequence[int]) -> int:
    """Returns the multiply-adds of a head for one vector; `sizes` as in `head`."""
    return sum(rows * columns for rows, columns in itertools.pairwise(sizes))


def centres(logits: Sequence[jax.Array], masks: block_masks.Masks | None) -> dict[str, jax.Array]:
    """Returns what moves the centres, of each image: the teacher's logits, and those of patches.

    Args:
      logits: of views, [B, T, K]; with masks also of masked patches, [B, M, K].
      masks: the masked patches.
    """
    own = {"centre": jnp.mean(logits[0], axis=1)}
    if masks is None:
        return own
    masked_BM = masks.weight > 0
    own["patch_centre"] = jnp.sum(logits[1] * masked_BM[..., None], axis=1)
    return own | {"patches": jnp.sum(masked_BM, axis=1, dtype=jnp.float32)}


def moved_centres(kept: Any, sums: Any, momentum: float) -> dict[str, jax.Array]:
    """Returns the moving means of the teacher's logits after a step, from the sums of `centres`."""
    moved = {}
    for name, count in (("centre", "examples"), ("patch_centre", "patches")):
        if name in kept:
            mean = sums[name] / jnp.maximum(sums[count], 1)
            moved[name] = momentum * kept[name] + (1 - momentum) * mean
    return moved


def sinkhorn(logits_BRK: jax.Array, real_BR: jax.Array) -> jax.Array:
    """Returns targets that use all prototypes alike, over all real rows (arXiv:2006.09882).

    Three iterations of Sinkhorn-Knopp, of which the last makes each row sum to 1.
    """
    logits_BRK = jnp.where(real_BR[..., None], logits_BRK, _LEFT_OUT)
    for _ in range(_ITERATIONS):
        real = {"where": real_BR[..., None], "axis": (0, 1), "keepdims": True}
        logits_BRK -= jax.nn.logsumexp(logits_BRK, **real)
        logits_BRK = jax.nn.log_softmax(logits_BRK)
    return jnp.exp(logits_BRK)
