# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a sweep: a workdir for each run, results so far, sweep.csv and a table.

    DIR/sweep.json               the list of runs, and their keys
    DIR/sweep.csv                the results so far
    DIR/sweep.html               the page of the sweep (`page`)
    DIR/planned.json             what the runs cost by the plan (`cost`)
    DIR/STAGE/NNN-NAME/          a workdir, with config.yaml from the start (no STAGE if one only)
        log.txt, failed.json     the run's output; why it was given up
        stopped.json             the rung at which the rule of its stage stopped it

This module starts no runs. Start from `settled` and `write`, then `entries`.
"""

import csv
import dataclasses
import io
import json
import math
import os
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vit_jax import console
from vit_jax.build import defaults
from vit_jax.build import run as build
from vit_jax.checkpoints import step_folders
from vit_jax.checkpoints.step_folders import saved
from vit_jax.config import images, provenance, sections, validation
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, writing
from vit_jax.experiments.sweeps import cost as cost_lib
from vit_jax.experiments.sweeps.cost import Cost
from vit_jax.experiments.sweeps.points import Point, Problems, Sweep, described
from vit_jax.paper import vtab
from vit_jax.reports import summary
from vit_jax.storage import files as storage
from vit_jax.storage.jsonl import METRICS_FILE, rows_path
from vit_jax.weights import files

RECORD_FILE, CSV_FILE, PAGE_FILE = "sweep.json", "sweep.csv", "sweep.html"
LOG_FILE, FAILED_FILE, STOPPED_FILE = "log.txt", "failed.json", "stopped.json"


# ---------------------------------------------------------------- before anything runs


def settled(points: Sequence[Point], workdir: Path) -> list[Point]:
    """Returns the points with every value settled, after checking them and any run in their place.

    Raises:
      BadInput: values are impossible, or a run in the same place has another configuration; the
        message lists all problems. Nothing was written.
    """
    checked, problems = list[Point](), Problems()
    starts: dict[tuple[Any, ...], list[Point]] = {}  # points with the same weights and model
    for point in points:
        try:
            config, are_new = _settled(point, workdir)
            build.check(config)
            checked.append(dataclasses.replace(point, config=config))
        except BadInput as e:
            problems.add(point.run, e)
            continue
        if config.init and are_new:
            alike = config.init, config.model, images.of(config.data).shape
            starts.setdefault(alike, []).append(checked[-1])
    for alike in starts.values():
        try:
            defaults.check_weights(alike[0].config)
        except BadInput as e:
            for point in alike:
                problems.add(point.run, e)
    problems.check()
    return checked


def _settled(point: Point, workdir: Path) -> tuple[sections.Config, bool]:
    """Returns a point's configuration, and False if an earlier run here uses the same weights."""
    config, folder = point.config, workdir / point.run
    number = folder.name.partition("-")[0]
    alike = [p for p in storage.listed(folder.parent) if p.name.startswith(f"{number}-")]
    for there in (p / step_folders.CONFIG_FILE for p in alike):
        if not there.exists():
            continue
        saved = config_lib.read(str(there))
        config = defaults.take_from_run(config, saved)
        differences = [
            f"  {key}: {old!r} there, now {new!r}"
            for key, old, new in config_lib.differences(saved, config)
            if config_lib.changes_results(key)
        ]
        others = not _same_weights(saved.init, config.init, workdir)
        if others and _begun(there.parent):
            differences.append(f"  init: {saved.init!r} there, now {config.init!r}")
        if differences or there.parent != folder:
            raise BadInput(
                f"{there.parent} holds another run:\n" + "\n".join(differences or ["  its name"])
                + "\nGive another --workdir, or the sweep that was there."
            )  # fmt: skip
        return config, others
    return defaults.settle(config), True


def _begun(folder: Path) -> bool:
    """Returns True if the weights of `init` were used: a checkpoint or the results exist."""
    return bool(saved(folder)) or is_done(folder)


def is_done(folder: Path) -> bool:
    """Returns True if the workdir of a run has its results."""
    return (folder / summary.RESULTS_FILE).exists()


def is_over(folder: Path) -> bool:
    """Returns True if a run has its results, or was stopped early."""
    return is_done(folder) or (folder / STOPPED_FILE).exists()


