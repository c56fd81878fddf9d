# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a person sees of a run: metrics.jsonl, TensorBoard, the progress line, tables.

Metric names are paths: `train/loss|top1|lr|skipped_updates`, `norm/grads|params|updates`,
`perf/img_per_sec|input_wait|mfu`, `memory/host|host_free|device|device_peak` + `_bytes`,
`data/bad_images`, `<split>/top1|top5|loss|examples`. A row at step n describes the
n-th update (`train/loss`: its loss, before the update) or the parameters after it (`<split>/...`).
The only user of clu.metric_writers. Start from `Report`.
"""

import contextlib
import functools
import json
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from vit_jax import checks, console, storage, tree
from vit_jax import rows as rows_lib
from vit_jax.errors import BadInput

RESULTS_FILE = "results.json"
_SKIPPED_FILE = "skipped-{}.json"  # of a process
ESTIMATE_STEPS = 10  # after which the time of a run is estimated, the first of them left out
_BAR_SECS = 0.5  # between two pictures of a progress bar
log = logging.getLogger("vit_jax")


@contextlib.contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function (done, total) that shows progress on a terminal, and elsewhere nothing."""
    began = due = time.monotonic()
    shown = sys.stderr.isatty()
    if shown:  # the first picture may be long in coming: a compilation
        console.show(f"\r\x1b[K{what}: ...", end="")

    def progress(done: int, total: int) -> None:
        nonlocal due, shown
        now = time.monotonic()
        if now < due or not sys.stderr.isatty():
            return
        rate = done / max(now - began, 1e-9)
        left = f", {(total - done) / rate:.0f} s left" if done else ""
        text = f"{what}: {done:,} of {total:,} ({done / max(total, 1):.0%}), {rate:,.0f}/s{left}"
        console.show(f"\r\x1b[K{text}", end="")
        due, shown = now + _BAR_SECS, True

    try:
        yield progress
    finally:
        if shown:
            console.show("\r\x1b[K", end="")


def read_skipped(workdir: Path) -> set[tuple[str, str]]:
    """(file, reason) of the training images that any start of a run has skipped so far."""
    before, _, after = _SKIPPED_FILE.partition("{}")
    files = [
        p for p in storage.listed(workdir) if p.name.startswith(before) and p.name.endswith(after)
    ]
    texts = storage.read_all(files)
    return set().union(*(_pairs(path, text) for path, text in zip(files, texts, strict=True)))


