# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Plans a run: does a configuration fit an accelerator, how fast can it be, what does it cost?

The trainer's own step is compiled ahead of time, in a separate process (`compile_for`). If it does
not fit, other settings are tried. Start from `plan`.
"""

import dataclasses
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from vit_jax.build import defaults, less_memory
from vit_jax.build import run as build_lib
from vit_jax.config import images, sections
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.hardware import detect, topology
from vit_jax.hardware.topology import Accelerator, Generation
from vit_jax.preflight.plan import compile_for, feeding
from vit_jax.preflight.plan.compile_for import Measured
from vit_jax.runtime.worker_process import Child

FAILS_ABOVE, WARNS_ABOVE = 0.92, 0.85  # of the memory: batches and a second program need some
_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
Measure = Callable[[dict[str, Any]], Measured]  # settings -> figures

log = logging.getLogger("vit_jax")


@dataclasses.dataclass(frozen=True)
class Plan:
    """The figures of one configuration on one accelerator.

    Attributes:
      accelerator: one slice.
      slices: number of slices.
      limit_bytes: memory per device that a program may use.
      measured: figures of the step.
      fitting: settings that fit, with their peak bytes; only tried if the step itself does not fit.
      cpu_rate: examples/s that a CPU of a host makes.
    """

    accelerator: Accelerator
    slices: int
    limit_bytes: int
    measured: Measured
    fitting: tuple[tuple[dict[str, Any], int], ...] = ()
    cpu_rate: float = feeding.USUAL

    @property
    def share(self) -> float:
        """The share of the memory that the step takes at its peak."""
        return self.measured.peak_bytes / self.limit_bytes

    @property
    def fits(self) -> bool:
        """True if the step leaves the memory that the rest of a run needs."""
        return self.share <= FAILS_ABOVE

    @property
    def hours(self) -> float:
        """Wall time of the whole recipe in hours, at the roofline."""
        return self.measured.steps * self.measured.step_secs / 3600

    @property
    def chip_hours(self) -> float:
        """`hours` summed over all chips."""
        return self.hours * self.chips

    @property
    def chips(self) -> int:
        """The chips of all slices."""
        return self.accelerator.chips * self.slices

    @property
    def estimated_hours(self) -> float | None:
        """Wall time of the whole recipe in hours, by the compiler's clock; None if not known."""
        secs = self.measured.estimated_secs
        return None if secs is None else self.measured.steps * secs / 3600

    @property
    def estimated_chip_hours(self) -> float | None:
        """`estimated_hours` summed over all chips."""
        return None if self.estimated_hours is None else self.estimated_hours * self.chips

    @property
    def estimated_mfu(self) -> float | None:
        """Share of the peak FLOP/s that the model uses by the compiler's clock."""
        secs = self.measured.estimated_secs
        peak = self.accelerator.generation.flops
        return None if secs is None else self.measured.flops / secs / peak

    @property
    def feeding(self) -> feeding.Feeding | None:
        """The images that a host must make: for the estimated step, or else the roofline's.

        None if the devices are CPUs, which the input shares.
        """
        if self.accelerator.generation.platform == "cpu":
            return None
        secs = self.measured.estimated_secs or self.measured.step_secs
        rate = self.measured.batch_size / secs
        return feeding.of_plan(self.accelerator, self.slices, rate, self.cpu_rate)

    def to_json(self) -> dict[str, Any]:
        """Returns what `--json` prints; bytes, FLOPs and collectives are per device and step."""
        measured = self.measured
        return {
            "fits": self.fits,
            "share": self.share,
            "peak_bytes": measured.peak_bytes,
            "limit_bytes": self.limit_bytes,
            "args_bytes": measured.args_bytes,
            "temp_bytes": measured.temp_bytes,
            "collective_bytes": measured.collective_bytes,
            "least_collective_bytes": measured.least_collective_bytes,
            "beyond_least": measured.beyond_least
            if measured.collective_bytes is not None
            else None,
            "flops": measured.flops,
            "step_secs": measured.step_secs,
            "limited_by": measured.limited_by,
            "estimated_step_secs": measured.estimated_secs,
            "estimated_mfu": self.estimated_mfu,
            "estimated_hours": self.estimated_hours,
            "estimated_chip_hours": self.estimated_chip_hours,
            "parts": measured.parts,
            "chip_hours": self.chip_hours,
            "hours": self.hours,
            "images_per_sec": measured.batch_size / measured.step_secs,
            "input": self.feeding and self.feeding.to_json(),
            "steps": measured.steps,
            "how": measured.how,
            "fitting": [{**settings, "peak_bytes": peak} for settings, peak in self.fitting],
        }


