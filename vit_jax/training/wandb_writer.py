# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sends metrics to Weights & Biases (docs/writers.md).

It is a `metric_writer.Writer`: it may raise and may hang, because `metric_writer` runs it in a
thread. The package's own environment variables choose account, entity, project and mode.
A continued run goes on under the identity in a file of its workdir.
"""

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from vit_jax.storage import files as storage

PROJECT = "vit_jax"  # unless WANDB_PROJECT names another
FILE = "wandb_run.txt"  # holds the run's id


class WeightsAndBiases:
    """A run of W&B; its files lie in WORKDIR/wandb."""

    def __init__(self, workdir: Path, config: Mapping[str, Any]):
        file = workdir / FILE
        known = file.exists()
        name = storage.read_all([file])[0].decode().strip() if known else uuid.uuid4().hex[:8]
        if not known:
            storage.write(file, name + "\n")
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=workdir.name,
            id=name,
            resume="allow",
            dir=None if storage.is_remote(workdir) else str(workdir),
            config=dict(config),
            settings=wandb.Settings(silent=True, console="off"),
        )
        # A continued run may begin before its last row; only a metric as axis allows that.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, values: Mapping[str, float | int]) -> None:
        """Logs a row."""
        self._run.log({"step": step, **values})

    def close(self, failed: bool) -> None:
        """Ends the run after its upload."""
        self._run.finish(exit_code=int(failed))
