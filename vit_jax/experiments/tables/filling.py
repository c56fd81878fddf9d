# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fills the cells of a table with runs: mean and spread over seeds, difference, status.

Start from `fill`.
"""

import dataclasses
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput, unknown
from vit_jax.experiments.tables import compute, run_results
from vit_jax.experiments.tables.cells import Cell, Table, Want
from vit_jax.experiments.tables.lineage import Ancestry
from vit_jax.experiments.tables.run_matching import SELECT, Placed, Placer, is_vtab
from vit_jax.experiments.tables.run_results import Run

# The status of a cell.
MISSING, RUNNING, WITHIN, OFF = "missing", "running", "within tolerance", "off"
FEW = ("1 seed", "2 seeds")  # the formula's s needs three seeds
LEAST = 0.1  # the smallest tolerance, in points
PRIVATE, EXTERNAL, ABSENT = "needs private data", "external", "not in the paper"


@dataclasses.dataclass(frozen=True)
class Filled:
    """A cell with its measured value.

    Attributes:
      cell: the cell.
      status: one of the constants above.
      ours: mean over seeds, or the computed value; None: no value.
      std: standard deviation over seeds; None with fewer than two.
      seeds: number of seeds.
      stand_ins: values of runs that do not count, one phrase each.
      partial: True for a mean with a missing part.
      lacking: the wants that keep it empty, since no run for them has finished or is running.
    """

    cell: Cell
    status: str
    ours: float | str | None = None
    std: float | None = None
    seeds: int = 0
    stand_ins: tuple[str, ...] = ()
    partial: bool = False
    lacking: tuple[Want, ...] = ()

    @property
    def difference(self) -> float | None:
        """Returns our value minus the paper's; None if either is missing or text."""
        numbers = isinstance(self.ours, float | int) and isinstance(self.cell.paper, float | int)
        return self.ours - self.cell.paper if numbers else None  # type: ignore[operator]


@dataclasses.dataclass(frozen=True)
class Report:
    """A filled table.

    Attributes:
      table: the table.
      cells: in the order of the table.
      protocol: the protocol of its runs; empty without runs.
      remarks: sentences on runs that cannot be read, are running, or fit no cell.
      runs: all runs in the folder.
    """

    table: Table
    cells: tuple[Filled, ...]
    protocol: str = ""
    remarks: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def summary(self) -> str:
        """Returns the last line: `3 of 54 public cells reproduced`."""
        public = [f for f in self.cells if f.cell.kind == "public" and f.cell.counts]
        done = sum(f.status == WITHIN for f in public)
        return f"{done} of {len(public)} public cells reproduced"


