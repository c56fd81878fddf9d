# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax report RUN... [--out=FILE]`."""

import argparse

from vit_jax.cli import arguments
from vit_jax.errors import BadInput

OVERRIDES = False  # whether --config.key=value may follow
EXAMPLE = "vit_jax report runs/first runs/second --out=comparison.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="workdir of a run")
    parser.add_argument(
        "--out",
        default="",
        metavar="FILE",
        help="HTML file to write (default: report.html in the workdir; for several runs, here)",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    from vit_jax.reports.run import make

    if "" in args.runs:
        raise BadInput("RUN is empty; give the workdir of a run.")
    runs = make.read(args.runs)
    out = arguments.writable(args.out or str(make.place(runs)))
    arguments.write(out, make.page(runs).encode())
    print(out)
    return 0
