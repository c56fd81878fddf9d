# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Begins a run with the whole state of a step of another run, its parent.

The state of that step becomes the first checkpoint of the new run, and the parent's metrics up to
it become its first rows. Once that checkpoint counts, the run is continued like any other and needs
its parent no more. Before that, each start branches from the same step, which `config.yaml` names.
Start from `settle` and `begin`.
"""

import dataclasses
import fnmatch
import json
import logging
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vit_jax.build import defaults, optimization
from vit_jax.build import run as build
from vit_jax.checkpoints import retention, step_folders
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.config import load as config_lib
from vit_jax.config import sections, timeline
from vit_jax.errors import BadInput, permitted
from vit_jax.reports import summary
from vit_jax.runtime import coordination, watchdog
from vit_jax.step.state import TrainState
from vit_jax.storage import files as storage
from vit_jax.storage import jsonl

if TYPE_CHECKING:
    from vit_jax.weights.loading import Run

# Keys that change results and may change at a branch: the state and the order of examples do not
# depend on them. The other keys that change results must be those of the parent.
FREE = (
    "length", "schedule.*", "optimizer.*", "loss.*", "mixup.*", "evals.*", "fewshot.*",
    "data.train_ops", "data.eval_ops", "data.views", "data.bad_images",
    "model.dropout", "model.attention_dropout", "model.drop_path", "model.patch_dropout",
    "model.merge",
)  # fmt: skip
_KEPT = ("optimizer.name", "optimizer.*dtype", "optimizer.*.min_factored")  # despite FREE
_ON_OR_OFF = ("ema.decay", "skip_non_finite", "optimizer.weight_decay")  # likewise from or to 0
log = logging.getLogger("vit_jax")


def settle(config: sections.Config, workdir: Path) -> sections.Config:
    """Resolves `config.branch` for a new run, and fills and checks the settings by the parent's.

    All processes of a run must call it together. `branch` of the result names the step by its
    number and the parent by its whole path.

    Raises:
      BadInput: the parent or the step does not exist, the workdir holds files of a run, or a key
        has a value that its state does not fit.
    """
    text, name, file = config.branch, "", ""
    if coordination.is_first():
        parent = _parent(text)
        _check_empty(workdir, text)
        name, file = parent.spelled, str(_config_file(parent))
    name, file = coordination.share("branch", [name, file])
    saved = config_lib.read(file)
    config = defaults.take_from_run(config, saved)
    # `init` is of no use to this run, but a part of its origin.
    config = dataclasses.replace(config, init=config.init or saved.init)
    refused = [row for row in config_lib.differences(saved, config) if not may_change(*row)]
    if refused:
        lines = [f"  {key}: {old!r} in the parent, now {new!r}" for key, old, new in refused]
        raise BadInput(
            f"--branch={text}: the state of that step, or its order of examples, does not fit "
            "these settings:\n" + "\n".join(lines) + "\nLeave them as they are in the parent; or "
            "start a new run from its weights, without --branch and with "
            f"--config.init={shlex.quote(text)}."
        )
    return dataclasses.replace(config, branch=name)


def may_change(key: str, old: Any, new: Any) -> bool:
    """Returns True if a key may have another value from a branch on."""

    def is_in(patterns: tuple[str, ...]) -> bool:
        return any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)

    if not config_lib.changes_results(key):
        return key != "init"
    if key.startswith("optimizer.") and "(none)" in (old, new):
        return True  # of another optimizer: `optimizer.name` differs too
    if is_in(_ON_OR_OFF):
        return bool(old) == bool(new)
    return is_in(FREE) and not is_in(_KEPT)


def settle_again(config: sections.Config, saved: sections.Config, workdir: Path) -> sections.Config:
    """Sets `branch` to that of the run in a workdir, which never branches again.

    Raises:
      BadInput: the run is not a branch of that step.
    """
    if config.branch and _is_same(config.branch, f"{workdir}@"):
        raise BadInput(
            f"--branch={config.branch}: --workdir={workdir} is that run itself; give the folder of "
            "a new run, or leave --branch out to continue this one."
        )
    if config.branch and not _is_same(config.branch, saved.branch):
        holds = f"a branch of {saved.branch}" if saved.branch else "a run that is not a branch"
        raise BadInput(
            f"--branch={config.branch}: {workdir} holds {holds}; give another --workdir for the "
            "branch, or leave --branch out to continue that run."
        )
    return dataclasses.replace(config, branch=saved.branch)


def _is_same(text: str, name: str) -> bool:
    """Returns True if a text names the same run as `name` and, if both tell it, the same step."""
    from vit_jax.weights import loading

    if not name or text == name:
        return bool(name)
    (run, which), (saved, _, step) = loading.split_run(text), name.rpartition("@")
    places = [
        p.rstrip("/") if storage.is_remote(p) else os.path.realpath(p)
        for p in (str(storage.path(run)), saved)
    ]
    return places[0] == places[1] and (which in ("", "best", step) or not step)


def _parent(text: str) -> "Run":
    """Returns the run and the step of `--branch`.

    Raises:
      BadInput: there is no such run, or it has no such step.
    """
    from vit_jax.weights import loading

    folder = storage.workdir(loading.split_run(text)[0])
    if not storage.is_dir(folder / step_folders.FOLDER):
        problem = "has no checkpoints" if storage.is_dir(folder) else "is not a folder"
        raise BadInput(
            f"--branch={text}: {folder} {problem}; give RUN@STEP, RUN@best, or RUN for its newest "
            "step, where RUN is the workdir of a run."
        )
    try:
        parent = loading.find_run(text)
    except BadInput as e:
        raise BadInput(f"--branch={e}") from e
    assert parent is not None, text
    return parent


def _config_file(parent: "Run") -> Path:
    """Returns the file with the configuration that a step was trained with."""
    copy = _folder(parent) / step_folders.CONFIG_FILE
    _check_whole(parent, step_folders.damage(copy.parent, wanted=lambda name: name == copy.name))
    return copy if copy.exists() else parent.workdir / step_folders.CONFIG_FILE


def _folder(parent: "Run") -> Path:
    return parent.workdir / step_folders.FOLDER / str(parent.step)


def _check_whole(parent: "Run", damage: str) -> None:
    if damage:
        others = [step for step in step_folders.committed(parent.workdir) if step != parent.step]
        raise BadInput(
            f"--branch={parent.spelled}: step {parent.step} is damaged ({damage}). Bring it back "
            f"from a copy, or give another step of that run: {others or 'it has no other'}."
        )


def _check_empty(workdir: Path, text: str) -> None:
    rows = jsonl.rows_path(workdir / jsonl.METRICS_FILE)
    for left in (rows, workdir / summary.RESULTS_FILE, workdir / step_folders.FOLDER):
        if left.exists():
            raise BadInput(
                f"--branch={text}: {workdir} has the {left.name} of a run, but no configuration; "
                "give the folder of a new run."
            )


# ---------------------------------------------------------------- once the data are open


def parent_to_begin_with(config: sections.Config, workdir: Path) -> "Run | None":
    """Returns the parent and its step while the run has no checkpoint of its own, else None."""
    if not config.branch or step_folders.saved(workdir):
        return None
    return _parent(config.branch)


def check_length(run: build.Run, parent: "Run") -> None:
    """Checks that steps are left to train, and logs a jump of the learning rate at the branch.

    Raises:
      BadInput: the run ends at the step of the branch, or before it.
    """
    config, steps, first = run.config, run.program.steps, parent.step
    if first >= steps.total:
        raise BadInput(
            f"--branch={config.branch}: step {first} is not before the end of the new run, whose "
            f"length={config.length!r} is {steps.total} steps; give a longer --config.length, or "
            "an earlier step."
        )
    saved = config_lib.read(str(_config_file(parent)))
    before = optimization.schedule(saved.schedule, timeline.steps_of(saved, run.program.examples))
    old, new = (float(schedule(first)) for schedule in (before, run.program.schedule))
    if abs(new - old) > 1e-6 * max(abs(old), abs(new)):
        log.warning(
            "branch: the learning rate jumps: after step %d %s would go on with %.4g, this run "
            "goes on with %.4g", first, parent.workdir, old, new,
        )  # fmt: skip


def begin(run: build.Run, checkpoints: Checkpoints, workdir: Path) -> tuple[TrainState, int]:
    """Restores the state of the parent's step, and saves it as the first checkpoint of the run.

    The rows of metrics come first, so the checkpoint never counts without them.

    Raises:
      BadInput: the step is gone or damaged, or holds another state.
    """
    parent = _parent(run.config.branch)
    step = parent.step
    with Checkpoints(parent.workdir, read_only=True) as of_parent:
        _check_whole(parent, of_parent.damage(step))
        state = of_parent.restore(step, run.program.abstract)
    log.info("start: branching from %s at step %d", parent.workdir, step)
    measured: dict[str, float] = {}
    if coordination.is_first():
        with permitted("read"):
            _copy_rows(parent.workdir, workdir, step)
        try:
            measured = retention.read(_folder(parent))
        except retention.Damaged as e:
            log.warning("%s; it cannot count as the best step", e)
    with watchdog.longer():
        checkpoints.save(step, state, config_lib.to_yaml(run.config), measured)
        checkpoints.wait()
    return state, step


def _copy_rows(parent: Path, workdir: Path, step: int) -> None:
    """Copies the metrics up to a step, and the list of skipped images."""
    from vit_jax.data.pipeline import skipped_images

    jsonl.copy_rows(parent / jsonl.METRICS_FILE, workdir / jsonl.METRICS_FILE, step)
    skipped = sorted(skipped_images.read_skipped(parent))
    if skipped:
        storage.write(workdir / skipped_images.SKIPPED_FILE.format(0), json.dumps(skipped) + "\n")
