# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax plan --config=FILE[:ARGS] --accelerator=NAME [--slices=N] [--parts] [--json]`."""

import argparse
import json
from typing import TYPE_CHECKING

from vit_jax.cli import arguments
from vit_jax.errors import BadInput

if TYPE_CHECKING:
    from vit_jax.preflight.plan.plan import Plan

OVERRIDES = True  # whether --config.key=value may follow
EXAMPLE = "vit_jax plan --config=configs/pretrain.py:model=B/16 --accelerator=v4-32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments; `run` takes `--config.key=value` overrides from `rest`."""
    arguments.recipe(parser)
    parser.add_argument(
        "--accelerator",
        required=True,
        metavar="NAME",
        help="accelerator and size as sold: v4-256, h100-8, cpu-1",
    )
    parser.add_argument(
        "--slices", type=int, default=1, metavar="N", help="number of slices (default: 1)"
    )
    parser.add_argument(
        "--parts", action="store_true", help="show where the estimated time of a step goes"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns 0 if the step fits, else 2."""
    from vit_jax.config import load as config_lib
    from vit_jax.hardware import topology

    accelerator = topology.find(args.accelerator)
    config = config_lib.load(args.config, arguments.overrides(args, rest))
    from vit_jax.preflight.plan import plan

    planned = plan.plan(config, accelerator, args.slices)
    if args.parts and planned.fits and planned.measured.parts is None:
        raise BadInput(
            f"--parts: no compiler here estimates the time of a step on {args.accelerator}. Give a "
            "TPU (v2 to v6e), or measure a run: vit_jax train ... --config.profile=100:105."
        )
    if args.json:
        print(json.dumps(planned.to_json(), indent=2))
    else:
        print("\n".join([text(planned), *(parts(planned) if args.parts and planned.fits else [])]))
    return 0 if planned.fits else 2


def text(planned: "Plan") -> str:
    """Returns the plan as text for people: the verdict first, then figures of one device."""
    from vit_jax.preflight.plan import plan

    measured, gib = planned.measured, 2**30
    hosts = planned.accelerator.hosts * planned.slices
    verdict = "fits" if planned.fits else "does not fit"
    if planned.fits and planned.share > plan.WARNS_ABOVE:
        verdict = "fits, but barely"
    how = (
        "compiled"
        if measured.how == "compiled"
        else "counted from shapes; a compiler may need more"
    )
    lines = [
        f"{plan.described(planned.accelerator, planned.slices)}: {verdict} ({how})",
        "",
        f"devices       {planned.accelerator.devices * planned.slices} on "
        f"{hosts} {'host' if hosts == 1 else 'hosts'}",
        f"memory        {measured.peak_bytes / gib:.3g} of {planned.limit_bytes / gib:.4g} GiB at "
        f"the peak ({planned.share:.0%}): arguments {measured.args_bytes / gib:.3g}, "
        f"temporaries {measured.temp_bytes / gib:.3g}",
        *(f"{'sends' if i == 0 else '':14}{row}" for i, row in enumerate(_sent(planned))),
        f"computes      {measured.flops / 1e12:.3g} TFLOPs a step on each device",
        *_times(planned),
    ]
    if not planned.fits:
        lines += ["", *_advice(planned)]
    return "\n".join(lines)


def _times(planned: "Plan") -> list[str]:
    """Returns the lines on time: the compiler's estimate where there is one, and the roofline."""
    measured, hours, chip_hours = (
        planned.measured, planned.estimated_hours, planned.estimated_chip_hours,
    )  # fmt: skip
    step = f"{1000 * measured.step_secs:.3g} ms at best, limited by {measured.limited_by}"
    speed = f"{measured.batch_size / measured.step_secs:,.0f} images/s at best"
    run = f"{planned.hours:.3g} hours, {_short(planned.chip_hours)} chip-hours at best"
    if measured.estimated_secs is None or hours is None or chip_hours is None:
        unknown = "this compiler gives no estimate" if planned.fits else "too large to estimate"
        return [
            f"step          {step}; {unknown}",
            f"speed         {speed}",
            f"whole run     {measured.steps:,} steps, {run}",
        ]
    secs = measured.estimated_secs
    return [
        f"step          {1000 * secs:.3g} ms estimated (MFU {planned.estimated_mfu:.0%}); {step}",
        f"speed         {measured.batch_size / secs:,.0f} images/s estimated; {speed}",
        f"whole run     {measured.steps:,} steps, {hours:.3g} hours, "
        f"{_short(chip_hours)} chip-hours estimated; {run}",
    ]


def parts(planned: "Plan") -> list[str]:
    """Returns a table of the parts of the estimated step time, the longest first; [] without it."""
    shares = planned.measured.parts
    if not shares:
        return []
    width = max(map(len, shares))
    total = sum(secs for directions in shares.values() for secs in directions.values())
    digits = 2 if total >= 0.01 else 4  # a step of less than 10 ms needs more of them
    rows = ["", f"{'estimated ms':{width}}   forward  backward    update  share"]
    for part, directions in shares.items():
        columns = (1000 * directions.get(name, 0) for name in ("forward", "backward", "update"))
        share = sum(directions.values()) / total
        rows.append(
            f"{part:{width}}" + "".join(f"{ms:10.{digits}f}" for ms in columns) + f"{share:7.1%}"
        )
    return rows


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _sent(planned: "Plan") -> list[str]:
    sent = planned.measured.collective_bytes
    if sent is None:
        hidden = planned.accelerator.generation.platform == "tpu" and planned.fits
        return [f"n/a: {'the compiler hides it in fusions' if hidden else 'nothing to read'}"]
    rows = [
        f"{size / 1e6:,.1f} MB {kind} over {axes}"
        for axes, kinds in sent.items()
        for kind, size in sorted(kinds.items(), key=lambda item: -item[1])
    ]
    if planned.measured.how == "compiled" and planned.measured.beyond_least is not None:
        rows.append(f"{planned.measured.beyond_least:.2f} times the least for this sharding")
    return rows or ["nothing"]


def _advice(planned: "Plan") -> list[str]:
    rows = [
        "  " + " ".join(f"--config.{key}={value}" for key, value in settings.items())
        + f": {peak / 2**30:.3g} GiB"
        for settings, peak in planned.fitting
    ]  # fmt: skip
    if not rows:
        return ["No remat, micro-batch or fsdp size fits either; take more or larger devices."]
    return ["It fits, with the same results (up to the draws of dropout), with", *rows]
