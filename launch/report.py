# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`python -m launch report WORKDIR...`: how much of the runs' time was training.

Start from `main`; `vit_jax.reports.run.time_accounting` does the counting.
"""

import argparse
import dataclasses
from collections.abc import Sequence

from vit_jax import console
from vit_jax.reports.run.time_accounting import Spent, examine
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
    names = parser.parse_args(argv).workdirs
    spent = [examine(storage.workdir(name)) for name in names]
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
