# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Fills the cells of a table with runs: mean and spread over seeds, difference, status.

Start from `fill`; `tolerance` says when two accuracies are the same.
"""

import dataclasses
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vit_jax.errors import BadInput, unknown
from vit_jax.experiments.tables import compute, run_results, selection
from vit_jax.experiments.tables.cells import Cell, Table, Want
from vit_jax.experiments.tables.lineage import Ancestry
from vit_jax.experiments.tables.run_matching import SELECT, Placed, Placer, is_vtab
from vit_jax.experiments.tables.run_results import Run
from vit_jax.paper import replications, results, robustness

# The status of a cell.
MISSING, RUNNING, WITHIN, OFF = "missing", "running", "within tolerance", "off"
FEW = ("1 seed", "2 seeds")  # the formula's s needs three seeds
PRIVATE, EXTERNAL, ABSENT = "needs private data", "external", "not in the paper"
UNFILLABLE = "no run measures it"
_WITHOUT_RUNS = {
    "public": MISSING, "private": PRIVATE, "external": EXTERNAL, "unfillable": UNFILLABLE,
    "absent": ABSENT,
}  # fmt: skip
_MOST_SPREAD = 2  # times the spread of the paper: the most of ours that widens the tolerance


@dataclasses.dataclass(frozen=True)
class Filled:
    """A cell with its measured value.

    Attributes:
      cell: the cell.
      status: one of the constants above.
      ours: mean over seeds, or the computed value; None: no value.
      std: standard deviation over seeds; None with fewer than two.
      seeds: number of seeds.
      allowed: the tolerance, in points, if there is a verdict.
      also: models of the same row whose printed values our value would fit as well.
      stand_ins: values of runs that do not count, one phrase each.
      partial: True for a mean with a missing part.
      lacking: the wants that keep it empty, since no run for them has finished or is running.
    """

    cell: Cell
    status: str
    ours: float | str | None = None
    std: float | None = None
    seeds: int = 0
    allowed: float = 0.0
    also: tuple[str, ...] = ()
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
      dropouts: the dropout rates of the fine-tunings that fill cells.
      remarks: sentences on runs that cannot be read, are running, or fit no cell.
      runs: all runs in the folder.
    """

    table: Table
    cells: tuple[Filled, ...]
    protocol: str = ""
    dropouts: tuple[float, ...] = ()
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
    """The measurements of a want: seed -> percent, and seed -> run."""

    seeds: dict[int, float] = dataclasses.field(default_factory=dict)
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
    protocols = _protocols(placed, protocol)
    compared = selection.compared([places for _, places in placed])
    beside: dict[Want, list[Placed]] = defaultdict(list)
    for _, places in placed:
        for want, place in places.items():
            own = protocols.get(is_vtab(want), "")
            beside[want].append(selection.judged(want, place, compared, own))
    measured: dict[Want, _Measurements] = defaultdict(_Measurements)
    for want, places in beside.items():
        measured[want] = _measured(want, places, protocols.get(is_vtab(want), ""))
    counted = {want: one.counted for want, one in measured.items()}
    selection.check_choices(counted)
    selection.check_means(table, counted)
    cells = [_cell(cell, [measured[want] for want in cell.wants]) for cell in table.cells]
    remarks = [f"not readable: {text}" for text in broken] + _remarks(placed) + _dtypes(measured)
    if alone := selection.unseen(counted, compared, protocols.get(False, "")):
        remarks.append(f"counted, but no run in this folder tried another rate: {_listed(alone)}")
    if table.name == "2":
        remarks += compute.measured_core_days(runs)
    dropouts = {
        place.run.config["model.dropout"]
        for one in measured.values()
        for place in one.counted.values()
        if place.run.fine_tunes
    }
    return Report(
        table, _with_rivals(table, cells), _in_words(protocols), tuple(sorted(dropouts)),
        tuple(remarks), tuple(runs),
    )  # fmt: skip


def _protocols(placed: Iterable[tuple[Run, dict[Want, Placed]]], wanted: str) -> dict[bool, str]:
    """Returns the protocol of the runs that count, for VTAB (True) and for other data sets.

    Raises:
      BadInput: there are two protocols of either, or the wanted one is of neither.
    """
    first: dict[bool, dict[str, Run]] = {}
    for run, places in placed:
        for want, place in places.items():
            if place.protocol and not place.why_not:
                first.setdefault(is_vtab(want), {}).setdefault(place.protocol, run)
    known = [name for runs in first.values() for name in runs]
    if wanted and known and wanted not in known:
        raise unknown("protocol", wanted, dict.fromkeys(known))
    for runs in first.values():
        if len(runs) > 1 and wanted not in runs:
            (a, one), (b, other), *_ = runs.items()
            raise BadInput(
                f"runs of mixed protocols: {one.folder} is {a!r}, {other.folder} is {b!r}. A table "
                f"has one protocol; choose one of {', '.join(runs)} with --protocol=NAME, or give "
                "another --runs."
            )
    return {vtab: wanted if wanted in runs else next(iter(runs)) for vtab, runs in first.items()}


