# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Accelerators as sold: sizes, chips, hosts, memory, peaks and links. Imports only `errors`.

The table has one row per generation. `vit_jax plan` and the launchers take their sizes from it, so
a size that is not sold does not exist. Start from `find`; `peak_flops` is for a device that is
present.

Sources: "TPU v2" to "TPU7x" of the Google Cloud documentation ("TPU versions"); link rates of v2
and v3 from Jouppi et al., "A Domain-Specific Supercomputer for Training Deep Neural Networks"
(CACM 2020), and of GPUs from the vendor's data sheets and its eight-GPU machines. The memory of a
TPU device is what its compiler lets a program use (libtpu 0.0.42). Selectors and runtimes: "TPUs in
GKE", "GPUs in GKE" and "Cloud TPU software versions" of the same documentation. CPUs of a host:
"Machine families" of the same, for the machine type with the most chips: n1 for v2 and v3, ct4p,
ct5lp, ct5p, ct6e and tpu7x, a4, a3-ultragpu, a3-highgpu, a2-ultragpu, a2-highgpu and g2.

Clock rates are derived: at that rate, a device's multipliers make the published peak. The number of
multipliers is that of jax's table of TPUs (jax/_src/pallas/mosaic/tpu_info.py, jax 0.10.2): one of
128 x 128 in a core of v2, two of v3, four of v4, v5e and v5p (v4 and v5p have two cores a device),
two of 256 x 256 in a core of v6e and TPU7x. Those two take two rows a cycle: the compiler expects
more than one of a large product (v6e 1.4, TPU7x 1.6). So TPU7x runs at 1153.5e12 / (2 x 2 x 256 x
256 x 2) = 2.2 GHz. No publication confirms it.
"""

import dataclasses
import math
import os
import re

from vit_jax.errors import BadInput

GIB = 2**30
MOST_DEVICES = 32_768  # largest number of devices of a run


@dataclasses.dataclass(frozen=True)
class Generation:
    """One kind of chip. Rates are per jax device, not per chip, and count one direction."""

    name: str
    platform: str  # tpu | gpu | cpu
    kinds: tuple[str, ...]  # in `jax.Device.device_kind`, lower case
    memory_bytes: int
    flops: float  # dense bfloat16 (V100, T4: float16), FLOP/s
    memory_rate: float  # bytes/s
    link_rate: float  # bytes/s between chips of a slice (TPU) or of a machine (GPU), all links
    network_rate: float  # bytes/s between slices or machines
    hertz: float = 0.0  # clock at which a TPU's multipliers reach `flops`; 0: not known
    devices_per_chip: int = 1
    chips_per_host: int = 4
    per_chip: int = 1  # the number in a name counts this many per chip: v4-8 has four chips
    shapes: tuple[str, ...] = ()  # shapes as sold, in the compiler's spelling
    spellings: tuple[str, ...] = ()  # other names
    slices: bool = True  # whether the network can join several as slices
    selector: str = ""  # selector of Google Kubernetes Engine; "": not offered there
    runtime: str = ""  # software of a TPU VM without Kubernetes; "": not offered so
    cpus: int = 0  # of a host with `chips_per_host`, as its system counts them; 0: not known
    cpus_of_eight: int = 0  # of the host with eight chips, where there is one beside it


_SQUARES = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16",
          "8x16x16")  # fmt: skip
_TPUS = (
    Generation(
        "v2", "tpu", ("tpu v2",), int(7.48 * GIB), 22.5e12, 350e9, 124e9, 1.5e9, 0.7e9,
        devices_per_chip=2, per_chip=2, slices=False,
        shapes=("2x2", "4x4", "8x8", "8x16", "16x16"),
        runtime="tpu-ubuntu2204-base", cpus=96,
    ),
    Generation(
        "v3", "tpu", ("tpu v3",), int(15.48 * GIB), 61.5e12, 450e9, 164e9, 1.5e9, 0.94e9,
        devices_per_chip=2, per_chip=2, slices=False,
        shapes=("2x2", "4x4", "4x8", "8x8", "8x16", "16x16", "16x32", "32x32"),
        runtime="tpu-ubuntu2204-base", cpus=96,
    ),
    Generation(
        "v4", "tpu", ("tpu v4",), int(30.75 * GIB), 275e12, 1200e9, 300e9, 3.125e9, 1.05e9,
        per_chip=2, shapes=_CUBES, selector="tpu-v4-podslice",
        runtime="tpu-ubuntu2204-base", cpus=240,
    ),
    Generation(
        "v5e", "tpu", ("tpu v5 lite", "tpu v5e"), int(15.75 * GIB), 197e12, 819e9, 200e9, 3.125e9,
        1.5e9,
        shapes=_SQUARES, spellings=("v5litepod",), selector="tpu-v5-lite-podslice",
        runtime="v2-alpha-tpuv5-lite", cpus=112, cpus_of_eight=224,
    ),
    Generation(
        "v5p", "tpu", ("tpu v5p", "tpu v5"), int(95.74 * GIB), 459e12, 2765e9, 600e9, 6.25e9,
        1.75e9, per_chip=2, shapes=(*_CUBES, "16x16x16", "16x16x24"), selector="tpu-v5p-slice",
        runtime="v2-alpha-tpuv5", cpus=208,
    ),
    Generation(
        "v6e", "tpu", ("tpu v6 lite", "tpu v6e"), int(31.25 * GIB), 918e12, 1638e9, 400e9, 12.5e9,
        1.75e9, shapes=_SQUARES, selector="tpu-v6e-slice",
        runtime="v2-alpha-tpuv6e", cpus=180, cpus_of_eight=180,
    ),
    Generation(
        "tpu7x", "tpu", ("tpu7x",), int(94.75 * GIB), 1153.5e12, 3690e9, 300e9, 6.25e9,
        2.2e9, devices_per_chip=2, per_chip=2, shapes=_CUBES, selector="tpu7x", cpus=224,
    ),
)  # fmt: skip


def _gpu(
    name: str, kinds: tuple[str, ...], gb: int, peak: float, memory: float, link: float,
    net: float, selector: str, cpus: int,
) -> Generation:  # fmt: skip
    sold = ("1", "2", "4", *(str(8 * machines) for machines in (1, 2, 4, 8, 16, 32, 64)))
    return Generation(
        name,
        "gpu",
        kinds,
        int(gb * 1e9),
        peak,
        memory,
        link,
        net,
        chips_per_host=8,
        shapes=sold,
        slices=False,
        selector=selector,
        cpus=cpus,
    )


_GPUS = (
    _gpu("b200", ("b200",), 180, 2250e12, 8000e9, 900e9, 50e9, "nvidia-b200", 224),
    _gpu("h200", ("h200",), 141, 989e12, 4800e9, 450e9, 50e9, "nvidia-h200-141gb", 224),
    _gpu("h100", ("h100",), 80, 989e12, 3350e9, 450e9, 50e9, "nvidia-h100-80gb", 208),
    _gpu("a100-80gb", ("a100-sxm4-80gb",), 80, 312e12, 2039e9, 300e9, 25e9, "nvidia-a100-80gb", 96),
    _gpu("a100-40gb", ("a100",), 40, 312e12, 1555e9, 300e9, 25e9, "nvidia-tesla-a100", 96),
    _gpu("l4", ("l4",), 24, 121e12, 300e9, 16e9, 1.5e9, "nvidia-l4", 96),
)


def _cpu(devices: int) -> Generation:
    """Returns this machine as `devices` devices; its rates are not published."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // devices
    unknown = math.inf
    return Generation(
        "cpu", "cpu", ("cpu",), memory, unknown, unknown, unknown, unknown,
        chips_per_host=devices, slices=False,
    )  # fmt: skip


