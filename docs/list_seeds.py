# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes docs/miniature.csv, the measurements behind docs/miniature.md, seed by seed.

    python docs/list_seeds.py RUNS

RUNS is the folder that `vit_jax table miniature --runs=RUNS` takes. Start from `rows`.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

from vit_jax.experiments.tables import miniature

FILE = Path(__file__).with_name("miniature.csv")
HEADER = ("run", "metric", "seed", "percent")


def rows(root: Path) -> Iterator[tuple[str, str, int, str]]:
    """Yields what the claims read, and after what share of its steps a run was best."""
    report = miniature.judge(root)
    terms = {(cell, metric) for one in report.judged for _, cell, metric in one.claim.terms}
    terms |= {(cell, miniature.SHARE) for cell, metric in terms if metric == miniature.EARLY}
    for cell, metric in sorted(terms):
        for seed, value in sorted(report.measured.get((cell, metric), {}).items()):
            yield cell, metric, seed, f"{value:.4f}"


if __name__ == "__main__":
    with FILE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *rows(Path(sys.argv[1]))])
