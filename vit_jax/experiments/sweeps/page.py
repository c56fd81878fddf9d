# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes sweep.html, which shows a sweep while it runs and afterwards.

The page is one file that a browser loads again by itself while the sweep runs. The runner writes it
every half minute, or less often if writing takes long. Start from `Page`.
"""

import contextlib
import logging
import statistics
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from vit_jax import console
from vit_jax.config import timeline
from vit_jax.errors import BadInput, RunFailed
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps import rungs
from vit_jax.experiments.sweeps.folder import Entry
from vit_jax.reports import summary
from vit_jax.reports.run import history
from vit_jax.reports.run.history import History
from vit_jax.storage import files as storage

FILE = sweep_folder.PAGE_FILE
EVERY_SECS = 30
_LEAST_PAUSE = 20  # between two pages, relative to the time that a page takes
STATES = ("done", "running", "stopped", "failed", "pending")
_STYLES = {"running": "some", "stopped": "quiet", "failed": "bad"}
log = logging.getLogger("vit_jax")


class Page:
    """The page of the sweep in a folder.

    Args:
      workdir: the folder of the sweep.
    """

    def __init__(self, workdir: Path):
        self._workdir, self._due = workdir, 0.0
        self._ended = dict[str, History]()  # runs whose history does not change any more

    def refresh(self, running: Collection[str]) -> None:
        """Writes the page of a sweep that goes on, if it is due."""
        began = time.monotonic()
        if began >= self._due:
            self.write(sweep_folder.entries(self._workdir, running), goes_on=True)
            took = time.monotonic() - began
            self._due = began + max(EVERY_SECS, _LEAST_PAUSE * took)

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Writes the results and a page that is not loaded again, however the block ends."""
        try:
            yield
        finally:
            entries = sweep_folder.entries(self._workdir, running=())
            sweep_folder.write_csv(self._workdir, entries)
            self.write(entries, goes_on=False)

    def write(self, entries: Sequence[Entry], *, goes_on: bool) -> None:
        """Writes the page; a disk that is full or damaged files of a run only log a warning.

        Args:
          entries: all runs.
          goes_on: True if the page will be written again.
        """
        try:
            text = page(self._workdir.absolute().name, entries, self._histories(entries), goes_on)
            storage.write(self._workdir / FILE, text)
        except (OSError, BadInput, RunFailed) as e:
            log.warning("%s is not written: %s", self._workdir / FILE, e)

    def _histories(self, entries: Sequence[Entry]) -> dict[str, History]:
        """Returns run -> history, for the runs that have a row of metrics."""
        found = dict[str, History]()
        for entry in entries:
            if entry.run in self._ended:
                found[entry.run] = self._ended[entry.run]
                continue
            try:
                found[entry.run] = history.read(self._workdir / entry.run, entry.run)
            except BadInput:  # it has no metrics yet
                continue
            if entry.state == "done":
                self._ended[entry.run] = found[entry.run]
        return found


def page(name: str, entries: Sequence[Entry], histories: dict[str, History], goes_on: bool) -> str:
    """Returns the document.

    Args:
      name: name of the sweep.
      entries: all runs.
      histories: run -> history, for those that have one.
      goes_on: True lets browsers load the page again.
    """
    from vit_jax.reports import pages  # only a page needs jinja2

    sentence, drawn = "", []
    if histories:
        from vit_jax.reports.run import comparison, curves  # only curves need matplotlib

        chosen, sentence = comparison.chosen(list(histories.values()))
        drawn = curves.comparison_charts(chosen)
    counts = Counter(entry.state for entry in entries)
    over = counts["done"] + counts["stopped"]
    listed = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    return pages.render(
        "sweep.html",
        f"Sweep {name}",
        refresh_secs=EVERY_SECS if goes_on else 0,
        state=f"{over} of {len(entries)} runs are over: {listed}.",
        style="bad" if counts["failed"] else "good" if over == len(entries) else "some",
        about={
            "Written": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
            "Time left": _time_left(entries, histories) if goes_on else "",
            "Cost": sweep_folder.total_cost(entries),
        },
        runs=_table(entries, histories),
        reasons=[(e.run, e.message) for e in entries if e.message],
        chosen=sentence,
        curves=drawn,
    )


def _table(entries: Sequence[Entry], histories: dict[str, History]) -> dict[str, Any]:
    """Returns a table with a line for each run: state, progress, last metrics and cost."""
    measured = dict.fromkeys(
        (split, metric)
        for run in histories.values()
        for split, metrics in run.evaluations.items()
        for metric in metrics
        if metric == "top1" or metric.endswith("shot")
    )
    costs = any(entry.cost for entry in entries)
    planned = any(entry.planned is not None for entry in entries)
    header = ["run", "state", "step", "training loss", *(f"{s} {m}" for s, m in measured)]
    header += ["time", "chip-hours"] * costs + ["planned chip-hours"] * planned
    rows = []
    for entry in entries:
        run, cost = histories.get(entry.run), entry.cost
        loss = run.series("train/loss") if run else []
        evaluations = run.evaluations if run else {}
        cells = [entry.run, entry.state, _progress(run), f"{loss[-1][1]:.4f}" if loss else ""]
        cells += [summary.written(m, evaluations.get(s, {}).get(m)) for s, m in measured]
        if costs:
            cells += [console.duration(cost.secs), f"{cost.chip_hours:.3g}"] if cost else ["", ""]
        if planned:
            cells.append("" if entry.planned is None else f"{entry.planned:.3g}")
        rows.append(cells)
    styles = {i: _STYLES[e.state] for i, e in enumerate(entries) if e.state in _STYLES}
    return {"header": header, "rows": rows, "numbers": range(2, len(header)), "styles": styles}


def _progress(run: History | None) -> str:
    if run is None:
        return ""
    total = _total_steps(run)
    return f"{run.step:,} of {total:,}" if total else f"{run.step:,}"


def _total_steps(run: History) -> int:
    """Returns the steps of the whole run; 0 if the number of its examples is not known."""
    examples = rungs.recorded_examples(run.origin)
    if not examples:
        return 0
    return timeline.in_steps(run.config, examples, run.config.length, key="length", total=0)


def _time_left(entries: Sequence[Entry], histories: dict[str, History]) -> str:
    """Returns how long the runs that are known will take, in words; "" if that is not known.

    A run that has begun takes as long as its steps so far say. A run that has not begun takes the
    mean of the others.
    """
    left, whole = dict[str, float](), list[float]()
    for entry in entries:
        run, cost = histories.get(entry.run), entry.cost
        total = _total_steps(run) if run else 0
        if run is None or cost is None or not total or run.step <= run.first:
            continue
        share = (run.step - run.first) / (total - run.first)
        whole.append(cost.secs / share)
        left[entry.run] = cost.secs / share - cost.secs
    side_by_side = max(1, sum(entry.state == "running" for entry in entries))
    if not whole:
        return ""
    mean = statistics.fmean(whole)
    ahead = sum(left.get(e.run, mean) for e in entries if e.state in ("running", "pending"))
    return f"about {console.duration(ahead / side_by_side)} for these runs, if none is stopped"
