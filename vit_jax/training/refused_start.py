# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Leaves a workdir as it was if the start of a run is refused.

A start writes files before its first checkpoint. Bad input that shows only then must not change an
earlier run in the folder. Start from `unchanged_if_refused`.
"""

import contextlib
import fnmatch
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path

from vit_jax.checkpoints import local_folders, restart_limit, step_folders
from vit_jax.config import provenance
from vit_jax.errors import BadInput, NotStarted, PeerLost
from vit_jax.reports import summary
from vit_jax.runtime import coordination, goodput, process_exit
from vit_jax.storage import files as storage
from vit_jax.storage import jsonl
from vit_jax.training import metric_writer

# Files that a start may replace.
_REPLACED = (
    step_folders.CONFIG_FILE, step_folders.CLASSES_FILE, provenance.FILE, restart_limit.FILE,
    goodput.FILE, jsonl.METRICS_FILE,
)  # fmt: skip
_ROWS = (goodput.FILE, jsonl.METRICS_FILE)
log = logging.getLogger("vit_jax")


@contextlib.contextmanager
def unchanged_if_refused(workdir: Path, local: str = "") -> Iterator[None]:
    """Restores a workdir if the block refuses the start and has saved no step.

    Only process 0 does this, because it holds the lock.

    Args:
      workdir: the folder of the run.
      local: the folder of its local tier, whose steps count too, see `local_folders.newest_step`.
    """
    if not coordination.is_first():
        yield
        return
    before = _Before(workdir, local)

    def ended() -> None:
        if process_exit.code() == BadInput.exit_code:  # refused by another process or thread
            before.restore()

    with process_exit.before_exit(ended):
        try:
            yield
        except (BadInput, NotStarted):
            before.restore()
            raise


class _Before:
    """The files in a workdir before a start; those that the start may replace with their contents.

    The contents are compressed, because they stay in memory as long as the run.
    """

    def __init__(self, workdir: Path, local: str):
        self._workdir, self._steps = workdir, step_folders.saved(workdir)
        self._local, self._near = local, local_folders.newest_step(local, workdir)
        self._aside = set(step_folders.aside(workdir))
        self._paths = set(self._listed())
        replaced = [workdir / name for name in _REPLACED if workdir / name in self._paths]
        # In a bucket rows are objects, and a start removes those after the newest step.
        replaced += jsonl.objects_after(workdir / jsonl.METRICS_FILE, max(self._steps, default=0))
        self._contents = dict[Path, bytes]()
        for path in replaced:
            with contextlib.suppress(OSError):  # the use of the file reports it
                self._contents[path] = zlib.compress(storage.read_all([path])[0])

    def _listed(self) -> list[Path]:
        paths = list(storage.listed(self._workdir))
        for name in _ROWS:
            paths += jsonl.objects_after(self._workdir / name, -1)
        return paths

    def restore(self) -> None:
        """Removes new files and rewrites changed ones, unless a step was saved."""
        try:
            new_aside = set(step_folders.aside(self._workdir)) - self._aside
            moved = {step_folders.step_of(name) for name in new_aside}
            if set(step_folders.saved(self._workdir)) != set(self._steps) - moved:
                return
            if local_folders.newest_step(self._local, self._workdir) != self._near:
                return
            step_folders.put_back(self._workdir, new_aside)
            for path in set(self._listed()) - self._paths:
                if path.parent != self._workdir or _is_of_run(path.name):
                    storage.remove(path)
            for path, compressed in self._contents.items():
                content = zlib.decompress(compressed)
                if not path.exists() or storage.read_all([path])[0] != content:
                    storage.write(path, content)
        except (OSError, BadInput, PeerLost) as e:
            log.warning("%s could not be left as it was: %s", self._workdir, e)


def _is_of_run(name: str) -> bool:
    """Returns True if a run may write a file or folder of this name into its workdir."""
    from vit_jax.data.pipeline import skipped_images

    patterns = (
        *_REPLACED, *(Path(name).stem for name in _ROWS), summary.RESULTS_FILE, summary.PAGE_FILE,
        skipped_images.SKIPPED_FILE.format("[0-9]*"), metric_writer.EVENT_FILES,
        metric_writer.PROFILE_FOLDER, step_folders.FOLDER, local_folders.FILE,
        *metric_writer.OF_WRITERS,
    )  # fmt: skip
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
