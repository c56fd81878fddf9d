# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds the state from which a run starts.

This is the newest good checkpoint, in the local tier or the workdir, else the step of the branch,
else the weights of `init`, else scratch. Start from `start`.
"""

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from vit_jax import console
from vit_jax.build import run as build
from vit_jax.checkpoints import step_folders
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.config import load as config_lib
from vit_jax.runtime import coordination
from vit_jax.step.state import TrainState

if TYPE_CHECKING:
    from vit_jax.checkpoints.local_tier import LocalTier
    from vit_jax.weights.fitting import Fitted

log = logging.getLogger("vit_jax")


def local(run: build.Run, workdir: Path) -> "contextlib.AbstractContextManager[LocalTier | None]":
    """Opens the local tier of a run, see `local_tier.opened`; yields None if it is off.

    Raises:
      BadInput: it is on in some processes only, or its folder is not writable.
    """
    path = run.config.checkpoint.local.path
    coordination.agree("checkpoint.local", {"checkpoint.local.path is set": str(bool(path))})
    if not path:
        return contextlib.nullcontext()
    from vit_jax.checkpoints import local_tier

    facts = {k: repr(v) for k, v in config_lib.flatten(run.config) if config_lib.changes_results(k)}
    facts |= {"classes": repr(list(run.learned_classes))}
    facts |= {"training examples": run.train_pipeline.split.digest()}
    return local_tier.opened(
        path,
        workdir,
        run.program.abstract,
        facts,
        every=run.program.steps.local,
        every_minutes=run.config.checkpoint.local.every_minutes,
    )


def start(
    run: build.Run,
    checkpoints: Checkpoints,
    near: "LocalTier | None",
    weights: "Fitted | None",
    workdir: Path,
) -> tuple[TrainState, int]:
    """Returns the state and the step from which the run starts."""
    step, restored = _newest(run, checkpoints, near, workdir)
    if restored is not None:
        return run.program.with_base(restored, weights), step
    if run.config.branch:
        from vit_jax.training import branch

        state, step = branch.begin(run, checkpoints, workdir)
        return run.program.with_base(state, weights), step
    if weights is None:
        log.info("start: from scratch, seed %d", run.config.seed)
        return run.program.init(), 0
    fate = console.table(["tensor", "fate", "shape"], [list(row) for row in weights.fate])
    log.info("start: from %s\n%s", run.config.init, fate)
    return run.program.init_from(weights), 0


def _newest(
    run: build.Run, checkpoints: Checkpoints, near: "LocalTier | None", workdir: Path
) -> tuple[int, TrainState | None]:
    """Returns the newest good step, and its state; of two equal steps, that of the local tier.

    The checkpoints of the workdir are read only if the local tier has no newer step.
    """
    newest = near.newest() if near else -1
    saved = -1
    if newest >= 0:
        own = max(step_folders.saved(workdir), default=-1) if coordination.is_first() else None
        saved = coordination.share("newest checkpoint", own)
    unread = newest >= 0 and newest >= saved
    step = saved if unread else checkpoints.newest_good()
    least = -1 if step is None else step
    if near and newest >= 0 and (found := near.restore(least)):
        state, step = found
        log.info("start: resuming %s at step %d, from the local tier %s",
                 workdir, step, near.folder)  # fmt: skip
        checkpoints.continue_after(least, step)
        return step, state
    if unread:
        step = checkpoints.newest_good()
    if step is None:
        return 0, None
    log.info("start: resuming %s at step %d", workdir, step)
    return step, checkpoints.restore(step, run.program.abstract)
