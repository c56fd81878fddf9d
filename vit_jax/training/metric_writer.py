# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Shows and records a run: first log lines, metrics.jsonl, writers and the progress line.

Metric names are paths: `train/loss|top1|lr|skipped_updates`, `norm/grads|params|updates`,
`perf/img_per_sec|input_wait|mfu|passes`, `memory/host|host_free|device|device_peak` + `_bytes`,
`data/bad_images`, `<split>/top1|top5|loss|examples`. A row at step n describes the
n-th update (`train/loss`: its loss, before the update) or the parameters after it (`<split>/...`).
This module is the only user of clu.metric_writers. `report.writers` names the writers, which get
every row after metrics.jsonl (docs/writers.md). Start from `Report`.
"""

import contextlib
import importlib
import importlib.util
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax

from vit_jax import console, tree
from vit_jax.build import defaults
from vit_jax.config import images as images_lib
from vit_jax.config import plugins, provenance, sections
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.reports import summary
from vit_jax.storage import files as storage
from vit_jax.storage import jsonl

if TYPE_CHECKING:
    from vit_jax.build import run as build

ESTIMATE_STEPS = 10  # after them the run time is estimated; the first step is not counted
PROFILE_FOLDER = "profile"
EVENT_FILES = "events.out.tfevents.*"  # files of TensorBoard
OF_WRITERS = ("wandb", "wandb_run.txt", "mlflow_run.txt")  # files of the other writers
log = logging.getLogger("vit_jax")
# Name -> a function (workdir, config) -> Writer; the packages behind them are optional.
WRITERS = plugins.Registry(
    {
        "tensorboard": "vit_jax.training.metric_writer:TensorBoard",
        "wandb": "vit_jax.training.wandb_writer:WeightsAndBiases",
        "mlflow": "vit_jax.training.mlflow_writer:MLflow",
    }
)
_PACKAGES = {"tensorboard": "clu", "wandb": "wandb", "mlflow": "mlflow"}
WAITING_ROWS = 10_000  # that a writer may leave unwritten
CLOSE_SECS = 30.0  # that a run waits at its end for each writer


class Writer(Protocol):
    """Sends rows of metrics elsewhere. All calls come from one thread of its own.

    It is made by a call with the workdir and the configuration, dotted key -> value.
    """

    def write(self, step: int, values: Mapping[str, float | int]) -> None:
        """Writes the metrics of a step; a step may come several times, with other metrics."""

    def close(self, failed: bool) -> None:
        """Flushes and closes; called once, after the last row, also of a run that did not end."""


def check_writers(names: Iterable[str]) -> None:
    """Checks that the named writers can be had, without importing the packages of `WRITERS`.

    Raises:
      BadInput: a module or package is missing, or a user's writer takes other arguments.
    """
    for name in names:
        if plugins.is_own(name):
            _own_writer(name)
        elif importlib.util.find_spec(package := _PACKAGES[name]) is None:
            raise BadInput(
                f"report.writers={name!r}: {package} is not installed; install it with "
                f"`pip install 'vit_jax[{name}]'`, or leave the writer out."
            )


def _own_writer(name: str) -> Callable[..., Writer]:
    return plugins.find(f"report.writers={name!r}", name, Path(), {})


class TensorBoard:
    """Writes event files into the workdir."""

    def __init__(self, workdir: Path, config: Mapping[str, Any]):
        from clu import metric_writers

        place: Any = os.fsencode(workdir)  # as text, TensorFlow accepts only names in UTF-8
        self._writer = metric_writers.SummaryWriter(place)

    def write(self, step: int, values: Mapping[str, float | int]) -> None:
        self._writer.write_scalars(step, dict(values))

    def close(self, failed: bool) -> None:
        self._writer.close()


class _Background:
    """Runs a writer in a thread, so that its failure or delay never stops a run.

    After the first exception the log says so, and the writer gets no more rows. The same holds for
    a writer that leaves too many rows, or its close, undone.

    Args:
      name: a name that `check_writers` accepts.
      workdir: as for `Writer`.
      config: as for `Writer`.
    """

    def __init__(self, name: str, workdir: Path, config: Mapping[str, Any]):
        self._name, self._arguments = name, (workdir, dict(config))
        self._rows: queue.Queue[tuple[int, dict[str, float | int]] | None] = queue.Queue()
        self._lock, self._failed, self._run_failed = threading.Lock(), False, False
        with self._surviving():  # here, because imports by two threads can wait for each other
            if name == "tensorboard" and importlib.util.find_spec("tensorflow") is None:
                self._give_up("needs TensorFlow: pip install 'vit_jax[tf]'")
            elif name == "tensorboard":
                importlib.import_module("clu.metric_writers")  # 30 s on a cold disk
            self._make = _own_writer(name) if plugins.is_own(name) else WRITERS[name]
        self._thread = threading.Thread(target=self._work, name=f"writer {name}", daemon=True)
        self._thread.start()

    def write(self, step: int, values: Mapping[str, float | int]) -> None:
        """Hands a row to the thread."""
        if self._rows.qsize() >= WAITING_ROWS:
            self._give_up(f"does not answer, and {WAITING_ROWS:,} rows wait for it")
        if not self._failed:
            self._rows.put((step, dict(values)))

    def close(self, failed: bool) -> None:
        """Waits until all rows are written and the writer is closed, but not for ever."""
        self._run_failed = failed
        self._rows.put(None)
        self._thread.join(1.0 if self._failed else CLOSE_SECS)
        if self._thread.is_alive():
            self._give_up(f"did not finish within {CLOSE_SECS:g} s")
            from vit_jax.runtime import process_exit

            if process_exit.is_command:
                process_exit.do_not_wait_for(self._thread)

    def _work(self) -> None:
        if self._failed:
            return
        with self._surviving():
            writer = self._make(*self._arguments)
            while (row := self._rows.get()) is not None and not self._failed:
                writer.write(*row)
            writer.close(self._run_failed)

    @contextlib.contextmanager
    def _surviving(self) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as e:  # packages and users' writers may raise anything
            self._give_up(f"failed: {type(e).__name__}: {' '.join(str(e).split())[:300]}")

    def _give_up(self, problem: str) -> None:
        with self._lock:
            if self._failed:
                return
            self._failed = True
        log.warning("report: the writer %s %s. The run goes on without it; metrics.jsonl has all "
                    "rows.", self._name, problem)  # fmt: skip


class Report:
    """The metrics of one run, and the training images that it skipped.

    Args:
      workdir: an existing folder.
      step: the step at which the run starts or continues; rows of later steps are cut off.
      writers: names of `WRITERS`, or MODULE:NAME, that get the rows too.
      config: the configuration for the writers, dotted key -> value.
      write: False only keeps the rows of this start in memory: one process of a run reads and
        writes the file, which in a bucket is an object for each row.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        step: int,
        writers: Iterable[str] = (),
        config: Mapping[str, Any] | None = None,
        write: bool = True,
    ):
        metrics = workdir / jsonl.METRICS_FILE
        try:
            rows = jsonl.read_rows(metrics) if write else []
        except OSError as e:
            raise BadInput(
                f"cannot read {jsonl.rows_path(metrics)}: {e.strerror}. Make it readable, or move "
                "it away: the run then goes on with new metrics from its checkpoint on."
            ) from e
        self._rows = [row for row in rows if row["step"] <= step]
        self._file = jsonl.open_for_append(metrics, step) if write else None
        self._workdir = workdir
        self._skipped: set[tuple[str, str]] = set()
        self._quiet = not write
        names = list(writers) if write else []
        if "tensorboard" in names and storage.is_remote(workdir):
            names.remove("tensorboard")
            log.info("report: a bucket gets no TensorBoard files; the metrics are in %s",
                     jsonl.rows_path(metrics))  # fmt: skip
        self._writers = [_Background(name, workdir, config or {}) for name in names]
        self._line_open = False

    def row(self, step: int, values: Mapping[str, float | int]) -> None:
        """Writes one row; every value must be finite."""
        row = {"step": step, **values}
        self._rows.append(row)
        if self._file:
            self._file.add(row)
        for writer in self._writers:
            writer.write(step, values)

    def at(self, step: int) -> dict[str, Any]:
        """Returns all metrics that were written for a step; all starts' only with `write`."""
        return {k: v for row in self._rows if row["step"] == step for k, v in row.items()}

    def skipped(self, images: Iterable[tuple[str, str]]) -> None:
        """Records (file, reason) of each image that this process skipped, before a checkpoint.

        Each process has its own file: several hosts cannot append to one file on shared storage.
        """
        if set(images) - self._skipped:
            from vit_jax.data.pipeline import skipped_images

            path = self._workdir / skipped_images.SKIPPED_FILE.format(jax.process_index())
            before = skipped_images.pairs(path, path.read_bytes()) if path.exists() else set()
            self._skipped = before.union(images)
            storage.write(path, json.dumps(sorted(self._skipped)) + "\n")

    def bad_images(self) -> int:
        """Returns how many training images were recorded as skipped, by any process and start."""
        from vit_jax.data.pipeline import skipped_images

        return len(skipped_images.read_skipped(self._workdir))

    def sync(self) -> None:
        """Makes the rows written so far survive a crash; called before a checkpoint of the step."""
        if self._file:
            self._file.sync()

    def progress(self, text: str, *, passing: bool = False) -> None:
        """Shows a line that replaces itself on a terminal.

        Elsewhere it shows a plain line, or nothing if `passing` is True.
        """
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

    def close(self, failed: bool = False) -> None:
        """Flushes and closes all outputs; `failed` tells writers that the run did not end."""
        self.end_line()
        if self._file:
            self._file.close()
        for writer in self._writers:
            writer.close(failed)


