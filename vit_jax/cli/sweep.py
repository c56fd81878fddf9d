# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax sweep --config=FILE --workdir=DIR [--parallel=N|auto] [--stage=NAME] [--collect]`."""

import argparse
import re
import sys
from pathlib import Path

from vit_jax import console
from vit_jax.cli import arguments
from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

OVERRIDES = True  # whether --config.key=value may follow
EXAMPLE = (
    "vit_jax sweep --config=vit_jax:transfer:dataset=pets,init=runs/b16 --workdir=runs/pets "
    "--parallel=2"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments; `run` takes `--config.key=value` overrides from `rest`."""
    arguments.recipe(parser, required=False, description="a recipe with a sweep()")
    parser.add_argument("--workdir", required=True, metavar="DIR", help="folder of the sweep")
    parser.add_argument(
        "--parallel",
        default="1",
        metavar="N",
        help="number of runs at the same time, or auto: as many as this machine carries "
        "(default: 1)",
    )
    parser.add_argument(
        "--stage", default="", metavar="NAME", help="run only this stage, for example select"
    )
    parser.add_argument(
        "--collect",
        action="store_true",
        help="start nothing; write sweep.csv and sweep.html from the existing runs",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code, which is 1 if a run failed."""
    if not args.workdir:
        raise BadInput("--workdir is empty; give the folder of the sweep.")
    workdir = storage.workdir(args.workdir)
    if args.collect:
        return _collect(args, rest, workdir)
    if not args.config:
        raise BadInput("--config is missing; give a recipe with a sweep(), or --collect.")
    if args.parallel != "auto" and not re.fullmatch("[1-9][0-9]{0,5}", args.parallel):
        raise BadInput(f"--parallel={args.parallel}; give a number of runs from 1 on, or auto.")
    from vit_jax.experiments.sweeps import points as sweep_lib

    sweep = sweep_lib.read(args.config, arguments.overrides(args, rest))
    if args.stage:
        sweep_lib.check_stage(sweep, args.stage)
    import jax

    from vit_jax.experiments.sweeps import folder as sweep_folder
    from vit_jax.experiments.sweeps import runner as sweep_runner
    from vit_jax.experiments.sweeps.stage import Stopped

    jax.config.update("jax_platforms", "cpu")  # the accelerators are for the runs
    try:
        parallel = sweep_runner.AUTO if args.parallel == "auto" else int(args.parallel)
        entries = sweep_runner.run(sweep, workdir, stage=args.stage, parallel=parallel)
    except Stopped as e:
        console.show(f"vit_jax: {e}")
        return e.exit_code
    console.show(
        sweep_folder.report(workdir, entries), file=sys.stdout
    )  # the code tells how it went
    return 1 if any(entry.state == "failed" for entry in entries) else 0


def _collect(args: argparse.Namespace, rest: list[str], workdir: Path) -> int:
    words = [f"--{name}" for name in ("config", "data", "stage") if getattr(args, name)] + rest
    if words:
        raise BadInput(f"--collect takes the sweep that is in --workdir; leave out {words[0]}.")
    from vit_jax.experiments.sweeps import folder as sweep_folder
    from vit_jax.experiments.sweeps.page import Page

    entries = sweep_folder.entries(workdir)
    sweep_folder.write_csv(workdir, entries)
    Page(workdir).write(entries, goes_on=any(entry.state == "running" for entry in entries))
    print(sweep_folder.report(workdir, entries))
    return 0
