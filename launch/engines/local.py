# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""This machine, in the foreground: n processes over loopback, restarted if their codes ask."""

import dataclasses
import re
import sys

from vit_jax.errors import BadInput

from .. import job as job_lib
from ..job import Command, Job, Rendered, flag

CODE = "folder"
LOG_FILE = "log.txt"


@dataclasses.dataclass(frozen=True)
class Options:
    """Flags of this engine only."""

    processes: int = flag("number of processes (default: 1, or one per GPU)", 1)


def render(job: Job, options: Options) -> Rendered:
    """Renders the job file, and `launch.node` with it; for a sweep, `vit_jax sweep`.

    Raises:
      BadInput: the accelerator has several machines, or the processes do not divide it.
    """
    accelerator = job.accelerator
    if accelerator is not None and accelerator.hosts * job.slices > 1:
        most = accelerator.generation.chips_per_host * accelerator.generation.per_chip
        raise BadInput(
            f"{accelerator.name} is {accelerator.hosts * job.slices} machines, local is this one; "
            f"give at most {accelerator.generation.name}-{most}, or another engine."
        )
    count = options.processes
    if accelerator is not None and job.processes == "per_gpu":
        count = accelerator.chips
    if count < 1 or (accelerator is not None and accelerator.devices % count):
        have = f" that divides {accelerator.devices} devices" if accelerator else ""
        raise BadInput(f"--processes={count}; give a number from 1 on{have}.")
    python = ("env", *(f"{k}={v}" for k, v in _environment(job, count).items()), sys.executable)
    if job.sweep:
        if count > 1:
            raise BadInput("--sweep runs points side by side: give --parallel, not --processes.")
        words, files = (*python, "-m", "vit_jax", *job.sweep), ()
        log = tuple(f"{run.workdir}/{LOG_FILE}" for run in job.runs)
        pattern = f"vit_jax sweep .*--workdir={re.escape(job.workdir)} --parallel="
    else:
        files = job.files(job.runs[0], job.folder)
        target, log = f"@{job.folder}/{files[0].name}", (f"{job.folder}/{LOG_FILE}",)
        words = (
            *python, "-m", job_lib.NODE, f"--count={count}",
            *(["--per_gpu"] if job.processes == "per_gpu" else []),
            "--again", f"--log={log[0]}", target,
        )  # fmt: skip
        pattern = f"launch.node .*{re.escape(target)}"
    return Rendered(
        files=files,
        submit=(Command(words),),
        status=(Command(("pgrep", "-f", "-a", "--", pattern)),),
        logs=(Command(("tail", "-n", "200", "-F", *log)),),
        cancel=(Command(("pkill", "-TERM", "-f", "--", pattern)),),
    )


def _environment(job: Job, count: int) -> dict[str, str]:
    """Returns the job's variables; on a CPU they include the number of devices per process."""
    if job.accelerator is None or job.accelerator.generation.platform != "cpu":
        return dict(job.environment)
    flags = job.environment.get("XLA_FLAGS", "")
    each = f"--xla_force_host_platform_device_count={job.accelerator.devices // count}"
    return {"JAX_PLATFORMS": "cpu", **job.environment, "XLA_FLAGS": f"{flags} {each}".strip()}