class Throughput:
    """Images per second and the share of time spent waiting for images, without the pauses."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._start = clock()
        self._paused = self._waited = self._paused_before = 0.0

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Excludes the time of the block (evaluation, saving) from the rates."""
        start = self._clock()
        yield
        self._paused += self._clock() - start

    @contextlib.contextmanager
    def wait(self, busy: Callable[[], bool]) -> Iterator[None]:
        """Counts the block as waiting for images, up to a step too much, unless it ends `busy`."""
        start = self._clock()
        yield
        self._waited += 0.0 if busy() else self._clock() - start

    def measure(self, images: int) -> dict[str, float]:
        """Returns `perf/img_per_sec` and `perf/input_wait` since the last call, for `images`."""
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
        """Returns clock seconds without the pauses so far; only differences are meaningful."""
        return self._clock() - self._paused_before - self._paused


class Profile:
    """A profiler trace of some steps, also of a run that is resumed in the middle of them.

    Args:
      steps: the first to the last step; an empty range traces nothing.
      folder: the folder into which the trace is written.
    """

    def __init__(self, steps: range, folder: Path):
        if steps and storage.is_remote(folder):
            log.info("profile: not traced: a trace needs a --workdir on a disk")
            steps = range(0)
        self._steps, self._folder = steps, folder
        self._tracing = False

    def before(self, step: int) -> None:
        """Starts the trace if it covers `step`; called before a step is dispatched."""
        if self._steps and not self._tracing and self._steps.start <= step <= self._steps.stop:
            jax.profiler.start_trace(str(self._folder))
            self._tracing = True

    def after(self, step: int, outputs: Any) -> None:
        """Ends the trace after its last step, once the outputs are ready."""
        if self._tracing and step >= self._steps.stop:
            jax.block_until_ready(outputs)
            self.close()

    def close(self) -> None:
        """Ends the trace."""
        if self._tracing:
            jax.profiler.stop_trace()
            self._tracing = False


