# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Splits the time from the end of a start to the first new step of the next start.

A step is new if no earlier start had reported it in metrics.jsonl. The main thread calls `passed`
when it is done with a part of the start. What other threads do meanwhile (compiling, importing
TensorFlow) counts only where the main thread waits for it. The parts follow one another without
gaps, so they add up to the whole. This module must not import jax. Start from `passed`.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Part -> the bucket of ml-goodput-measurement (`BadputType`) that it belongs to.
PARTS = {
    "noticing": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",  # until a new process exists
    "process_start": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",  # of Python, until our first line
    "imports": "TRAINING_PREP",  # and the configuration
    "waiting": "INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION",  # for lost processes, with elastic.secs
    "connecting": "TPU_INITIALIZATION",  # to the other processes, to the workdir, to the devices
    "data": "DATA_LOADING_SYNC",  # opening it; later, waiting for the first batch
    "program": "TRAINING_PREP",  # building and tracing the model and the step
    "restore": "UNPRODUCTIVE_CHECKPOINT_RESTORE_TIME",  # with verifying its checksums
    "compile": "PROGRAM_STARTUP",  # or reading the compile cache
    "first_step": "PROGRAM_STARTUP",
    "repeated": "WASTED_PROGRESS_FROM_DISRUPTION",  # steps that an earlier start had reported
}
ENDED = "VIT_JAX_ENDED"  # variable with the time at which a launcher saw the last start end
_MOST_SECS = 600.0  # from the creation of a process to its first line; more is a wrong clock

_created: float | None = None
_passed: list[tuple[str, float]] = []


def begin() -> None:
    """Notes that the program begins: the first line of the command calls it."""
    global _created
    now = time.time()
    age = _age_secs()
    _created = now if age is None else now - age
    _passed[:] = [("process_start", now)]


def _age_secs() -> float | None:
    """Returns the age of this process in seconds; None where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        ticks = int(fields[19])  # the 22nd field of all
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):  # not Linux
        return None
    return age if 0 <= age < _MOST_SECS else None


def passed(part: str) -> None:
    """Notes that the main thread is done with a part of `PARTS`; a part may come several times.

    After the first step only `repeated` counts, because the loop goes on passing the others.
    """
    assert part in PARTS
    if part == "repeated" or "first_step" not in dict(_passed):
        _passed.append((part, time.time()))


def began(since: float) -> float:
    """Returns the time at which this start began; drops the parts that were passed before it.

    Args:
      since: that time if no command began this process; otherwise it is that of its creation.
    """
    if _created is not None:
        return _created
    _passed[:] = [mark for mark in _passed if mark[1] >= since]  # others built a model before
    return since


def forget() -> None:
    """Forgets the parts: a process may train again."""
    global _created
    _created = None
    _passed.clear()


def ended(rows: Sequence[Mapping[str, Any]], seen: float | None, since: float) -> float | None:
    """Returns the time at which the last start ended, in seconds since 1970; None if there is none.

    A launcher on this machine knows it best. Otherwise it is the start's own last row, or the last
    renewal of its lock, which is at most 30 s too early.

    Args:
      rows: rows of goodput.jsonl, of earlier starts.
      seen: the time of the last renewal of the lock of a start that was killed, or None.
      since: the time at which this start began.
    """
    timed = [row for row in rows if isinstance(row.get("time"), float)]
    if not timed or max(row["time"] for row in timed) > since:  # this start waited for that end
        return since if timed else None
    began = max((row["time"] for row in timed if row.get("event") == "start"), default=0.0)
    try:
        told = float(os.environ.get(ENDED, ""))
    except ValueError:
        told = 0.0
    if began <= told <= since:  # otherwise it is about another run
        return told
    return max([row["time"] for row in timed] + [seen or 0.0][: (seen or 0.0) <= since])


def split(since: float, marks: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Returns the time from `since` to the last mark, by part and by bucket.

    Args:
      since: seconds since 1970.
      marks: (part, the time at which it ended), in order.

    Returns:
      `secs`, the whole; `parts`, [part, seconds] in order; `buckets`, bucket -> seconds. A clock
      that was set back meanwhile makes a part 0 s long, never negative.
    """
    parts, buckets, now = list[tuple[str, float]](), dict[str, float](), since
    for part, time_ in marks:
        secs = max(0.0, time_ - now)
        now = time_
        parts.append((part, secs))
        buckets[PARTS[part]] = buckets.get(PARTS[part], 0.0) + secs
    return {"secs": sum(secs for _, secs in parts), "parts": parts, "buckets": buckets}


def of_this_start(ended: float | None, since: float) -> dict[str, Any]:
    """Returns the split of this start until now, with `noticing` if an earlier start had ended.

    Args:
      ended: from `ended`.
      since: the time at which this start began.
    """
    noticing = [] if ended is None else [("noticing", since)]
    return split(since if ended is None else ended, [*noticing, *_passed])
