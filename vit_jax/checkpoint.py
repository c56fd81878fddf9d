# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Saving and restoring the state of a run; the only user of orbax.

A checkpoint exists once it is committed: a process killed in the middle of a save leaves the one
before. Start from `Checkpoints`.
"""

import dataclasses
import logging
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from vit_jax import storage, tree
from vit_jax.errors import BadInput
from vit_jax.state import TrainState

FOLDER = "checkpoints"
_MARK = "commit_success.txt"
# orbax comments on what is normal here: a checkpoint that is only read, one without metrics.
logging.getLogger("absl").addFilter(
    lambda record: record.levelno >= logging.ERROR or "orbax" not in record.pathname
)


def lower_is_better(metric: str) -> bool:
    """Whether a metric such as `val/loss` is a loss."""
    return metric.endswith("loss")


def committed(workdir: Path) -> list[int]:
    """The steps that were committed in a workdir, ascending."""
    # On a disk orbax renames what is done; in a bucket, which cannot, it adds a mark.
    return sorted(
        int(path.name)
        for path in storage.listed(workdir / FOLDER)
        if path.name.isdigit() and (not storage.is_remote(path) or (path / _MARK).exists())
    )


class Checkpoints:
    """The checkpoints of one workdir.

    Args:
      workdir: of the run.
      keep_last: how many of the newest stay.
      keep_every: those at multiples of this many steps stay, 0: none.
      keep_best: the metric whose best step stays, empty: none.
      read_only: for looking into a run that another process may be writing.
    """

    def __init__(
        self,
        workdir: Path,
        *,
        keep_last: int = 1,
        keep_every: int = 0,
        keep_best: str = "",
        read_only: bool = False,
    ):
        policy = checkpoint_managers.preservation_policy
        policies: list[Any] = [policy.LatestN(max(1, keep_last))]
        if keep_every:
            policies.append(policy.EveryNSteps(keep_every))
        if keep_best:
            policies.append(
                policy.BestN(get_metric_fn=self._score, n=1, keep_checkpoints_without_metrics=False)
            )
        self._keep_best = keep_best
        self.folder = storage.absolute(workdir) / FOLDER
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policy.AnyPreservationPolicy(policies),
                best_fn=self._score,  # or metrics are not written
                save_decision_policy=checkpoint_managers.save_decision_policy.FixedIntervalPolicy(
                    1
                ),
                cleanup_tmp_directories=not read_only,
                read_only=read_only,
                create=not read_only,
            ),
        )

    def _score(self, measured: dict[str, float]) -> float:
        if self._keep_best not in measured:  # saved when another metric was kept, or none
            return -math.inf
        value = measured[self._keep_best]
        return -value if lower_is_better(self._keep_best) else value

    @property
    def steps(self) -> list[int]:
        """Committed steps, ascending."""
        return sorted(self._manager.all_steps())

    @property
    def latest(self) -> int | None:
        """The newest committed step, None if there is none."""
        return self.steps[-1] if self.steps else None

    def best(self, metric: str) -> int | None:
        """The step whose saved metrics are the best, None if none were saved with it."""
        scored = [(self._manager.metrics(s) or {}, s) for s in self.steps]
        scored = [(m[metric], s) for m, s in scored if metric in m]
        pick = min if lower_is_better(metric) else max
        return pick(scored, key=lambda pair: pair[0])[1] if scored else None

    def is_best(self, measured: dict[str, Any]) -> bool:
        """Whether these metrics beat those of every checkpoint; False if the best is not kept."""
        if not self._keep_best or self._keep_best not in measured:
            return False
        best = self.best(self._keep_best)
        if best is None:
            return True
        return self._score(measured) > self._score(self._manager.metrics(best) or {})

    def save(
        self, step: int, state: TrainState, config_yaml: str, measured: dict[str, Any]
    ) -> None:
        """Starts saving; returns once the arrays may be overwritten. A save that failed raises."""
        metrics = {name: float(value) for name, value in measured.items()} or None
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state),  # type: ignore[call-arg]
                config=ocp.args.JsonSave({"yaml": config_yaml}),  # type: ignore[call-arg]
            ),
            metrics=metrics,
            force=True,
        )

    def restore(self, step: int, abstract: TrainState) -> TrainState:
        """The state at a step, placed as `abstract` says.

        Args:
          step: a committed step.
          abstract: shapes, dtypes and shardings of the whole state.

        Raises:
          BadInput: the checkpoint holds another tree.
        """
        try:
            restored = self._manager.restore(
                step,
                args=ocp.args.Composite(state=ocp.args.StandardRestore(abstract)),  # type: ignore[call-arg]
            )
        except (ValueError, KeyError, TypeError) as e:
            raise BadInput(
                f"{self.folder / str(step)} does not hold the state that this config needs:\n"
                f"{tree.difference(self._saved(step), _as_dict(abstract)) or e}"
            ) from e
        return restored["state"]

    def _saved(self, step: int) -> Any:
        """The tree of a checkpoint as nested dicts of shapes."""
        with ocp.PyTreeCheckpointer() as reader:
            return reader.metadata(self.folder / str(step) / "state").item_metadata.tree

    def _weights(self, step: int) -> tuple[str, Any]:
        """Which part of the state holds the weights, and their shapes."""
        saved = self._saved(step)
        name = "ema" if jax.tree.leaves(saved.get("ema")) else "params"
        return name, saved[name]

    def weight_shapes(self, step: int) -> Any:
        """The tree of `weights` as shapes; reads no values."""
        return self._weights(step)[1]

    def weights(self, step: int) -> Any:
        """The parameters at a step as numpy arrays: their average where there is one."""
        folder = self.folder / str(step) / "state"
        name, shapes = self._weights(step)
        wanted = {name: jax.tree.map(lambda _: 0, shapes)}
        as_numpy = ocp.RestoreArgs(restore_type=np.ndarray)
        with ocp.PyTreeCheckpointer() as reader:
            restored = reader.restore(
                folder,
                args=ocp.args.PyTreeRestore(  # type: ignore[call-arg]
                    item=wanted,
                    restore_args=jax.tree.map(lambda _: as_numpy, wanted),
                    partial_restore=True,
                ),
            )
        return restored[name]

    def wait(self) -> None:
        """Returns when the save under way is committed; a failure raises."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, then releases threads."""
        self._manager.close()


def _as_dict(state: TrainState) -> dict[str, Any]:
    return {f.name: getattr(state, f.name) for f in dataclasses.fields(state)}
