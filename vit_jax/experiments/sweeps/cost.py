# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tells what the runs of a sweep cost: by the plan before they run, by goodput.jsonl afterwards.

Start from `of_run`; a `Planner` plans.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vit_jax.config import load as config_lib
from vit_jax.config import provenance, sections
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps.places import Need
from vit_jax.hardware import topology
from vit_jax.hardware.topology import Accelerator
from vit_jax.reports.run import time_accounting
from vit_jax.storage import files as storage

PLANNED_FILE = "planned.json"  # in the folder of a sweep: run -> chip-hours
# Keys that change neither the memory of a step nor its time.
_ALIKE = ("seed", "schedule.", "evals.", "fewshot.", "report.", "recipe.", "expected.",
          "checkpoint.")  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of a run so far.

    Attributes:
      secs: seconds in which a process of the run was there, over all its starts.
      chip_hours: `secs` in hours times the chips that it saw (on a CPU, times its devices); runs
        that share a GPU count it each.
    """

    secs: float
    chip_hours: float


def of_run(folder: Path) -> Cost | None:
    """Returns the cost of the run in a workdir; None if it has not begun or its files are damaged.

    The chips are those of its last start.
    """
    try:
        spent = time_accounting.examine(folder)
    except BadInput:
        return None
    secs = spent.elapsed - spent.down
    return Cost(secs, secs / 3600 * _chips(provenance.read(folder).devices))


def _chips(devices: str) -> float:
    """Returns the number of chips in `8 x TPU v3 (tpu), ...`; 1 if the text is another one."""
    match = re.match(r"(\d+) x (.+?) \(\w+\)", devices)
    if not match:
        return 1
    generation = topology.generation_of(match[2])
    return int(match[1]) / (generation.devices_per_chip if generation else 1)


# ---------------------------------------------------------------- the plan


class Planner:
    """Plans runs for an accelerator, those that differ only in what costs nothing once.

    Attributes:
      chip_hours: fingerprint of a configuration -> its chip-hours on the accelerator of the last
        plan: by the compiler's clock, else at best.
    """

    def __init__(self) -> None:
        self.chip_hours = dict[str, float]()
        self._known = dict[tuple[Any, ...], Need]()

    def __call__(self, config: sections.Config, accelerator: Accelerator) -> Need:
        """Returns the need of a run.

        Raises:
          BadInput: the configuration does not suit the devices, or there is no compiler.
        """
        from vit_jax.preflight.plan import plan as plan_lib

        flat = config_lib.flatten(config)
        alike = [(key, repr(value)) for key, value in flat if not key.startswith(_ALIKE)]
        key = accelerator.name, *alike
        if key not in self._known:
            planned = plan_lib.plan(config, accelerator)
            hours = planned.estimated_chip_hours
            self._known[key] = Need(
                planned.measured.peak_bytes,
                planned.fits,
                planned.chip_hours if hours is None else hours,
            )
        self.chip_hours[config_lib.fingerprint(config)] = self._known[key].chip_hours
        return self._known[key]


def write_planned(workdir: Path, chip_hours: Mapping[str, float]) -> None:
    """Adds the planned chip-hours of runs to the folder of a sweep."""
    text = json.dumps(planned(workdir) | dict(chip_hours), indent=1) + "\n"
    storage.write(workdir / PLANNED_FILE, text)


def planned(workdir: Path) -> dict[str, float]:
    """Returns run -> its planned chip-hours; empty if nothing was planned."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads((workdir / PLANNED_FILE).read_text(encoding="utf-8"))
        return {run: float(hours) for run, hours in content.items()}
    return {}