def _in_words(protocols: Mapping[bool, str]) -> str:
    """Returns `released`, or with another one for VTAB `released (VTAB: paper)`."""
    names = list(dict.fromkeys(protocols.values()))
    if len(names) < 2:
        return "".join(names)
    return f"{protocols[False]} (VTAB: {protocols[True]})"


def _measured(want: Want, places: Sequence[Placed], protocol: str) -> _Measurements:
    measurements = _Measurements()
    for place in places:
        run, why_not = place.run, place.why_not
        value = run.metric(want.metric)
        if not why_not and place.protocol not in ("", protocol):
            why_not = (f"protocol {place.protocol}",)
        section = want.metric.partition("/")[0]
        whole = robustness.IMAGES.get(section)
        if want.metric == "test/top1":
            whole = results.test_images(want.dataset)
        images = run.images(want.metric)
        if images and whole and images != whole:
            why_not = (*why_not, f"{images:,} of {whole:,} test images")
        if value is None:
            measurements.running |= run.running and why_not in ((), (SELECT,))
        elif why_not:
            measurements.others[_short(why_not)].append(value)
        else:
            seed = run.config["seed"]
            for other in measurements.counted.values():
                if other.run.config["seed"] == seed:
                    raise _twice(other.run, run, f"both have seed {seed}")
                if other.origin.epochs != place.origin.epochs:
                    both = f"{other.origin.epochs} and {place.origin.epochs} epochs of pre-training"
                    raise _twice(other.run, run, f"they have {both}")
            measurements.counted[seed] = place
            measurements.seeds[seed] = value
    return measurements


def _twice(a: Run, b: Run, why: str) -> BadInput:
    return BadInput(
        f"{a.folder} and {b.folder} belong to the same cell, but {why}. Move one out of --runs."
    )


def _short(why_not: Sequence[str], most: int = 3) -> str:
    more = f", and {len(why_not) - most} more" if len(why_not) > most else ""
    return "; ".join(why_not[:most]) + more


def _cell(cell: Cell, measured: Sequence[_Measurements]) -> Filled:
    if cell.kind in ("external", "unfillable"):
        return Filled(cell, _WITHOUT_RUNS[cell.kind])
    if cell.ours is not None:
        return _computed(cell)
    stand_ins = _stand_ins(cell, measured)
    seeds = sorted(set.intersection(*(set(f.seeds) for f in measured))) if measured else []
    partial = len(measured) > 1 and not seeds
    if not seeds:
        running = cell.kind != "absent" and any(f.running for f in measured)
        status = RUNNING if running else _WITHOUT_RUNS[cell.kind]
        lacking = _lacking(cell, measured)
        return Filled(cell, status, stand_ins=stand_ins, partial=partial, lacking=lacking)
    means = [statistics.fmean(f.seeds[seed] for f in measured) for seed in seeds]
    ours, std = statistics.fmean(means), statistics.stdev(means) if len(means) > 1 else None
    filled = Filled(cell, ABSENT, ours, std, len(seeds), stand_ins=stand_ins)
    if cell.kind == "absent" or filled.difference is None:
        return filled
    if std is None or len(seeds) <= len(FEW):
        return dataclasses.replace(filled, status=FEW[len(seeds) - 1])
    allowed = _allowed(cell, std, len(seeds))
    status = WITHIN if abs(filled.difference) <= allowed else OFF
    return dataclasses.replace(filled, status=status, allowed=allowed)


def _lacking(cell: Cell, measured: Sequence[_Measurements]) -> tuple[Want, ...]:
    """Returns the wants of an empty cell that lack the seed which most of its wants have."""
    seeds = Counter(seed for f in measured for seed in f.seeds)
    (common, _), *_ = seeds.most_common(1) or [(None, 0)]
    pairs = zip(cell.wants, measured, strict=True)
    return tuple(w for w, f in pairs if not f.running and common not in f.seeds)


def _allowed(cell: Cell, our_std: float, our_runs: int) -> float:
    """Returns the tolerance of a cell, in points."""
    least = floor([want.dataset for want in cell.wants])
    both = tolerance(cell.paper_std, cell.paper_runs, our_std, our_runs, least)
    return both + cell.rounding


