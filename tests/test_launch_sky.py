# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""SkyPilot's YAML: by its own parser where it is installed, and what bash makes of its script."""

import importlib.util
import os

import launching
import pytest
import yaml

from launch import job
from launch.engines import sky
from launch.engines.sky import Options
from vit_jax.errors import BadInput

# Of SkyPilot 0.14, as its documentation of the YAML has them.
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
    return sky.render(launching.odd_job(tmp_path, accelerator, **given), options or Options())


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
    launching.write(rendered, tmp_path)
    for file in rendered.files:
        if file.name.endswith(".yaml") and "config" not in file.name:
            skypilot.Task.from_yaml(str(tmp_path / file.name))
            wrong = yaml.safe_load(file.content)
            wrong["num_nods"] = wrong.pop("num_nodes")
            (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
            with pytest.raises(Exception, match="num_nodes"):
                skypilot.Task.from_yaml(str(tmp_path / "wrong.yaml"))


def test_what_is_odd_arrives_letter_by_letter(tmp_path):
    found, home = task(tmp_path), tmp_path / "home"
    (home / "vit_jax_job").mkdir(parents=True)
    launching.write(made(tmp_path), tmp_path)
    for target, source in found["file_mounts"].items():
        os.link(source, target.replace("~", str(home)))
    launching.programs(home / "vit_jax_venv/bin")
    words = ["bash", "-c", found["run"]]
    done = launching.bash(words, "/nowhere", tmp_path / "notes", HOME=str(home))
    assert done.returncode == 0, done.stderr
    [call] = launching.calls(tmp_path / "notes")
    assert call["argv"] == ["@~/vit_jax_job/job.json"]
    assert tuple(call["job"]["arguments"][3:]) == launching.OVERRIDES
    assert call["job"]["arguments"][1] == "--config=~/vit_jax_job/config.yaml"
    assert launching.ENVIRONMENT.items() <= call["env"].items()


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
    assert recovery == {"recover_on_exit_codes": list(job.AGAIN)}
    assert made(tmp_path).submit[0].argv[:3] == ("sky", "jobs", "launch")


def test_each_gpu_has_a_process(tmp_path):
    run = task(tmp_path, processes="per_gpu")["run"]
    assert "exec python -m launch.node --count=8 --per_gpu @~/vit_jax_job/job.json" in run


@pytest.mark.parametrize(
    "accelerator, more, message",
    [
        ("", {}, "--accelerator is missing"),
        ("cpu-8", {}, "cpu-8: SkyPilot has none"),
        ("tpu7x-8", {}, "tpu7x-8: SkyPilot has none"),
        ("v5e-16", {"slices": 2}, "does not join slices"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, accelerator, more, message):
    with pytest.raises(BadInput, match=message):
        made(tmp_path, accelerator, **more)
