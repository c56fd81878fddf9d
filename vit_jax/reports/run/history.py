# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the history of a run and its state (done, running, failed) from its workdir.

Start from `read`.
"""

import dataclasses
import functools
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vit_jax.checkpoints.step_folders import CONFIG_FILE
from vit_jax.config import load as config_lib
from vit_jax.config import provenance, recipes, sections, timeline
from vit_jax.errors import BadInput
from vit_jax.reports import summary
from vit_jax.reports.run import time_accounting
from vit_jax.reports.run.time_accounting import Spent
from vit_jax.storage import jsonl

DONE = "done"
_GROUPS = ("train", "norm", "perf", "memory", "data")  # groups of metrics that no evaluation has
Pairs = list[tuple[float, float]]


@dataclasses.dataclass(frozen=True)
class History:
    """A run, as recorded in its workdir.

    Attributes:
      workdir: workdir of the run.
      name: name of the run on pages.
      config: the resolved configuration.
      rows: rows of metrics.jsonl, in order; at least one.
      origin: provenance of the run.
      turns: rows of goodput.jsonl, in order of time; empty if the run wrote none.
      spent: accounting of the run's time; None if the run wrote no goodput.jsonl.
      state: `done`, `running`, `stopped`, `exit` with its code, `dead`; `not done` if unknown.
    """

    workdir: Path
    name: str
    config: sections.Config
    rows: Sequence[dict[str, Any]]
    origin: provenance.Origin
    turns: Sequence[dict[str, Any]]
    spent: Spent | None
    state: str

    @functools.cached_property
    def step(self) -> int:
        """The last step that a row reports."""
        return max(row["step"] for row in self.rows)

    @functools.cached_property
    def first(self) -> int:
        """The step with whose state the run began; earlier rows are those of another run."""
        return timeline.first_step(self.config)

    def series(self, metric: str) -> Pairs:
        """Returns (step, value) of a metric, sorted by step."""
        values = {row["step"]: row[metric] for row in self.rows if _is_number(row.get(metric))}
        return sorted(values.items())

    @functools.cached_property
    def metrics(self) -> list[str]:
        """Every metric that occurs in a row, in order of appearance."""
        return list(dict.fromkeys(key for row in self.rows for key in row if "/" in key))

    @functools.cached_property
    def evaluations(self) -> dict[str, dict[str, float]]:
        """The last evaluations: split or few-shot task -> metric -> value, and their `step`."""
        last: dict[str, dict[str, float]] = {}
        for key in self.metrics:
            name, _, metric = key.rpartition("/")
            points = self.series(key)
            if name not in _GROUPS and points:
                step, value = points[-1]
                last.setdefault(name, {})[metric] = value
                last[name]["step"] = step
        return last

    @property
    def img_per_sec(self) -> float | None:
        """Images per second over the whole run; None if unknown.

        The first row is left out, because its step waits for the first images.
        """
        times = self._stretches()
        return sum(n for n, _, _ in times) / sum(s for _, s, _ in times) if times else None

    @property
    def input_wait(self) -> float | None:
        """The share of time spent waiting for images, 0 to 1, without the first row."""
        times = self._stretches()
        return sum(s * w for _, s, w in times) / sum(s for _, s, _ in times) if times else None

    @property
    def step_secs(self) -> float:
        """Seconds spent in steps, without evaluation and saving, and without the first row."""
        return sum(secs for _, secs, _ in self._stretches())

    def _stretches(self) -> list[tuple[float, float, float]]:
        """Returns (images, seconds, share of waiting) from each row to the next."""
        waits = dict(self.series("perf/input_wait"))
        rates = self.series("perf/img_per_sec")
        pairs = itertools.pairwise(pair for pair in rates if pair[0] > self.first)
        size = self.config.batch_size
        return [
            ((b - a) * size, (b - a) * size / rate, waits.get(b, 0.0))
            for (a, _), (b, rate) in pairs
            if rate > 0
        ]

    @functools.cached_property
    def compared(self) -> tuple[str, list[tuple[str, Any, Any]]]:
        """The name of a reference, and [(key, value of the reference, value of this run)].

        The reference is the recipe or, if unknown, `vit_jax:base`, the defaults of all keys. A
        missing key has the value None.
        """
        recipe = self.origin.recipe
        if recipe is not None:
            reference, values = recipe.config, recipe.values
        else:
            reference = f"{recipes.OWN}base"
            values = config_lib.read(reference)
        differences = config_lib.differences(values, self.config)
        pairs = [(key, _or_none(old), _or_none(new)) for key, old, new in differences]
        return reference, [row for row in pairs if set(row[1:]) not in ({None, ""}, {None, ()})]


def _or_none(value: Any) -> Any:
    return None if value == "(none)" else value


def _is_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) < 1e300  # larger ones are damage, and no chart has room for them


def read(workdir: Path, name: str = "", *, ends: bool = False) -> History:
    """Reads the run in a workdir.

    Args:
      workdir: workdir of the run.
      name: name on pages; "" is the name of the folder.
      ends: whether the run belongs to this process and is about to be done.

    Raises:
      BadInput: the folder is not a run, has no row of metrics yet, or has damaged metrics.
    """
    try:
        if not (workdir / CONFIG_FILE).exists():
            raise BadInput(
                f"{workdir} is not a run: it has no {CONFIG_FILE}; give the workdir of a run."
            )
        config = config_lib.read(str(workdir / CONFIG_FILE))
        rows = _metrics(workdir, config)
        done = (workdir / summary.RESULTS_FILE).exists()
    except OSError as e:
        raise BadInput(
            f"{workdir} cannot be read: {e.strerror or e}; give the workdir of a run."
        ) from e
    turns, where = _turns(workdir, rows, ends)
    state = DONE if done or ends else where.state if where else "not done"
    return History(
        workdir=workdir,
        name=name or workdir.absolute().name,
        config=config,
        rows=rows,
        origin=provenance.read(workdir),
        turns=turns,
        spent=where,
        state=state,
    )


def _metrics(workdir: Path, config: sections.Config) -> list[dict[str, Any]]:
    path = workdir / jsonl.METRICS_FILE
    bad, rows = jsonl.damaged_lines(path), jsonl.read_rows(path)
    if bad:
        raise BadInput(
            f"{jsonl.rows_path(path)} is damaged: {len(bad)} lines are not rows, the first is line "
            f"{bad[0]}. Remove these lines."
        )
    if not rows:
        raise BadInput(
            f"{workdir} has no metrics yet; wait for its first row (report.every="
            f"{config.report.every!r})."
        )
    return rows


def _turns(
    workdir: Path, rows: Sequence[dict[str, Any]], ends: bool
) -> tuple[list[dict[str, Any]], Spent | None]:
    """Returns the life events of a run, and its time accounting; ([], None) if not recorded."""
    try:
        turns = time_accounting.read(workdir)
        if not ends:
            return turns, time_accounting.examine(workdir)
    except BadInput:
        return [], None
    last = {"step": rows[-1]["step"], "event": "exit", "time": time.time(), "code": 0}
    return [*turns, last], time_accounting.spent([*turns, last], 0.0, alive=False)


def short_names(workdirs: Sequence[Path]) -> list[str]:
    """Returns the last parts of each path, as many as tell all paths apart.

    Raises:
      BadInput: a workdir is given twice.
    """
    paths = [workdir.absolute() for workdir in workdirs]
    twice = [str(path) for path in paths if paths.count(path) > 1]
    if twice:
        raise BadInput(f"{twice[0]} is given twice; give each run once.")
    most = max(len(path.parts) for path in paths)
    for count in range(1, most + 1):
        names = ["/".join(path.parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    raise AssertionError(paths)
