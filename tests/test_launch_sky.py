# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""SkyPilot's YAML: by its own parser where it is installed, and what bash makes of its script."""

import importlib.util
import os

import launch_jobs
import pytest
import yaml

from launch.engines import sky
from launch.engines.sky import Options
from vit_jax.errors import BadInput

# The keys of SkyPilot 0.14, as its documentation of the YAML has them.
KEYS = {"name", "workdir", "num_nodes", "resources", "file_mounts", "setup", "run"}
RESOURCES = {
    "accelerators", "accelerator_args", "infra", "image_id", "use_spot", "job_recovery",
}  # fmt: skip
KINDS = [
    {},
    {"accelerator": "l4-1", "options": Options("gcp/us-central1", spot=True, image="docker:a/b")},
    {"accelerator": "v5e-16"},
    {"processes": "per_gpu"},
    {"points": 2},
]


def made(tmp_path, accelerator="h100-16", options=None, **more):
    given = {"workdir": "gs://bucket/runs/mine", **more}
    return sky.render(launch_jobs.odd_job(tmp_path, accelerator, **given), options or Options())


def task(*args, **more):
    rendered = made(*args, **more)
    return yaml.safe_load(next(f.content for f in rendered.files if f.name.startswith("mine")))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_tasks_have_known_keys_and_are_always_the_same(tmp_path, kind):
    found = task(tmp_path, **kind)
    assert found.keys() <= KEYS
    assert found["resources"].keys() <= RESOURCES
    assert made(tmp_path, **kind) == made(tmp_path, **kind)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_skypilot_reads_them(tmp_path, kind, monkeypatch):
    if importlib.util.find_spec("sky") is None:
        pytest.skip("skypilot is not installed")
    monkeypatch.setenv("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
    skypilot = importlib.import_module("sky")
    rendered = made(tmp_path, **kind)
    launch_jobs.write(rendered, tmp_path)
    for file in rendered.files:
        if file.name.endswith(".yaml") and "config" not in file.name:
            skypilot.Task.from_yaml(str(tmp_path / file.name))
            wrong = yaml.safe_load(file.content)
            wrong["num_nods"] = wrong.pop("num_nodes")
            (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
            with pytest.raises(Exception, match="num_nodes"):
                skypilot.Task.from_yaml(str(tmp_path / "wrong.yaml"))


@pytest.fixture
def start(tmp_path):
    """Runs the script of a node, the trainer ending with a code."""
    found, home, notes = task(tmp_path), tmp_path / "home", tmp_path / "notes"
    (home / "vit_jax_job").mkdir(parents=True)
    notes.mkdir()
    launch_jobs.write(made(tmp_path), tmp_path)
    for target, source in found["file_mounts"].items():
        os.link(source, target.replace("~", str(home)))
    launch_jobs.programs(home / "vit_jax_venv/bin")

    def run(code=0):
        (notes / "code").write_text(str(code))
        words = ["bash", "-c", found["run"]]
        return launch_jobs.bash(words, "/nowhere", notes, HOME=str(home))

    return run


@pytest.mark.parametrize("code, then", [(0, 0), (1, 1), (2, 2), (42, 42), (43, 42), (137, 42)])
def test_codes_of_a_node(start, code, then):
    assert start(code).returncode == then


def test_it_is_not_started_for_ever(start, tmp_path):
    assert start(42).returncode == 42
    (tmp_path / "home/mine.starts").write_text("50\n")
    done = start(42)
    assert done.returncode == 1
    assert "given up after 50 starts" in done.stderr


def test_a_signal_is_for_the_trainer(start, tmp_path):
    saves = 'trap "exit 42" TERM; kill -TERM $PPID; for i in $(seq 100); do sleep 0.05; done'
    launch_jobs.program(tmp_path / "home/vit_jax_venv/bin", "vit_jax", f"#!/bin/bash\n{saves}\n")
    assert start().returncode == 42


def test_what_is_odd_arrives_letter_by_letter(start, tmp_path):
    done = start()
    assert done.returncode == 0, done.stderr
    [call] = launch_jobs.calls(tmp_path / "notes")
    assert call["argv"] == ["@~/vit_jax_job/job.json"]
    assert tuple(call["job"]["arguments"][3:]) == launch_jobs.OVERRIDES
    assert call["job"]["arguments"][1] == "--config=~/vit_jax_job/config.yaml"
    assert launch_jobs.ENVIRONMENT.items() <= call["env"].items()


def test_machines(tmp_path):
    found = task(tmp_path)
    assert (found["num_nodes"], found["resources"]["accelerators"]) == (2, "H100:8")
    found = task(tmp_path, "a100-80gb-8")
    assert (found["num_nodes"], found["resources"]["accelerators"]) == (1, "A100-80GB:8")
    found = task(tmp_path, "v5e-16")
    assert (found["num_nodes"], found["resources"]["accelerators"]) == (1, "tpu-v5litepod-16")
    assert found["resources"]["accelerator_args"] == {"runtime_version": "v2-alpha-tpuv5-lite"}


def test_jobs_recover_as_the_codes_ask(tmp_path):
    recovery = task(tmp_path)["resources"]["job_recovery"]
    assert recovery == {"recover_on_exit_codes": [42]}  # not 137, which others of the job get
    assert made(tmp_path).submit[0].argv[:3] == ("sky", "jobs", "launch")


def test_each_gpu_has_a_process(tmp_path):
    run = task(tmp_path, processes="per_gpu")["run"]
    assert "\npython -m launch.node --count=8 --per_gpu @~/vit_jax_job/job.json &\n" in run


@pytest.mark.parametrize(
    "accelerator, more, message",
    [
        ("", {}, "--accelerator is missing"),
        ("cpu-8", {}, "cpu-8: SkyPilot does not have it"),
        ("tpu7x-8", {}, "tpu7x-8: SkyPilot does not have it"),
        ("v5e-16", {"slices": 2}, "does not join slices"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, accelerator, more, message):
    with pytest.raises(BadInput, match=message):
        made(tmp_path, accelerator, **more)
