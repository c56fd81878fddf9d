# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the configurations and results of the runs in a folder; lists the unreadable runs.

Opens only config.yaml, results.json and metrics.jsonl. Start from `read`.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vit_jax import console
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.experiments.tables.recipe_diff import Flat
from vit_jax.storage import files as storage
from vit_jax.storage import jsonl

CONFIG, RESULTS, METRICS = "config.yaml", "results.json", "metrics.jsonl"
FAILED = "failed.json"  # written by a sweep in a run that it gave up
STOPPED = "stopped.json"  # and in one that the rule of its stage stopped early


@dataclasses.dataclass(frozen=True)
class Run:
    """A run in its workdir.

    Attributes:
      folder: the workdir.
      config: the resolved configuration, flat.
      results: content of results.json; None while the run is not finished.
    """

    folder: Path
    config: Flat
    results: Mapping[str, Any] | None

    @property
    def running(self) -> bool:
        """Returns True if results may still come."""
        return self.results is None and not self.stopped and not (self.folder / FAILED).exists()

    @property
    def stopped(self) -> bool:
        """Returns True if the rule of its sweep stopped it early, with results or without."""
        return (self.folder / STOPPED).exists()

    @property
    def fine_tunes(self) -> bool:
        """Returns True for a transfer, False for a pre-training."""
        return bool(self.config["init"]) or self.config["recipe.name"] == "transfer"

    def metric(self, name: str) -> float | None:
        """Returns a share such as `test/top1` in percent; None if it was not measured."""
        section, _, key = name.rpartition("/")
        value = (self.results or {}).get(section, {})
        share = value.get(key) if isinstance(value, dict) else None
        return 100 * share if isinstance(share, float | int) else None

    def images(self, name: str) -> int:
        """Returns the number of images that a share such as `test/top1` is of; 0 if unknown."""
        measured = (self.results or {}).get(name.rpartition("/")[0])
        count = measured.get("examples") if isinstance(measured, dict) else None
        return count if isinstance(count, int) else 0

    def rows(self) -> list[dict[str, Any]]:
        """Returns the rows of metrics.jsonl; leaves out a torn line."""
        return jsonl.read_rows(self.folder / METRICS)


def read(root: Path) -> tuple[list[Run], list[str]]:
    """Returns (runs, a sentence for each unreadable one), from any depth below a folder.

    Raises:
      BadInput: the folder does not exist.
    """
    if not storage.is_dir(root):
        try:
            problem = "is a file" if root.exists() else "does not exist"
        except OSError as e:
            problem = f"cannot be read ({e.strerror})"
        raise BadInput(f"--runs={root} {problem}; give the folder that holds the workdirs of runs.")
    runs, broken = [], []
    folders = sorted(_workdirs(root))
    with console.bar("reading runs") as progress:
        for i, folder in enumerate(folders):
            try:
                runs.append(open_run(folder))
            except Unreadable as e:
                broken.append(f"{folder}: {e}")
            progress(i + 1, len(folders))
    return runs, broken


class Unreadable(Exception):
    """The reason why a workdir cannot be read."""


def open_run(folder: Path) -> Run:
    """Returns the run of a workdir that has a config.yaml.

    Raises:
      Unreadable: a file in it cannot be read, an accuracy is not a share, or a result is not
        finite.
    """
    try:
        config = dict(config_lib.flatten(config_lib.read(str(folder / CONFIG))))
    except BadInput as e:
        raise Unreadable(f"its configuration cannot be read ({e})") from e
    file = folder / RESULTS
    try:
        results = json.loads(storage.read_all([file])[0]) if file.exists() else None
    except (ValueError, OSError, RecursionError) as e:
        raise Unreadable(f"{RESULTS} cannot be read ({e})") from e
    if results is not None and not isinstance(results, dict):
        raise Unreadable(f"{RESULTS} holds {type(results).__name__}, expected an object")
    _check(results or {})
    return Run(folder, config, results)


def _workdirs(root: Path) -> Iterator[Path]:
    for folder, inside, files in storage.walk(root):
        skip = {"checkpoints", *(["metrics"] if CONFIG in files else [])}  # skips objects, not runs
        inside[:] = [name for name in inside if name not in skip and not name.startswith(".")]
        if CONFIG in files:
            yield folder


def _check(results: Mapping[str, Any]) -> None:
    """Raises Unreadable for results that are not finite and for accuracies that are not shares."""
    for split, metrics in results.items():
        for name, value in metrics.items() if isinstance(metrics, dict) else ():
            accuracy = name in ("top1", "top5") or name.endswith("shot")
            if not isinstance(value, int | float) or (isinstance(value, bool) and not accuracy):
                continue
            expected = "a share from 0 to 1" if accuracy else "a finite number"
            if isinstance(value, bool) or not (
                0 <= value <= 1 if accuracy else -math.inf < value < math.inf
            ):
                raise Unreadable(f"{split}/{name} in {RESULTS} is {value}, expected {expected}")
