# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Durations as recipes write them, and the steps that they come to."""

import pytest

from vit_jax.config import load as config_lib
from vit_jax.config import schema, timeline
from vit_jax.errors import BadInput

# --- durations ---


@pytest.mark.parametrize(
    "text, steps",
    [
        ("90 epochs", 90 * 1000 // 8),
        ("1 epoch", 125),
        ("0.5 epochs", 62),  # 62.5
        ("10000 steps", 10000),
        ("10_000 steps", 10000),
        ("1 step", 1),
        ("2.6 steps", 3),
        ("1e3 steps", 1000),
        ("303e6 examples", 303_000_000 // 8),
        ("8 examples", 1),
        ("1 examples", 1),  # at least one
        ("11 examples", 1),
        ("13 examples", 2),
        ("5 percent", 20),
        ("5%", 20),
        ("5 %", 20),
        ("100 percent", 400),
        ("0.01 percent", 1),
        ("0", 0),
        ("0 epochs", 0),
        ("0.0", 0),
        ("  7 steps ", 7),
        ("7steps", 7),
    ],
)
def test_duration_in_steps(text, steps):
    found = schema.parse_duration("config.length", text)
    assert found.steps(batch_size=8, examples=1000, total_steps=400) == steps


@pytest.mark.parametrize(
    "text",
    [
        "", "90", "epochs", "-1 steps", "+1 steps", "90 epoks", "90 Epochs", "1 2 steps",
        "90 epochs 5 steps", "1.2.3 steps", "1__0 steps", "_1 steps", "1e steps", "1e-3 epochs",
        "inf steps", "nan steps", "one epoch", "٣ steps", "0x10 steps", "90 epochs\n1", "0 bananas",
        "1e999 steps",
    ],
)  # fmt: skip
def test_what_is_not_a_duration_says_so(text):
    with pytest.raises(BadInput) as caught:
        schema.parse_duration("config.schedule.warmup", text)
    assert f"config.schedule.warmup={text!r}" in str(caught.value)
    assert "'90 epochs'" in str(caught.value)


# --- the timeline of a run ---


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
    [("length=0 steps", "a number above 0 and a unit"), ("profile=39:42", "beyond the 40 steps")],
)
def test_what_cannot_be_is_refused(given, part):
    with pytest.raises(BadInput, match=part):
        of(given)


def test_more_steps_than_a_counter_holds_are_refused():
    with pytest.raises(BadInput, match=r"length='9e14 steps' is 9e\+14 steps; give fewer than"):
        of("length=9e14 steps")
