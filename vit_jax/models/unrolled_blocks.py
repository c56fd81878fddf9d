# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Applies the blocks of a model one after another, without a scan. Start from `one_by_one`.

Axes: B batch, L tokens, D width, S layers.
"""

import functools
from collections.abc import Mapping
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.experimental.layout import Layout, with_layout_constraint

from vit_jax.models import products


def one_by_one(
    model: nn.Module,
    made: Any,
    rounds: bool,
    x_BLD: jax.Array,
    cfg: Any,
    layers_S: Any,
    shared: Any,
) -> list[jax.Array]:
    """Returns the output of each block, [B, L, D]; see `layers.apply_blocks`.

    Args:
      model: the module that owns the blocks.
      made: (number of a block, options of a module) -> the block.
      rounds: whether a block uses its kernels in `cfg.dtype` only.
      x_BLD: the tokens.
      cfg: see `layers.Deep`.
      layers_S: drop-path rates and keys; None in evaluation.
      shared: an argument that every block receives.
    """
    asked = model.is_mutable_collection("intermediates")
    mutable = ["intermediates"] if asked else []
    params: list[Any] = []
    rules = getattr(model, "rules", None)
    if cfg.scan:
        stacked = model.variables["params"]["blocks"]
        if rounds and products.on_tpu(rules) and cfg.dtype == "bfloat16":
            stacked = _rounded(stacked)
        params = _unstacked(stacked, cfg.depth)
    outputs, sown = list[jax.Array](), []
    in_order = rules is not None and getattr(cfg, "in_order", False)
    for i in range(cfg.depth):
        if in_order:
            x_BLD = jax.tree.map(functools.partial(_in_order, rules), x_BLD)
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


def _in_order(rules: Any, x: jax.Array) -> jax.Array:
    """Returns tokens, [B, L] or [B, L, D], with their axes in this order in memory.

    The compiler would keep images beside each other, as patches come, and copy queries, keys and
    values in each block. Each device sees to its own: one constraint for all of them would gather
    them on each device.
    """
    order = Layout(tuple(range(x.ndim)))
    spec = rules.spec(("act_batch", "act_tokens", "act_embed")[: x.ndim], x.shape, "tokens")
    on_each = jax.shard_map(
        lambda x: with_layout_constraint(x, order), mesh=rules.mesh, in_specs=spec, out_specs=spec
    )
    return on_each(x)


def _layer(layers_S: Any, i: int) -> Any:
    return jax.tree.map(lambda x_S: x_S[i], layers_S)


def _rounded(stacked: Any) -> Any:
    """Returns the parameters with kernels in bfloat16, in which a layer multiplies them.

    The TPU compiler converts the kernels of all layers at once. A conversion alone takes it 1.5
    times as long as one that is fused with another operation, even with this one, which leaves it
    nothing to round. Kernels to which low-rank matrices are added stay as they are.
    """
    if not isinstance(stacked, Mapping):
        return stacked
    rounded = {}
    for name, below in stacked.items():
        with jax.named_scope(name):  # as plans count it
            rounded[name] = _rounded(below)
    if "kernel" in rounded and "lora_a" not in rounded:
        precise = jax.lax.reduce_precision(rounded["kernel"], exponent_bits=8, mantissa_bits=7)
        rounded["kernel"] = precise.astype(jnp.bfloat16)
    return rounded


def _unstacked(stacked: Any, depth: int) -> list[Any]:
    """Splits a tree of [S, ...] into the trees of the S layers.

    It uses `lax.split`, whose gradient is one concatenation; the gradient of indexing is a sum of
    padded arrays.
    """
    leaves, treedef = jax.tree.flatten(stacked)
    layers_S = zip(*(jax.lax.split(leaf, [1] * depth) for leaf in leaves), strict=True)
    return [jax.tree.unflatten(treedef, [x[0] for x in layer]) for layer in layers_S]