GENERATIONS = {g.name: g for g in (*_TPUS, *_GPUS)}

# Peaks of devices that are missing above because no run is planned on them.
_OTHERS = (
    ("tpu v4 lite", 138e12),
    ("h100 pcie", 756e12),
    ("a10g", 70e12),
    ("l40s", 362e12),
    ("l40", 181e12),
    ("v100", 125e12),
    ("t4", 65e12),
)


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """One slice, or one or several machines with GPUs, as they are ordered."""

    generation: Generation
    shape: str  # such as 4x4x8; a number for GPUs

    @property
    def chips(self) -> int:
        """Number of chips, the unit of the price."""
        return math.prod(int(n) for n in self.shape.split("x"))

    @property
    def devices(self) -> int:
        """Number of devices as jax counts them."""
        return self.chips * self.generation.devices_per_chip

    @property
    def hosts(self) -> int:
        """Number of machines; a small v5e or v6e slice is in one machine of eight chips."""
        each = self.generation.chips_per_host
        whole = 8 if self.shape == "2x4" and self.generation.devices_per_chip == 1 else each
        return -(-self.chips // whole)

    @property
    def cpus_per_host(self) -> int:
        """Number of CPUs of a machine; a part of it for fewer chips; 0 if it is not known."""
        generation, chips = self.generation, self.chips // self.hosts
        if chips > generation.chips_per_host:
            return generation.cpus_of_eight
        return generation.cpus * chips // generation.chips_per_host

    @property
    def name(self) -> str:
        """Name as sold."""
        return f"{self.generation.name}-{self.chips * self.generation.per_chip}"


def sold(generation: Generation) -> list[Accelerator]:
    """Returns every size of a generation, smallest first."""
    return [Accelerator(generation, shape) for shape in generation.shapes]


def find(name: str) -> Accelerator:
    """Returns the accelerator of a name as sold, such as `v4-256`, `v5litepod-16` or `h100-8`.

    Raises:
      BadInput: the name is not sold; the message names the nearest size, or every generation.
    """
    spelling, _, size = name.lower().rpartition("-")
    if spelling == "cpu" and size.isdecimal() and 1 <= int(size) <= 512:
        return Accelerator(_cpu(int(size)), size)
    known = {s: g for g in GENERATIONS.values() for s in (g.name, *g.spellings)}
    if spelling not in known or not re.fullmatch(r"[1-9]\d*", size):
        rows = (f"  {s.name} to {e.name}" for s, *_, e in map(sold, GENERATIONS.values()))
        raise BadInput(
            f"unknown accelerator {name!r}; write GENERATION-SIZE, such as v4-256. There are:\n"
            + "\n".join([*rows, "  cpu-1 to cpu-512: this machine"])
        )
    sizes = sold(known[spelling])
    wanted = f"{known[spelling].name}-{size}"
    match = next((a for a in sizes if a.name == wanted), None)
    if match is None:
        number = [int(a.name.rpartition("-")[2]) for a in sizes]
        nearest = sizes[min(range(len(sizes)), key=lambda i: abs(number[i] - int(size)))].name
        raise BadInput(
            f"{name} is not sold; the nearest is {nearest}. Sizes: "
            + ", ".join(a.name for a in sizes)
        )
    return match


def check_slices(accelerator: Accelerator, slices: int) -> None:
    """Raises BadInput unless the network can join `slices` slices of an accelerator."""
    if slices < 1 or accelerator.devices * slices > MOST_DEVICES:
        most = MOST_DEVICES // accelerator.devices
        raise BadInput(f"--slices={slices}: give a number from 1 to {most}.")
    if slices > 1 and not accelerator.generation.slices:
        name = accelerator.generation.name
        raise BadInput(f"--slices={slices}: {name} has no slices; give a larger size.")


def peak_flops(device_kind: str) -> float | None:
    """Returns the dense bfloat16 (V100, T4: float16) peak of a device in FLOP/s, or None."""
    peaks = [*_OTHERS, *((k, g.flops) for g in GENERATIONS.values() for k in g.kinds)]
    return next((peak for name, peak in peaks if is_named(device_kind, name)), None)


def generation_of(device_kind: str) -> Generation | None:
    """Returns the generation of a device, or None for a device that is not in the table.

    A variant, such as an H100 PCIe, counts as the one after which it is named.
    """
    named = (g for g in GENERATIONS.values() for kind in g.kinds if is_named(device_kind, kind))
    return next(named, None)


def is_named(device_kind: str, name: str) -> bool:
    """Matches a device kind by whole words: an L40 is not an L4, but a GH200 counts as an H200."""
    return re.search(rf"\bg?{name}\b", device_kind.lower()) is not None