def _same_weights(old: str, new: str, workdir: Path) -> bool:
    """Returns True if two values of `init` mean the same weights, even in a moved sweep."""
    old_path, new_path = os.path.abspath(old), os.path.abspath(new)
    inside = os.path.relpath(new_path, os.path.abspath(workdir))
    moved = not inside.startswith("..") and old_path.endswith(os.sep + inside)
    return old == new or old_path == new_path or moved


def write(sweep: Sweep, stage: str, points: Sequence[Point], workdir: Path) -> None:
    """Makes the workdirs of a stage and records them; leaves finished runs as they are.

    Args:
      sweep: the sweep of the points.
      stage: the stage of the points.
      points: settled points.
      workdir: the folder of the sweep.

    Raises:
      BadInput: the folder is not writable.
    """
    recipe = provenance.recipe(sweep.spec, sweep.overrides)
    with writing(workdir):
        for point in points:
            folder = workdir / point.run
            storage.make_folder(folder)
            if not is_done(folder):
                text = config_lib.to_yaml(point.config)
                storage.write(folder / step_folders.CONFIG_FILE, text)
                provenance.write(folder, recipe, devices="")  # a run from config.yaml keeps it
        stages = _record(workdir)["stages"] if (workdir / RECORD_FILE).exists() else {}
        listed = {
            p.run: {"run": p.run, "keys": p.keys, "test": validation.uses_test_data(p.config)}
            for p in points
        }
        stages[stage] = list(({row["run"]: row for row in stages.get(stage, ())} | listed).values())
        record = {"config": sweep.spec, "overrides": list(sweep.overrides), "stages": stages}
        text = json.dumps(record, indent=1) + "\n"
        storage.write(workdir / RECORD_FILE, text)


def _record(workdir: Path) -> dict[str, Any]:
    path = workdir / RECORD_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(record, dict) or not isinstance(record.get("stages"), dict):
            raise ValueError("not a sweep")
        if not all(_is_row(row) for rows in record["stages"].values() for row in rows):
            raise ValueError("not the runs of a sweep")
        return record
    except (OSError, ValueError, TypeError, RecursionError) as e:
        raise BadInput(
            f"{workdir} is not the folder of a sweep ({RECORD_FILE} is not readable); give the "
            "--workdir of `vit_jax sweep --config=... --workdir=DIR`."
        ) from e


def _is_row(row: Any) -> bool:
    """Returns True if this is a run as `write` records it, below the folder of the sweep."""
    return (
        isinstance(row, dict)
        and row.keys() == {"run", "keys", "test"}
        and isinstance(row["run"], str)
        and not os.path.isabs(row["run"])
        and ".." not in row["run"].split("/")
        and isinstance(row["keys"], dict)
    )


# ---------------------------------------------------------------- results


@dataclasses.dataclass(frozen=True)
class Entry:
    """The results of one run so far.

    Attributes:
      run: its folder below the sweep's folder.
      stage: its stage; "" if stages have no names.
      state: done | stopped (early, by the rule of its stage) | failed | running | pending.
      keys: the keys of its point.
      metrics: `<split>/<metric>`, from results.json.
      looked_at_test: True if a selection uses a run that read test.
      message: why the run failed or was stopped.
      stopped_at: the step at which it was stopped; None if it was not.
      cost: what it has cost so far; None if it has not begun.
      planned: its chip-hours by the plan; None if it was not planned.
    """

    run: str
    stage: str
    state: str
    keys: Mapping[str, Any]
    metrics: Mapping[str, float]
    looked_at_test: bool
    message: str = ""
    stopped_at: int | None = None
    cost: Cost | None = None
    planned: float | None = None

    def row(self, workdir: Path) -> dict[str, Any]:
        """Returns the row that the function of the next stage receives."""
        return {"run": self.run, "workdir": str(workdir / self.run), **self.keys, **self.metrics}


def entries(workdir: Path, running: Collection[str] | None = None) -> list[Entry]:
    """Returns all runs of the sweep in a folder.

    Args:
      workdir: the folder of the sweep.
      running: the runs that are running. None means every begun, unfinished run, since it may run
        elsewhere.

    Raises:
      BadInput: there is no sweep.
    """
    stages, planned = _record(workdir)["stages"], cost_lib.planned(workdir)
    found = [
        _entry(workdir, stage, running, **row) for stage, rows in stages.items() for row in rows
    ]
    return [dataclasses.replace(e, planned=planned.get(e.run)) for e in found]