@dataclasses.dataclass
class _Measurements:
    """The measurements of a want: seed -> (percent, examples), and seed -> run."""

    seeds: dict[int, tuple[float, int]] = dataclasses.field(default_factory=dict)
    counted: dict[int, Placed] = dataclasses.field(default_factory=dict)
    others: dict[str, list[float]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    running: bool = False


def fill(table: Table, root: Path | None, protocol: str = "") -> Report:
    """Fills a table with the runs in a folder.

    Args:
      table: from `cells.find`.
      root: folder of runs; None: no runs.
      protocol: the protocol of the runs that count; empty if all runs have the same one.

    Raises:
      BadInput: runs have several protocols, several runs share a seed, or results are invalid.
    """
    runs, broken = run_results.read(root) if root is not None and table.need_runs else ([], [])
    wants = list(dict.fromkeys(want for cell in table.cells for want in cell.wants))
    placer = Placer(wants, Ancestry(root, runs))
    placed = [(run, placer.place(run)) for run in runs]
    protocol = _one_protocol(placed, protocol)
    measured: dict[Want, _Measurements] = defaultdict(_Measurements)
    beside: dict[Want, list[Placed]] = defaultdict(list)
    for _, places in placed:
        for want, place in places.items():
            beside[want].append(place)
    for want, places in beside.items():
        measured[want] = _measured(want, places, protocol)
    _check_choices(measured)
    cells = tuple(_cell(cell, [measured[want] for want in cell.wants]) for cell in table.cells)
    remarks = [f"not readable: {text}" for text in broken] + _remarks(placed) + _dtypes(measured)
    if table.name == "2":
        remarks += compute.measured_core_days(runs)
    return Report(table, cells, protocol, tuple(remarks), tuple(runs))


def _one_protocol(placed: Iterable[tuple[Run, dict[Want, Placed]]], wanted: str) -> str:
    """Returns the protocol of the runs that count.

    Raises:
      BadInput: there are two protocols, or not the wanted one.
    """
    first: dict[str, Run] = {}
    for run, places in placed:
        for place in places.values():
            if place.mixes:
                first.setdefault(place.protocol, run)
    if wanted and first and wanted not in first:
        raise unknown("protocol", wanted, first)
    if len(first) > 1 and not wanted:
        (a, one), (b, other), *_ = first.items()
        raise BadInput(
            f"runs of mixed protocols: {one.folder} is {a!r}, {other.folder} is {b!r}. A table has "
            f"one protocol; choose one of {', '.join(first)} with --protocol=NAME, or give another "
            "--runs."
        )
    return wanted or next(iter(first), "")


def _measured(want: Want, places: Sequence[Placed], protocol: str) -> _Measurements:
    measurements = _Measurements()
    for place in places:
        run, why_not = place.run, place.why_not
        value = run.metric(want.metric)
        if not why_not and place.protocol not in ("", protocol):
            why_not = (f"protocol {place.protocol}",)
        if value is None:
            measurements.running |= run.running and why_not in ((), (SELECT,))
        elif why_not:
            measurements.others[_short(why_not)].append(value)
        else:
            seed = run.config["seed"]
            for other in measurements.counted.values():
                if other.run.config["seed"] == seed:
                    raise _twice(other.run, run, f"both have seed {seed}")
                if other.epochs != place.epochs:
                    both = f"{other.epochs} and {place.epochs} epochs of pre-training"
                    raise _twice(other.run, run, f"they have {both}")
            measurements.counted[seed] = place
            measurements.seeds[seed] = value, run.examples(want.metric)
    return measurements


def _check_choices(measured: Mapping[Want, _Measurements]) -> None:
    """Raises BadInput unless seeds of a cell, and tasks of VTAB, were selected together."""
    first: dict[Any, Placed] = {}
    for want, one in measured.items():
        of_vtab = is_vtab(want)
        for place in one.counted.values():
            other = first.setdefault((want.variant, want.upstream) if of_vtab else want, place)
            if other.choice != place.choice:
                once = "VTAB chooses once for all tasks" if of_vtab else (
                    "Rate and recipe are selected once, then every seed is trained with them"
                )  # fmt: skip
                raise BadInput(
                    f"runs of mixed protocols: {other.run.folder} has {', '.join(other.choice)}; "
                    f"{place.run.folder} has {', '.join(place.choice)}. {once}; move the others "
                    "out of --runs."
                )


def _twice(a: Run, b: Run, why: str) -> BadInput:
    return BadInput(
        f"{a.folder} and {b.folder} belong to the same cell, but {why}. Move one out of --runs."
    )


def _short(why_not: Sequence[str], most: int = 3) -> str:
    more = f", and {len(why_not) - most} more" if len(why_not) > most else ""
    return "; ".join(why_not[:most]) + more


def _cell(cell: Cell, measured: Sequence[_Measurements]) -> Filled:
    if cell.kind == "external":
        return Filled(cell, EXTERNAL)
    if cell.ours is not None:
        return Filled(cell, WITHIN if _agrees(cell) else OFF, cell.ours)
    stand_ins = _stand_ins(cell, measured)
    seeds = sorted(set.intersection(*(set(f.seeds) for f in measured))) if measured else []
    partial = len(measured) > 1 and not seeds
    nothing = {"public": MISSING, "private": PRIVATE, "absent": ABSENT}[cell.kind]
    if not seeds:
        running = cell.kind != "absent" and any(f.running for f in measured)
        status = RUNNING if running else nothing
        lacking = _lacking(cell, measured)
        return Filled(cell, status, stand_ins=stand_ins, partial=partial, lacking=lacking)
    means = [statistics.fmean(f.seeds[seed][0] for f in measured) for seed in seeds]
    ours, std = statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else None
    filled = Filled(cell, ABSENT, ours, std, len(seeds), stand_ins)
    if cell.kind == "absent" or filled.difference is None:
        return filled
    if std is None or len(seeds) <= len(FEW):
        return dataclasses.replace(filled, status=FEW[len(seeds) - 1])
    allowed = _allowed(cell, measured, seeds, std)
    close = abs(filled.difference) <= allowed
    return dataclasses.replace(filled, status=WITHIN if close else OFF)


def _lacking(cell: Cell, measured: Sequence[_Measurements]) -> tuple[Want, ...]:
    """Returns the wants of an empty cell that lack the seed which most of its wants have."""
    seeds = Counter(seed for f in measured for seed in f.seeds)
    (common, _), *_ = seeds.most_common(1) or [(None, 0)]
    pairs = zip(cell.wants, measured, strict=True)
    return tuple(w for w, f in pairs if not f.running and common not in f.seeds)


def _allowed(
    cell: Cell, measured: Sequence[_Measurements], seeds: Sequence[int], std: float
) -> float:
    """Returns the tolerance of a cell, in points."""
    shares = [statistics.fmean(f.seeds[s][0] for s in seeds) / 100 for f in measured]
    if len(shares) == 1:  # a mean of tasks has no printed values of its parts
        assert isinstance(cell.paper, float | int)
        shares = [cell.paper / 100]
    sizes = [min(f.seeds[s][1] for s in seeds) for f in measured]
    error = binomial(shares, sizes) if all(sizes) else 0.0
    return tolerance(cell.paper_std, cell.paper_runs, std, len(seeds), error)


def tolerance(
    paper_std: float, paper_runs: int, our_std: float, our_runs: int, binomial: float
) -> float:
    """Returns the largest difference, in points, at which two accuracies count as the same.

    max(2 sqrt(s_paper^2 / n_paper + s_ours^2 / n_ours), 2 binomial, 0.1)

    Args:
      paper_std: s_paper, standard deviation between the paper's runs, in points.
      paper_runs: n_paper, number of runs that the paper's value is the mean of.
      our_std: s_ours, standard deviation between our runs, in points.
      our_runs: n_ours, number of our seeds.
      binomial: standard error due to the test set, in points.
    """
    between = math.sqrt(paper_std**2 / paper_runs + our_std**2 / our_runs)
    return max(2 * between, 2 * binomial, LEAST)


def binomial(shares: Sequence[float], examples: Sequence[int]) -> float:
    """Returns the standard error, in points, of a mean of accuracies on test sets of given sizes.

    Args:
      shares: accuracies from 0 to 1, one for each test set.
      examples: size of each test set.
    """
    variance = sum(p * (1 - p) / n for p, n in zip(shares, examples, strict=True))
    return 100 * math.sqrt(variance) / len(shares)


def _agrees(cell: Cell) -> bool:
    """Returns True if a value that needs no run agrees with the paper's."""
    if isinstance(cell.paper, str) or isinstance(cell.ours, str) or cell.paper is None:
        return cell.paper == cell.ours
    assert cell.ours is not None
    return abs(cell.ours - cell.paper) <= cell.bound * abs(cell.paper)


def _stand_ins(cell: Cell, measured: Sequence[_Measurements]) -> tuple[str, ...]:
    """Returns the values of runs that do not count; for a mean, those of its data sets by name."""
    of_several = len(measured) > 1
    return tuple(
        f"{f'{want.dataset}: ' * of_several}{why}: {_mean(values)}"
        for want, one in zip(cell.wants, measured, strict=True)
        for why, values in one.others.items()
    )


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread} ({len(values)} run{'s' * (len(values) > 1)})"


