# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Judges by the runs in a folder whether a fine-tuning has what held-out images chose.

It also refuses runs that belong together and were chosen, or pre-trained, apart. Start from
`compared`, then `judged`.
"""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.experiments.tables.cells import Table, Want
from vit_jax.experiments.tables.run_matching import SELECT, Placed, is_vtab, usual_of_vtab
from vit_jax.paper import transfer, vtab

Counted = Mapping[Want, Mapping[int, Placed]]  # want -> seed -> the run that counts


@dataclasses.dataclass
class Compared:
    """What runs measured on held-out images.

    Attributes:
      values: the selected settings -> data set -> val top-1 of each run, in percent.
      tried: these settings, and those of runs that have not come to their end.
    """

    values: dict[tuple[str, ...], dict[str, list[float]]] = dataclasses.field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    tried: set[tuple[str, ...]] = dataclasses.field(default_factory=set)

    @property
    def best(self) -> list[tuple[str, ...]]:
        """Returns the settings with the highest mean over data sets; several if equal."""
        means = {
            settings: statistics.fmean(map(statistics.fmean, found.values()))
            for settings, found in self.values.items()
        }
        most = max(means.values(), default=0.0)
        return [settings for settings, mean in means.items() if mean > most - 1e-9]


Known = Mapping[tuple[Any, str], Compared]  # (what is selected together, protocol) -> comparison


def _together(want: Want, place: Placed) -> Any:
    """Returns a key of the runs that are selected together: for VTAB those of all tasks."""
    return (want.variant, want.upstream) if is_vtab(want) else want, place.origin.choice


def compared(places: Iterable[Mapping[Want, Placed]]) -> Known:
    """Returns what runs that hold images out, and differ in nothing else, measured on these."""
    found: dict[tuple[Any, str], Compared] = defaultdict(Compared)
    for want, place in (pair for one in places for pair in one.items()):
        value, stage = place.run.metric("val/top1"), place.run.config["recipe.stage"]
        held_out = place.why_not == (SELECT,) or not (place.why_not or stage)
        if held_out:
            one = found[_together(want, place), place.protocol]
            one.tried.add(place.selected)
            if value is not None and not place.run.stopped:
                one.values[place.selected][want.dataset].append(value)
    return dict(found)


def _beside(want: Want, place: Placed, known: Known, protocol: str) -> Compared:
    """Returns what a run is compared with: its protocol, and BiT's HyperRule, which has none."""
    together, whole = _together(want, place), Compared()
    for name in (place.protocol or protocol, ""):
        one = known.get((together, name), Compared())
        whole.values |= one.values
        whole.tried |= one.tried
    return whole


def judged(want: Want, place: Placed, known: Known, protocol: str) -> Placed:
    """Adds why a fine-tuning has not what held-out images chose, as far as the folder tells.

    Args:
      want: the want that it is beside.
      place: the run.
      known: from `compared`.
      protocol: the protocol of the table.
    """
    if place.why_not or not want.dataset:
        return place
    one, own = _beside(want, place, known, protocol), ", ".join(place.selected)
    best = one.best
    unlike = bool(one.values) and place.selected not in best
    why = f"{own}: on val {' or '.join(map(', '.join, best))} is best"
    if is_vtab(want):
        tasks, grid = len(vtab.tasks()), len(transfer.VTAB_RATES) * len(transfer.VTAB_STEPS)
        whole = sum(len(found) == tasks for found in one.values.values())
        if whole < grid:
            unlike = place.selected != usual_of_vtab()
            why = f"{own}: {whole} of {grid} settings were tried on all {tasks} tasks"
    return dataclasses.replace(place, why_not=(why,)) if unlike else place


def unseen(counted: Counted, known: Known, protocol: str) -> list[str]:
    """Returns the folders of runs that count although none tried other settings."""
    return [
        str(place.run.folder)
        for want, runs in counted.items()
        for place in runs.values()
        if want.dataset
        and not (want.fixed or is_vtab(want))
        and len(_beside(want, place, known, protocol).tried) < 2
    ]


def check_choices(counted: Counted) -> None:
    """Raises BadInput unless seeds of a cell, and tasks of VTAB, were selected together."""
    first: dict[Any, Placed] = {}
    for want, runs in counted.items():
        of_vtab = is_vtab(want)
        for place in runs.values():
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


def check_means(table: Table, counted: Counted) -> None:
    """Raises BadInput if runs of one mean that share a seed start from different weights."""
    for cell in table.cells:
        first: dict[int, Placed] = {}
        for want in cell.wants if len(cell.wants) > 1 else ():
            for seed, place in counted.get(want, {}).items():
                other = first.setdefault(seed, place)
                one, two = other.origin.weights, place.origin.weights
                if one != two:
                    raise BadInput(
                        f"runs of mixed weights in one mean: {other.run.folder} starts from {one}, "
                        f"{place.run.folder} from {two}. Move one of them out of --runs."
                    )
