# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`python -m launch report WORKDIR...`: how much of the runs' time was training.

Start from `main`; `vit_jax.reports.run.time_accounting` does the counting.
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence

from vit_jax import console
from vit_jax.reports.run.time_accounting import Spent, details, examine, read
from vit_jax.storage import files as storage

HEADER = [
    "run",
    "state",
    "restarts",
    "elapsed",
    "productive",
    "start-up",
    "lost",
    "down",
    "goodput",
]


def main(argv: Sequence[str]) -> int:
    """Prints a line for each run, and their sum; returns 0.

    Raises:
      BadInput: a workdir holds no goodput.jsonl.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__} report",
        description="Shows how much of the time of runs was spent on training.",
        epilog=f"example: python -m {__package__} report runs/mine gs://bucket/runs/other",
    )
    parser.add_argument("workdirs", nargs="+", metavar="WORKDIR", help="workdir of a run")
    parser.add_argument(
        "--json", action="store_true",
        help="print the seconds of each run in the buckets of ml-goodput-measurement",
    )  # fmt: skip
    args = parser.parse_args(argv)
    names = args.workdirs
    spent = [examine(storage.workdir(name)) for name in names]
    if args.json:
        rows = [read(storage.workdir(name)) for name in names]
        print(json.dumps(dict(zip(names, map(details, rows, spent), strict=True)), indent=1))
        return 0
    lines = [_line(name, one) for name, one in zip(names, spent, strict=True)]
    if len(spent) > 1:
        lines.append(_line("all", _sum(spent)))
    print(console.table(HEADER, lines))
    return 0


def _sum(spent: Sequence[Spent]) -> Spent:
    """Returns the sum over all runs."""
    fields = [f.name for f in dataclasses.fields(Spent) if f.name != "state"]
    return Spent(**{name: sum(getattr(one, name) for one in spent) for name in fields}, state="")


def _line(name: str, one: Spent) -> list[str]:
    times = (one.elapsed, one.productive, one.startup, one.lost, one.down)
    return [name, one.state, str(one.restarts), *map(console.duration, times),
            f"{one.goodput:.1%}"]  # fmt: skip
