# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Keeps the metrics of the last steps on the device, and reads and checks them late.

They are checked before any evaluation or checkpoint builds on those steps. The train loop adds
every step; rows are written for the steps that the config asks for. Start from `Window`.
"""

import logging
import math
from typing import Any

import jax

from vit_jax.build import run as build
from vit_jax.errors import RunFailed
from vit_jax.reports import summary
from vit_jax.runtime import coordination
from vit_jax.step.train_step import non_finite
from vit_jax.training import metric_writer
from vit_jax.training.metric_writer import Report, Throughput

_MOST_WAITING = 1000  # steps after which a loss is checked, however long a window is
_NAMES = {  # after the metrics of the objective: the first that is not finite is the one reported
    "grad_norm": "norm/grads", "update_norm": "norm/updates", "param_norm": "norm/params",
    "skipped": "train/skipped_updates", "passes": "perf/passes",
}  # fmt: skip
_SKIPPABLE, _SKIPPED = ("train/loss", "norm/grads"), "train/skipped_updates"
log = logging.getLogger("vit_jax")


class Window:
    """Metrics of the last steps, which stay on the device until they are needed.

    Args:
      run: the run.
      report: gets the rows.
      throughput: measures the rates.
      first: the step at which the run starts or continues.
      last_good: the step of its newest checkpoint.
    """

    def __init__(
        self, run: build.Run, report: Report, throughput: Throughput, first: int, last_good: int
    ):
        self._run, self._report, self._throughput = run, report, throughput
        self._waiting: list[tuple[int, dict[str, jax.Array], bool]] = []  # (step, metrics, a row?)
        self.last_good = last_good  # step of the newest checkpoint in the workdir
        self._measured = first  # step of the last row
        self._first, self._began = first, 0.0  # first step, and the time at which it was done
        self._warned = False  # of a collapse
        program = run.program
        self._names = {name: f"train/{name}" for name in program.objective.METRICS} | _NAMES
        self._steps, self._schedule = program.steps, program.schedule
        self._step_flops = program.step_flops
        self._mesh = program.rules.mesh
        self._peak_flops = _peak_flops(self._mesh.devices.flat[0])

    def add(self, step: int, metrics: dict[str, jax.Array]) -> None:
        """Adds the metrics of a step; the first step after a window fetches that window.

        So the device already works on the newer step while the host reads. The time at which a
        window is read is then the time at which its last step was done.
        """
        ended = bool(self._waiting) and self._waiting[-1][2]
        if ended or len(self._waiting) >= _MOST_WAITING:
            self.flush()
        due = step % self._steps.report == 0 or step in (1, self._steps.total)
        self._waiting.append((step, metrics, due))
        self._estimate(step, metrics)

    def busy(self) -> bool:
        """Returns True while devices compute the newest step, as far as this process knows."""
        newest = self._waiting[-1][1]["grad_norm"] if self._waiting else None
        return newest is not None and not newest.is_ready()  # type: ignore[attr-defined]

    def flush(self) -> None:
        """Fetches and checks all waiting metrics, before anything is built on these steps."""
        ready, self._waiting = self._waiting, []
        self._report.skipped(self._run.train_pipeline.skipped)
        fetched = jax.device_get([metrics for _, metrics, _ in ready])
        newest = max((step for step, _, due in ready if due), default=None)
        rates = self._measure(newest)
        health = {} if newest is None else self._health()
        for (step, _, due), values in zip(ready, fetched, strict=True):
            named = {new: values[old].item() for old, new in self._names.items() if old in values}
            row = self._checked(step, named)
            if due:
                updates = step - int(row.get(_SKIPPED, 0))  # applied so far, this step included
                row |= {"train/lr": float(self._schedule(max(updates - 1, 0))), **rates}
                self._report.row(step, row | health)
                self._show(step, row)

    def _estimate(self, step: int, metrics: dict[str, jax.Array]) -> None:
        """Shows once how long the run will take, measured from the second step on."""
        done, total = step - self._first, self._steps.total
        if done == 1:  # the train loop has waited for this step
            self._began = self._throughput.training()
        if done != metric_writer.ESTIMATE_STEPS or step == total:
            return
        jax.block_until_ready(metrics)
        rate = (done - 1) / max(self._throughput.training() - self._began, 1e-9)
        line = metric_writer.estimate_line(total - self._first, rate, self._run.config.batch_size)
        self._report.progress(line)
        self._report.end_line()

    def _checked(self, step: int, row: dict[str, float]) -> dict[str, float]:
        """Returns the row of a step; the row of a skipped step lacks values that are not finite.

        Raises:
          RunFailed: a metric is not finite, and this step may not be skipped.
        """
        bad = non_finite(row)
        if bad is None:
            return row
        skipped, most = int(row.get(_SKIPPED, 0)), self._run.config.skip_non_finite
        if bad in _SKIPPABLE and skipped <= most and skipped:
            log.warning("step %d: %s is %s; update skipped, %d of at most %d",
                        step, bad, row[bad], skipped, most)  # fmt: skip
            return {name: value for name, value in row.items() if math.isfinite(value)}
        kept = f"step {self.last_good}" if self.last_good else "none was saved before it"
        enough = f", as many updates as skip_non_finite={most} were skipped" if most else ""
        raise RunFailed(
            f"{bad} is {row[bad]} at step {step}; stopped{enough}. Last good checkpoint: {kept}. "
            "A lower learning rate, a longer warm-up or clipping usually helps."
        )

    def _show(self, step: int, row: dict[str, float]) -> None:
        total = self._steps.total
        left = (total - step) * self._run.config.batch_size
        shown = self._run.program.objective.SHOWN
        line = metric_writer.progress_line(step, total, row, left_images=left, shown=shown)
        self._report.progress(line)
        warning = "" if self._warned else summary.collapse([(step, row)], total)
        if warning:
            self._warned = True
            self._report.end_line()
            log.warning("%s", warning)

    def _health(self) -> dict[str, int]:
        """Returns memory figures of this process and its devices, and skipped images so far."""
        from vit_jax.hardware import device_memory, host_memory

        devices = self._mesh.local_devices
        figures = {
            "memory/host_bytes": host_memory.used_bytes(),
            "memory/host_free_bytes": host_memory.available_bytes(),
            "memory/device_bytes": device_memory.most(devices, "bytes_in_use"),
            "memory/device_peak_bytes": device_memory.most(devices, "peak_bytes_in_use"),
        }
        if self._run.config.data.bad_images == "skip" and coordination.is_first():
            figures["data/bad_images"] = self._report.bad_images()
        return {name: value for name, value in figures.items() if value is not None}

    def _measure(self, step: int | None) -> dict[str, float]:
        """Returns the rates of the steps just fetched, up to `step`: these are really done."""
        if step is None:
            return {}
        measured = self._throughput.measure((step - self._measured) * self._run.config.batch_size)
        self._measured = step
        if self._peak_flops:
            flops_per_sec = measured["perf/img_per_sec"] * self._step_flops
            measured["perf/mfu"] = flops_per_sec / (self._peak_flops * self._mesh.size)
        return measured


def _peak_flops(device: Any) -> float | None:
    """Returns the FLOPs per second that a device is sold with; None if they are unknown."""
    if device.platform == "cpu":
        return None
    from vit_jax.hardware import topology

    return topology.peak_flops(device.device_kind)
