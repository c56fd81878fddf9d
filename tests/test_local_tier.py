# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""States on the hosts' own disks: what a restart takes from them, and what it refuses."""

import shutil
from pathlib import Path

import pytest
from interrupted_runs import assert_equal, cut
from test_train import run

pytestmark = pytest.mark.integration

# 6 steps; the workdir gets steps 4 and 6, the local tier every step.
STEPS = (
    "--config.length=6 steps",
    "--config.checkpoint.every=4 steps",
    "--config.checkpoint.keep_last=3",
    "--config.evals.val.every=3 steps",
    "--config.evals.val.batch_size=384",
    "--config.evals.test.batch_size=384",
    "--config.schedule.warmup=1 steps",
)


def tier(path):
    return f"--config.checkpoint.local.path={path}", "--config.checkpoint.local.every=1 steps"


def test_try(tmp_path, monkeypatch, caplog):
    from vit_jax.training import train
    assert run(tmp_path / "whole", *STEPS) == 0
    with monkeypatch.context() as patch:
        real = train.Window.add
        def add(self, step, metrics):
            real(self, step, metrics)
            if step == 4: raise KeyboardInterrupt
        patch.setattr(train.Window, "add", add)
        assert run(tmp_path / "cut", *STEPS, *tier(tmp_path / "near")) != 0
    import subprocess
    print(subprocess.run(["find", str(tmp_path / "near"), str(tmp_path / "cut")], capture_output=True, text=True).stdout)
    assert run(tmp_path / "cut", *STEPS, *tier(tmp_path / "near")) == 0
    print(caplog.text[-3000:])
    print(subprocess.run(["find", str(tmp_path / "near"), str(tmp_path / "cut")], capture_output=True, text=True).stdout)
    assert_equal(tmp_path / "whole", tmp_path / "cut")