def progress_line(
    step: int,
    total: int,
    row: Mapping[str, float],
    *,
    left_images: int,
    shown: Iterable[str] = (),
) -> str:
    """Returns e.g. `step 50/900  loss 0.812  lr 1.0e-03  3210 img/s  wait 1%  ETA 0:42`.

    The metrics `shown`, of the objective, stand after the loss.
    """
    loss = f"loss {row['train/loss']:.4f}" if "train/loss" in row else "loss not finite"
    parts = [f"step {step}/{total}", loss]
    parts += [f"{name} {row[f'train/{name}']:.3f}" for name in shown if f"train/{name}" in row]
    parts.append(f"lr {row['train/lr']:.2e}")
    parts += [f"{row['perf/img_per_sec']:.0f} img/s", f"wait {row['perf/input_wait']:.0%}"]
    if "perf/mfu" in row:
        parts.append(f"MFU {row['perf/mfu']:.1%}")
    return "  ".join([*parts, f"ETA {console.duration(left_images / row['perf/img_per_sec'])}"])


def estimate_line(steps: int, rate: float, batch_size: int) -> str:
    """Returns e.g. `about 12 min for 540 steps at 48 img/s, without evaluations and saving`.

    Args:
      steps: steps to train.
      rate: steps per second.
      batch_size: images per step.
    """
    secs = steps / rate
    units = ((3600, "h"), (60, "min"), (1, "s"))
    size, unit = next((pair for pair in units if secs >= 2 * pair[0]), units[-1])
    amount = f"{secs / size:.1f}" if unit == "h" else f"{max(secs / size, 1):.0f}"
    return (
        f"about {amount} {unit} for {steps:,} steps at {rate * batch_size:,.0f} img/s, without "
        "evaluations and saving"
    )