def _entry(
    workdir: Path,
    stage: str,
    running: Collection[str] | None,
    run: str,
    keys: Mapping[str, Any],
    test: bool,
) -> Entry:
    folder, metrics, message, stopped_at = workdir / run, dict[str, float](), "", None
    results, failed = folder / summary.RESULTS_FILE, folder / FAILED_FILE
    stopped = folder / STOPPED_FILE
    begun = rows_path(folder / METRICS_FILE).exists() if running is None else run in running
    if stopped.exists():  # also if it came to its end before the others reached the rung
        state = "stopped"
        stopped_at, message = _verdict(stopped)
    elif results.exists():
        state, metrics = "done", _metrics(files.read_json(results))
    elif failed.exists():
        state, message = "failed", str(files.read_json(failed).get("message", ""))
    else:
        state = "running" if begun else "pending"
    plain = {k: _tuples(v) for k, v in keys.items()}
    cost = cost_lib.of_run(folder)
    return Entry(run, stage, state, plain, metrics, test, message, stopped_at, cost)


def _metrics(results: Mapping[str, Any]) -> dict[str, float]:
    return {
        f"{split}/{name}": value
        for split, measured in results.items()
        if isinstance(measured, dict)
        for name, value in measured.items()
        if isinstance(value, int | float)
    }


def fail(workdir: Path, run: str, code: int, message: str) -> None:
    """Records that a run was given up; `entries` then reports it as failed."""
    text = json.dumps({"code": code, "message": message}) + "\n"
    storage.write(workdir / run / FAILED_FILE, text)


def stop(workdir: Path, run: str, step: int, message: str) -> None:
    """Records that the rule of its stage stopped a run at a step; it is not a failure."""
    text = json.dumps({"step": step, "message": message}) + "\n"
    storage.write(workdir / run / STOPPED_FILE, text)


def _verdict(file: Path) -> tuple[int, str]:
    """Returns the step and the reason of a stop.

    Raises:
      BadInput: the file is damaged.
    """
    verdict = files.read_json(file)
    if type(verdict.get("step")) is not int or not isinstance(verdict.get("message"), str):
        raise BadInput(f"{file} is not that of a rung; remove it and run the sweep again.")
    return verdict["step"], verdict["message"]


def lift_stop(workdir: Path, run: str, last: float = math.inf) -> None:
    """Takes back that a run was stopped, up to a step; other runs or another rule let it go on."""
    file = workdir / run / STOPPED_FILE
    if file.exists() and _verdict(file)[0] <= last:
        storage.remove(file)


def write_csv(workdir: Path, runs: Sequence[Entry]) -> None:
    """Replaces sweep.csv."""
    keys, metrics = (_union(rows) for rows in ([e.keys for e in runs], [e.metrics for e in runs]))
    marked = ["looked_at_test"] if any(e.looked_at_test for e in runs) else []
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    more = {
        "stopped_at": [e.stopped_at for e in runs],
        "secs": [e.cost and round(e.cost.secs, 1) for e in runs],
        "chip_hours": [e.cost and float(f"{e.cost.chip_hours:.4g}") for e in runs],
        "planned_chip_hours": [e.planned and float(f"{e.planned:.4g}") for e in runs],
    }
    more = {name: column for name, column in more.items() if set(column) != {None}}
    writer.writerow(["run", "state", *keys, *metrics, *marked, *more])
    for i, entry in enumerate(runs):
        values = [entry.keys.get(k, "") for k in keys] + [entry.metrics.get(m, "") for m in metrics]
        mark = [str(entry.looked_at_test).lower()] if marked else []
        last = ["" if column[i] is None else column[i] for column in more.values()]
        writer.writerow([entry.run, entry.state, *values, *mark, *last])
    storage.write(workdir / CSV_FILE, file.getvalue())


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _union(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row))


# ---------------------------------------------------------------- table


