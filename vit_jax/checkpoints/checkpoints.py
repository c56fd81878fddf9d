# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Saves and restores the state of a run.

A checkpoint counts once it is committed with the checksums of its files. A process that is killed
during a save leaves the previous checkpoint intact. A checkpoint is used only if its files are as
they were saved. `step_folders` defines the layout and which steps count. Start from `Checkpoints`.
"""

import contextlib
import json
import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import jax

from vit_jax import tree
from vit_jax.checkpoints import array_files, orbax_workarounds, retention, step_folders
from vit_jax.checkpoints.retention import Damaged
from vit_jax.checkpoints.step_folders import FOLDER
from vit_jax.errors import BadInput, NotStarted, PeerLost, RunFailed, no_space, writing
from vit_jax.runtime import coordination, goodput
from vit_jax.step.state import TrainState
from vit_jax.storage import checksums
from vit_jax.storage import files as storage

_CONFIG = "config.yaml"
log = logging.getLogger("vit_jax")


class Checkpoints:
    """The checkpoints of one workdir.

    Args:
      workdir: the folder of the run.
      keep_last: number of the newest checkpoints to keep.
      keep_every: keeps the steps at multiples of this number; 0 keeps none for this reason.
      keep_best: the metric whose best step is kept; empty keeps none for this reason.
      read_only: for inspecting a run that another process may be writing.
      beside: name -> text of further small files in each checkpoint.

    Raises:
      BadInput: the workdir is not writable.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        keep_last: int = 1,
        keep_every: int = 0,
        keep_best: str = "",
        read_only: bool = False,
        beside: Mapping[str, str] | None = None,
    ):
        self._workdir = workdir.absolute()
        self.folder = self._workdir / FOLDER
        self._keep: Any = {"last": keep_last, "every": keep_every, "metric": keep_best}
        self._read_only, self._beside = read_only, dict(beside or {})
        self._metrics: dict[int, dict[str, float]] = {}  # of the existing steps
        self._known: set[int] = set()  # steps that were saved or restored by this object
        self._is_tidy = False
        self._good = 0  # the newest step that is whole
        self._damaged: dict[int, str] = {}  # steps to set aside -> their damage
        self._under_way: Future[None] | None = None
        self._left: Path | None = None  # left by a save that failed
        orbax_workarounds.silence()
        self._open = contextlib.ExitStack()
        self._plain = self._open.enter_context(orbax_workarounds.plain_path(self.folder))
        if read_only:
            return
        if coordination.is_first():
            with writing(workdir):
                storage.make_folder(self.folder)
            self._metrics = self._read_all() if keep_best else {}
        self._background = ThreadPoolExecutor(1, "checkpoint")
        self._sealing: tuple[Path, dict[str, str]] = (self.folder, {})  # for `_seal`
        self._writer = array_files.Writer(self._seal)

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Exception as e:
            if error is None:
                raise
            log.error("%s", e)  # the error that ends the run is raised, not this one

    # ------------------------------------------------------------ existing steps

    @property
    def steps(self) -> list[int]:
        """The committed steps, ascending."""
        return step_folders.committed(self._workdir)

    @property
    def latest(self) -> int | None:
        """The newest committed step, or None."""
        return max(self.steps, default=None)

    def newest_good(self) -> int | None:
        """Returns the newest step whose files are as they were saved; None if nothing was saved.

        Newer damaged steps are set aside once that step is restored, so a refused start changes
        nothing. All processes of a run call this together and share the reading.

        Raises:
          NotStarted: steps were saved, but all of them are damaged; nothing was touched.
          BadInput: this account may not read a step.
        """
        own = step_folders.saved(self._workdir) if coordination.is_first() else None
        steps = coordination.share("checkpoints", own)
        damaged: dict[int, str] = {}
        good = None
        while steps and good is None:
            step = steps.pop()
            if damage := self.damage(step):
                damaged[step] = damage
            else:
                good = step
        if not coordination.is_first():
            return good
        if good is None and (damaged or step_folders.aside(self._workdir)):
            raise NotStarted(step_folders.all_damaged(self._workdir, damaged))
        self._damaged, self._good = damaged, good or 0
        for step in damaged:
            self._metrics.pop(step, None)
        return good

    def damage(self, step: int) -> str:
        """Returns the damage of a step, or ""; all processes call this and share the reading."""
        part = (jax.process_index(), jax.process_count())
        mine = step_folders.damage(self.folder / str(step), part=part)
        return next(filter(None, coordination.gather(f"checksums of {step}", mine)), "")

    def _set_aside(self) -> None:
        """Renames the damaged steps that are newer than the good one, so that they do not count."""
        lost = max(self._damaged, default=0) - self._good
        for step, damage in self._damaged.items():
            target = step_folders.set_aside(self.folder / str(step))
            log.warning(
                "step %d is damaged (%s); set aside as %s; continuing from step %d: "
                "%d steps are done again",
                step, damage, target, self._good, lost,
            )  # fmt: skip
        self._damaged = {}

    def best(self, metric: str) -> int | None:
        """Returns the step with the best metric (the newest of equals); None if no step has it.

        Raises:
          Damaged: the metrics of a step are not as they were saved; only with `read_only`.
        """
        return retention.best(self._read_all() if self._read_only else self._metrics, metric)

    def is_best(self, measured: dict[str, Any]) -> bool:
        """Returns True if these metrics beat those of every checkpoint; False without `keep_best`.

        Only the answer of process 0 is reliable.
        """
        metric = self._keep["metric"]
        if not metric or metric not in measured:
            return False
        best = self.best(metric)
        return best is None or retention.score(measured, metric) > retention.score(
            self._metrics[best], metric
        )

    def _read_all(self) -> dict[int, dict[str, float]]:
        """Returns the metrics of all steps."""
        metrics = {}
        for step in self.steps:
            try:
                metrics[step] = retention.read(self.folder / str(step))
            except Damaged as e:
                if not self._read_only:
                    log.warning("%s; it cannot count as the best step", e)
                elif step in self.steps:  # otherwise the run has removed the step meanwhile
                    raise
        return metrics

    # ------------------------------------------------------------ saving

    def save(
        self, step: int, state: TrainState, config_yaml: str, measured: dict[str, Any]
    ) -> None:
        """Starts a save; returns once the arrays may be overwritten. All processes call it.

        A step that is already saved stays as it is, but its metrics are added: a stopped run saves
        a step before that step is measured. The previous checkpoint is removed once this one
        counts, unless a retention rule keeps it.

        Raises:
          RunFailed: this save or the previous one failed; earlier checkpoints are kept.
        """
        self.wait()
        self._tidy()
        metrics = {name: float(value) for name, value in measured.items()}
        folder = self.folder / str(step)
        if step in self._known:
            if metrics:
                self._metrics[step] = self._metrics.get(step, {}) | metrics
                if coordination.is_first():
                    retention.add(folder, self._metrics[step])
            return
        files = self._beside | {_CONFIG: config_yaml, retention.FILE: json.dumps(metrics) + "\n"}
        target = self._plain / str(step)
        self._sealing = self.folder / self._writer.temporary_name(target), files
        try:
            self._writer.save(target, state.saved())
        except Exception as e:  # a store raises errors of any class
            raise self._failure(step, e) from e
        self._known.add(step)
        self._metrics[step] = metrics
        self._under_way = self._background.submit(self._complete, step)

    def _tidy(self) -> None:
        """Sets damaged steps aside and removes interrupted saves, before the first save."""
        if coordination.is_first() and not self._is_tidy:
            self._set_aside()
            with writing(self._workdir):
                step_folders.remove_leftovers(self._workdir)
        self._is_tidy = True

    def _seal(self) -> None:
        """Adds the small files and the checksums; the writer calls it right before it commits.

        All processes have written everything by then. It runs in a thread of process 0 while
        training goes on.
        """
        folder, files = self._sealing
        for name, text in files.items():
            storage.write(folder / name, text)
        checksums.write(folder)

    def _complete(self, step: int) -> None:
        """Waits for the commit of a step, then removes the checkpoints that retention drops."""
        try:
            self._writer.wait()
            goodput.event("save", step)
            if coordination.is_first():
                self._prune(step)
        except Exception as e:  # a store raises errors of any class
            raise self._failure(step, e) from e

    def _prune(self, step: int) -> None:
        """Removes the committed steps before `step` that no retention rule keeps."""
        steps = self.steps
        kept = retention.steps_to_keep(steps, self._metrics, **self._keep)
        for old in steps:
            if old < step and old not in kept:
                self._metrics.pop(old, None)
                try:
                    step_folders.remove(self.folder / str(old))
                except OSError as e:  # e.g. this account may not delete in a bucket
                    raise RunFailed(
                        f"{self.folder / str(old)}, which nothing keeps, cannot be removed: "
                        f"{e.strerror}. Mend that, then run the same command again to continue."
                    ) from e

    def _failure(self, step: int, error: Exception) -> Exception:
        """Returns the error to raise for a failed save; removes the files of that save."""
        if isinstance(error, PeerLost | RunFailed | BadInput):
            return error
        if isinstance(error, TimeoutError) and jax.process_count() > 1:
            return PeerLost(f"step {step} was not saved: another process did not finish its part.")
        if lost := storage.lost(self.folder, f"step {step} could not be saved: {error!r:.500}."):
            return lost
        if not isinstance(error, OSError | ValueError):
            return error
        full = no_space(error, self.folder)
        reason = full or (isinstance(error, OSError) and error.strerror) or str(error)[:500]
        newest = self.latest
        if coordination.is_first() and newest != step:
            self._left = self._sealing[0]
            self._remove_left()
        since = "from the beginning" if newest is None else f"from step {newest}, the newest saved"
        advice = (
            "Make room (older runs, a lower checkpoint.keep_last)" if full else "Mend the cause"
        )
        return RunFailed(
            f"step {step} could not be saved in {self.folder}: {reason}. {advice}, then run the "
            f"same command again: it continues {since}."
        )

    def _remove_left(self) -> None:
        """Removes the files of a failed save; the next start removes them if this cannot."""
        if self._left is None:
            return
        for _ in range(10):  # other arrays that are still being written add files
            with contextlib.suppress(OSError):
                step_folders.remove(self._left)
                break

    def check(self) -> None:
        """Raises the error of a failed background save; costs nothing. Called at every step."""
        if self._under_way and self._under_way.done():
            self.wait()

    def wait(self) -> None:
        """Returns when the save under way is committed; raises its error, once."""
        under_way, self._under_way = self._under_way, None
        if under_way:
            under_way.result()

    def close(self) -> None:
        """Waits for the save under way, then releases threads."""
        with self._open:
            if self._read_only:
                return
            try:
                self.wait()
            finally:
                self._background.shutdown()
                self._writer.close()
                self._remove_left()  # files that arrived after the first removal

    # ------------------------------------------------------------ restoring

    def restore(self, step: int, abstract: TrainState) -> TrainState:
        """Returns the state at a step, placed according to `abstract`.

        Args:
          step: from `newest_good`, or one without `damage`.
          abstract: shapes, dtypes and shardings of the whole state.

        Raises:
          BadInput: the checkpoint holds another tree.
          StoreLost, RunFailed: a bucket, or a disk, fails.
        """
        self._check_params(step, abstract)
        try:
            restored = array_files.restore(self._plain / str(step), abstract.saved())
        except Exception as e:  # a store raises errors of any class
            raise self._not_restored(step, abstract, e) from e
        self._known.add(step)
        self._set_aside()
        return TrainState(**restored)

    @property
    def newest_known(self) -> int:
        """The newest step that was saved or restored here, or before the run continued; or 0."""
        return max(self._known, default=0)

    def continue_after(self, step: int, restored: int) -> None:
        """Notes that a run continues from a state that was restored elsewhere.

        Args:
          step: the newest step that is saved here; -1: none.
          restored: the step of that state.
        """
        self._known |= {step} - {-1}
        self._good = restored
        self._set_aside()

    def _check_params(self, step: int, abstract: TrainState) -> None:
        """Refuses other parameters before orbax reads any; the optimizer state repeats them."""
        difference = ""
        with contextlib.suppress(Exception):  # `restore` meets a failing disk or store again
            saved = self._saved(step)["params"]
            difference = tree.difference({"params": saved}, {"params": abstract.params})
        if difference:
            raise _other_tree(self.folder / str(step), difference)

    def _not_restored(self, step: int, abstract: TrainState, error: Exception) -> Exception:
        """Returns the error to raise for a step that could not be restored."""
        folder, difference = self.folder / str(step), ""
        if isinstance(error, jax.errors.JaxRuntimeError):  # a device failed, e.g. out of memory
            return error
        with contextlib.suppress(Exception):  # the same disk or store may fail again
            difference = tree.difference(self._saved(step), abstract.saved())
        if difference:
            return _other_tree(folder, difference)
        text = f"{folder} could not be read: {error!r:.500}."
        return storage.lost(folder, text) or RunFailed(
            f"{text} Mend the cause, then run the same command again."
        )

    def _saved(self, step: int) -> Any:
        """Returns the tree of a checkpoint as nested dicts of shapes."""
        shapes = array_files.shapes(self._plain / str(step))
        if shapes is None:
            raise Damaged(f"{self.folder / str(step)} holds no arrays")
        return shapes

    def _weights(self, step: int) -> tuple[str, Any]:
        """Returns the part of the state that holds the weights, and their shapes."""
        saved = self._saved(step)
        name = "ema" if jax.tree.leaves(saved.get("ema")) else "params"
        return name, saved[name]

    def weight_shapes(self, step: int) -> Any:
        """Returns the tree of `weights` as shapes; reads no values.

        Raises:
          Damaged: a file that holds the shapes is not as it was saved.
        """
        self._verify(step, values=False)
        return self._weights(step)[1]

    def weights(self, step: int) -> Any:
        """Returns the parameters at a step as numpy arrays: their average if there is one.

        Raises:
          Damaged: a file is not as it was saved.
        """
        self._verify(step, values=True)
        name, shapes = self._weights(step)
        return array_files.read(self._plain / str(step), name, shapes)

    def _verify(self, step: int, *, values: bool) -> None:
        """Raises Damaged if a file of a step is not as it was saved."""
        folder = self.folder / str(step)
        damage = step_folders.damage(folder, wanted=lambda name: values or "/d/" not in name)
        if damage:
            raise Damaged(damage)


def _other_tree(folder: Path, difference: str) -> BadInput:
    text = f"{folder} does not hold the state that this config needs:"
    return BadInput(f"{text}\n{difference}")
