# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Counts what one device computes, holds, moves and sends in a step, from shapes alone.

Nothing is compiled. The figures are lower bounds for any compiler, and the only figures if no
compiler for the device is available. Start from `step_secs`.
"""

import math
from collections import defaultdict
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

from vit_jax import tree
from vit_jax.build import naflex
from vit_jax.build.program import Program, network
from vit_jax.hardware.topology import Accelerator
from vit_jax.models import products, variants
from vit_jax.optim import muon

Collectives = dict[str, dict[str, int]]  # mesh axes joined by + -> kind -> bytes


def step_flops(program: Program) -> float:
    """Returns the FLOPs of one device in a training step, without recomputation.

    Updates count only where they multiply matrices, as Muon's do.
    """
    config, rules = program.config, program.rules
    images = float(program.step_flops) * config.batch_size / rules.mesh.size
    if config.optimizer.name != "muon":
        return images
    return images + muon.flops(program.abstract.params, config.optimizer.muon.iterations, rules)


def state_bytes(program: Program) -> int:
    """Returns the bytes of parameters, moments and average on one device."""
    return _tree_bytes(program.abstract)


def _read(program: Program) -> Any:
    """Returns the parameters of models that the objective only reads, as shapes."""
    read = [program.abstract.kept[name] for name in program.objective.reads]
    return [*read, program.abstract.ema] if program.objective.AVERAGE else read


def _tree_bytes(shapes: Any) -> int:
    return sum(map(_local_bytes, jax.tree.leaves(shapes)))


def _local_bytes(leaf: Any) -> int:
    shape = leaf.sharding.shard_shape(leaf.shape)
    return math.prod(shape) * leaf.dtype.itemsize


def saved_bytes(program: Program) -> int:
    """Returns the bytes of activations that one device keeps for a micro-batch's backward pass.

    They are the residuals that differentiation records under the model's remat policy. Activations
    that tensor parallelism splits over devices count in full.
    """
    config, objective, chosen = program.config, program.objective, program.selection
    if chosen is not None and chosen.what.name == "last" and config.model.scan:
        # Differentiation of stacked layers records all of them; a compiler then drops the frozen.
        return saved_bytes(program.changed({"model.scan": False}))
    images = config.batch_size // config.accumulation // program.rules.batch_parts
    bare = variants.make(program.model.cfg.in_form(unrolled=False))  # else copies would count
    called = network(bare, program.images, objective.reads)

    def kept(state: Any, batch: Any, key: jax.Array) -> Any:
        batch, drawn = objective.draw(batch, key)
        beside = objective.seen(state.kept, lambda: program.whole(state.ema, state.base))

        def loss(params: Any) -> jax.Array:
            whole = program.whole(params, state.base)
            return objective.sums(called, whole, beside, batch, drawn, key)["loss"]

        return jax.vjp(loss, state.params)[1]

    batch = {
        name: jax.ShapeDtypeStruct((images, *field.shape[1:]), field.dtype)
        for name, field in program.batch().items()
    }
    if config.pack > 1:
        of_device = naflex.packing(config, program.model.cfg, rules=None)
        batch["members"] = jax.eval_shape(of_device.members, batch["grid"], batch["_mask"])
    key = jax.eval_shape(lambda: jax.random.key(0))
    jaxpr = jax.make_jaxpr(kept)(program.abstract, batch, key).jaxpr
    inputs = set(jaxpr.invars)
    intermediates = {v for v in jaxpr.outvars if not isinstance(v, Literal)} - inputs
    return sum(v.aval.size * v.aval.dtype.itemsize for v in intermediates)


def peak_bytes(program: Program) -> int:
    """Returns the bytes of state, gradients, kept activations and images on one device.

    SAM holds the parameters of its second pass too, and the loop over further passes of packed
    images the gradients so far. This is a lower bound.
    """
    gradients, images = _tree_bytes(program.abstract.params), _tree_bytes(program.batch())
    trees = program.passes + (program.config.pack > 1)
    return state_bytes(program) + trees * gradients + saved_bytes(program) + images


def moved_bytes(program: Program) -> int:
    """Returns the memory traffic of one device in a step, in bytes.

    The trained state and gradients are read and written once. Weights and kept activations are
    moved once in each direction of each micro-batch, and of each pass of SAM, which also writes the
    parameters of its second pass. A teacher is read in each of them.
    """
    gradients, base = (_tree_bytes(x) for x in (program.abstract.params, program.abstract.base))
    weights = (gradients + base) // 4 * _compute_bytes(program)
    each = 2 * weights + 2 * saved_bytes(program)
    passes, read = program.passes, _tree_bytes(_read(program))
    return (
        2 * (state_bytes(program) - base - read)
        + passes * program.config.accumulation * read
        + 2 * passes * gradients
        + (passes - 1) * gradients
        + passes * program.config.accumulation * each
    )


def _compute_bytes(program: Program) -> int:
    return products.stream(program.model.cfg.dtype).itemsize


def collectives(program: Program) -> Collectives:
    """Returns the least that a step sends, in the units of `hlo.collective_bytes`.

    Weights split over `fsdp` are gathered for the forward pass and, except in the first layer, for
    the backward pass; their gradients are scattered. Over the other axes that share the batch,
    gradients are reduced. All of this happens in each micro-batch, twice with SAM. With tensor
    parallelism, two activations of each block are summed in either direction. What Muon sends is
    left out.
    """
    mesh = dict(program.rules.mesh.shape)
    parts = program.config.accumulation * program.passes
    sent: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    trained = [(*leaf, True) for leaf in tree.leaves_with_paths(program.abstract.params)]
    frozen = [(*leaf, False) for leaf in tree.leaves_with_paths(program.abstract.base)]
    for path, leaf, learns in (*trained, *frozen):
        split = set(jax.tree.leaves(tuple(leaf.sharding.spec)))
        exact = "norm" in path or path.startswith(("head", "patch_head"))  # computed in float32
        size = _local_bytes(leaf) // 4 * (4 if exact else _compute_bytes(program))
        over = [a for a in ("replica", "data", "fsdp") if mesh[a] > 1 and a not in split]
        if "fsdp" in split and mesh["fsdp"] > 1:
            times = 1 if path.startswith("embedding/") else 2  # images need no gradient
            sent["fsdp"]["all-gather"] += times * parts * size * mesh["fsdp"]
            if learns:
                sent["fsdp"]["reduce-scatter"] += parts * size * mesh["fsdp"]
        if over and learns:
            sent["+".join(over)]["all-reduce"] += parts * size
    for leaf in jax.tree.leaves(_read(program)):  # only for a forward pass
        if mesh["fsdp"] > 1 and "fsdp" in jax.tree.leaves(tuple(leaf.sharding.spec)):
            sent["fsdp"]["all-gather"] += parts * _local_bytes(leaf) * mesh["fsdp"]
    if mesh["tensor"] > 1:
        sent["tensor"]["all-reduce"] += 4 * program.passes * _stream_bytes(program)
    return {axes: dict(kinds) for axes, kinds in sorted(sent.items())}


def wire_bytes(sent: Collectives, mesh: dict[str, int]) -> float:
    """Returns the bytes that leave one device in rings.

    In a ring of n members that is (n - 1) / n of the array, twice for an all-reduce.

    Args:
      sent: bytes as from `collectives`.
      mesh: axis -> number of devices.
    """
    total = 0.0
    for axes, kinds in sent.items():
        members = math.prod(mesh[axis] for axis in axes.split("+"))
        for kind, size in kinds.items():
            ways = {"all-reduce": 2, "collective-permute": members / (members - 1)}.get(kind, 1)
            total += ways * (members - 1) / members * size
    return total


def _stream_bytes(program: Program) -> int:
    """Returns the bytes between the blocks [S, B, L, D] of one device; 0 if they are unknown.

    They cover all micro-batches of a step.
    """
    cfg, size = program.model.cfg, program.images.size
    fields = program.objective.batch(*size, program.images.channels).values()
    each = sum(math.prod(field.shape[:-3]) for field in fields if len(field.shape) >= 3)
    images = each * program.config.batch_size // program.rules.batch_parts
    images = round(images / program.config.pack)  # or rows of several
    return images * cfg.stream_size(*size) * _compute_bytes(program)


# ---------------------------------------------------------------- time


def step_secs(program: Program, accelerator: Accelerator, sent: Collectives) -> tuple[float, str]:
    """Returns (seconds, limiting factor) of a step with perfect overlap: the roofline.

    The time is the longest of three: computing at the peak rate (with a second forward pass under
    `full` remat), moving `moved_bytes`, and sending in rings. Rings use links inside a slice
    or machine; over the network each member sends its share between slices or machines.

    Args:
      program: the step.
      accelerator: one slice of the hardware.
      sent: bytes as from `collectives` or `hlo.collective_bytes`.

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
        for kind, size in kinds.items():
            for where, needed in sending_secs(program, accelerator, axes, kind, size).items():
                secs[where] += needed
    limit = max(secs, key=lambda k: secs[k])
    return secs[limit], limit


