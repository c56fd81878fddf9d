# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compiles the step of a program ahead of time, for devices that need not be present.

This runs in its own process, for two reasons. Its settings must precede jax's search for devices,
and an aborting compiler must not end the caller. Start from `measuring`.
"""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import logging
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from vit_jax.build import objectives, program, splits
from vit_jax.build import run as build
from vit_jax.config import load as config_lib
from vit_jax.data.sources.tfds import is_prepared
from vit_jax.errors import BadInput
from vit_jax.hardware import device_memory, topology
from vit_jax.hardware.topology import Accelerator
from vit_jax.preflight.plan import attribution, clock, estimate, hlo
from vit_jax.runtime import compile_ahead, coordination
from vit_jax.storage import cache
from vit_jax.storage import files as storage

log = logging.getLogger("vit_jax")

DIED = (
    "the compiler's process ended; its last words are above. Often it ran out of this machine's "
    "memory: unrolled layers need many GiB. Take a machine with more, or scan over the layers of a "
    "ViT: --config.model.remat=dots. After a segmentation fault, try another version of libtpu."
)
_READABLE = ("v2", "v3", "v4", "cpu")  # later TPUs hide gathers in fusions
_STAND_INS = {  # data sets of known size, prepared or not; `size` adds the 19 tasks of VTAB
    "tfds:imagenet2012": "synthetic:imagenet",
    "tfds:cifar10": "synthetic:cifar10",
    "tfds:cifar100": "synthetic:cifar100",
    "tfds:oxford_iiit_pet": "synthetic:pets",
    "tfds:oxford_flowers102": "synthetic:flowers",
}


@dataclasses.dataclass(frozen=True)
class Measured:
    """The needs of a step on each device, and its shortest time. Bytes are per device."""

    how: str  # "compiled" | "counted"
    peak_bytes: int
    args_bytes: int
    temp_bytes: int
    collective_bytes: estimate.Collectives | None  # None: hidden by this compiler
    least_collective_bytes: estimate.Collectives  # minimum for this sharding
    beyond_least: float | None  # bytes that leave a device, relative to the minimum; None: unknown
    flops: float
    step_secs: float  # at best: the roofline
    limited_by: str
    estimated_secs: float | None  # by the compiler's clock; None: it gives no cycles
    parts: dict[str, dict[str, float]] | None  # of `estimated_secs`, see `clock.Estimate`
    no_estimate: str  # why this compiler, which writes cycles, gives none; "" where it gives one
    steps: int
    batch_size: int
    compile_secs: float


# Modules that a cached plan depends on.
_ESTIMATING = (attribution, clock, compile_ahead, estimate, hlo, topology)


def measuring(accelerator: Accelerator, slices: int) -> Callable[[tuple[str, Any]], Measured]:
    """Returns, in a fresh process, a function from (config file, settings) to `Measured`."""
    start(accelerator, slices)
    return lambda asked: measure(asked[0], accelerator, slices, asked[1])


def start(accelerator: Accelerator, slices: int) -> None:
    """Hides all accelerators of this machine except the planned one."""
    generation = accelerator.generation
    os.environ |= {
        "TPU_WORKER_HOSTNAMES": "localhost",  # otherwise libtpu searches for its own machine
        "TPU_ACCELERATOR_TYPE": "v4-8",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # for two plans at a time
    }
    real = generation.platform == "gpu" and "gpu" in coordination.present_accelerators()
    if not real:
        jax.config.update("jax_platforms", "cpu")
    if generation.platform != "tpu":
        jax.config.update("jax_num_cpu_devices", accelerator.devices * slices)


def devices(accelerator: Accelerator, slices: int) -> tuple[Any, bool]:
    """Returns (devices for the mesh, whether there is a compiler for them)."""
    generation, count = accelerator.generation, accelerator.devices * slices
    if generation.platform == "tpu":
        described = topologies.get_topology_desc(
            platform="tpu",
            topology_name=f"{generation.name}:{accelerator.shape}",
            **_bounds(accelerator, slices),
        )
        return described.devices, True
    found = jax.devices()
    if generation.platform == "gpu" and found[0].platform == "gpu":
        same = any(topology.is_named(found[0].device_kind, kind) for kind in generation.kinds)
        if same and len(found) >= count:
            return found[:count], True
    return jax.devices("cpu")[:count], generation.platform == "cpu"


def on_device(shapes: Any, device: Any) -> Any:
    """Returns the shapes and dtypes of a tree, placed on one device, which need not be present."""
    place = SingleDeviceSharding(device)
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), shapes)


def _bounds(accelerator: Accelerator, slices: int) -> dict[str, Any]:
    """Returns what the description of a TPU needs besides its shape."""
    given: dict[str, Any] = {"num_slices": slices} if slices > 1 else {}
    if accelerator.generation.name == "v4":
        given["chip_config_name"] = "megacore"  # one device per chip, like the real one
    if accelerator.hosts == 1:
        dims = [int(n) for n in accelerator.shape.split("x")]
        given["chips_per_host_bounds"] = (*dims, 1, 1)[:3]
    return given


@functools.cache
def size(config_yaml: str) -> tuple[int, int]:
    """Returns (classes, training examples) of the data that a configuration names."""
    data = config_lib.load(config_yaml).data
    kind, _, name = str(data.source).partition(":")
    stand_in = _STAND_INS.get(str(data.source), "")
    if kind == "vtab" and not name.endswith("/full"):
        stand_in = f"synthetic:vtab/{name}"
    if kind == "tfds" and not stand_in and not is_prepared(name, data.data_dir):
        raise BadInput(
            f"data.source={data.source} is not prepared, so its size is not known: prepare it "
            "(tfds build), or plan with --config.data.source=synthetic:NAME."
        )
    source = splits.open_source(data, stand_in)
    return len(source.classes), len(splits.training_examples(source, data)[0])


def measure(
    config_yaml: str, accelerator: Accelerator, slices: int, settings: dict[str, Any]
) -> Measured:
    """Compiles the step of a configuration with changed settings, or counts if it cannot compile.

    Args:
      config_yaml: file with a settled configuration.
      accelerator: one slice.
      slices: number of slices.
      settings: config key -> value.

    Raises:
      BadInput: the configuration does not suit the devices.
    """
    classes, examples = size(config_yaml)
    if accelerator.generation.platform == "cpu":
        rates = dataclasses.replace(accelerator.generation, flops=_cpu_flops() / accelerator.chips)
        accelerator = dataclasses.replace(accelerator, generation=rates)
    targets, compiler = devices(accelerator, slices)
    config = config_lib.changed(config_lib.load(config_yaml), settings)
    build.check(config)
    platform = accelerator.generation.platform
    made = program.make(
        config, classes=classes, examples=examples, devices=targets, platform=platform
    )
    objectives.check_classes(config, made.objective, classes)
    sent = least = estimate.collectives(made)
    if compiler:
        found = _compiled(made, accelerator)
        if found["collective_bytes"] is not None:
            sent = found["collective_bytes"]
    else:
        peak, args = estimate.peak_bytes(made), estimate.state_bytes(made)
        found = {
            "how": "counted",
            "peak_bytes": peak,
            "args_bytes": args,
            "temp_bytes": peak - args,
            "collective_bytes": sent,
            "compile_secs": 0.0,
            "estimated_secs": None,
            "parts": None,
            "no_estimate": "",
        }
    secs, limit = estimate.step_secs(made, accelerator, sent)
    mesh = dict(made.rules.mesh.shape)
    known = mesh["tensor"] == 1 or made.model.cfg.stream_size(*made.images.size) > 0
    wire, at_least = estimate.wire_bytes(sent, mesh), estimate.wire_bytes(least, mesh)
    return Measured(
        **found,
        least_collective_bytes=least,
        beyond_least=wire / at_least if at_least and known else None,
        flops=estimate.step_flops(made),
        step_secs=secs,
        limited_by=limit,
        steps=made.steps.total,
        batch_size=config.batch_size,
    )


def _compiled(made: program.Program, accelerator: Accelerator) -> dict[str, Any]:
    """Returns memory and collectives of the compiled step, from the cache if possible."""
    lowered = made.lower_step()
    versions = [f"{p}={importlib.metadata.version(p)}" for p in ("jax", "jaxlib")]
    versions += [f"libtpu={v}" for v in _version("libtpu")]
    versions += [os.environ.get(flags, "") for flags in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    versions += [
        Path(module).read_text(encoding="utf-8")
        for module in (__file__, *(str(m.__file__) for m in _ESTIMATING))
    ]
    text = "\n".join([accelerator.name, str(dict(made.rules.mesh.shape)), *versions])
    key = hashlib.sha256((text + lowered.as_text()).encode()).hexdigest()
    cached = cache.root() / "plans" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError):  # absent or damaged
        return json.loads(cached.read_text(encoding="utf-8"))
    began = time.monotonic()
    try:
        compiled = compile_ahead.compiled(lowered)
    except jax.errors.JaxRuntimeError as e:
        if not device_memory.is_out_of_memory(e):
            raise
        found = {"peak_bytes": _wanted_bytes(str(e)), "args_bytes": estimate.state_bytes(made),
                 "temp_bytes": 0, "collective_bytes": None,
                 "estimated_secs": None, "parts": None, "no_estimate": ""}  # fmt: skip
        found["temp_bytes"] = found["peak_bytes"] - found["args_bytes"]
    else:
        needs, optimised = compiled.memory_analysis(), compiled.as_text()
        assert needs is not None
        assert optimised is not None
        on_cpu = accelerator.generation.platform == "cpu"
        found = {
            "peak_bytes": device_memory.peak_bytes(compiled)
            if on_cpu
            else needs.peak_memory_in_bytes,
            "args_bytes": needs.argument_size_in_bytes,
            "temp_bytes": needs.temp_size_in_bytes,
            "collective_bytes": None,
        }
        found |= _timed(made, accelerator, optimised)
        if accelerator.generation.name in _READABLE:
            mesh = dict(made.rules.mesh.shape)
            try:
                found["collective_bytes"] = hlo.collective_bytes(optimised, mesh)
            except ValueError as e:  # another version of the compiler writes differently
                log.warning("what is sent cannot be read: %s", e)
    found |= {"how": "compiled", "compile_secs": time.monotonic() - began}
    with contextlib.suppress(OSError):  # a cache that is not writable is not an error
        cached.parent.mkdir(parents=True, exist_ok=True)
        storage.write(cached, json.dumps(found))
    return found


def _timed(made: program.Program, accelerator: Accelerator, optimised: str) -> dict[str, Any]:
    """Returns `estimated_secs` and `parts` of a compiled step, None where nothing is known."""
    mesh = hlo.program_mesh(optimised, dict(made.rules.mesh.shape))

    def collective_secs(computation: str, each: hlo.Instruction) -> float:
        axes, kind, size = hlo.sent(computation, each, mesh)
        needed = estimate.sending_secs(made, accelerator, axes, kind, size) if axes else {}
        return sum(needed.values())

    timed, why = None, ""
    hertz, peak = accelerator.generation.hertz, accelerator.generation.flops
    try:
        timed = clock.read(optimised, hertz, peak, collective_secs) if hertz else None
    except ValueError as e:  # another version of the compiler writes differently
        why = str(e)
    return {
        "no_estimate": why,
        "estimated_secs": timed.secs if timed else None,
        "parts": timed.parts if timed else None,
    }


def _version(package: str) -> list[str]:
    try:
        return [importlib.metadata.version(package)]
    except importlib.metadata.PackageNotFoundError:
        return []


def _wanted_bytes(message: str) -> int:
    """Returns the bytes that an oversized program needs, from the TPU compiler's message.

    Raises:
      BadInput: the message is another one, such as a kernel too large for a faster memory.
    """
    used = re.search(r"Used ([\d.]+)([KMGT]) of [\d.]+[KMGT] hbm", message)
    used = used or re.search(r"HLO temporaries \(([\d.]+)([KMGT])\)", message)
    if used is None:
        raise BadInput(f"the compiler gave up: {message.splitlines()[0][:300]}")
    return int(float(used[1]) * 1024 ** (1 + "KMGT".index(used[2])))


@functools.cache
def _cpu_flops() -> float:
    """Returns the FLOP/s of a large float32 matrix product on this machine."""
    size = 1024
    product = jax.jit(lambda a, b: a @ b)
    a = jnp.ones((size, size), jnp.float32)
    product(a, a).block_until_ready()
    secs = []
    for _ in range(8):
        began = time.monotonic()
        product(a, a).block_until_ready()
        secs.append(time.monotonic() - began)
    return 2 * size**3 / min(secs)
