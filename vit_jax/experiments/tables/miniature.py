# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tests the claims in configs/miniature.py with its runs. Start from `judge`, then `render`."""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vit_jax.config import recipes
from vit_jax.errors import BadInput
from vit_jax.experiments.tables import claims, compute, recipe_diff, rendering, run_results
from vit_jax.experiments.tables.claims import Claim, Judged, Measured
from vit_jax.experiments.tables.run_results import Run
from vit_jax.reports import pages

NAME = "miniature"
_TITLE = "The paper in miniature: claims made beforehand, and results of runs"
_CLAIMS = (
    "tier", "claim", "criterion", "execution", "mean", "standard error", "p", "seeds",
    "of this execution", "verdict",
)  # fmt: skip
_MEASURED = ("run", "metric", "mean in %", "standard deviation", "seeds", "teraFLOPs of training")
_STYLES = {
    "shown": "good", "opposite": "bad", "not shown": "some", "not settled": "some",
    "missing": "quiet",
}  # fmt: skip
_BEST = "val/top1"  # its best evaluation is where an early-stopped run ends
EARLY = f"test/top1 at best {_BEST}"
SHARE = f"share of steps at best {_BEST}"


@dataclasses.dataclass(frozen=True)
class Report:
    """Claims with their verdicts.

    Attributes:
      judged: in the order of the recipe.
      measured: the values behind the verdicts and other measurements, in percent.
      flops: cell -> FLOPs of training.
      remarks: sentences about runs.
    """

    judged: tuple[Judged, ...]
    measured: Measured
    flops: Mapping[str, float]
    remarks: tuple[str, ...]


