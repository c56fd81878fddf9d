# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compares several runs on one page: curves, results, throughput and differing keys.

Start from `page`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax import console
from vit_jax.config import load as config_lib
from vit_jax.reports import pages, summary
from vit_jax.reports.run import curves, single
from vit_jax.reports.run.history import History

DRAWN = 12  # largest number of runs whose curves can be told apart
_WHERE = ("expected.", "recipe.", "report.", "processes.")  # left out of the differences


def page(runs: Sequence[History]) -> str:
    """Returns the document, in one file.

    Args:
      runs: two or more runs with different names.
    """
    drawn, sentence = chosen(runs)
    return pages.render(
        "comparison.html",
        f"{len(runs)} runs",
        results=_results(runs),
        chosen=sentence,
        curves=curves.comparison_charts(drawn),
        differences=_differences(runs),
    )


def metric(runs: Sequence[History]) -> str:
    """Returns the metric to rank runs by: top-1 on test, else on val, else the most frequent top-1.

    It is "" if no run has a top-1.
    """
    tops = [f"{name}/top1" for run in runs for name, m in run.evaluations.items() if "top1" in m]
    named = [key for key in ("test/top1", "val/top1") if key in tops]
    return named[0] if named else max(tops, key=tops.count, default="")


def chosen(runs: Sequence[History]) -> tuple[Sequence[History], str]:
    """Returns the runs whose curves are drawn, in the given order, and a sentence about them."""
    if len(runs) <= DRAWN:
        return runs, ""
    key = metric(runs)
    if not key:
        return runs[:DRAWN], f"Curves are those of the first {DRAWN} of {len(runs)} runs."
    best = sorted(runs, key=lambda run: -_value(run, key))[:DRAWN]
    sentence = f"Curves are those of the {DRAWN} runs of {len(runs)} with the best {key}."
    return [run for run in runs if run in best], sentence


def _value(run: History, key: str) -> float:
    split, _, name = key.rpartition("/")
    return run.evaluations.get(split, {}).get(name, -1.0)


def _results(runs: Sequence[History]) -> dict[str, Any]:
    """Returns a table with a line per run, and a column per split's top-1 and few-shot accuracy."""
    keys = list(dict.fromkeys(
        (name, key) for run in runs for name, measured in run.evaluations.items()
        for key in measured if key == "top1" or key.endswith("shot")
    ))  # fmt: skip
    header = [
        "run",
        "state",
        "step",
        *(f"{name} {'top-1' if key == 'top1' else key}" for name, key in keys),
    ]
    header += ["training loss", "images a second", "waiting", "time"]
    best = {k: max(run.evaluations.get(k[0], {}).get(k[1], -1.0) for run in runs) for k in keys}
    rows = []
    for run in runs:
        cells = [run.name, run.state, f"{run.step:,}"]
        for name, key in keys:
            value = run.evaluations.get(name, {}).get(key)
            mark = " ★" if value == best[name, key] else ""
            cells.append(summary.written(key, value) + mark)
        loss = run.series("train/loss")
        cells += [
            f"{loss[-1][1]:.4f}" if loss else "",
            "" if run.img_per_sec is None else f"{run.img_per_sec:,.0f}",
            "" if run.input_wait is None else f"{run.input_wait:.1%}",
            "" if run.spent is None else console.duration(run.spent.elapsed),
        ]
        rows.append(cells)
    styles = {i: single.STYLES.get(r.state, "bad") for i, r in enumerate(runs) if r.state != "done"}
    return {"header": header, "rows": rows, "numbers": range(2, len(header)), "styles": styles}


def _differences(runs: Sequence[History]) -> dict[str, Any]:
    """Returns a table of keys against runs, the longer of the two as rows; {} if no key differs."""
    flat = [dict(config_lib.flatten(run.config)) for run in runs]
    keys = differing_keys(flat)
    if not keys:
        return {}
    names = [run.name for run in runs]
    columns = [[single.text(values.get(key)) for values in flat] for key in keys]
    if len(keys) >= len(runs):
        rows = [(key, *column) for key, column in zip(keys, columns, strict=True)]
        return {"header": ("key", *names), "rows": rows, "codes": (0,)}
    return {"header": ("run", *keys), "rows": list(zip(names, *columns, strict=True))}


def differing_keys(flat: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the keys in which flat configurations differ, but for those of reports and plans."""
    return [
        key for key in dict.fromkeys(key for values in flat for key in values)
        if len({repr(values.get(key)) for values in flat}) > 1 and not key.startswith(_WHERE)
    ]  # fmt: skip