def table(runs: Sequence[Entry]) -> str:
    """Formats a table with one line for runs that differ only in the seed.

    A line shows the mean top-1 and its standard deviation, that of a sample (n - 1). VTAB's tasks
    get a last line: the mean of all 19, with its deviation over seeds, or `n/a` while a task is not
    finished.
    """
    metrics = _shown([e.metrics for e in runs])
    header = ["run", "done", *(m.removesuffix("/top1") for m in metrics)]
    lines = []
    for (name, *_), group in _groups(runs, ("seed",)).items():
        done = [e for e in group if e.state == "done"]
        cells = [_spread([e.metrics[m] for e in done if m in e.metrics]) for m in metrics]
        lines.append([name, f"{len(done)}/{len(group)}", *cells])
    of_vtab = [e for e in runs if str(e.keys.get(":dataset", "")).startswith("vtab/")]
    for (name, *_), group in _groups(of_vtab, ("seed", ":dataset")).items():
        if len({_task(e) for e in group}) < len(vtab.tasks()):
            continue
        done = sum(e.state == "done" for e in group)
        cells = [_spread(_means(group, m), missing="n/a") for m in metrics]
        lines.append([f"mean of {len(vtab.tasks())} tasks: {name}", f"{done}/{len(group)}", *cells])
    text = console.table(header, lines)
    if any(e.looked_at_test for e in runs):
        text += "\n\nlooked_at_test: runs that something is selected by have read test."
    return text


def report(workdir: Path, runs: Sequence[Entry]) -> str:
    """Formats the table, the stops and failures with their reasons, and the path of the results."""
    stopped = [
        f"{e.run}, at step {e.stopped_at:,}: {e.message}" for e in runs if e.stopped_at is not None
    ]
    failed = [f"{entry.run}: {entry.message}" for entry in runs if entry.state == "failed"]
    listed = ["", f"{len(stopped)} stopped early:", *stopped] if stopped else []
    listed += ["", f"{len(failed)} failed:", *failed] if failed else []
    cost = total_cost(runs)
    last = [f"cost        {cost}"] if cost else []
    last += [f"results     {workdir / CSV_FILE}"]
    last += [f"page        {workdir / PAGE_FILE}"] if (workdir / PAGE_FILE).exists() else []
    return "\n".join(["", table(runs), *listed, "", *last])


def total_cost(runs: Sequence[Entry]) -> str:
    """Returns the cost of all runs in words; "" if none has begun."""
    costs = [entry.cost for entry in runs if entry.cost]
    planned = [entry.planned for entry in runs if entry.planned is not None]
    if not costs:
        return ""
    text = f"{sum(c.chip_hours for c in costs):.3g} chip-hours of {len(costs)} runs"
    more = f"; planned were {sum(planned):.3g} for {len(planned)} runs" if planned else ""
    return text + more


def _shown(rows: Iterable[Mapping[str, float]]) -> list[str]:
    return [m for m in _union(rows) if m.endswith("/top1") and not m.endswith("_raw/top1")]


def _groups(runs: Iterable[Entry], without: tuple[str, ...]) -> dict[tuple[str, str], list[Entry]]:
    """Groups runs that differ only in the keys `without`: (common keys, stage) -> runs."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in runs:
        keys = {k: v for k, v in entry.keys.items() if k not in (*without, ":stage")}
        name = f"{entry.stage} {described(keys)}".strip() or "all"
        groups.setdefault((name, entry.stage), []).append(entry)
    return groups


def _task(entry: Entry) -> str:
    return vtab.find(str(entry.keys[":dataset"]).removeprefix("vtab/")).slug


def _means(group: Iterable[Entry], metric: str) -> list[float]:
    """Returns the mean over all VTAB tasks, for each seed that has all tasks."""
    seeds: dict[Any, dict[str, float]] = {}
    for entry in group:
        if metric in entry.metrics:
            seeds.setdefault(entry.keys.get("seed", 0), {})[_task(entry)] = entry.metrics[metric]
    return [statistics.fmean(s.values()) for s in seeds.values() if len(s) == len(vtab.tasks())]


def _spread(values: Sequence[float], missing: str = "") -> str:
    """Formats `93.25 %`, or `93.25 +- 0.05 %`."""
    if not values:
        return missing
    spread = f" +- {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.2f}{spread} %"
