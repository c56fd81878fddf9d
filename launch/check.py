# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks a job before it is submitted, and computes its cost.

A mistake must show here within seconds, not later on a thousand chips. Start from `check`.
"""

from collections.abc import Sequence
from typing import Any

from jax.sharding import AbstractMesh

from vit_jax import sharding
from vit_jax.build import defaults, placement
from vit_jax.build import run as build
from vit_jax.config import load as config_lib
from vit_jax.config import sections
from vit_jax.errors import BadInput
from vit_jax.hardware import detect, topology
from vit_jax.hardware.topology import Accelerator

from .job import Job, Processes

_SAME_COST = {"seed": 0, "schedule.lr": 0.0, "loss.label_smoothing": 0.0, "init": ""}


def check(
    config: sections.Config, accelerator: Accelerator | None, slices: int, processes: Processes
) -> None:
    """Checks a configuration by itself, and against the devices that it will run on.

    Args:
      config: configuration from `vit_jax.config.load.load`.
      accelerator: accelerator of a slice; None checks only the configuration.
      slices: number of slices.
      processes: one for each machine, or one for each GPU.

    Raises:
      BadInput: a value is impossible; the message suggests the nearest possible one.
    """
    settled = defaults.settle(config)
    build.check(settled)
    if accelerator is None:
        if slices > 1:
            raise BadInput(f"--slices={slices} needs --accelerator=NAME, e.g. v4-32.")
        return
    topology.check_slices(accelerator, slices)
    platform = accelerator.generation.platform
    if processes == "per_gpu" and platform != "gpu":
        raise BadInput(
            f"--procs_per_node=per_gpu: {accelerator.name} has no GPUs; leave it out, one process "
            "drives all devices of a machine."
        )
    if config.platform not in ("auto", platform):
        raise BadInput(
            f"platform={config.platform}, but {accelerator.name} is a {platform}; leave out "
            "--config.platform, or give another --accelerator."
        )
    sizes = {axis: getattr(config.mesh, axis) for axis in sharding.MESH_AXES}
    sizes["replica"] = sizes["replica"] or slices
    shape = sharding.mesh_shape(**sizes, devices=accelerator.devices * slices)
    if platform != "cpu":  # CPUs may simulate several slices
        sharding.check_slices(shape, slices)
    mesh: Any = AbstractMesh(shape, sharding.MESH_AXES)  # the rules only need its shape
    placement.check_batches(settled, sharding.Rules(mesh, settled.mesh.rules))


def machines(job: Job) -> str:
    """Describes the hardware of a run: `2 x v4-256: 256 chips on 64 machines`."""
    if job.accelerator is None:
        return "this machine, as it is"
    chips, hosts = (n * job.slices for n in (job.accelerator.chips, job.accelerator.hosts))
    times = f"{job.slices} x " if job.slices > 1 else ""
    return (
        f"{times}{job.accelerator.name}: {_many(chips, 'chip')} on {_many(hosts, 'machine')}; "
        f"{_many(chips, 'chip-hour')} for each hour"
    )


def can_plan(job: Job) -> bool:
    """Returns True if `vit_jax plan` can give a verdict here."""
    if job.accelerator is None or job.accelerator.generation.platform == "cpu":
        return False
    on_tpu = job.accelerator.generation.platform == "tpu"
    return not on_tpu or detect.has_tpu_compiler()


def plan(job: Job, configs: Sequence[sections.Config]) -> str:
    """Returns in one line the verdict of `vit_jax plan` on a job's runs, and their total cost.

    Args:
      job: the job to submit.
      configs: configurations of its runs; those with equal step costs are planned once.

    Raises:
      BadInput: a run does not fit; the message says what would.
    """
    if not can_plan(job):
        return "not planned: " + (
            "memory and hours are those of TPUs and GPUs"
            if job.accelerator is None or job.accelerator.generation.platform == "cpu"
            else "pip install 'vit_jax[plan]' says whether it fits, and for how many hours"
        )
    kinds = [config_lib.fingerprint(config_lib.changed(c, _SAME_COST)) for c in configs]
    one_of = dict(zip(kinds, configs, strict=True))
    plans = {kind: _planned(job, config) for kind, config in one_of.items()}
    known = all(plan.estimated_hours is not None for plan in plans.values())
    costs = {
        kind: (plan.estimated_hours, plan.estimated_chip_hours)
        if known
        else (plan.hours, plan.chip_hours)
        for kind, plan in plans.items()
    }
    total = sum(costs[kind][1] for kind in kinds)
    tightest = max(plans.values(), key=lambda plan: plan.share)
    shown = [f"{hours:.3g}" for hours, _ in sorted(costs.values())]
    each = f" for {len(configs)} runs" if len(configs) > 1 else ""
    return (
        f"fits: {tightest.share:.0%} of the memory ({tightest.measured.how}); "
        f"{' to '.join(dict.fromkeys((shown[0], shown[-1])))} hours a run and "
        f"{total:,.3g} chip-hours{each} "
        + ("by the compiler's estimate" if known else "at best, two to three times that is usual")
    )


def _planned(job: Job, config: sections.Config) -> Any:
    """Returns the plan of a run; raises BadInput if it does not fit."""
    from vit_jax.preflight.plan import plan as plan_lib

    assert job.accelerator is not None
    try:
        planned = plan_lib.plan(config, job.accelerator, job.slices)
    except BadInput as e:
        raise BadInput(f"{e} (--no_plan submits without asking.)") from e
    if not planned.fits:
        rows = [" ".join(f"--config.{k}={v}" for k, v in s.items()) for s, _ in planned.fitting]
        peak, limit = (n / topology.GIB for n in (planned.measured.peak_bytes, planned.limit_bytes))
        raise BadInput(
            f"a step takes {peak:.3g} of {limit:.4g} GiB of {job.accelerator.name} "
            f"({planned.measured.how}); {'it would fit with ' if rows else 'take more devices'}"
            f"{' or '.join(rows)}. Nothing was submitted (--no_plan submits without asking)."
        )
    return planned


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"