def _pairs(path: Path, text: bytes) -> set[tuple[str, str]]:
    """What a file of skipped images says; nothing if it is damaged."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, list) and all(
            isinstance(pair, list) and [type(part) for part in pair] == [str, str] for pair in found
        ):
            return {(file, reason) for file, reason in found}
    _damaged(path)
    return set()


@functools.cache  # a file is read for every row, and once is enough
def _damaged(path: Path) -> None:
    log.warning("%s is damaged: what it said of skipped images is lost", path)


class Report:
    """The metrics of one run, and the training images that it skipped.

    Args:
      workdir: exists.
      step: where the run starts or continues; rows of later steps are cut off.
      tensorboard: whether to write event files too.
      write: False keeps rows in memory alone and shows nothing: one process of a run writes.
    """

    def __init__(self, workdir: Path, *, step: int, tensorboard: bool, write: bool = True):
        remote = storage.is_remote(workdir)
        metrics = workdir / rows_lib.METRICS_FILE
        try:
            self._rows = rows_lib.read_rows(metrics, step)
        except OSError as e:
            raise BadInput(
                f"cannot read {rows_lib.place(metrics)}: {e.strerror}. Make it readable, or move "
                "it away: the run then goes on with new metrics from its checkpoint on."
            ) from e
        self._file = rows_lib.cut(metrics, step) if write else None
        self._workdir = workdir
        self._skipped: set[tuple[str, str]] = set()
        self._quiet = not write
        self._writer = None
        if tensorboard and write and remote:
            log.info("report: no TensorBoard files, which are appended to; the metrics are in %s",
                     rows_lib.place(metrics))  # fmt: skip
        elif tensorboard and write:
            from clu import metric_writers  # imports TensorFlow and tensorboard

            place: Any = os.fsencode(workdir)  # TensorFlow takes no name that is not UTF-8 as text
            self._writer = metric_writers.AsyncWriter(metric_writers.SummaryWriter(place))
        self._line_open = False

    def row(self, step: int, values: Mapping[str, float | int]) -> None:
        """Writes one row; every value is finite."""
        row = {"step": step, **values}
        self._rows.append(row)
        if self._file:
            self._file.add(row)
        if self._writer:
            self._writer.write_scalars(step, dict(values))

    def at(self, step: int) -> dict[str, Any]:
        """All metrics that were written for a step."""
        return {k: v for row in self._rows if row["step"] == step for k, v in row.items()}

    def skipped(self, found: Iterable[tuple[str, str]]) -> None:
        """Keeps (file, reason) of what this process has skipped; called before a checkpoint.

        A process has a file of its own: storage that hosts share cannot be appended to by several.
        """
        if set(found) - self._skipped:
            path = self._workdir / _SKIPPED_FILE.format(jax.process_index())
            before = _pairs(path, path.read_bytes()) if path.exists() else set()
            self._skipped = before.union(found)
            storage.write(path, json.dumps(sorted(self._skipped)) + "\n")

    def bad_images(self) -> int:
        """How many training images any process of any start has skipped and written down."""
        return len(read_skipped(self._workdir))

    def sync(self) -> None:
        """Rows written so far survive a crash; called before a checkpoint of the same step."""
        if self._file:
            self._file.sync()

    def progress(self, text: str, *, passing: bool = False) -> None:
        """A line that replaces itself on a terminal; elsewhere a plain line, or none if passing."""
        if self._quiet:
            return
        if sys.stderr.isatty():
            console.show(f"\r\x1b[K{text}", end="")
            self._line_open = True
        elif not passing:
            console.show(text)

    def end_line(self) -> None:
        """Leaves the progress line as it stands, so that other text can follow."""
        if self._line_open:
            console.show()
            self._line_open = False

    def close(self) -> None:
        """Flushes everything."""
        self.end_line()
        if self._writer:
            self._writer.close()
        if self._file:
            self._file.close()


class Throughput:
    """Images per second and the share of time spent waiting for images, without the pauses."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._start = clock()
        self._paused = self._waited = self._paused_before = 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Time that does not count (evaluation, saving)."""
        start = self._clock()
        yield
        self._paused += self._clock() - start

    @contextlib.contextmanager
    def wait(self) -> Iterator[None]:
        """Time spent waiting for the next batch."""
        start = self._clock()
        yield
        self._waited += self._clock() - start

    def measure(self, images: int) -> dict[str, float]:
        """`perf/img_per_sec` and `perf/input_wait` since the last call, with `images` seen."""
        now = self._clock()
        elapsed = max(now - self._start - self._paused, 1e-9)
        measured = {
            "perf/img_per_sec": images / elapsed,
            "perf/input_wait": min(1.0, self._waited / elapsed),
        }
        self._paused_before += self._paused
        self._start, self._paused, self._waited = now, 0.0, 0.0
        return measured

    def training(self) -> float:
        """Seconds on the clock without any pause so far; differences count."""
        return self._clock() - self._paused_before - self._paused


class Profile:
    """A profiler trace of some steps, also of a run that is continued in the middle of them.

    Args:
      steps: first to last; empty traces nothing.
      folder: where the trace is written.
    """

    def __init__(self, steps: range, folder: Path):
        if steps and storage.is_remote(folder):
            log.info("profile: not traced: a trace needs a --workdir on a disk")
            steps = range(0)
        self._steps, self._folder = steps, folder
        self._tracing = False

    def before(self, step: int) -> None:
        """Called before a step is dispatched."""
        if self._steps and not self._tracing and self._steps.start <= step <= self._steps.stop:
            jax.profiler.start_trace(str(self._folder))
            self._tracing = True

    def after(self, step: int, outputs: Any) -> None:
        """Called after a step was dispatched; waits for its outputs where the trace ends."""
        if self._tracing and step >= self._steps.stop:
            jax.block_until_ready(outputs)
            self.close()

    def close(self) -> None:
        """Ends the trace."""
        if self._tracing:
            jax.profiler.stop_trace()
            self._tracing = False


def progress_line(step: int, total: int, row: Mapping[str, float], *, left_images: int) -> str:
    """`step 50/900  loss 0.812  lr 1.0e-03  3210 img/s  wait 1%  ETA 0:42`."""
    loss = f"loss {row['train/loss']:.4f}" if "train/loss" in row else "loss not finite"
    parts = [f"step {step}/{total}", loss, f"lr {row['train/lr']:.2e}"]
    parts += [f"{row['perf/img_per_sec']:.0f} img/s", f"wait {row['perf/input_wait']:.0%}"]
    if "perf/mfu" in row:
        parts.append(f"MFU {row['perf/mfu']:.1%}")
    return "  ".join([*parts, f"ETA {duration(left_images / row['perf/img_per_sec'])}"])


def estimate_line(steps: int, rate: float, batch_size: int) -> str:
    """`about 12 min for 540 steps at 48 img/s, without evaluations and saving`.

    Args:
      steps: to train.
      rate: steps a second.
      batch_size: images in a step.
    """
    secs = steps / rate
    units = ((3600, "h"), (60, "min"), (1, "s"))
    size, unit = next((pair for pair in units if secs >= 2 * pair[0]), units[-1])
    amount = f"{secs / size:.1f}" if unit == "h" else f"{max(secs / size, 1):.0f}"
    return (
        f"about {amount} {unit} for {steps:,} steps at {rate * batch_size:,.0f} img/s, without "
        "evaluations and saving"
    )


def duration(secs: float) -> str:
    """`1:02:03`, `4:05`."""
    minutes, seconds = divmod(round(secs), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns of text, the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [header, *rows]) for i in range(len(header))]
    align = [str.ljust] + [str.rjust] * (len(header) - 1)
    lines = [
        "  ".join(a(c, w) for a, c, w in zip(align, line, widths, strict=True)).rstrip()
        for line in [header, ["-" * w for w in widths], *rows]
    ]
    return "\n".join(lines)


def parameter_table(params: Any) -> str:
    """Path, shape and size of every parameter, with the total."""
    rows = [
        [path, "x".join(map(str, leaf.shape)), f"{math.prod(leaf.shape):,}"]
        for path, leaf in tree.leaves_with_paths(params)
    ]
    return table(["parameter", "shape", "size"], [*rows, ["total", "", f"{tree.size(params):,}"]])


def evaluation_line(names: Iterable[str], measured: Mapping[str, float | int]) -> str:
    """`val top-1 93.10% loss 0.2110  fewshot_pets 1shot 40.00% 5shot 71.00%`."""
    parts = []
    for name in names:
        if f"{name}/top1" in measured:
            top1, loss = measured[f"{name}/top1"], measured[f"{name}/loss"]
            inside = {k: v for k, v in measured.items() if k.startswith(f"{name}/")}
            inside = {k.removeprefix(f"{name}/"): v for k, v in inside.items()}
            more = "".join(f" {k} {v:.4f}" for k, v in _own(inside).items())
            parts.append(f"{name} top-1 {top1:.2%} loss {loss:.4f}{more}")
        else:
            own = {k.removeprefix(f"{name}/"): v for k, v in measured.items()}
            shots = [f" {k} {v:.2%}" for k, v in own.items() if k.endswith("shot")]
            parts.append(name + "".join(shots))
    return "  ".join(parts)


def _own(measured: Mapping[str, float | int]) -> dict[str, float | int]:
    """Of the metrics of one evaluation, those of a user's own evaluator."""
    return {k: v for k, v in measured.items() if not checks.MEASURED.fullmatch(k)}


