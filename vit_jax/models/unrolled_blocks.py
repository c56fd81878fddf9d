# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Applies the blocks of a model one after another, without a scan. Start from `one_by_one`.

Axes: B batch, L tokens, D width, S layers.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp


def one_by_one(
    model: nn.Module, made: Any, x_BLD: jax.Array, cfg: Any, layers_S: Any, shared: Any
) -> list[jax.Array]:
    """Returns the output of each block, [B, L, D]; see `layers.apply_blocks`.

    Args:
      model: the module that owns the blocks.
      made: (number of a block, options of a module) -> the block.
      x_BLD: the tokens.
      cfg: see `layers.Deep`.
      layers_S: drop-path rates and keys; None in evaluation.
      shared: an argument that every block receives.
    """
    asked = model.is_mutable_collection("intermediates")
    mutable = ["intermediates"] if asked else []
    params = _unstacked(model.variables["params"]["blocks"], cfg.depth) if cfg.scan else []
    outputs, sown = list[jax.Array](), []
    for i in range(cfg.depth):
        layer: Any = (x_BLD, _layer(layers_S, i), shared)
        if cfg.scan:
            block = made(i, parent=None)
            (x_BLD, _), kept = block.apply({"params": params[i]}, *layer, mutable=mutable)
            sown.append(kept.get("intermediates"))
        else:
            x_BLD, _ = made(i, name=f"block_{i}")(*layer)
        outputs.append(x_BLD)
    if asked and cfg.scan:
        stacked = jax.tree.map(lambda *x: jnp.stack(x), *sown)
        model.put_variable("intermediates", "blocks", stacked)
    return outputs


def _layer(layers_S: Any, i: int) -> Any:
    return jax.tree.map(lambda x_S: x_S[i], layers_S)


def _unstacked(stacked: Any, depth: int) -> list[Any]:
    """Splits a tree of [S, ...] into the trees of the S layers.

    It uses `lax.split`, whose gradient is one concatenation; the gradient of indexing is a sum of
    padded arrays.
    """
    leaves, treedef = jax.tree.flatten(stacked)
    layers_S = zip(*(jax.lax.split(leaf, [1] * depth) for leaf in leaves), strict=True)
    return [jax.tree.unflatten(treedef, [x[0] for x in layer]) for layer in layers_S]
