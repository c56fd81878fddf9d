# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""FILE_OR_RUN: a weights file, a workdir (its last step), `WORKDIR@best` or `WORKDIR@1000`.

Weights of a run are the average of its parameters where it kept one. Start from `read_weights`.
"""

import dataclasses
from pathlib import Path
from typing import Any

from vit_jax import config as config_lib
from vit_jax.checkpoint import FOLDER, Checkpoints
from vit_jax.errors import BadInput
from vit_jax.models import pretrained

CONFIG_FILE = "config.yaml"
ARCHITECTURE = ("variant", "width", "depth", "mlp", "heads", "pool")


@dataclasses.dataclass(frozen=True)
class Run:
    """A workdir and one of its steps."""

    workdir: Path
    step: int


def find_run(text: str) -> Run | None:
    """The run that FILE_OR_RUN names, None if it names a file.

    Raises:
      BadInput: nothing there, no checkpoint in it, or not that step (the steps there are listed).
    """
    if Path(text).expanduser().is_file():
        return None
    plain = "@" not in text or Path(text).expanduser().is_dir()
    name, which = (text, "") if plain else text.rsplit("@", 1)
    workdir = Path(name).expanduser()
    if not (workdir / FOLDER).is_dir():
        what = "holds no checkpoints" if workdir.is_dir() else "does not exist"
        raise BadInput(
            f"{text!r}: {workdir} {what}; give a weights file (.npz), the workdir of a run, "
            "WORKDIR@best or WORKDIR@STEP."
        )
    checkpoints = Checkpoints(workdir, read_only=True)
    try:
        steps = checkpoints.steps
        if which == "best":
            metric = config_lib.load(str(workdir / CONFIG_FILE)).checkpoint.keep_best
            step = checkpoints.best(metric)
        else:
            step = int(which) if which.isdigit() else (checkpoints.latest if not which else None)
    finally:
        checkpoints.close()
    if step is None or step not in steps:
        raise BadInput(f"{text!r}: no such checkpoint in {workdir}; its steps are {steps}.")
    return Run(workdir, step)


def architecture(text: str) -> dict[str, Any]:
    """What FILE_OR_RUN was trained as: variant, sizes, pool, image_size; for runs mean and std."""
    run = find_run(text)
    if run is None:
        return pretrained.architecture(pretrained.read_npz(Path(text).expanduser()))
    saved = config_lib.load(str(run.workdir / CONFIG_FILE))
    found = {key: saved.model[key] for key in ARCHITECTURE}
    data = {key: saved.data[key] for key in ("image_size", "mean", "std")}
    return found | data


def read_weights(text: str) -> pretrained.Flat:
    """The weights of FILE_OR_RUN under loop-layout names, as numpy arrays."""
    run = find_run(text)
    if run is None:
        return pretrained.read_npz(Path(text).expanduser())
    checkpoints = Checkpoints(run.workdir, read_only=True)
    try:
        return pretrained.flatten(checkpoints.weights(run.step))
    finally:
        checkpoints.close()
