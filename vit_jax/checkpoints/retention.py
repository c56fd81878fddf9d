# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Decides which checkpoints of a run stay and which is the best, from the metrics saved with them.

Start from `steps_to_keep`.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from vit_jax.checkpoints import step_folders
from vit_jax.errors import permitted
from vit_jax.storage import checksums
from vit_jax.storage import files as storage

FILE = "metrics.json"  # in the folder of a step
_LATER_FILE = "measured.json"  # of a step measured after its save; has its own checksum
_OLDER_FILE = "metrics/metrics"  # of steps without checksums
Metrics = Mapping[str, float]


class Damaged(RuntimeError):
    """An error for readers: files of a step are not as saved. A run resumes from another step."""


def lower_is_better(metric: str) -> bool:
    """Returns True if a metric is a loss or an error by its name, such as `val/loss`."""
    return metric.endswith(("loss", "error"))


def score(metrics: Metrics, metric: str) -> float:
    """Returns the value of a metric, with the sign chosen so that more is better."""
    return -metrics[metric] if lower_is_better(metric) else metrics[metric]


def best(metrics: Mapping[int, Metrics], metric: str) -> int | None:
    """Returns the step with the best metric (the newest of equals); None if no step has it."""
    scored = [(score(values, metric), step) for step, values in metrics.items() if metric in values]
    return max(scored)[1] if scored else None


def steps_to_keep(
    steps: Sequence[int],
    metrics: Mapping[int, Metrics],
    *,
    last: int,
    every: int,
    metric: str,
) -> set[int]:
    """Returns the steps to keep: each step that one of the three rules keeps, and the newest.

    Args:
      steps: the steps that count, ascending.
      metrics: metrics of these steps.
      last: number of the newest steps to keep.
      every: keeps the steps at multiples of it; 0 keeps none for this reason.
      metric: keeps the step where it is best; empty keeps none for this reason.
    """
    best_step = best({s: metrics[s] for s in steps if s in metrics}, metric) if metric else None
    periodic = {step for step in steps if every and step % every == 0}
    return {*steps[-max(1, last) :], *periodic, *({best_step} - {None})}  # type: ignore[misc]


def add(folder: Path, metrics: Metrics) -> None:
    """Writes the metrics of a committed step that was saved without them."""
    storage.write(folder / _LATER_FILE, checksums.seal(json.dumps(metrics) + "\n"))


def read(folder: Path) -> dict[str, float]:
    """Reads the metrics that were saved with a committed step, or added later.

    Raises:
      Damaged: the metrics are not as they were saved.
      BadInput: this account may not read them.
    """
    older = step_folders.is_older(folder)
    path = folder / (_OLDER_FILE if older else FILE)
    damage = "" if older else checksums.damage(folder, wanted=lambda name: name == FILE)
    if damage:
        raise Damaged(f"{folder} is damaged: {damage}")
    later = folder / _LATER_FILE
    with permitted("read"):
        sealed = later.exists()
        path = later if sealed else path
        exists = sealed or not older or path.exists()
        content = storage.read_all([path])[0] if exists else b"{}"
    try:
        return json.loads(checksums.unseal(content) if sealed else content)
    except ValueError as e:
        raise Damaged(f"{folder} is damaged: {path.name} cannot be read ({e})") from e