def plan(
    config: sections.Config,
    accelerator: Accelerator,
    slices: int = 1,
    cpu_rate: float = feeding.USUAL,
) -> Plan:
    """Compiles the step of `config` for an accelerator; tries other settings if it does not fit.

    Args:
      config: configuration from `config.load`.
      accelerator: one slice, from `topology.find`.
      slices: number of slices, joined by the network.
      cpu_rate: images/s that a CPU of a host makes; each view of `data.views` is an image.

    Raises:
      BadInput: the configuration does not suit the devices, or the compiler is missing or gave up.
    """
    generation = accelerator.generation
    topology.check_slices(accelerator, slices)
    if generation.platform == "tpu" and not detect.has_tpu_compiler():
        raise BadInput(
            f"planning for {accelerator.name} needs the TPU compiler, which runs without a TPU: "
            "pip install 'vit_jax[plan]'."
        )
    config = defaults.settle(config)
    build_lib.check(config)
    limit = limit_bytes(generation)
    with tempfile.TemporaryDirectory() as folder, _process(accelerator, slices) as process:
        file = Path(folder) / "config.yaml"
        file.write_text(config_lib.to_yaml(config), encoding="utf-8")

        def measure(settings: dict[str, Any]) -> Measured:
            shown = " ".join(f"--config.{k}={v}" for k, v in settings.items()) or "the step"
            log.info("working out %s for %s", shown, described(accelerator, slices))
            return process.ask((str(file), settings))

        cpu_rate /= _images_of_an_example(config.data)
        whole = Plan(accelerator, slices, limit, measure({}), cpu_rate=cpu_rate)
        if whole.share > WARNS_ABOVE:
            log.warning("the step takes %.0f %% of the memory", 100 * whole.share)
        if whole.fits:
            return whole
        log.info("trying other settings")
        tried = fitting(config, accelerator, limit, measure)
        return dataclasses.replace(whole, fitting=tuple(tried))


def _images_of_an_example(data: sections.Data) -> int:
    """Returns how many images a host makes of an example: 1, or its views."""
    from vit_jax.data.ops import chain

    shown = images.of(data)
    views = chain.parse_views("data.views", data.views, shown.size, shown.channels)
    return max(1, sum(view.count or 1 for view in views))


def limit_bytes(generation: Generation) -> int:
    """Returns the memory per device that a program may use; on a GPU, the share that jax takes."""
    if generation.platform != "gpu":
        return generation.memory_bytes
    return int(generation.memory_bytes * float(os.environ.get(_FRACTION, "0.75")))


def described(accelerator: Accelerator, slices: int) -> str:
    """Returns the name of the hardware, e.g. `2 x v4-256`."""
    return f"{slices} x {accelerator.name}" if slices > 1 else accelerator.name


def fitting(
    config: sections.Config, accelerator: Accelerator, limit: int, measure: Measure
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yields (settings that fit, peak bytes): the mildest of each kind, else all kinds together."""
    any_fits, strongest = False, []
    for kind in alternatives(config, accelerator):
        for settings in kind:
            try:
                peak = measure(settings).peak_bytes
            except BadInput:  # the mesh does not divide the model or the batch
                continue
            strongest = [s for s in strongest if s.keys() != settings.keys()] + [settings]
            if peak <= FAILS_ABOVE * limit:
                any_fits = True
                yield settings, peak
                break
    together = {key: value for settings in strongest for key, value in settings.items()}
    if not any_fits and len(strongest) > 1:
        try:
            peak = measure(together).peak_bytes
        except BadInput:
            return
        if peak <= FAILS_ABOVE * limit:
            yield together, peak


def alternatives(config: sections.Config, accelerator: Accelerator) -> list[list[dict[str, Any]]]:
    """Returns settings that need less memory and keep the results.

    They are grouped by kind, each kind from mild to strong.
    """
    more = [config.accumulation * factor for factor in (2, 4, 8, 16, 32)]
    sizes = [n for n in (2, 4, 8, 16, 32, 64, 128, 256) if n > config.mesh.fsdp]
    shared = [n for n in sizes if accelerator.devices % (n * max(1, config.mesh.tensor)) == 0]
    return [
        [{"model.remat": policy} for policy in less_memory.stronger_remat(config.model)],
        [{"accumulation": a} for a in more if config.batch_size % a == 0],
        [{"mesh.fsdp": n, "mesh.data": -1} for n in shared],
    ]


def _process(accelerator: Accelerator, slices: int) -> Child:
    """Starts a process that answers (config file, settings) with `Measured`."""
    return Child(compile_for.measuring, accelerator, slices, died=compile_for.DIED)
