# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sends metrics to MLflow (docs/writers.md).

It is a `metric_writer.Writer`: it may raise and may hang, because `metric_writer` runs it in a
thread. The package's own environment variables choose server or database, and experiment.
A continued run goes on under the identity in a file of its workdir.
"""

import os
import time
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from vit_jax.storage import files as storage

EXPERIMENT = "vit_jax"  # unless MLFLOW_EXPERIMENT_NAME names another
FILE = "mlflow_run.txt"  # holds the run's id
_MOST_PARAMS = 100  # in one call
_MOST_CHARACTERS = 6000  # of a value


class MLflow:
    """A run of MLflow; the configuration becomes its parameters."""

    def __init__(self, workdir: Path, config: Mapping[str, Any]):
        self._client, file = MlflowClient(), workdir / FILE
        if file.exists():
            self._run = storage.read_all([file])[0].decode().strip()
            self._client.update_run(self._run, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        self._run = self._client.create_run(experiment, run_name=workdir.name).info.run_id
        params = (Param(key, str(value)[:_MOST_CHARACTERS]) for key, value in config.items())
        for part in _parts(params):
            self._client.log_batch(self._run, params=part)
        storage.write(file, self._run + "\n")  # last: a run without parameters is not continued

    def write(self, step: int, values: Mapping[str, float | int]) -> None:
        """Logs a row."""
        now = time.time_ns() // 1_000_000
        metrics = [Metric(key, float(value), now, step) for key, value in values.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, failed: bool) -> None:
        """Ends the run."""
        self._client.set_terminated(self._run, "FAILED" if failed else "FINISHED")


def _parts(params: Iterator[Param]) -> Iterator[list[Param]]:
    while part := list(islice(params, _MOST_PARAMS)):
        yield part