def judge(root: Path) -> Report:
    """Judges the claims by the runs in a folder.

    Args:
      root: a folder that holds workdirs at any depth.

    Raises:
      BadInput: the folder does not exist, or two runs share a seed.
    """
    runs, broken = run_results.read(root)
    remarks = [f"not readable: {text}" for text in broken]
    cells = _cells(runs, remarks)
    listed = recipes.call(recipes.file(NAME), "claims", "")
    measured = _measured(cells)
    return Report(
        judged=tuple(claims.judge([Claim(**one) for one in listed], measured)),
        measured=measured,
        flops={
            cell: compute.training_flops(next(iter(runs.values()))) for cell, runs in cells.items()
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
    _drop_orphans(cells, remarks)
    return cells


def _drop_orphans(cells: dict[str, dict[int, Run]], remarks: list[str]) -> None:
    """Removes fine-tunings that do not start from the pre-training of their model and seed."""
    for cell, runs in cells.items():
        if "method=finetune" not in cell or "lr=" in cell:
            continue
        parents = cells.get(
            cell.replace(",dataset=cifar10", "").replace(",method=finetune", ""), {}
        )
        for seed, run in list(runs.items()):
            init = str(run.config["init"])
            # A folder of runs may have moved, so the last two parts of the path are compared.
            if seed not in parents or Path(init).parts[-2:] != parents[seed].folder.parts[-2:]:
                remarks.append(
                    f"{run.folder} is left out: it starts from {init or 'nothing'}, not from the "
                    f"pre-training of its model with seed {seed}"
                )
                del runs[seed]


def _why_not(run: Run, cell: str) -> str:
    """Returns how a run differs from the recipe; empty if it does not."""
    try:
        recipe = recipe_diff.recipe(NAME, cell)
        differences = recipe_diff.differences(run.config, recipe)
    except BadInput as e:
        return str(e)
    wanted = {key: recipe[key] for key in ("data.mean", "data.std")}
    for name in ("val", "test"):
        wanted |= recipe_diff.scored(recipe, name)
    differences += recipe_diff.unlike(run.config, wanted)
    reasons = [f"{key}: {own}, not {wanted}" for key, own, wanted in differences]
    if run.config["data.source"].startswith("synthetic:"):
        reasons.append(f"data.source: {run.config['data.source']}")
    if run.config["init"] and "method=finetune" not in cell:
        reasons.append(f"init: {run.config['init']}")
    return "; ".join(reasons)


def _measured(cells: Mapping[str, Mapping[int, Run]]) -> dict[tuple[str, str], dict[int, float]]:
    measured: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for cell, runs in cells.items():
        for seed, run in runs.items():
            for metric, value in (*_at_end(run), *_at_best(run)):
                measured[cell, metric][seed] = value
    return measured


def _at_end(run: Run) -> Iterator[tuple[str, float]]:
    for split, metrics in (run.results or {}).items():
        for name in metrics if isinstance(metrics, dict) else ():
            value = run.metric(f"{split}/{name}")
            shown = name == "top1" or name.endswith("shot")
            if value is not None and shown and not split.endswith("_raw"):
                yield f"{split}/{name}", value


def _at_best(run: Run) -> Iterator[tuple[str, float]]:
    """Yields what a run that evaluates on its way would give if it stopped at its best."""
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for row in run.rows():
        steps[row["step"]] |= {k: v for k, v in row.items() if k in (_BEST, "test/top1")}
    evaluated = [(step, metrics) for step, metrics in steps.items() if _BEST in metrics]
    if len(evaluated) < 2:
        return
    best, metrics = max(evaluated, key=lambda one: one[1][_BEST])
    yield f"best {_BEST}", 100 * metrics[_BEST]
    yield SHARE, 100 * best / max(steps)
    if "test/top1" in metrics:
        yield EARLY, 100 * metrics["test/top1"]


# ---------------------------------------------------------------- rendering


def render(report: Report, form: str) -> str:
    """Renders the report as md, csv (only the claims) or html."""
    rows = [row for one in report.judged for row in _rows(one)]
    if form == "csv":
        return rendering.csv_text([_CLAIMS, *rows])
    reached = [
        (
            cell, metric, f"{statistics.fmean(v.values()):.2f}", _std(list(v.values())),
            str(len(v)), f"{report.flops[cell] / 1e12:.2f}",
        )
        for (cell, metric), v in sorted(report.measured.items())
    ]  # fmt: skip
    about = (
        "p: twice the smaller p-value, by Student's t, of the claim and its opposite. A verdict "
        f"needs p significant at {claims.LEVEL} after Holm's correction over the claims of its "
        "tier. Executions that disagree: not settled.",
        "FLOPs of training: 3 forward passes for each image seen; a fine-tuning's are its own.",
        *report.remarks,
    )
    if form == "html":
        styles = {i: _STYLES[row[-1]] for i, row in enumerate(rows)}
        return pages.render(
            "claims.html",
            _TITLE,
            claims={"header": _CLAIMS, "rows": rows, "numbers": (3, 4, 5, 6, 7), "styles": styles},
            svg=chart(report),
            measured={
                "header": _MEASURED, "rows": reached, "numbers": (2, 3, 4, 5), "codes": (0,),
            },
            notes=about,
        )  # fmt: skip
    text = rendering.markdown(_TITLE, _CLAIMS, rows, about)
    return f"{text}\n\n{rendering.markdown('Measured', _MEASURED, reached, ())}"


def _rows(one: Judged) -> Iterator[tuple[str, ...]]:
    claim = one.claim
    about = claim.tier, claim.claim, claim.criterion
    if not one.executions:
        yield *about, "", "", "", "", "0", "", one.verdict
    for execution in one.executions:
        error = "" if execution.error is None else f"{execution.error:.2f}"
        p = "" if execution.verdict == "missing" else f"{execution.p:.2g}"
        yield (
            *about, str(execution.number), f"{execution.mean:+.2f}", error, p,
            str(len(execution.values)), execution.verdict, one.verdict,
        )  # fmt: skip


def _std(values: Sequence[float]) -> str:
    return f"{statistics.stdev(values):.2f}" if len(values) > 1 else ""


def chart(report: Report) -> str:
    """Draws CIFAR-100 top-1 by training images: a line for each model of a tier."""
    from vit_jax.reports import charts  # imports matplotlib

    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell in report.flops:
        model, _, examples = cell.partition(",examples=")
        top1 = report.measured.get((cell, EARLY)) or report.measured.get((cell, "test/top1"))
        if top1 and examples.isdigit():
            name = model.removeprefix("tier=")
            name = name if "," in name else f"{name},model=vit"
            lines[name].append((int(examples), statistics.fmean(top1.values())))
    series = [
        charts.Series(name.replace(",model=", ": "), sorted(line), True, colour=i)
        for i, (name, line) in enumerate(sorted(lines.items()))
    ]
    return charts.chart(series, "training images", "CIFAR-100 test top-1 in %", log="x")