# ---------------------------------------------------------------- before the first step


def describe(run: "build.Run", devices: list[Any]) -> None:
    """Logs the facts that usually explain a wrong result: devices, data, batch, model and cost."""
    config, source, program = run.config, run.source, run.program
    cfg, steps, mesh = program.model.cfg, program.steps, program.rules.mesh
    counts = ", ".join(f"{name} {len(split):,}" for name, split in source.splits.items())
    log.info("devices: %s", summary.device_summary(devices))
    log.info("mesh: %s", ", ".join(f"{axis}={n}" for axis, n in mesh.shape.items()))
    log.info("data: %s, %d classes; %s", source.spec, len(source.classes), counts)
    for note in source.notes:
        log.info("data: %s", note)
    for name, task in run.tasks.items():
        log.info("%s: %s; %d images scored", name, task.source, len(task.test))
        for note in task.notes:
            log.info("%s: %s", name, note)
    images, ways = program.images, program.rules.batch_parts
    rows, columns, channels = images.shape
    more = f", {channels} channels" if channels != 3 else ""
    log.info("images: %d x %d%s, mean %s, std %s", rows, columns, more, images.mean, images.std)
    log.info("train: %s on %s", config.data.train_ops, config.data.split)
    log.info("evaluation: %s", config.data.eval_ops)
    log.info("batch: %d = %d devices x %d images, in %d micro-batches", config.batch_size,
             ways, config.batch_size // ways, config.accumulation)  # fmt: skip
    log.info("length: %d steps, %.1f epochs", steps.total, steps.total / steps.epoch)
    log.info("model: %s\n%s", cfg, summary.parameter_table(program.whole_params))
    if program.selection is not None:
        trained, every = (tree.size(x) for x in (program.abstract.params, program.whole_params))
        log.info("trainable: %s: %d of %d parameters", config.trainable, trained, every)
    log.info(
        "cost: %.4g GFLOPs per image, forward", variants.forward_flops(cfg, *images.shape) / 1e9
    )


def advise(config: sections.Config, recipe: provenance.Recipe | None, steps: int) -> None:
    """Logs that published weights would help, if the recipe leaves the model to an empty `init`.

    Args:
      config: the resolved configuration.
      recipe: the recipe of the run, if it has one.
      steps: the number of steps of the whole run.
    """
    later = f"; an estimate of the time follows after {ESTIMATE_STEPS} steps"
    estimate = later if steps > ESTIMATE_STEPS else ""
    if recipe and recipe.values["model.variant"] == "auto" and defaults.is_scratch(config):
        log.info(
            "no --config.init: %s at %s px is trained from scratch; published weights usually "
            "reach more with few images, e.g. --config.init=imagenet21k/ViT-B_16.npz (see "
            "`vit_jax models`)%s",
            config.model.variant, images_lib.text(images_lib.of(config.data).size), estimate,
        )  # fmt: skip
