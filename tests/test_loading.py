# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""FILE_OR_RUN: which step of which run is meant, and what is said where there is none."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import config as config_lib
from vit_jax import load, state
from vit_jax.checkpoint import Checkpoints
from vit_jax.errors import BadInput

BASE = str(Path(__file__).resolve().parent.parent / "configs" / "base.py")
SCORES = {2: 0.5, 4: 0.9, 6: 0.7}  # step -> val/top1
SETTINGS = (
    "--config.model.variant=S/4",
    "--config.model.width=8",
    "--config.model.pool=gap",
    "--config.data.image_size=12",
    "--config.data.mean=(0.1,0.2,0.3)",
    "--config.checkpoint.keep_best=val/top1",
)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A run of three steps; its parameters are the number of the step, their average half."""
    folder = tmp_path_factory.mktemp("run")
    text = config_lib.to_yaml(config_lib.load(BASE, SETTINGS))
    (folder / "config.yaml").write_text(text)
    checkpoints = Checkpoints(folder, keep_last=3, keep_best="val/top1")
    for step, score in SCORES.items():
        params = {"head": {"bias": jnp.full(3, float(step))}}
        made = state.from_params(params, optax.identity(), ema=True)
        made.ema = {"head": {"bias": jnp.full(3, step / 2)}}
        checkpoints.save(step, made, text, {"val/top1": score})
    checkpoints.close()
    return folder


def message(text):
    with pytest.raises(BadInput) as caught:
        load.find_run(str(text))
    return str(caught.value)


@pytest.mark.parametrize("which, step", [("", 6), ("@best", 4), ("@2", 2), ("@4", 4), ("@6", 6)])
def test_step_of_a_run(workdir, which, step):
    assert load.find_run(f"{workdir}{which}") == load.Run(workdir, step)


def test_run_in_home_and_by_relative_path(workdir, monkeypatch):
    monkeypatch.setenv("HOME", str(workdir.parent))
    assert load.find_run(f"~/{workdir.name}@2") == load.Run(workdir, 2)
    monkeypatch.chdir(workdir.parent)
    found = load.find_run(f"{workdir.name}@best")
    assert (found.step, found.workdir.resolve()) == (4, workdir)


def test_path_of_a_run_may_hold_an_at_sign(workdir, tmp_path):
    (tmp_path / "me@host").mkdir()
    moved = tmp_path / "me@host" / "run"
    moved.symlink_to(workdir)
    assert load.find_run(f"{moved}@2") == load.Run(moved, 2)
    assert load.find_run(str(moved)) == load.Run(moved, 6)


def test_file_is_no_run(tmp_path):
    (tmp_path / "B_16@224.npz").write_bytes(b"x")
    assert load.find_run(str(tmp_path / "B_16@224.npz")) is None


@pytest.mark.parametrize("which", ["", "@best", "@3"])
def test_missing_path_says_what_may_be_given(tmp_path, which):
    said = message(f"{tmp_path}/none{which}")
    parts = (f"{tmp_path}/none does not exist", ".npz", "WORKDIR@best", "WORKDIR@STEP")
    assert [p for p in parts if p not in said] == []


def test_folder_without_checkpoints_says_so(tmp_path):
    assert f"{tmp_path} holds no checkpoints" in message(tmp_path)


def test_run_that_was_stopped_before_its_first_checkpoint_says_so(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    said = message(tmp_path)
    assert "no such checkpoint" in said
    assert "its steps are []" in said


@pytest.mark.parametrize("which", ["@3", "@5000", "@-2", "@bset", "@2.0"])
def test_unknown_step_lists_the_steps(workdir, which):
    said = message(f"{workdir}{which}")
    assert "no such checkpoint" in said
    assert "its steps are [2, 4, 6]" in said


def test_best_of_a_run_that_does_not_keep_it(tmp_path):
    (tmp_path / "config.yaml").write_text(config_lib.to_yaml(config_lib.load(BASE)))
    checkpoints = Checkpoints(tmp_path)
    made = state.from_params({"head": {"bias": jnp.zeros(3)}}, optax.identity(), ema=False)
    checkpoints.save(7, made, "", {})
    checkpoints.close()
    said = message(f"{tmp_path}@best")
    assert "its steps are [7]" in said


def test_looking_into_a_run_changes_nothing(workdir):
    before = {p: p.stat().st_mtime_ns for p in workdir.rglob("*")}
    load.find_run(str(workdir))
    load.read_weights(f"{workdir}@2")
    assert {p: p.stat().st_mtime_ns for p in workdir.rglob("*")} == before


@pytest.mark.parametrize("which, step", [("", 6), ("@best", 4), ("@2", 2)])
def test_weights_are_the_average_of_that_step(workdir, which, step):
    weights = load.read_weights(f"{workdir}{which}")
    assert {name: np.asarray(x).tolist() for name, x in weights.items()} == {
        "head/bias": [step / 2] * 3
    }


def test_weights_of_a_run_without_an_average_are_its_parameters(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    made = state.from_params({"head": {"bias": jnp.arange(3.0)}}, optax.identity(), ema=False)
    checkpoints.save(7, made, "", {})
    checkpoints.close()
    weights = load.read_weights(str(tmp_path))
    assert {name: np.asarray(x).tolist() for name, x in weights.items()} == {
        "head/bias": [0.0, 1.0, 2.0]
    }


def test_architecture_of_a_run_is_what_it_was_trained_as(workdir):
    found = load.architecture(str(workdir))
    expected = {"variant": "S/4", "width": 8, "pool": "gap", "image_size": 12}
    assert found == found | expected
    assert found["mean"] == (0.1, 0.2, 0.3)
    assert found["std"] == (0.5, 0.5, 0.5)
    assert set(found) == {*load.ARCHITECTURE, "image_size", "mean", "std"}
