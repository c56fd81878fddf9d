# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The doctor never hangs: time limits of checks, and what becomes of children."""

import threading

import pytest

from vit_jax.preflight.doctor import limits
from vit_jax.preflight.doctor.finding import Finding
from vit_jax.preflight.doctor.limits import Check


def test_late_and_failing_checks_hide_no_others():
    never = threading.Event()

    def late():
        never.wait(60)
        return []

    def absent():
        raise ModuleNotFoundError("No module named 'jax'")

    def broken():
        raise ValueError("odd")

    good = Finding("d", "well")
    found = list(
        limits.run(
            [
                Check("a", late, 0.1, "end it"),
                Check("b", absent, 9, ""),
                Check("c", broken, 9, ""),
                Check("d", lambda: [good], 9, ""),
            ]
        )
    )
    never.set()
    assert found[0] == Finding("a", "no answer within 0.1 s", "end it")
    assert "No module named 'jax'" in found[1].said
    assert found[1].fix == "pip install -e ."
    assert "ValueError: odd" in found[2].said
    assert not found[2].ok
    assert found[3] == good


def test_child_answers_fails_dies_or_is_ended(monkeypatch):
    monkeypatch.setenv("SET", "1")
    assert limits.call("os:getenv", ["SET", "gone"], 60, {"SET": None}) == "gone"
    assert limits.call("os.path:join", ["a", "b"], 60) == "a/b"
    assert limits.call("os:getenv", ["ODD"], 60, {"ODD": "1"}) == "1"
    with pytest.raises(
        limits.Failed, match="failed: ModuleNotFoundError: No module named 'absent'"
    ):
        limits.call("absent:f", [], 60)
    with pytest.raises(limits.Failed, match="killed by signal 6: "):
        limits.call("os:abort", [], 60)
    with pytest.raises(limits.Failed, match="no answer within 2 s"):
        limits.call("time:sleep", [60], 2)
