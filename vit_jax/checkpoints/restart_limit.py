# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Limits how often a run that dies without progress is started again.

Programs that restart runs (a sweep, Slurm, Kubernetes) only see exit codes. So the run itself
counts its restarts, in a small file of its workdir. Start from `counted`.
"""

import contextlib
import functools
import json
import logging
from collections.abc import Iterator
from pathlib import Path

from vit_jax.checkpoints import local_folders, step_folders
from vit_jax.errors import BadInput, NotStarted, RunFailed, Stopped, stopping_when_full
from vit_jax.runtime import coordination, process_exit
from vit_jax.storage import files as storage

FILE = "restarts.json"
MOST = 5  # restarts without a new checkpoint
log = logging.getLogger("vit_jax")


@contextlib.contextmanager
def counted(workdir: Path, local: str = "") -> Iterator[None]:
    """Counts a start of the run in the existing `workdir`; only process 0 counts.

    The count is reset by a new checkpoint, also one of the local tier in the folder `local`, by a
    normal end of the block, and by an error after which nothing restarts the run, because a person
    looks at that error.

    Raises:
      NotStarted: the run was started again five times without a new checkpoint.
    """
    path = workdir / FILE
    if not coordination.is_first():
        yield
        return
    steps = *step_folders.saved(workdir), local_folders.newest_step(local, workdir)
    newest = max((step for step in steps if step >= 0), default=None)
    before = _before(path, newest)
    if before is None:
        yield
        return
    restarts = before + 1
    if restarts > MOST:
        since = "its first step" if newest is None else f"step {newest}"
        raise NotStarted(
            f"{workdir} was started again {MOST} times and each time died before it had saved a "
            f"checkpoint; it is still at {since}. See why in the ends of its logs (killed for "
            "memory? a machine that fails? time that is too short for one checkpoint, see "
            f"--config.checkpoint.every?). Then remove {path} and run the same command again."
        )
    storage.write(path, json.dumps({"newest": newest, "restarts": restarts}) + "\n")
    try:
        with (
            process_exit.before_exit(functools.partial(_forget_if_seen, path)),
            stopping_when_full(workdir),
        ):
            yield
    except (BadInput, RunFailed):
        storage.remove(path)
        raise
    except Stopped:
        if not restarts:  # a first start that was asked to stop leaves no file
            storage.remove(path)
        raise
    storage.remove(path)


def _forget_if_seen(path: Path) -> None:
    """Removes the count if another process or a thread ends this one with an error for a person."""
    if process_exit.code() in (BadInput.exit_code, RunFailed.exit_code):
        storage.remove(path)


def _before(path: Path, newest: int | None) -> int | None:
    """Returns how often the run was restarted at its newest step; -1 if it never started there.

    Returns None if the file cannot be read; the file is then left alone.
    """
    try:
        stored = json.loads(storage.read_all([path])[0])
        return int(stored["restarts"]) if stored["newest"] == newest else -1
    except (FileNotFoundError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return -1
    except OSError as e:
        log.warning("cannot read %s: %s; this start is not counted", path, e.strerror)
        return None