def results_table(results: Mapping[str, Any]) -> str:
    """One line for each split, with ImageNet-C's mCE where there is one; then few-shot tasks."""
    found = {name: m for name, m in results.items() if isinstance(m, dict)}
    splits = {name: m for name, m in found.items() if "top1" in m}
    rows = [
        [split, f"{m['top1']:.2%}", f"{m['top5']:.2%}", f"{m['loss']:.4f}", f"{m['examples']:,}"]
        for split, m in splits.items()
    ]
    header = ["split", "top-1", "top-5", "loss", "examples"]
    if any("mce" in m for m in splits.values()):
        header.append("mCE")
        for row, m in zip(rows, splits.values(), strict=True):
            row.append(f"{m['mce']:.2%}" if "mce" in m else "")
    for key in dict.fromkeys(key for m in splits.values() for key in _own(m)):
        header.append(key)
        for row, m in zip(rows, splits.values(), strict=True):
            row.append(f"{m[key]:.4f}" if key in m else "")
    tables = [table(header, rows)]
    few = {name: m for name, m in found.items() if "top1" not in m}
    if few:
        rows = [
            [name, *(f"{v:.2%}" if k.endswith("shot") else f"{v:,}" for k, v in m.items())]
            for name, m in few.items()
        ]
        tables.append(table(["few-shot", *next(iter(few.values()))], rows))
    return "\n\n".join(tables)


def verdict(results: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Measured against what the recipe expects, in one line; empty if it expects nothing."""
    split, _, name = str(expected["metric"]).partition("/")
    measured = results.get(split, {}).get(name) if expected["metric"] else None
    if measured is None:
        return ""
    gap = measured - expected["value"]
    place = "within" if abs(gap) <= expected["tolerance"] else ("ABOVE" if gap > 0 else "BELOW")
    return (
        f"{expected['metric']}: measured {measured:.4f}, expected {expected['value']:.4f} +- "
        f"{expected['tolerance']:.4f} ({expected['source']}; {expected['hardware']}): "
        f"{gap:+.4f}, {place} the tolerance"
    )


def device_summary(devices: list[Any]) -> str:
    """`8 x TPU v4 (tpu), 2 processes`."""
    kinds = {d.device_kind for d in devices}
    processes = jax.process_count()
    return (
        f"{len(devices)} x {', '.join(sorted(kinds))} ({devices[0].platform}), "
        f"{processes} process{'es' if processes > 1 else ''}, jax {jax.__version__}"
    )
