# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Judges by the runs in a folder whether a fine-tuning has what held-out images chose.

It also refuses runs that belong together and were chosen, or pre-trained, apart. Start from
`compared`, then `judged`.
"""

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.experiments.tables.cells import Table, Want
from vit_jax.experiments.tables.run_matching import SELECT, Placed, is_vtab, usual_of_vtab
from vit_jax.paper import vtab

Counted = Mapping[Want, Mapping[int, Placed]]  # want -> seed -> the run that counts


@dataclasses.dataclass
class Compared:
    """What runs measured on held-out images.

    Attributes:
      values: the selected settings -> val top-1 of each run, in percent.
      datasets: the data sets of these runs.
    """

    values: dict[tuple[str, ...], list[float]] = dataclasses.field(
        default_factory=lambda: defaultdict(list)
    )
    datasets: set[str] = dataclasses.field(default_factory=set)

    @property
    def best(self) -> list[tuple[str, ...]]:
        """Returns the settings with the highest mean; several if equal."""
        means = {settings: statistics.fmean(found) for settings, found in self.values.items()}
        most = max(means.values(), default=0.0)
        return [settings for settings, mean in means.items() if mean > most - 1e-9]


def _together(want: Want, place: Placed) -> Any:
    """Returns a key of the runs that are selected together: for VTAB those of all tasks."""
    return (want.variant, want.upstream) if is_vtab(want) else want, place.weights


def compared(beside: Mapping[Want, Sequence[Placed]]) -> Mapping[Any, Compared]:
    """Returns what runs that hold images out, and differ in nothing else, measured on these."""
    found: dict[Any, Compared] = defaultdict(Compared)
    for want, places in beside.items():
        for place in places:
            value = place.run.metric("val/top1")
            held_out = not (place.why_not or place.run.config["recipe.stage"])
            if value is not None and (held_out or place.why_not == (SELECT,)):
                one = found[_together(want, place)]
                one.values[place.selected].append(value)
                one.datasets.add(want.dataset)
    return dict(found)


def judged(want: Want, place: Placed, known: Mapping[Any, Compared]) -> Placed:
    """Adds why a fine-tuning has not what held-out images chose, as far as the folder tells."""
    if place.why_not or not want.dataset:
        return place
    one, own = known.get(_together(want, place), Compared()), ", ".join(place.selected)
    unlike = bool(one.values) and place.selected not in one.best
    why = f"{own}: on val {' or '.join(map(', '.join, one.best))} is best"
    tasks = len(vtab.tasks())
    if is_vtab(want) and len(one.datasets) < tasks:
        unlike = place.selected != usual_of_vtab()
        why = f"{own}: chosen on {len(one.datasets)} of {tasks} tasks"
    return dataclasses.replace(place, why_not=(why,)) if unlike else place


def unseen(counted: Counted, known: Mapping[Any, Compared]) -> list[str]:
    """Returns the folders of final runs that nothing in the folder was compared with."""
    return [
        str(place.run.folder)
        for want, runs in counted.items()
        for place in runs.values()
        if place.run.config["recipe.stage"] == "final"
        and not is_vtab(want)
        and _together(want, place) not in known
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
                if other.weights != place.weights:
                    raise BadInput(
                        f"runs of mixed weights in one mean: {other.run.folder} starts from "
                        f"{other.weights}, {place.run.folder} from {place.weights}. Move one of "
                        "them out of --runs."
                    )