def tolerance(
    paper_std: float, paper_runs: int, our_std: float, our_runs: int, least: float
) -> float:
    """Returns the largest difference, in points, at which two accuracies count as the same.

    2 sqrt(s_paper^2 / n_paper + s_ours^2 / n_ours), where each s is at least `least`, and s_ours
    is at most twice s_paper: seeds that diverge reproduce nothing. The error of the test set is
    not part of it: both accuracies are of the same images.

    Args:
      paper_std: s_paper, standard deviation between the paper's runs, in points.
      paper_runs: n_paper, number of runs that the paper's value is the mean of.
      our_std: s_ours, standard deviation between our runs, in points.
      our_runs: n_ours, number of our seeds.
      least: the smallest standard deviation to assume; see `floor`.
    """
    theirs = max(paper_std, least)
    ours = min(max(our_std, least), _MOST_SPREAD * theirs)
    return 2 * math.sqrt(theirs**2 / paper_runs + ours**2 / our_runs)


def floor(datasets: Sequence[str]) -> float:
    """Returns the smallest deviation to assume for a mean of fine-tunings, in points.

    It comes from published repetitions (`replications.spread`), taken as independent.

    Args:
      datasets: datasets of configs/transfer.py; "" is a pre-training.
    """
    return math.sqrt(sum(replications.spread(name) ** 2 for name in datasets)) / len(datasets)


def _computed(cell: Cell) -> Filled:
    """Returns a cell whose value needs no run; one that differs says by how much, and why."""
    paper, ours = cell.paper, cell.ours
    if isinstance(paper, str) or isinstance(ours, str) or paper is None or ours is None:
        return Filled(cell, WITHIN if paper == ours else OFF, ours)
    if cell.accepts[0] <= paper <= cell.accepts[1]:
        return Filled(cell, WITHIN, ours)
    return Filled(cell, OFF, ours, stand_ins=(f"{ours / paper - 1:+.1%}: {cell.why}",))


def _with_rivals(table: Table, cells: Sequence[Filled]) -> tuple[Filled, ...]:
    """Adds to each cell with a verdict the other models of its row that it cannot exclude."""
    rows: dict[tuple[str, ...], list[Cell]] = defaultdict(list)
    for filled in cells:
        if table.models:
            rows[split(table, filled.cell)[1]].append(filled.cell)
    return tuple(
        dataclasses.replace(filled, also=tuple(_rivals(table, filled, rows)))
        if filled.allowed
        else filled
        for filled in cells
    )


def _rivals(
    table: Table, filled: Filled, rows: Mapping[tuple[str, ...], Sequence[Cell]]
) -> Iterable[str]:
    own, row = split(table, filled.cell)
    for other in rows.get(row, ()):
        name = split(table, other)[0]
        if name != own and isinstance(other.paper, float | int):
            assert isinstance(filled.ours, float | int)
            if abs(filled.ours - other.paper) <= filled.allowed:
                yield name


def split(table: Table, cell: Cell) -> tuple[str, tuple[str, ...]]:
    """Splits the labels of a cell into the name of its model and its row."""
    name = ", ".join(cell.labels[i] for i in table.models)
    return name, tuple(text for i, text in enumerate(cell.labels) if i not in table.models)


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
            state = "stopped early by the rule of its sweep" if run.stopped else (
                "running, or stopped" if run.running else "failed"
            )  # fmt: skip
            groups[state].append(str(run.folder))
        for want, place in places.items():
            lost = run.results is not None and not place.why_not
            if lost and run.metric(want.metric) is None:
                groups[f"without {want.metric} in {run_results.RESULTS}"].append(str(run.folder))
    return [f"{state}: {_listed(names)}" for state, names in groups.items()]


def _dtypes(measured: Mapping[Want, _Measurements]) -> list[str]:
    """Returns a sentence with the dtypes of compute of the runs that count; [] without any.

    If there are several, it names the runs of each.
    """
    counted = {p.run.folder: p.run for m in measured.values() for p in m.counted.values()}
    folders: dict[str, list[str]] = defaultdict(list)
    for folder, run in counted.items():
        folders[run.config["model.dtype"]].append(str(folder))
    listed = ", ".join(
        f"{dtype} ({len(names)}{f': {_listed(names)}' * (len(folders) > 1)})"
        for dtype, names in sorted(folders.items())
    )
    return [f"model.dtype of the runs that count: {listed}"] if listed else []


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return "; ".join([*names[:most], *more])


def _what(run: Run) -> str:
    value = run.metric("test/top1")
    shown = "" if value is None else f", test top-1 {value:.2f} %"
    return f"{run.config['model.variant']} on {run.config['data.source']}{shown}"
