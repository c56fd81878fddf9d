# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decides where the runs of a sweep run side by side on this machine, for `--parallel=auto`.

On CPUs one run gets each core, as far as the memory goes; all runs see the whole machine, as they
do one after another. On accelerators each run sees devices of its own, the fewest that its mesh and
its memory allow, and several small runs share a GPU. The devices of a run never depend on what
runs beside it, so its results do not either. Start from `auto`.

The variables that limit a process to some TPU chips are those that jax sets for its own tests of
several processes on a machine (jax 0.10.2).
"""

import dataclasses
import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from vit_jax.config import sections
from vit_jax.errors import BadInput
from vit_jax.hardware import detect, host_memory, topology
from vit_jax.hardware.topology import Accelerator
from vit_jax.runtime import process_identity
from vit_jax.runtime.worker_process import Child
from vit_jax.storage import jsonl

GIB = 2**30
FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
MOST_ON_A_GPU = 4  # without a service of the vendor, processes take turns on a GPU
_CONTEXT_BYTES = GIB  # of each process on a GPU, outside the memory that jax takes
_OF_GPU, _OF_HOST = 0.95, 0.9  # shares of the memory that runs together may take
_GROWTH = 1.25  # a run's memory at its end, relative to that of its first rows
_LOOK_SECS = 1.0
log = logging.getLogger("vit_jax")


@dataclasses.dataclass(frozen=True)
class Place:
    """A part of this machine that one run at a time takes.

    Attributes:
      number: its number, from 0.
      name: what it is, for the log; "" if it is no particular part.
      environment: variables that its run gets beside those of this process.
    """

    number: int
    name: str = ""
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)


class Places(Protocol):
    """Where runs may run."""

    def now(self) -> Sequence[Place]:
        """Returns the places that there are now; they may become more."""
        ...


class Fixed:
    """Places that stay; an int stands for this many without a difference."""

    def __init__(self, places: int | Sequence[Place]):
        self._places = list(map(Place, range(places))) if isinstance(places, int) else places

    def now(self) -> Sequence[Place]:
        """Returns the places."""
        return self._places


@dataclasses.dataclass(frozen=True)
class Machine:
    """What a sweep may use here.

    Attributes:
      platform: cpu, gpu or tpu.
      cores: number of cores of this process.
      host_bytes: memory of the host that is free.
      kind: kind of the devices, as jax calls it; "" for a CPU.
      devices: number of devices, as jax counts them; 0 for a CPU.
      device_bytes: whole memory of a device; 0 if it is not known.
      hosts: number of hosts of the slice.
    """

    platform: str
    cores: int
    host_bytes: int
    kind: str = ""
    devices: int = 0
    device_bytes: int = 0
    hosts: int = 1


@dataclasses.dataclass(frozen=True)
class Need:
    """The plan of a run: peak bytes of its step on each device, and hours times chips."""

    peak_bytes: int
    fits: bool
    chip_hours: float


Plan = Callable[[sections.Config, Accelerator], Need]


def auto(
    configs: Sequence[sections.Config], folders: Sequence[Path], machine: Machine, plan: Plan
) -> Places:
    """Returns the places for runs; one log line tells which, and why.

    Args:
      configs: the configurations of the runs.
      folders: the workdirs of the runs.
      machine: from `here`.
      plan: (configuration, accelerator) -> need; raises BadInput where the plan cannot tell.
    """
    if machine.platform == "cpu":
        return OnCpu(folders, machine)
    places, why = on_devices(configs, machine, plan)
    _say(len(places), why)
    return Fixed(places)


def _say(count: int, why: str) -> None:
    log.info("--parallel=auto: %d run%s at a time; %s", count, "s" * (count > 1), why)


# ---------------------------------------------------------------- CPU


class OnCpu:
    """One place until a run has told its memory, then as many as cores and memory carry.

    Args:
      folders: the workdirs of the runs; those of an earlier start also tell.
      machine: from `here`, before the first run.
    """

    def __init__(self, folders: Sequence[Path], machine: Machine):
        self._folders, self._machine = folders, machine
        self._places, self._decided, self._looked = [Place(0)], len(folders) < 2, -math.inf

    def now(self) -> Sequence[Place]:
        """Returns the places; it looks for the memory of a run once a second."""
        if not self._decided and time.monotonic() - self._looked > _LOOK_SECS:
            self._looked = time.monotonic()
            if measured := max(map(_measured_bytes, self._folders)):
                self._decide(measured)
        return self._places

    def _decide(self, measured: int) -> None:
        machine, need = self._machine, _GROWTH * measured
        fit = max(1, int(_OF_HOST * machine.host_bytes / need))
        count = min(machine.cores, fit, len(self._folders))
        self._places, self._decided = list(map(Place, range(count))), True
        _say(
            count,
            f"{machine.cores} cores, and {fit} runs of {need / GIB:.1f} GiB, as measured, in "
            f"{machine.host_bytes / GIB:.1f} GiB of free memory",
        )


def _measured_bytes(folder: Path) -> int:
    """Returns the resident memory that a run has reported; 0 if it has not."""
    rows = jsonl.read_rows(folder / jsonl.METRICS_FILE)
    return max((row.get("memory/host_bytes", 0) for row in rows), default=0)


# ---------------------------------------------------------------- accelerators


def on_devices(
    configs: Sequence[sections.Config], machine: Machine, plan: Plan
) -> tuple[list[Place], str]:
    """Returns the places on accelerators, and the reason in words."""
    if machine.hosts > 1:
        return [Place(0)], f"a run takes the whole slice of {machine.hosts} hosts"
    generation = topology.generation_of(machine.kind)
    per_chip = generation.devices_per_chip if generation else 1
    chips = machine.devices // per_chip
    least = -(-max(map(_mesh_devices, configs)) // per_chip)
    sizes = [n for n in range(least, chips + 1) if chips % n == 0] or [chips]
    if machine.platform == "tpu":  # which chips are neighbours differs between generations
        sizes = [n for n in sizes if n in (1, chips)] or [chips]
    size, peak, why = sizes[0], 0, "the plan does not know this device"
    if generation:
        size, peak, why = _smallest(configs, generation, sizes, plan)
    shared = 1
    if machine.platform == "gpu" and size == 1 and peak and FRACTION not in os.environ:
        shared = max(n for n in range(1, MOST_ON_A_GPU + 1) if n == 1 or _share(n, peak, machine))
    groups = chips // size
    count = max(1, min(groups * shared, machine.cores, len(configs)))
    if size == chips and count == 1:
        return [Place(0)], f"it takes all of {machine.devices} x {machine.kind}; {why}"
    environment = _on_gpus if machine.platform == "gpu" else _on_chips
    shared = -(-count // groups)
    more = {FRACTION: f"{_share(shared, peak, machine):.4f}"} if shared > 1 else {}
    places = []
    for number in range(count):
        first = number % groups * size
        name, variables = environment(range(first, first + size))
        places.append(Place(number, name, variables | more))
    where = f"{size} of {chips} x {machine.kind} for a run" if shared == 1 else "shared devices"
    return places, f"{where}; {why}"


def _smallest(
    configs: Sequence[sections.Config],
    generation: topology.Generation,
    sizes: Sequence[int],
    plan: Plan,
) -> tuple[int, int, str]:
    """Returns the smallest size on which all runs fit, their peak bytes there, and words on it."""
    size, peak = sizes[0], 0
    for size in sizes:
        try:
            needs = [plan(one, _accelerator(generation, size)) for one in configs]
        except BadInput as e:
            return size, 0, f"the plan cannot tell the memory ({str(e).splitlines()[0]})"
        peak = max(need.peak_bytes for need in needs)
        if all(need.fits for need in needs):
            break
    return size, peak, f"by the plan a run takes {peak / GIB:.1f} GiB of each device"


def _share(runs: int, peak: int, machine: Machine) -> float:
    """Returns the share of a GPU for each of several runs; 0 if they do not fit together."""
    from vit_jax.preflight.plan import plan as plan_lib

    whole = machine.device_bytes
    share = _OF_GPU / runs - _CONTEXT_BYTES / whole if whole else 0.0
    return share if peak <= plan_lib.FAILS_ABOVE * share * whole else 0.0


def _mesh_devices(config: sections.Config) -> int:
    """Returns the least number of devices that the mesh of a run needs."""
    mesh = config.mesh
    return math.prod(max(1, n) for n in (mesh.replica, mesh.data, mesh.fsdp, mesh.tensor))


def _accelerator(generation: topology.Generation, chips: int) -> Accelerator:
    """Returns a part of a machine, which need not be sold alone."""
    if generation.platform == "gpu":
        return Accelerator(generation, str(chips))
    shape = {1: "1x1", 2: "1x2", 4: "2x2", 8: "2x4"}[chips]
    flat = generation.shapes[0].count("x") == 1
    return Accelerator(generation, shape if flat else f"{shape}x1")


def _on_gpus(numbers: Sequence[int]) -> tuple[str, dict[str, str]]:
    """Returns the name of GPUs and the variable that hides the others."""
    visible = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
    names = ",".join(visible[n] if visible else str(n) for n in numbers)
    return f"GPU {names}", {"CUDA_VISIBLE_DEVICES": names}


def _on_chips(numbers: Sequence[int]) -> tuple[str, dict[str, str]]:
    """Returns the name of a TPU chip and the variables that hide the others.

    Its process trains alone. Without being told so, it would look for others by the metadata of the
    machine.
    """
    visible = [one for one in os.environ.get("TPU_VISIBLE_CHIPS", "").split(",") if one]
    names = ",".join(visible[n] if visible else str(n) for n in numbers)
    own = process_identity.VARIABLES
    return f"TPU chip {names}", {
        "TPU_VISIBLE_CHIPS": names,
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_BOUNDS": "1,1,1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        own["coordinator"]: "localhost:1",  # never used by a process alone
        own["num_processes"]: "1",
        own["process_id"]: "0",
    }


# ---------------------------------------------------------------- this machine


def here(platform: str, root: str = "/") -> Machine:
    """Returns this machine, for runs on a platform; asks jax in a process of its own.

    Args:
      platform: `platform` of the configurations: auto, cpu, gpu or tpu.
      root: root of the file system, for tests.

    Raises:
      RunFailed: jax cannot use the accelerator.
    """
    present = detect.present_accelerators(root)
    chosen = os.environ.get("JAX_PLATFORMS", "").lower()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    alone = Machine("cpu", cores or 1, host_memory.available_bytes())
    if platform == "cpu" or chosen.startswith("cpu") or not present:
        return alone
    hosts = len(os.environ.get("TPU_WORKER_HOSTNAMES", "").split(","))
    died = "jax cannot use the accelerator of this machine; vit_jax doctor says why."
    with Child(_asked, died=died) as child:
        found = child.ask(None)
    if found["platform"] != "tpu":
        hosts = 1
    return dataclasses.replace(alone, **found, hosts=hosts)


def _asked() -> Callable[[Any], dict[str, Any]]:
    """Returns, in a fresh process, a function that describes the devices of this machine."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    fraction = float(os.environ.get(FRACTION, "0.75"))
    import jax

    devices = jax.local_devices()
    first, stats = devices[0], devices[0].memory_stats() or {}
    used = fraction if first.platform == "gpu" else 1.0
    return lambda _: {
        "platform": first.platform,
        "kind": first.device_kind,
        "devices": len(devices),
        "device_bytes": int(stats.get("bytes_limit", 0) / used),
    }
