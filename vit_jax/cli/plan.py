# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax plan --config=FILE[:ARGS] --accelerator=NAME [--slices=N] [--json]`."""

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vit_jax.preflight.plan.plan import Plan

OVERRIDES = True  # whether --config.key=value may follow
EXAMPLE = "vit_jax plan --config=configs/pretrain.py:model=B/16 --accelerator=v4-32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments; `run` takes `--config.key=value` overrides from `rest`."""
    parser.add_argument(
        "--config",
        required=True,
        metavar="FILE[:ARGS]",
        help="a recipe, or the config.yaml of a run",
    )
    parser.add_argument(
        "--data", metavar="SOURCE", help="data source; short for --config.data.source=SOURCE"
    )
    parser.add_argument(
        "--accelerator",
        required=True,
        metavar="NAME",
        help="accelerator and size as sold: v4-256, h100-8, cpu-1",
    )
    parser.add_argument(
        "--slices", type=int, default=1, metavar="N", help="number of slices (default: 1)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns 0 if the step fits, else 2."""
    from vit_jax.config import load as config_lib
    from vit_jax.hardware import topology

    accelerator = topology.find(args.accelerator)
    data = [] if args.data is None else [f"--config.data.source={args.data}"]
    config = config_lib.load(args.config, [*rest, *data])
    from vit_jax.preflight.plan import plan

    made = plan.plan(config, accelerator, args.slices)
    print(json.dumps(made.to_json(), indent=2) if args.json else text(made))
    return 0 if made.fits else 2


def text(made: "Plan") -> str:
    """Returns the plan as text for people: the verdict first, then figures of one device."""
    from vit_jax.preflight.plan import plan

    found, gib = made.measured, 2**30
    verdict = "fits" if made.fits else "does not fit"
    if made.fits and made.share > plan.WARNS_ABOVE:
        verdict = "fits, but barely"
    how = "compiled" if found.how == "compiled" else "counted from shapes; a compiler may need more"
    lines = [
        f"{plan.described(made.accelerator, made.slices)}: {verdict} ({how})",
        "",
        f"devices       {made.accelerator.devices * made.slices} on "
        f"{made.accelerator.hosts * made.slices} hosts",
        f"memory        {found.peak_bytes / gib:.3g} of {made.limit_bytes / gib:.4g} GiB at the "
        f"peak ({made.share:.0%}): arguments {found.args_bytes / gib:.3g}, "
        f"temporaries {found.temp_bytes / gib:.3g}",
        *(f"{'sends' if i == 0 else '':14}{row}" for i, row in enumerate(_sent(made))),
        f"computes      {found.flops / 1e12:.3g} TFLOPs a step on each device",
        f"step          {1000 * found.step_secs:.3g} ms at best, limited by {found.limited_by}",
        f"speed         {found.batch_size / found.step_secs:,.0f} images/s at best",
        f"whole run     {found.steps:,} steps, {made.hours:.3g} hours, "
        f"{_short(made.chip_hours)} chip-hours at best",
    ]
    if not made.fits:
        lines += ["", *_advice(made)]
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _sent(made: "Plan") -> list[str]:
    sent = made.measured.collective_bytes
    if sent is None:
        hidden = made.accelerator.generation.platform == "tpu" and made.fits
        return [f"n/a: {'the compiler hides it in fusions' if hidden else 'nothing to read'}"]
    rows = [
        f"{size / 1e6:,.1f} MB {kind} over {axes}"
        for axes, kinds in sent.items()
        for kind, size in sorted(kinds.items(), key=lambda item: -item[1])
    ]
    if made.measured.how == "compiled" and made.measured.beyond_least is not None:
        rows.append(f"{made.measured.beyond_least:.2f} times the least for this sharding")
    return rows or ["nothing"]


def _advice(made: "Plan") -> list[str]:
    rows = [
        "  " + " ".join(f"--config.{key}={value}" for key, value in settings.items())
        + f": {peak / 2**30:.3g} GiB"
        for settings, peak in made.fitting
    ]  # fmt: skip
    if not rows:
        return ["No remat, micro-batch or fsdp size fits either; take more or larger devices."]
    return ["It fits, with the same results (up to the draws of dropout), with", *rows]
