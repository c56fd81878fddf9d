# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds the state from which a run starts.

This is the newest good checkpoint, in the local tier or the workdir, else the step of the branch,
else the weights of `init`, else scratch. Start from `weights_of`, then `start`.
"""

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from vit_jax import console, tree
from vit_jax.build import run as build
from vit_jax.checkpoints import step_folders
from vit_jax.checkpoints.checkpoints import Checkpoints
from vit_jax.config import load as config_lib
from vit_jax.config import sections, trainable
from vit_jax.errors import BadInput
from vit_jax.runtime import coordination
from vit_jax.step.state import TrainState

if TYPE_CHECKING:
    from vit_jax.checkpoints.local_tier import LocalTier
    from vit_jax.weights.base import Base
    from vit_jax.weights.fitting import Fitted

log = logging.getLogger("vit_jax")


def base_of(config: sections.Config, previous: Path) -> "Base | None":
    """Returns the weights that a run with `trainable` begins with, or has begun with.

    `previous` is the folder of the run, or of its parent. Returns None if every parameter is
    trained.
    """
    if config.trainable == trainable.ALL:
        return None
    from vit_jax.weights import base

    origin = base.of_run(previous)
    return base.reference(config.init) if origin is None else base.found(origin, previous)


def weights_of(run: build.Run, goes_on: bool, origin: "Base | None") -> "Fitted | None":
    """Returns the weights of `init`, or of a base that is not trained, fitted to the model.

    Returns None when training from scratch, and, without a base, from a branch or a checkpoint.

    Args:
      run: the run.
      goes_on: True if the run, or the parent of a branch, has a checkpoint.
      origin: the base, or None.
    """
    text = run.config.init
    if origin is not None:
        text = origin.weights
    elif not text or run.config.branch or goes_on:
        _check_nothing_inherited(run, goes_on)
        return None
    from vit_jax.weights import download, fitting, loading

    # A branch of the hub may move while the processes look it up.
    commit = download.revision(text)
    coordination.agree("the commit of a branch of the hub", {"@REVISION": commit} if commit else {})
    cfg, images, objective = run.program.model.cfg, run.program.images, run.program.objective
    weights = loading.read_weights(text, heads=run.config.model.heads, own=cfg)
    own = {path: x for path, x in weights.flat.items() if objective.inherits(path)}
    wanted = tree.leaves_with_paths(run.program.whole_params)
    wanted = {path: x.shape for path, x in wanted if objective.inherits(path)}
    if wanted and not own and weights.format != "run":
        from vit_jax.weights import text_towers

        own = text_towers.parameters(text)
    fitted = loading.fit(weights, cfg, images.size, fresh_head=True, channels=images.channels)
    return fitting.with_inherited(fitted, own, wanted)


def _check_nothing_inherited(run: build.Run, goes_on: bool) -> None:
    """Raises BadInput if an objective wants heads of weights and there are none."""
    if run.config.init or run.config.branch or goes_on:
        return
    paths = (path for path, _ in tree.leaves_with_paths(run.program.whole_params))
    if any(map(run.program.objective.inherits, paths)):
        raise BadInput(
            f"objective={run.config.objective} keeps the heads of init, and there is none; give "
            "--config.init=RUN, or leave keep_heads out."
        )


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
