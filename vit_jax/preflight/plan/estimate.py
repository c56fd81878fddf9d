# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What one device computes, holds, moves and sends in a step, counted from shapes alone.

Nothing is compiled: these are the least that any compiler needs, and the only figures where no
compiler for the device is at hand. Start from `step_secs`.
"""

import dataclasses
import math
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal

from vit_jax import tree
from vit_jax.build.program import Program
from vit_jax.hardware.topology import Accelerator
from vit_jax.models import flops, mixer, variants, vit
from vit_jax.models.bit import BiTConfig
from vit_jax.models.custom import OwnConfig
from vit_jax.step.normalise import normalise

Collectives = dict[str, dict[str, int]]  # mesh axes joined by + -> kind -> bytes


def step_flops(program: Program) -> float:
    """FLOPs of one device in a training step, without what is computed twice: see `flops`."""
    side = program.config.data.image_size
    forward = flops.forward_flops(program.model.cfg, side, side)
    return 3.0 * forward * program.config.batch_size / program.rules.mesh.size


def state_bytes(program: Program) -> int:
    """The part of parameters, moments and average that lies on one device."""
    return _tree_bytes(program.abstract)


def _tree_bytes(shapes: Any) -> int:
    return sum(map(_local_bytes, jax.tree.leaves(shapes)))


def _local_bytes(leaf: Any) -> int:
    shape = leaf.sharding.shard_shape(leaf.shape)
    return math.prod(shape) * leaf.dtype.itemsize


def saved_bytes(program: Program) -> int:
    """Activations that one device keeps for the backward pass of a micro-batch.

    The residuals that differentiation records under the model's remat policy; what tensor
    parallelism shares between devices is counted whole.
    """
    config = program.config
    images = config.batch_size // config.accumulation // program.rules.batch_ways
    side = config.data.image_size
    cfg = program.model.cfg
    if isinstance(cfg, vit.ViTConfig | mixer.MixerConfig):  # parameters taken apart would count
        cfg = dataclasses.replace(cfg, apart=False)
    bare = variants.make(cfg)

    def kept(params: Any, batch: jax.Array, key: jax.Array) -> Any:
        def forward(params: Any) -> jax.Array:
            pixels = normalise(batch, config.data.mean, config.data.std)
            return jnp.asarray(bare.apply({"params": params}, pixels, train=True, key=key))

        return jax.vjp(forward, params)[1]

    batch = jax.ShapeDtypeStruct((images, side, side, 3), jnp.uint8)
    key = jax.eval_shape(lambda: jax.random.key(0))
    jaxpr = jax.make_jaxpr(kept)(program.abstract.params, batch, key).jaxpr
    given = set(jaxpr.invars)
    made = {v for v in jaxpr.outvars if not isinstance(v, Literal)} - given
    return sum(v.aval.size * v.aval.dtype.itemsize for v in made)


def peak_bytes(program: Program) -> int:
    """State, gradients, kept activations and images of one device: an estimate from below."""
    gradients, images = _tree_bytes(program.abstract.params), _tree_bytes(program.batch())
    return state_bytes(program) + gradients + saved_bytes(program) + images


def moved_bytes(program: Program) -> int:
    """Memory traffic of one device in a step.

    State and gradients are read and written once, weights and kept activations once in each
    direction of each micro-batch.
    """
    gradients = _tree_bytes(program.abstract.params)
    weights = gradients // 4 * _compute_bytes(program)
    each = 2 * weights + 2 * saved_bytes(program)
    return 2 * state_bytes(program) + 2 * gradients + program.config.accumulation * each


def _compute_bytes(program: Program) -> int:
    return jnp.dtype(program.model.cfg.dtype).itemsize


def collectives(program: Program) -> Collectives:
    """The least that a step sends, in the units of `hlo.collective_bytes`.

    Weights that are split over `fsdp` are gathered for the forward and (but for the first layer's)
    for the backward pass, and their gradients are scattered; over the other axes that share the
    batch, gradients are reduced. All of it happens in each micro-batch. With tensor parallelism two
    activations of each block are added up in either direction.
    """
    mesh, parts = dict(program.rules.mesh.shape), program.config.accumulation
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for path, leaf in tree.leaves_with_paths(program.abstract.params):
        split = set(jax.tree.leaves(tuple(leaf.sharding.spec)))
        exact = "norm" in path or path.startswith(("head", "patch_head"))  # computed in float32
        size = _local_bytes(leaf) // 4 * (4 if exact else _compute_bytes(program))
        over = [a for a in ("replica", "data", "fsdp") if mesh[a] > 1 and a not in split]
        if "fsdp" in split and mesh["fsdp"] > 1:
            times = 1 if path.startswith("embedding/") else 2  # images need no gradient
            found["fsdp"]["all-gather"] += times * parts * size * mesh["fsdp"]
            found["fsdp"]["reduce-scatter"] += parts * size * mesh["fsdp"]
        if over:
            found["+".join(over)]["all-reduce"] += parts * size
    if mesh["tensor"] > 1:
        found["tensor"]["all-reduce"] += 4 * _stream_bytes(program)
    return {axes: dict(kinds) for axes, kinds in sorted(found.items())}


def wire_bytes(sent: Collectives, mesh: dict[str, int]) -> float:
    """What leaves one device in rings: of n members (n - 1) / n of it, twice for an all-reduce.

    Args:
      sent: as from `collectives`.
      mesh: axis -> devices.
    """
    total = 0.0
    for axes, kinds in sent.items():
        members = math.prod(mesh[axis] for axis in axes.split("+"))
        for kind, size in kinds.items():
            ways = {"all-reduce": 2, "collective-permute": members / (members - 1)}.get(kind, 1)
            total += ways * (members - 1) / members * size
    return total


def _stream_bytes(program: Program) -> int:
    """What flows between the blocks [S, B, L, D] of one device, of micro-batches; BiT, own: 0."""
    cfg, side = program.model.cfg, program.config.data.image_size
    if isinstance(cfg, BiTConfig | OwnConfig):
        return 0
    images = program.config.batch_size // program.rules.batch_ways
    tokens = images * math.prod(variants.grid(cfg, side, side))
    return cfg.depth * tokens * cfg.width * _compute_bytes(program)


# ---------------------------------------------------------------- time


def step_secs(program: Program, accelerator: Accelerator, sent: Collectives) -> tuple[float, str]:
    """(seconds, what limits them) of a step if everything overlaps: the roofline.

    The slowest of computing at the peak rate (with a second forward pass under `full` remat),
    moving `moved_bytes`, and sending as rings do: over links inside a slice or machine, and each
    member's share between them over the network.

    Args:
      program: the step.
      accelerator: one slice of what it runs on.
      sent: as from `collectives` or `hlo.collective_bytes`.

    Returns:
      Seconds, and `compute`, `memory`, `links` (inside a slice or machine) or `network`.
    """
    rates = accelerator.generation
    again = 4 / 3 if program.config.model.remat == "full" else 1.0
    secs = {
        "compute": again * step_flops(program) / rates.flops,
        "memory": moved_bytes(program) / rates.memory_rate,
        "links": 0.0,
        "network": 0.0,
    }
    for axes, kinds in sent.items():
        near, far = _members(axes, dict(program.rules.mesh.shape), accelerator)
        for kind, size in kinds.items():
            ways = 2 if kind == "all-reduce" else 1
            if kind == "collective-permute":
                where, rate = (
                    ("links", rates.link_rate) if near > 1 else ("network", rates.network_rate)
                )
                secs[where] += size / rate
                continue
            secs["links"] += ways * (near - 1) / near * size / rates.link_rate
            secs["network"] += ways * (far - 1) / far * size / near / rates.network_rate
    limit = max(secs, key=lambda k: secs[k])
    return secs[limit], limit


def _members(axes: str, mesh: dict[str, int], accelerator: Accelerator) -> tuple[int, int]:
    """(members of a group in a slice or machine, slices or machines that it spans)."""
    rates = accelerator.generation
    together = accelerator.devices if rates.platform == "tpu" else rates.chips_per_host
    places = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    group = places[tuple(slice(None) if a in axes.split("+") else 0 for a in mesh)].reshape(-1)
    near = int((group // together == group[0] // together).sum())
    return near, len(group) // near
