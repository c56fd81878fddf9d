# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax plan --config=FILE[:ARGS] --accelerator=NAME [--slices=N] [--parts] [--out=FILE]`."""

import argparse
import json
from pathlib import Path

from vit_jax import console
from vit_jax.cli import arguments
from vit_jax.errors import BadInput

OVERRIDES = True  # whether --config.key=value may follow
EXAMPLE = "vit_jax plan --config=vit_jax:pretrain:model=B/16 --accelerator=v4-32"


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
    parser.add_argument(
        "--out", metavar="FILE.html", help="page to write, with the parts as a picture and a table"
    )
    parser.add_argument(
        "--data_bench",
        metavar="FILE",
        help="output of `vit_jax data bench SOURCE --json`, for the CPUs that the input needs "
        "(default: the rate of docs/feeding.md)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns 0 if the step fits, else 2."""
    from vit_jax.config import load as config_lib
    from vit_jax.hardware import topology

    accelerator = topology.find(args.accelerator)
    out = _page_file(args.out) if args.out is not None else None
    if (args.parts or out) and not accelerator.generation.hertz:
        raise _no_estimate(args.accelerator)
    from vit_jax.preflight.plan import feeding

    rate = feeding.USUAL if args.data_bench is None else feeding.rate_of(args.data_bench)
    overrides = arguments.overrides(args, rest)
    config = config_lib.load(args.config, overrides)
    from vit_jax.preflight.plan import plan, summary

    planned = plan.plan(config, accelerator, args.slices, rate)
    if (args.parts or out) and planned.fits and planned.measured.parts is None:
        raise _no_estimate(args.accelerator, planned.measured.no_estimate)
    if args.json:
        print(json.dumps(planned.to_json(), indent=2))
    else:
        print(summary.text(planned, parts=args.parts))
    if out and planned.fits:
        page = summary.page(planned, " ".join([args.config, *overrides]))
        arguments.write(out, page.encode())
    elif out:
        console.show(f"vit_jax: --out={out} is not written: a step that does not fit has no parts.")
    return 0 if planned.fits else 2


def _page_file(out: str) -> Path:
    """Returns the path of --out; raises BadInput unless a page can be written there."""
    if not out.endswith(".html"):
        raise BadInput(f"--out={out}: the page is HTML; give a name that ends with .html.")
    return arguments.writable(out)


def _no_estimate(name: str, why: str = "") -> BadInput:
    how = "measure a run: vit_jax train ... --config.profile=100:105."
    if why:
        return BadInput(
            f"--parts and --out: the time of a step on {name} is not known: {why}; {how}"
        )
    return BadInput(
        f"--parts and --out: no compiler here estimates the time of a step on {name}. Give a TPU "
        f"(v2 to tpu7x), or {how}"
    )
