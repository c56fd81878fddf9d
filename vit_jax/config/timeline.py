# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Converts the durations of a configuration to optimizer steps: total length and due events.

A duration is written in the unit of the paper. Start from `steps_of`.
"""

import dataclasses
import re

from vit_jax.config import validation
from vit_jax.config.load import ConfigDict
from vit_jax.errors import BadInput


@dataclasses.dataclass(frozen=True)
class Duration:
    """A length of training in the unit of the paper: `steps`, `epochs`, `examples` or `percent`."""

    amount: float
    unit: str

    def steps(self, *, batch_size: int, examples: int, total_steps: int = 0) -> int:
        """Returns the duration in optimizer steps, to the nearest; at least 1 unless it is 0.

        Args:
          batch_size: global batch size.
          examples: number of training examples, the length of an epoch.
          total_steps: length of the run, to which `percent` refers.
        """
        if self.amount == 0:
            return 0
        exact = {
            "steps": self.amount,
            "epochs": self.amount * examples / batch_size,
            "examples": self.amount / batch_size,
            "percent": self.amount / 100 * total_steps,
        }[self.unit]
        return max(1, round(exact))


def parse_duration(key: str, text: str) -> Duration:
    """Parses `"90 epochs"`, `"10000 steps"`, `"303e6 examples"`, `"5 percent"`, or `"0"` (never).

    Raises:
      BadInput: the text has another form; the message names `key`.
    """
    match = re.fullmatch(r"\s*([0-9][0-9_.]*(?:e[0-9]+)?)\s*([a-z%]*)\s*", text)
    units = {"%": "percent"} | {u: u for u in ("steps", "epochs", "examples", "percent")}
    units |= {"step": "steps", "epoch": "epochs", "example": "examples"}
    try:
        amount = float(match[1]) if match else -1.0
    except ValueError:
        amount = -1.0
    unit_known = match is not None and (match[2] in units or (match[2] == "" and amount == 0))
    if match is None or not 0 <= amount < 1e15 or not unit_known:
        raise BadInput(
            f"{key}={text!r} is not a duration; write a number and a unit: "
            "'90 epochs', '10000 steps', '303e6 examples' or '5 percent'."
        )
    return Duration(amount, units.get(match[2], "steps"))


@dataclasses.dataclass(frozen=True)
class Steps:
    """Durations of the configuration in optimizer steps; 0 means never."""

    total: int
    epoch: float
    warmup: int
    cooldown: int
    drops: tuple[int, ...]
    checkpoint: int
    keep_every: int
    report: int
    evals: dict[str, int]

    def due(self, step: int) -> list[str]:
        """Returns the evaluations that are due after a step."""
        last = step == self.total
        return [n for n, every in self.evals.items() if step and (last or _divides(every, step))]

    def saves(self, step: int) -> bool:
        """Returns True if a checkpoint is due after a step."""
        return step == self.total or _divides(self.checkpoint, step)


def _divides(every: int, step: int) -> bool:
    return every > 0 and step % every == 0


def profile_steps(text: str) -> range:
    """Parses `"100:105"` to range(100, 105), and an empty text to an empty range."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if text and (match is None or not 1 <= int(match[1]) < int(match[2])):
        raise BadInput(f"profile={text!r}; write FIRST:LAST steps, e.g. 100:105.")
    return range(int(match[1]), int(match[2])) if match else range(0)


def first_step(config: ConfigDict) -> int:
    """Returns the step with whose state a run began: that of its branch, else 0."""
    match = re.search(r"@(\d+)$", config.branch)
    return int(match[1]) if match else 0


def steps_of(config: ConfigDict, examples: int) -> Steps:
    """Returns the durations of a checked configuration, for a training split of `examples`.

    Raises:
      BadInput: the run has no training step, or the profile goes beyond its end.
    """

    def steps(key: str, text: str, total: int = 0) -> int:
        length = parse_duration(key, text)
        return length.steps(batch_size=config.batch_size, examples=examples, total_steps=total)

    total = steps("length", config.length)
    if total < 1:
        raise BadInput(f"length={config.length!r} leaves nothing to train; give at least one step.")
    profile = profile_steps(config.profile)
    if profile and profile.stop > total:
        raise BadInput(f"profile={config.profile!r} goes beyond the {total} steps of the run.")
    evals = {name: section.every for name, section in config.evals.items()}
    evals |= dict.fromkeys(validation.few_shot_tasks(config), config.fewshot.every)
    drops = config.schedule.step.drops if config.schedule.name == "step" else ()
    return Steps(
        total=total,
        epoch=examples / config.batch_size,
        checkpoint=steps("checkpoint.every", config.checkpoint.every, total),
        keep_every=steps("checkpoint.keep_every", config.checkpoint.keep_every, total),
        report=steps("report.every", config.report.every, total) or total,
        evals={name: steps(name, every, total) for name, every in evals.items()},
        warmup=steps("schedule.warmup", config.schedule.warmup, total),
        cooldown=steps("schedule.cooldown", config.schedule.cooldown, total),
        drops=tuple(steps("schedule.step.drops", text, total) for text in drops if text != "0"),
    )
