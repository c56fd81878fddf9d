# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Accounts for the time of a run, from the events that `goodput` has written.

Start from `examine`. `details` gives the same in the words of ml-goodput-measurement.
"""

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.runtime import goodput, recovery, workdir_lock
from vit_jax.storage import jsonl

_END = 4102444800.0  # the year 2100; a later time is damage


@dataclasses.dataclass(frozen=True)
class Spent:
    """The time of a run in seconds, by use.

    Attributes:
      restarts: number of starts after the first.
      elapsed: time from the first start to the last end, or to now.
      productive: time from the first step of a start to the last save that a later start resumed
        from. The last start counts to its last save; if the run is done, to its end; if it is going
        on, to now. It includes evaluations and saves.
      startup: time from a start to its first step.
      lost: time from that save to the end of a start; the work is done again later, or never.
      down: time between an end and the next start.
      state: `done`, `running`, `stopped` (on request), `exit` with its code, or `dead`.
    """

    restarts: int
    elapsed: float
    productive: float
    startup: float
    lost: float
    down: float
    state: str

    @property
    def goodput(self) -> float:
        """The share of the elapsed time that was productive, 0 to 1."""
        return self.productive / self.elapsed if self.elapsed > 0 else 0.0


def examine(workdir: Path) -> Spent:
    """Returns the time accounting of the run in `workdir`, until now if the run is going on.

    Raises:
      BadInput: there is no run.
    """
    try:
        owner = workdir_lock.read(workdir)  # first: an owner that ends meanwhile has a last row
        rows, now = read(workdir), time.time()
    except OSError as e:
        reason = e.strerror or e
        raise BadInput(f"{workdir} cannot be read: {reason}; give the workdir of a run.") from e
    alive = owner is not None and not workdir_lock.is_dead(owner, now)
    return spent(rows, now if alive else owner.beat if owner else 0.0, alive=alive)


def read(workdir: Path) -> list[dict[str, Any]]:
    """Returns the rows of a run, in order of time.

    Raises:
      BadInput: there are no rows.
    """
    path = workdir / goodput.FILE
    rows = [row for row in jsonl.read_rows(path) if _is_turn(row)]
    rows.sort(key=lambda row: row["time"])
    if not rows or rows[0].get("event") != "start":
        raise BadInput(f"{workdir} has no {goodput.FILE} of a run; give the workdir of a run.")
    return rows


def _is_turn(row: dict[str, Any]) -> bool:
    times = row.get("time"), row.get("seen", 0.0)
    is_exit = row.get("event") == "exit"
    return (
        isinstance(row.get("event"), str)
        and all(isinstance(time, float) and 0 <= time < _END for time in times)
        and type(row.get("code", None if is_exit else 0)) is int
    )


def spent(rows: Sequence[dict[str, Any]], seen: float, *, alive: bool) -> Spent:
    """Accounts for the time that rows report.

    Args:
      rows: rows of one run in order of time, beginning with a `start`.
      seen: time when the last start was last seen, in seconds since 1970.
      alive: whether the run is going on.
    """
    begins = [i for i, row in enumerate(rows) if row["event"] == "start"]
    starts = [rows[a:b] for a, b in itertools.pairwise([*begins, len(rows)])]
    nexts = [one[0] for one in starts[1:]]
    ends = list(map(_end, starts, [*(next_.get("seen", 0.0) for next_ in nexts), seen]))
    state = _state(starts[-1], alive)
    productive = startup = lost = 0.0
    resumed = math.inf  # the smallest step at which a later start began
    for one, end in zip(reversed(starts), reversed(ends), strict=True):
        first = next((row["time"] for row in one if row["event"] == "first_step"), end)
        saves = [r["time"] for r in one if r["event"] == "save" and r["step"] <= resumed]
        goes_on = one is starts[-1] and state in ("done", "running")
        kept = end if goes_on else max([first, *saves])
        startup, productive, lost = (
            startup + first - one[0]["time"], productive + kept - first, lost + end - kept
        )  # fmt: skip
        resumed = min([resumed, *(r["step"] for r in one if r["event"] == "initialised")])
    down = sum(next_["time"] - end for next_, end in zip(nexts, ends, strict=False))
    return Spent(len(nexts), ends[-1] - rows[0]["time"], productive, startup, lost, down, state)


@dataclasses.dataclass(frozen=True)
class Restart:
    """The way of one start to its first new step.

    Attributes:
      step: the first step that no earlier start had reported.
      again: whether an earlier start had ended.
      secs: seconds from that end, or from the creation of the process, to the end of this step.
      parts: part of `recovery.PARTS` -> seconds; in its order, with every part that took part.
    """

    step: int
    again: bool
    secs: float
    parts: dict[str, float]


def restarts(rows: Sequence[dict[str, Any]]) -> list[Restart]:
    """Returns the starts that came to a new step, in order; rows that are damaged are left out."""
    found = []
    for row in rows:
        with contextlib.suppress(KeyError, TypeError, ValueError):
            if row["event"] == "new_step":
                sums = dict[str, float]()
                for part, secs in row["parts"]:
                    sums[part] = sums.get(part, 0.0) + float(secs)
                parts = {part: sums.pop(part) for part in recovery.PARTS if part in sums}
                if not sums and min(parts.values()) >= 0:
                    again = "noticing" in parts
                    found.append(Restart(row["step"], again, sum(parts.values()), parts))
    return found


def details(rows: Sequence[dict[str, Any]], spent: Spent) -> dict[str, Any]:
    """Returns the account in the form of ml-goodput-measurement's `WorkloadMetricDetails`.

    Its `goodput_time` and `badput_time` add up to its `total_elapsed_time`, all in seconds. What no
    start has split is `OTHER`. Steps are not timed one by one, so the fields about the time of a
    step are left out.

    Args:
      rows: rows of one run in order of time.
      spent: their account.
    """
    badput = dict.fromkeys(dict.fromkeys(recovery.PARTS.values()), 0.0)
    for one in restarts(rows):
        for part, secs in one.parts.items():
            if part not in ("noticing", "repeated"):  # known for all starts, in `spent`
                badput[recovery.PARTS[part]] += secs
    badput[recovery.PARTS["noticing"]] += spent.down
    badput[recovery.PARTS["repeated"]] += spent.lost
    badput["OTHER"] = spent.elapsed - spent.productive - sum(badput.values())
    last = max((row["step"] for row in rows if row["event"] == "save"), default=0)
    return {
        "goodput_time": {"TOTAL": spent.productive},
        "badput_time": badput,
        "max_productive_step": last,
        "total_elapsed_time": spent.elapsed,
        "disruption_count": spent.restarts,
    }


def _end(rows: Sequence[dict[str, Any]], seen: float) -> float:
    """Returns when a start ended: its own statement, or when it was last seen."""
    return rows[-1]["time"] if rows[-1]["event"] == "exit" else max(rows[-1]["time"], seen)


def _state(rows: Sequence[dict[str, Any]], alive: bool) -> str:
    """Returns the state of the last start."""
    if rows[-1]["event"] == "exit":
        return {0: "done", 42: "stopped"}.get(rows[-1]["code"], f"exit {rows[-1]['code']}")
    return "running" if alive else "dead"
