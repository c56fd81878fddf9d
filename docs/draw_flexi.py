# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws docs/flexi.svg and prints its table: top-1 by patch size, of a sweep of configs/flexi.py.

    python docs/draw_flexi.py runs/flexi

Start from `measure`.
"""

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vit_jax.data.splits import subset
from vit_jax.inference import model as inference
from vit_jax.reports import charts

PICTURE = Path(__file__).with_name("flexi.svg")
SIZES = (4, 6, 8, 12, 16, 24)  # pixels; they tile 48
Measured = dict[str, dict[int, list[float]]]  # patch in training -> in evaluation -> % of each seed


def measure(runs: Sequence[Path], sizes: tuple[int, ...] = SIZES) -> Measured:
    """Measures top-1 of finished runs of the sweep on test, with every patch size."""
    measured: Measured = {}
    for run in runs:
        trained = run.name.partition("patch=")[2].partition("_")[0]
        split = inference.open_data(str(run), "", "").split("test")
        labels_N = subset.labels(split, "top-1")[:, 0]
        for size in sizes:
            model = inference.open_model(str(run), patch=size)
            best_N2 = model.of_split(model.step(model.best(1)), split)
            top1 = 100 * float(np.mean(best_N2[:, 0] == labels_N))
            measured.setdefault(trained, {}).setdefault(size, []).append(top1)
            print(f"{run.name}, patches of {size}: {top1:.2f} %", file=sys.stderr, flush=True)
    return measured


def _spread(values: list[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _name(trained: str) -> str:
    return "FlexiViT" if trained == "flexi" else f"ViT, patches of {trained}"


def table(measured: Measured) -> str:
    """Returns mean ± standard deviation over seeds, as Markdown."""
    sizes = list(next(iter(measured.values())))
    rows = [f"| model | {' | '.join(map(str, sizes))} |"]
    rows += ["|---" * (1 + len(sizes)) + "|"]
    for trained, tops in measured.items():
        cells = [f"{statistics.mean(v):.1f} ± {_spread(v):.1f}" for v in tops.values()]
        rows.append(f"| {_name(trained)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def picture(measured: Measured) -> str:
    """Returns the chart as SVG."""
    series = [
        charts.Series(
            _name(trained),
            [(size, statistics.mean(v)) for size, v in tops.items()],
            line=True,
            colour=number,
        )
        for number, (trained, tops) in enumerate(measured.items())
    ]
    sizes = {float(size): str(size) for size in next(iter(measured.values()))}
    return charts.chart(
        series, "patch side in evaluation (pixels)", "CIFAR-10 top-1 in %", log="x", x_names=sizes
    )


if __name__ == "__main__":
    of_runs = measure([path.parent for path in sorted(Path(sys.argv[1]).glob("*/results.json"))])
    PICTURE.write_text(picture(of_runs) + "\n", encoding="utf-8")
    print(table(of_runs))
