# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Kills a process of a run and measures the seconds to the first step that is new.

The run is on the CPU. It has the launcher of `launch local` above it, which starts it again. Each
kill follows a committed checkpoint; the compile cache is warm. The run splits the time itself
(`runtime/recovery.py`). Start from `measure`.
"""

import contextlib
import importlib.util
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vit_jax.config import recipes
from vit_jax.errors import RunFailed
from vit_jax.hardware import detect
from vit_jax.preflight.bench.interleaved import spread
from vit_jax.runtime import goodput, recovery
from vit_jax.storage import jsonl

ROUNDS = 3  # kills of each run
_MOST_SECS = 300  # from one event to the next
_END_SECS = 10  # for a launcher to end its processes, until it must kill them
_COMMON = [
    *("--config.platform=cpu", "--config.length=1000000 steps"),
    "--config.report.every=1 steps",
]
# The launcher gets a signal when this process is killed, and passes it on.
_LAUNCHER = """
import runpy, signal
from vit_jax.runtime import worker_process
worker_process.end_with_parent(signal.SIGTERM)
runpy.run_module({node!r}, run_name="__main__")
"""
_S16 = [
    *("--config.model.variant=S/16", "--config.model.width=0", "--config.model.depth=0"),
    *("--config.model.mlp=0", "--config.model.heads=0", "--config.data.image_size=224"),
    *("--config.data.train_ops=decode|resize({size})", "--config.batch_size=4"),
    "--config.checkpoint.every=2 steps",
]
_WITHOUT_TENSORFLOW = ["--config.data.reader=python", "--config.report.writers=()"]
# Name -> number of processes, overrides of the quickstart.
RUNS = {
    "quickstart": (1, ["--config.checkpoint.every=100 steps"]),
    "S/16, two processes": (2, _S16),
    "S/16, two processes, without TensorFlow": (2, _S16 + _WITHOUT_TENSORFLOW),
}


def measure(
    *, rounds: int = ROUNDS, progress: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, Any]:
    """Kills a process of each of `RUNS`, and measures until the run has done a new step.

    Args:
      rounds: kills of each run.
      progress: called with (kills done, kills in total).

    Returns:
      `device`; `load`, the mean number of runnable processes in the last minute, before and after;
      `rows`, each with `run`, `processes`, `secs` (`median` and `spread`, the interquartile range),
      and the medians of `parts` and `buckets` in seconds. A run that ended by itself or made no
      progress has `error`, the reason, in place of figures; the others still count.
    """
    before, rows = os.getloadavg()[0], []
    for place, (name, (count, own)) in enumerate(RUNS.items()):
        splits = []
        try:
            with (
                tempfile.TemporaryDirectory() as folder,
                _Launched(Path(folder), count, own) as run,
            ):
                for done in range(rounds):
                    splits.append(run.restart())
                    progress(place * rounds + done + 1, len(RUNS) * rounds)
            figures = _summary(splits)
        except RunFailed as e:
            figures = {"error": str(e)}
        rows.append({"run": name, "processes": count, **figures})
    load = {"before": before, "after": os.getloadavg()[0]}
    return {"device": detect.processor(), "load": load, "rows": rows}


def _summary(splits: list[dict[str, Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {"secs": spread([one["secs"] for one in splits])}
    for group, names in (("parts", recovery.PARTS), ("buckets", recovery.PARTS.values())):
        found = [dict[str, float]() for _ in splits]
        for one, sums in zip(splits, found, strict=True):
            pairs = one[group].items() if group == "buckets" else one[group]
            for name, secs in pairs:
                sums[name] = sums.get(name, 0.0) + secs
        summary[group] = {
            name: statistics.median(sums.get(name, 0.0) for sums in found)
            for name in dict.fromkeys(names)
        }
    return summary


class _Launched:
    """A run under the launcher, in a folder of its own."""

    def __init__(self, folder: Path, count: int, overrides: list[str]):
        self._workdir, self._count = folder / "run", count
        self._log = folder / "log.txt"
        arguments = ["train", "--config=vit_jax:quickstart", f"--workdir={self._workdir}"]
        arguments += [f"--config.compile_cache={folder / 'compiled'}", *_COMMON, *overrides]
        job = folder / "job.json"
        job.write_text(json.dumps({"arguments": arguments}), encoding="utf-8")
        launcher = _LAUNCHER.format(node=_node())
        self._words = ["-c", launcher, f"--count={count}", "--again", f"@{job}"]
        self._since = 0.0

    def __enter__(self) -> "_Launched":
        with open(self._log, "wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, *self._words], cwd=recipes.root(), stdin=subprocess.DEVNULL,
                stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        for stop in (self._process.terminate, self._process.terminate, self._process.kill):
            stop()  # the launcher passes the first signal on, and kills at the second
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_SECS)
                return

    def restart(self) -> dict[str, Any]:
        """Kills the last process right after a checkpoint; returns the split of the time."""
        self._await("save")
        killed = self._since = time.time()
        children = self._children()
        if not children:
            raise RunFailed("no process of the run to kill; bench restart needs Linux")
        os.kill(children[-1], signal.SIGKILL)
        row = self._await("new_step")
        secs = row["time"] - killed
        more = secs - row["secs"]  # until the launcher saw it
        part, noticing = row["parts"][0]
        bucket = recovery.PARTS[part]
        parts = [(part, noticing + more), *row["parts"][1:]]
        buckets = row["buckets"] | {bucket: row["buckets"][bucket] + more}
        return {"secs": secs, "parts": parts, "buckets": buckets}

    def _children(self) -> list[int]:
        """Returns the processes of the run by number."""
        pid = self._process.pid
        try:
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
        except OSError:  # it has ended
            return []
        return [int(word) for word in text.split()]

    def _await(self, event: str) -> dict[str, Any]:
        """Returns the next row of an event, later than the last one."""
        end = time.monotonic() + _MOST_SECS
        while time.monotonic() < end and self._process.poll() is None:
            for row in jsonl.read_rows(self._workdir / goodput.FILE):
                if row["event"] == event and row["time"] > self._since:
                    self._since = row["time"]
                    return row
            time.sleep(0.02)
        code = self._process.poll()
        how = f"in {_MOST_SECS} s" if code is None else f"until its launcher ended with code {code}"
        said = self._log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RunFailed(
            f"the run came to no {event} {how}; measure again when the machine has less other "
            f"work. Its log ends with:\n{said}"
        )


def _node() -> str:
    """Returns the module of the launcher; a wheel has it inside this package."""
    inside = importlib.util.find_spec("vit_jax.launch")
    return "vit_jax.launch.node" if inside else "launch.node"


def text(found: dict[str, Any]) -> str:
    """Returns a table for people."""
    load = found["load"]
    lines = [f"{found['device']}, load {load['before']:.1f} to {load['after']:.1f}"]
    for row in found["rows"]:
        if "error" in row:
            lines += ["", f"{row['run']}: not measured: {row['error']}"]
            continue
        secs = row["secs"]
        lines += ["", f"{row['run']}: {secs['median']:.1f} s (+-{secs['spread'] / 2:.1f})"]
        for part, value in row["parts"].items():
            lines.append(f"{part:>15} {value:6.2f} s   {recovery.PARTS[part]}")
    return "\n".join(lines)
