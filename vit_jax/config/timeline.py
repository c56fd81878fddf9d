# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Converts the durations of a configuration to optimizer steps: total length and due events.

`schema.Duration` parses them. Start from `steps_of`.
"""

import dataclasses
import re

from vit_jax.config import schema, sections, validation
from vit_jax.errors import BadInput


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
    local: int
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
    return range(*map(int, text.split(":"))) if text else range(0)


def first_step(config: sections.Config) -> int:
    """Returns the step with whose state a run began: that of its branch, else 0."""
    match = re.search(r"@(\d+)$", config.branch)
    return int(match[1]) if match else 0


def in_steps(
    config: sections.Config, examples: int, text: str, *, key: str = "objective", total: int
) -> int:
    """Returns a duration, the value of a key, in steps of a run of `total` steps.

    Raises:
      BadInput: it is not a duration, or has too many steps.
    """
    length = schema.parse_duration(key, text)
    count = length.steps(batch_size=config.batch_size, examples=examples, total_steps=total)
    if count >= 2**31:
        raise BadInput(f"{key}={text!r} is {count:.3g} steps; give fewer than {2**31:,}.")
    return count


def steps_of(config: sections.Config, examples: int) -> Steps:
    """Returns the durations of a checked configuration, for a training split of `examples`.

    Raises:
      BadInput: the profile goes beyond the end of the run, or a duration has too many steps.
    """

    def steps(key: str, text: str, total: int = 0) -> int:
        return in_steps(config, examples, text, key=key, total=total)

    total = steps("length", config.length)
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
        local=steps("checkpoint.local.every", config.checkpoint.local.every, total),
        report=steps("report.every", config.report.every, total) or total,
        evals={name: steps(name, every, total) for name, every in evals.items()},
        warmup=steps("schedule.warmup", config.schedule.warmup, total),
        cooldown=steps("schedule.cooldown", config.schedule.cooldown, total),
        drops=tuple(steps("schedule.step.drops", text, total) for text in drops if text != "0"),
    )
