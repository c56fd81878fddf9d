# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The folder of a run: what is found in it, what may change, what is cleaned up."""

import json
import os

import pytest
import yaml
from test_step_folders import WHOLE, make
from test_train import QUICKSTART, run

from vit_jax import config as config_lib
from vit_jax import workdir
from vit_jax.errors import BadInput


def quickstart(*overrides):
    return config_lib.load(QUICKSTART, overrides)


def begun(folder, *overrides):
    """A folder as it is after `prepare`."""
    config = quickstart(*overrides)
    assert workdir.continue_or_check(config, folder) is None
    workdir.prepare(folder, config)
    return config


def test_unwritable_workdir(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run(tmp_path / "file" / "run") == 2
    assert "cannot write" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_workdir(tmp_path):
    tmp_path.chmod(0o500)
    assert run(tmp_path / "run") == 2


def test_what_was_begun_is_continued_and_what_is_finished_is_returned(tmp_path):
    begun(tmp_path)
    assert workdir.continue_or_check(quickstart(), tmp_path) is None
    (tmp_path / "results.json").write_text(json.dumps({"step": 3}))
    assert workdir.continue_or_check(quickstart(), tmp_path) == {"step": 3}
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["model"]["depth"] == 3


def test_results_may_not_change_but_places_may(tmp_path, caplog):
    begun(tmp_path)
    caplog.set_level("INFO", "vit_jax")
    with pytest.raises(BadInput) as caught:
        workdir.continue_or_check(quickstart("--config.seed=3", "--config.mesh.data=4"), tmp_path)
    assert "seed: 0 in" in str(caught.value)
    assert "mesh.data" not in str(caught.value)
    assert workdir.continue_or_check(quickstart("--config.mesh.data=4"), tmp_path) is None
    assert "mesh.data" in caplog.text


def test_few_shot_tasks_change_results_and_their_cadence_does_not(tmp_path):
    digits = "--config.fewshot.sources=(('digits', 'digits'),)"
    begun(tmp_path, digits)
    again = (digits, "--config.fewshot.every=3 steps", "--config.fewshot.batch_size=64")
    assert workdir.continue_or_check(quickstart(*again), tmp_path) is None
    for other in ([], [digits, "--config.fewshot.shots=(1,)"], [digits, "--config.fewshot.l2=1"]):
        with pytest.raises(BadInput, match=r"fewshot\."):
            workdir.continue_or_check(quickstart(*other), tmp_path)


def test_what_a_run_that_never_began_wrote_is_removed_and_nothing_else(tmp_path):
    kept, new = tmp_path / "there", tmp_path / "new"
    kept.mkdir()
    (kept / "mine.txt").write_text("")
    before = set(kept.iterdir())
    for folder in (kept, new):
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "config.yaml").write_text("")
    workdir.remove_new(kept, before)
    workdir.remove_new(new, None)
    assert [p.name for p in kept.iterdir()] == ["mine.txt"]
    assert not new.exists()


def test_a_lost_process_is_told_where_the_run_continues(tmp_path):
    for name in ("4", "12", "13.orbax-checkpoint-tmp"):
        make(tmp_path, name, WHOLE)
    assert workdir.has_checkpoint(tmp_path)
    assert workdir.resumption(tmp_path) == "Run again to continue from step 12."
    assert workdir.resumption(tmp_path / "none") == "Run again to start from the beginning."