def _remarks(placed: Sequence[tuple[Run, dict[Want, Placed]]]) -> list[str]:
    """Returns remarks for people on runs that fill nothing."""
    groups: dict[str, list[str]] = defaultdict(list)
    for run, places in placed:
        if not places:
            groups["belong to no cell of this table"].append(f"{run.folder} ({_what(run)})")
        elif run.results is None:
            state = "running, or stopped" if run.running else "failed"
            groups[state].append(str(run.folder))
        for want, place in places.items():
            lost = run.results is not None and not place.why_not
            if lost and run.metric(want.metric) is None:
                groups[f"without {want.metric} in {run_results.RESULTS}"].append(str(run.folder))
    return [f"{state}: {_listed(names)}" for state, names in groups.items()]


def _dtypes(measured: Mapping[Want, _Measurements]) -> list[str]:
    """Returns a sentence with the dtypes of compute of the runs that count; [] without any."""
    counted = {p.run.folder: p.run for m in measured.values() for p in m.counted.values()}
    dtypes = Counter(run.config["model.dtype"] for run in counted.values())
    listed = ", ".join(f"{dtype} ({count})" for dtype, count in sorted(dtypes.items()))
    return [f"model.dtype of the runs that count: {listed}"] if listed else []


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return "; ".join([*names[:most], *more])


def _what(run: Run) -> str:
    value = run.metric("test/top1")
    shown = "" if value is None else f", test top-1 {value:.2f} %"
    return f"{run.config['model.variant']} on {run.config['data.source']}{shown}"
