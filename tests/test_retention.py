# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Which checkpoints stay, as arithmetic."""

import os

import pytest

from vit_jax.checkpoints import retention
from vit_jax.storage import checksums

SCORES = {2: {"a": 0.5}, 4: {"a": 0.9, "a_loss": 2.0}, 6: {}, 8: {"a": 0.9, "a_loss": 1.0}}


@pytest.mark.parametrize(("metric", "lower"), [("val/loss", True), ("val/top1", False)])
def test_losses_are_better_when_lower(metric, lower):
    assert retention.lower_is_better(metric) == lower


@pytest.mark.parametrize(("metric", "step"), [("a", 8), ("a_loss", 8), ("b", None)])
def test_best_is_the_newest_of_equals(metric, step):
    assert retention.best(SCORES, metric) == step


@pytest.mark.parametrize(
    ("last", "every", "metric", "stay"),
    [
        (1, 0, "", {10}),
        (0, 0, "", {10}),
        (3, 0, "", {6, 8, 10}),
        (9, 0, "", {2, 4, 6, 8, 10}),
        (1, 4, "", {4, 8, 10}),
        (1, 0, "a", {8, 10}),
        (2, 6, "a", {6, 8, 10}),
        (1, 0, "nothing", {10}),
    ],
)
def test_what_any_wants_stays(last, every, metric, stay):
    steps = [2, 4, 6, 8, 10]
    assert retention.steps_to_keep(steps, SCORES, last=last, every=every, metric=metric) == stay


def test_step_that_is_gone_is_not_the_best():
    assert retention.steps_to_keep([2, 10], SCORES, last=1, every=0, metric="a") == {2, 10}
    assert retention.steps_to_keep([], SCORES, last=1, every=0, metric="a") == set()


def test_metrics_that_are_added_later_are_those_of_the_step(tmp_path):
    (tmp_path / "commit_success.txt").touch()
    (tmp_path / retention.FILE).write_text("{}\n")
    checksums.write(tmp_path)
    assert retention.read(tmp_path) == {}
    retention.add(tmp_path, {"val/top1": 0.5})
    assert retention.read(tmp_path) == {"val/top1": 0.5}
    assert checksums.damage(tmp_path) == ""


def test_metrics_that_are_added_are_written_as_a_whole(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    retention.add(tmp_path, {"a": 1.0})
    before = (tmp_path / "measured.json").read_bytes()
    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        retention.add(tmp_path, {"a": 2.0})
    assert (tmp_path / "measured.json").read_bytes() == before
