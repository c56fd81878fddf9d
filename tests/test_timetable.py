# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Durations of a configuration in steps, and what is due after each."""

import pytest

from vit_jax.config import load as config_lib
from vit_jax.config import timeline
from vit_jax.errors import BadInput


def of(*overrides):
    """The timetable of the quickstart with 1,000 examples in batches of 100."""
    own = ["batch_size=100", "length=4 epochs", "checkpoint.every=25 percent", *overrides]
    config = config_lib.load("configs/quickstart.py", [f"--config.{text}" for text in own])
    return timeline.steps_of(config, examples=1000)


def test_every_unit_is_steps():
    found = of("schedule.warmup=10 percent", "report.every=300 examples", "evals.val.every=1 epoch")
    assert (found.total, found.epoch, found.warmup) == (40, 10.0, 4)
    assert (found.checkpoint, found.report, found.evals["val"]) == (10, 3, 10)


def test_what_is_due_after_a_step():
    found = of("evals.val.every=20 steps", "evals.test.every=0")
    assert [step for step in range(1, 41) if found.saves(step)] == [10, 20, 30, 40]
    assert {step: found.due(step) for step in (0, 10, 20, 40)} == {
        0: [], 10: [], 20: ["val"], 40: ["test", "val"],
    }  # fmt: skip


@pytest.mark.parametrize(
    "given, part",
    [("length=0 steps", "leaves nothing to train"), ("profile=39:42", "beyond the 40 steps")],
)
def test_what_cannot_be_is_refused(given, part):
    with pytest.raises(BadInput, match=part):
        of(given)
