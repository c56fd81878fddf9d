# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Applies the rule of a stage (`halving`) to the runs in the folder of a sweep.

A rung of a run is over once metrics.jsonl has its metric at the step of the rung. The verdict is
worked out from these rows each time, so it is the same after any restart. Start from `steps`, then
`decide`.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from vit_jax.build import splits
from vit_jax.config import provenance, sections, timeline
from vit_jax.errors import BadInput, together
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps.halving import Halving
from vit_jax.experiments.sweeps.points import Point
from vit_jax.storage import jsonl

log = logging.getLogger("vit_jax")


def steps(
    rule: Halving | None, points: Sequence[Point], workdir: Path
) -> dict[str, tuple[int, ...]]:
    """Returns run -> the steps of its rungs; empty without a rule.

    It opens the data of runs that have not begun.

    Raises:
      BadInput: runs do not evaluate the metric near the rungs; the message lists all of them.
    """
    if rule is None:
        return {}
    found, problems = dict[str, tuple[int, ...]](), list[BadInput]()
    for point in points:
        try:
            examples = recorded_examples(provenance.read(workdir / point.run))
            examples = examples or _examples(point.config.data)
            whole = timeline.steps_of(point.config, examples)
            found[point.run] = rule.steps(point.run, whole)
        except BadInput as e:
            problems.append(e)
    if problems:
        raise together(problems)
    return found


def recorded_examples(origin: provenance.Origin) -> int:
    """Returns the number of training examples that a run has recorded; 0 if it has not."""
    number = origin.examples.partition(" ")[0]
    return int(number) if number.isdecimal() else 0


@functools.cache
def _examples(data: sections.Data) -> int:
    """Returns the number of training examples."""
    return len(splits.training_examples(splits.open_source(data), data)[0])


def measured(folder: Path, metric: str, step: int) -> float | None:
    """Returns a metric of a run at a step; None if it has not been there yet."""
    rows = jsonl.read_rows(folder / jsonl.METRICS_FILE)
    return next((row[metric] for row in rows if row["step"] == step and metric in row), None)


def decide(
    rule: Halving, points: Sequence[Point], steps: Mapping[str, int], workdir: Path
) -> list[Point]:
    """Returns the runs that go on after a rung, and records the others as stopped.

    Args:
      rule: the rule of the stage.
      points: the runs that have reached the rung, in order.
      steps: run -> the step of the rung.
      workdir: the folder of the sweep.

    Raises:
      BadInput: a run has no metric at its rung.
    """
    values = dict[str, float]()
    for point in points:
        value = measured(workdir / point.run, rule.metric, steps[point.run])
        if value is None:
            raise BadInput(
                f"{point.run} has no {rule.metric} at step {steps[point.run]:,}, where its stage "
                "halves the runs. Give a metric that the runs measure (see their metrics.jsonl)."
            )
        values[point.run] = value
    go_on = list[Point]()
    verdicts = rule.best({point.run: point.keys for point in points}, values)
    for point in points:
        rank, kept, of = verdicts[point.run]
        if rank <= kept:
            go_on.append(point)
            sweep_folder.lift_stop(workdir, point.run, steps[point.run])
            continue
        why = f"{rule.metric} {values[point.run]:.4f} is number {rank} of {of}, and {kept} go on"
        sweep_folder.stop(workdir, point.run, steps[point.run], why)
    log.info(
        "rung: %d of %d runs go on: %s", len(go_on), len(points), ", ".join(p.run for p in go_on)
    )
    return go_on
