# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tests the claims in configs/miniature.py with its runs. Start from `judge`, then `render`."""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from vit_jax.config import recipes
from vit_jax.errors import BadInput
from vit_jax.experiments.tables import claims, compute, recipe_diff, rendering, run_results
from vit_jax.experiments.tables.claims import Claim, Judged
from vit_jax.experiments.tables.run_results import Run
from vit_jax.reports import pages

NAME = "miniature"
CORRELATION = "posemb/distance_correlation"  # measured on weights, not in results.json
_TITLE = "The paper in miniature: claims made beforehand, and results of runs"
_CLAIMS = ("tier", "claim", "criterion", "mean", "standard error", "seeds", "verdict")
_MEASURED = ("run", "metric", "mean in %", "standard deviation", "seeds")
_STYLES = {"shown": "good", "opposite": "bad", "not shown": "some", "missing": "quiet"}

Measured = Mapping[tuple[str, str], Mapping[int, float]]  # (cell, metric) -> seed -> value


@dataclasses.dataclass(frozen=True)
class Report:
    """Claims with their verdicts.

    Attributes:
      judged: in the order of the recipe.
      measured: the values behind the verdicts and other measurements; accuracies in percent.
      flops: cell -> FLOPs of training, for pre-trainings.
      remarks: sentences about runs.
    """

    judged: tuple[Judged, ...]
    measured: Measured
    flops: Mapping[str, float]
    remarks: tuple[str, ...]


def judge(root: Path, correlation: Callable[[Path], float]) -> Report:
    """Judges the claims by the runs in a folder.

    Args:
      root: a folder that holds workdirs at any depth.
      correlation: workdir -> correlation of position embeddings with distance.

    Raises:
      BadInput: the folder does not exist, or two runs share a seed.
    """
    runs, broken = run_results.read(root)
    remarks = [f"not readable: {text}" for text in broken]
    cells = _cells(runs, remarks)
    listed = recipes.call(recipes.file(NAME), "claims", "")
    asked = [Claim(**one) for one in listed]
    measured = _measured(cells)
    for key in {(cell, m) for one in asked for _, cell, m in one.terms if m == CORRELATION}:
        measured[key] = {
            seed: correlation(run.folder) for seed, run in cells.get(key[0], {}).items()
        }
    return Report(
        judged=tuple(claims.judge(one, measured) for one in asked),
        measured=measured,
        flops={
            cell: compute.training_flops(next(iter(runs.values())))
            for cell, runs in cells.items()
            if "dataset=" not in cell
        },
        remarks=tuple(remarks),
    )


def _cells(runs: Iterable[Run], remarks: list[str]) -> dict[str, dict[int, Run]]:
    """Returns cell -> seed -> finished run that follows the recipe; adds remarks on others."""
    cells: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in runs:
        cell, seed = run.config["recipe.protocol"], run.config["seed"]
        if run.config["recipe.name"] != NAME:
            continue
        if run.results is None:
            remarks.append(f"{run.folder}: {'running, or stopped' if run.running else 'failed'}")
        elif why := _why_not(run, cell):
            remarks.append(f"{run.folder} is left out: {why}")
        elif seed in cells[cell]:
            raise BadInput(
                f"{cells[cell][seed].folder} and {run.folder} are both {cell} with seed {seed}. "
                "Move one out of --runs."
            )
        else:
            cells[cell][seed] = run
    return cells


def _why_not(run: Run, cell: str) -> str:
    """Returns how a run differs from the recipe; empty if it does not."""
    try:
        differences = recipe_diff.differences(run.config, recipe_diff.recipe(NAME, cell))
    except BadInput as e:
        return str(e)
    reasons = [f"{key}: {own}, not {wanted}" for key, own, wanted in differences]
    if bool(run.config["init"]) != ("method=finetune" in cell):
        reasons.append(f"init: {run.config['init'] or 'none'}")
    return "; ".join(reasons)


def _measured(cells: Mapping[str, Mapping[int, Run]]) -> dict[tuple[str, str], dict[int, float]]:
    measured: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for cell, runs in cells.items():
        for seed, run in runs.items():
            for split, metrics in (run.results or {}).items():
                for name in metrics if isinstance(metrics, dict) else ():
                    value = run.metric(f"{split}/{name}")
                    shown = name == "top1" or name.endswith("shot")
                    if value is not None and shown and not split.endswith("_raw"):
                        measured[cell, f"{split}/{name}"][seed] = value
    return measured


# ---------------------------------------------------------------- rendering


def render(report: Report, form: str) -> str:
    """Renders the report as md, csv (only the claims) or html."""
    rows = [_row(one) for one in report.judged]
    if form == "csv":
        return rendering.csv_text([_CLAIMS, *rows])
    reached = [
        (cell, metric, f"{statistics.fmean(v.values()):.2f}", _std(list(v.values())), str(len(v)))
        for (cell, metric), v in sorted(report.measured.items())
        if metric != CORRELATION
    ]
    about = (
        "t is Student's, such that mean ± t se covers the truth in 90 % of cases.",
        *report.remarks,
    )
    if form == "html":
        styles = {i: _STYLES[one.verdict] for i, one in enumerate(report.judged)}
        return pages.render(
            "claims.html",
            _TITLE,
            claims={"header": _CLAIMS, "rows": rows, "numbers": (3, 4, 5), "styles": styles},
            svg=_chart(report),
            measured={
                "header": _MEASURED, "rows": reached, "numbers": (2, 3, 4), "codes": (0,),
            },
            notes=about,
        )  # fmt: skip
    text = rendering.markdown(_TITLE, _CLAIMS, rows, about)
    return f"{text}\n\n{rendering.markdown('Measured', _MEASURED, reached, ())}"


def _row(one: Judged) -> tuple[str, ...]:
    claim = one.claim
    mean = "" if one.mean is None else f"{one.mean:+.2f}"
    error = "" if one.error is None else f"{one.error:.2f}"
    return (
        claim.tier,
        claim.claim,
        claim.criterion,
        mean,
        error,
        str(len(one.values)),
        one.verdict,
    )


def _std(values: Sequence[float]) -> str:
    return f"{statistics.stdev(values):.2f}" if len(values) > 1 else ""


def _chart(report: Report) -> str:
    """Draws CIFAR-100 accuracy by training cost: a colour for each model, lines join data sizes."""
    from vit_jax.reports import charts  # imports matplotlib

    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell, flops in sorted(report.flops.items(), key=lambda item: _examples(item[0])):
        own = [report.measured.get((cell, f"{split}/top1")) for split in ("test", "val")]
        top1 = own[0] or own[1]
        if top1:
            parts = [part for part in cell.split(",") if not part.startswith("examples=")]
            lines[", ".join(parts)].append((flops / 1e12, statistics.fmean(top1.values())))
    series = [
        charts.Series(name, line, True, colour=i) for i, (name, line) in enumerate(lines.items())
    ]
    return charts.chart(
        series, "teraFLOPs of training", "CIFAR-100 top-1 in % (hour: val)", log="x"
    )


def _examples(cell: str) -> int:
    return int(cell.rpartition("examples=")[2]) if "examples=" in cell else 0
