# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""How often a run may start again without getting on."""

import errno
import os

import pytest
from test_step_folders import WHOLE, make

from vit_jax.checkpoints import restart_limit
from vit_jax.errors import BadInput, PeerLost, RunFailed
from vit_jax.runtime import process_exit


def start(workdir, dies_by=KeyboardInterrupt):
    with pytest.raises(dies_by), restart_limit.counted(workdir):
        raise dies_by("so it ends")


def test_five_restarts_without_a_new_checkpoint_are_enough(tmp_path):
    for _ in range(1 + restart_limit.MOST):
        start(tmp_path)
    for _ in range(2):
        with pytest.raises(RunFailed, match=r"started again 5 times") as caught:
            restart_limit.counted(tmp_path).__enter__()
    assert caught.value.exit_code == 1
    assert str(tmp_path / "restarts.json") in str(caught.value)
    (tmp_path / "restarts.json").unlink()
    start(tmp_path)


@pytest.mark.parametrize("dies_by", [KeyboardInterrupt, PeerLost, MemoryError])
def test_new_checkpoint_gives_new_restarts(tmp_path, dies_by):
    for step in range(0, 100, 10):
        make(tmp_path, step, WHOLE)
        for _ in range(1 + restart_limit.MOST):
            start(tmp_path, dies_by)
    with pytest.raises(RunFailed, match="step 90"), restart_limit.counted(tmp_path):
        pass


@pytest.mark.parametrize("error", [BadInput, RunFailed])
def test_error_that_a_person_sees_is_not_counted(tmp_path, error):
    for _ in range(20):
        start(tmp_path, error)
    assert not list(tmp_path.iterdir())


def test_run_that_ends_leaves_nothing(tmp_path):
    start(tmp_path)
    with restart_limit.counted(tmp_path):
        assert (tmp_path / "restarts.json").exists()
    assert not list(tmp_path.iterdir())


def test_full_disk_is_not_counted(tmp_path):
    for _ in range(20):
        with pytest.raises(RunFailed, match="no space left"), restart_limit.counted(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("code, counted", [(1, False), (2, False), (43, True), (143, True)])
def test_end_by_another_process_is_counted_as_its_code_says(tmp_path, monkeypatch, code, counted):
    monkeypatch.setattr(process_exit, "_code", 1)
    monkeypatch.setattr(os, "_exit", lambda code: None)
    with restart_limit.counted(tmp_path):
        process_exit.end(code)
        assert (tmp_path / "restarts.json").exists() == counted


def test_count_that_cannot_be_read_does_not_end_a_run(tmp_path, caplog):
    (tmp_path / "restarts.json").mkdir()
    for _ in range(20):
        start(tmp_path)
    with restart_limit.counted(tmp_path):
        pass
    assert (tmp_path / "restarts.json").is_dir()
    said = f"cannot read {tmp_path / 'restarts.json'}: Is a directory; this start is not counted"
    assert caplog.messages == [said] * 21


DAMAGED = ["", "{", "[]", "{}", '{"newest": null}', '{"newest": 3}', "\0", "[" * 10**5]


@pytest.mark.parametrize("text", [*DAMAGED, '{"newest": null, "restarts": 1e999}'])
def test_damaged_count_begins_anew(tmp_path, text):
    (tmp_path / "restarts.json").write_text(text)
    for _ in range(1 + restart_limit.MOST):
        start(tmp_path)
    with pytest.raises(RunFailed, match="started again 5 times"), restart_limit.counted(tmp_path):
        pass


def test_only_process_0_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(restart_limit.coordination, "is_first", lambda: False)
    for _ in range(20):
        start(tmp_path)
    assert not list(tmp_path.iterdir())