def sending_secs(
    program: Program, accelerator: Accelerator, axes: str, kind: str, size: float
) -> dict[str, float]:
    """Returns the seconds of one collective on the `links` and on the `network`, see `step_secs`.

    Args:
      program: the step, for its mesh.
      accelerator: one slice of the hardware.
      axes: mesh axes joined by +.
      kind: such as all-reduce.
      size: bytes as from `hlo.sent`.
    """
    rates = accelerator.generation
    near, far = _members(axes, dict(program.rules.mesh.shape), accelerator)
    if kind == "collective-permute":
        if near > 1:  # to one neighbour, over one of the links of a torus
            links = 2 * len(accelerator.shape.split("x")) if rates.platform == "tpu" else 1
            return {"links": links * size / rates.link_rate, "network": 0.0}
        return {"links": 0.0, "network": size / rates.network_rate}
    ways = 2 if kind == "all-reduce" else 1
    return {
        "links": ways * (near - 1) / near * size / rates.link_rate,
        "network": ways * (far - 1) / far * size / near / rates.network_rate,
    }


def _members(axes: str, mesh: dict[str, int], accelerator: Accelerator) -> tuple[int, int]:
    """Returns (members of a group in a slice or machine, slices or machines that it spans)."""
    rates = accelerator.generation
    together = accelerator.devices if rates.platform == "tpu" else rates.chips_per_host
    places = np.arange(math.prod(mesh.values())).reshape(tuple(mesh.values()))
    group = places[tuple(slice(None) if a in axes.split("+") else 0 for a in mesh)].reshape(-1)
    near = int((group // together == group[0] // together).sum())
    return near, len(group) // near
