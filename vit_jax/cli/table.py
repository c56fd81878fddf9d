# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax table NAME --runs=DIR [--format=md|csv|html] [--protocol[=NAME]] [--plan]`."""

import argparse
import sys

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

OVERRIDES = False  # whether --config.key=value may follow
EVIDENCE = "evidence"  # the value of --protocol without a name
EXAMPLE = "vit_jax table 5 --runs=runs --format=html > table5.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "name",
        metavar="NAME",
        help="1 to 9, figure2 to figure5, figure8, figure9, figure12, figure13; replication, "
        "big_vision, mixer, masked, objectnet; augreg3, augreg5, augreg6, augreg_figure4; "
        "miniature, or robustness",
    )
    parser.add_argument("--runs", metavar="DIR", help="folder that holds workdirs, at any depth")
    parser.add_argument("--format", default="md", metavar="FORMAT",
                        help="md (default), csv or html; with --plan also sh")  # fmt: skip
    parser.add_argument(
        "--protocol", default="", nargs="?", const=EVIDENCE, metavar="NAME",
        help="which runs count, if runs of several protocols exist; without a name: list the "
        "choices of fine-tuning with their evidence",
    )  # fmt: skip
    parser.add_argument(
        "--plan",
        action="store_true",
        help="show the commands that fill the missing cells, with chip-hours",
    )


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Runs the command; returns its exit code."""
    from vit_jax.experiments.tables import cells, filling, miniature, missing_runs, rendering

    rendering.check(args.format, of_plan=args.plan)
    if args.name == miniature.NAME:
        return _miniature(args)
    if args.name == "robustness":
        return _robustness(args)
    table = cells.find(args.name)
    if args.protocol == EVIDENCE:
        if args.plan or args.runs is not None:
            raise BadInput("--protocol without a name lists choices; leave out --plan and --runs.")
        print(rendering.render_choices(args.format))
        return 0
    if args.runs == "" or (args.runs is None and table.need_runs and not args.plan):
        raise BadInput(
            f"table {args.name} is filled by runs: give --runs=DIR, a folder that holds workdirs."
        )
    root = None if args.runs is None else storage.workdir(args.runs)
    filled = filling.fill(table, root, args.protocol)
    if args.plan:
        print(rendering.render_plan(table.title, missing_runs.jobs(filled, root), args.format))
        return 0
    if args.format == "csv":
        for text in filled.remarks:
            print(text, file=sys.stderr)
    print(rendering.render_table(filled, args.format))
    return 0


def _robustness(args: argparse.Namespace) -> int:
    """Prints the test sets around ImageNet, which are not cells of one table of a paper."""
    from vit_jax.experiments.tables import robustness

    if args.plan or args.protocol:
        raise BadInput("table robustness takes neither --plan nor --protocol; leave them out.")
    if not args.runs:
        raise BadInput(
            "table robustness is filled by `vit_jax evaluate` and by runs: give --runs=DIR, a "
            "folder that holds their --out and --workdir."
        )
    report = robustness.read(storage.workdir(args.runs))
    if args.format == "csv":
        for text in report.remarks:
            print(text, file=sys.stderr)
    print(robustness.render(report, args.format))
    return 0


def _miniature(args: argparse.Namespace) -> int:
    """Prints the claims of configs/miniature.py, which are not cells of a paper's table."""
    if args.plan or args.protocol:
        raise BadInput(
            f"table {args.name} takes neither --plan nor --protocol; its runs are those of "
            "`vit_jax sweep --config=vit_jax:miniature`."
        )
    if not args.runs:
        raise BadInput(
            f"table {args.name} is filled by runs: give --runs=DIR, a folder that holds workdirs."
        )
    from vit_jax.experiments.tables import miniature

    claims = miniature.judge(storage.workdir(args.runs))
    if args.format == "csv":
        for text in claims.remarks:
            print(text, file=sys.stderr)
    print(miniature.render(claims, args.format))
    return 0
