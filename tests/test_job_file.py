# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax @FILE`: the arguments come from the file, and what it expects is compared first."""

import json
import re

import launch_jobs
import pytest

import vit_jax
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.runtime import job_file, rendezvous
from vit_jax.runtime.job_file import JobFile

RECIPE = "configs/quickstart.py"


def test_a_job_reads_as_it_was_written(tmp_path):
    job = JobFile(("train", *launch_jobs.ODD), "c0de", "abc", {"jax": "1"})
    (tmp_path / "job.json").write_text(job.to_json())
    assert job_file.read(str(tmp_path / "job.json")) == job


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "is not a job"),
        ("{}", "is not a job"),
        ('{"arguments": "train"}', "a list of strings"),
        ('{"arguments": [1]}', "a list of strings"),
        ('{"arguments": [], "pakages": {}}', "unknown key .*'pakages'.*'packages'"),
        ('{"arguments": [], "packages": {"jax": 1}}', "names with versions"),
        ('{"arguments": [], "code": 1}', "code=1; expected a string"),
    ],
)
def test_a_file_that_is_no_job_is_bad_input(tmp_path, text, message):
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(BadInput, match=message):
        job_file.read(str(tmp_path / "job.json"))


def test_a_missing_file_ends_with_code_2(tmp_path, capsys):
    assert main.main([f"@{tmp_path}/none.json"]) == 2
    assert "none.json cannot be read" in capsys.readouterr().err


def written(tmp_path, *arguments, **expected):
    (tmp_path / "job.json").write_text(json.dumps({"arguments": arguments, **expected}))
    return f"@{tmp_path}/job.json"


def test_the_command_of_the_file_runs(tmp_path, capsys):
    assert main.main([written(tmp_path, "--version")]) == 0
    assert vit_jax.__version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    "expected, message",
    [
        ({"code": "other"}, "made with code other, here is "),
        ({"packages": {"jax": "0.0.1"}}, r"made with jax 0\.0\.1, here is \d"),
        ({"packages": {"no-such-package": "1"}}, "made with no-such-package 1, here is none"),
        ({"config": "0123"}, f"made with configuration 0123, --config={RECIPE} is "),
    ],
)
def test_what_differs_is_said_before_anything_else(tmp_path, capsys, expected, message, root):
    workdir = tmp_path / "run"
    spec = f"--config={root / RECIPE}"
    assert main.main([written(tmp_path, "train", spec, f"--workdir={workdir}", **expected)]) == 2
    said = capsys.readouterr().err
    assert re.search(message.replace(RECIPE, str(root / RECIPE)), said), said
    assert not workdir.exists()


def test_what_is_the_same_passes(root, monkeypatch):
    monkeypatch.setenv("VIT_JAX_CODE", "sha256:1")
    spec, overrides = str(root / RECIPE), ["--config.seed=7"]
    found = config_lib.fingerprint(config_lib.load(spec, overrides))
    packages = {k: v for k, v in rendezvous.facts().items() if k != "code"}
    JobFile((), "sha256:1", found, packages).check(overrides, spec)
    with pytest.raises(BadInput, match="changed since"):
        JobFile((), "sha256:1", found, packages).check([], spec)
