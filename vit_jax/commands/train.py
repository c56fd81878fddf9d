# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax train --config=FILE[:ARGS] --workdir=DIR [--config.key=value ...]`."""

import argparse
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput

SUMMARY = "train a model, or continue the run in a workdir"
OVERRIDES = True  # whether --config.key=value may follow
EXAMPLE = "vit_jax train --config=configs/quickstart.py --workdir=runs/quickstart"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments; `--config.key=value` overrides are taken from the rest."""
    parser.add_argument(
        "--config", required=True, metavar="FILE[:ARGS]", help="recipe or config.yaml"
    )
    parser.add_argument("--workdir", required=True, metavar="DIR", help="of this run")


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    from vit_jax import config as config_lib

    config = config_lib.load(args.config, rest)
    from vit_jax import train  # after the config has been read: this import takes a second or two

    if not args.workdir:
        raise BadInput("--workdir is empty; give the folder of the run.")
    results = train.train(config, Path(args.workdir).expanduser())
    print(summary(results, config.expected.to_dict(), args))
    return 0


def summary(results: dict[str, Any], expected: dict[str, Any], args: argparse.Namespace) -> str:
    """What a person wants to see at the end: results, where things lie, the next command."""
    from vit_jax import reporting

    workdir = Path(args.workdir)
    again = "vit_jax train --config=configs/finetune.py --workdir=runs/mine"
    lines = [
        "",
        reporting.results_table(results),
        "",
        reporting.verdict(results, expected),
        f"checkpoint  {workdir / results['checkpoint']}",
        f"metrics     {workdir / reporting.METRICS_FILE} (curves: tensorboard --logdir={workdir})",
        f"results     {workdir / reporting.RESULTS_FILE}",
        f"next        {again} --config.data.source=folder:/path/to/images",
    ]
    return "\n".join(line for i, line in enumerate(lines) if line or i < 3)
