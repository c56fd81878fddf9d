# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Sweeps in a bucket, submitted to the engines of clouds: each point runs as its machine would."""

import csv
import os

import launch_jobs
import pytest
import yaml
from test_train import TINY

from launch import artefact
from launch import main as launch_main
from launch.engines import gke, sky, tpu_vm
from vit_jax.cli import main
from vit_jax.runtime import job_file
from vit_jax.storage import files as storage

RECIPE = """
from configs import quickstart
def get_config(arg=None):
    return quickstart.get_config()
def sweep(arg=None):
    best = lambda rows: [{"seed": max(rows, key=lambda row: row["val/top1"])["seed"] + 10}]
    return {"select": [{"seed": 1}, {"seed": 2}], "final": best}
"""
CLOUD = ("--project=p", "--zone=z")
FLAGS = {
    "gke": ("--accelerator=v5e-16", f"--image=vit_jax@sha256:{'0' * 64}"),
    "tpu_vm": ("--accelerator=v4-16", *CLOUD),
    "sky": ("--accelerator=h100-16",),
}
SHORT = (*TINY, "--config.length=2 steps", "--config.schedule.warmup=0")


def jobs(engine, folder):
    """[(workdir-independent place, job file, configuration)] of what was submitted."""
    if engine == "gke":
        objects = [next(yaml.safe_load_all(p.read_text())) for p in sorted(folder.glob("*.yaml"))]
        found = [(o["data"][job_file.FILE], o["data"]["config.yaml"]) for o in objects]
        return [(gke.MOUNT, *two) for two in found]
    at = {"tpu_vm": f"{tpu_vm.HOME}/job", "sky": sky.HOME}[engine]
    files = sorted(folder.glob(f"*/{job_file.FILE}"))
    return [(at, p.read_text(), p.with_name("config.yaml").read_text()) for p in files]


def run(place, told, config, folder):
    """Runs a point as a machine does, with its own place for the two files."""
    folder.mkdir()
    (folder / job_file.FILE).write_text(told.replace(place, str(folder)))
    (folder / "config.yaml").write_text(config)
    return main.main([f"@{folder / job_file.FILE}"])


def states():
    assert main.main(["sweep", "--workdir=gs://bucket/s", "--collect"]) == 0
    rows = csv.DictReader(storage.path("gs://bucket/s/sweep.csv").read_text().splitlines())
    return {row["run"]: row["state"] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("engine", FLAGS)
def test_points_run_once_each_and_are_read_back(engine, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.py").write_text(RECIPE)
    none = '[[ " $* " != *" get "* && " $* " != *" describe "* ]]'  # was submitted before
    bins = launch_jobs.programs(tmp_path / "bin", kubectl=none, gcloud=none, sky="")
    monkeypatch.setenv("PATH", f"{bins}:{os.environ['PATH']}")
    monkeypatch.setattr(artefact, "locked", artefact.here)  # this machine may have others

    def submit(*more, out):
        words = ["submit", "--config=recipe.py", "--workdir=gs://bucket/s", "--sweep", "--no_plan"]
        given = [engine, *words, *FLAGS[engine], *SHORT, *more, f"--out={tmp_path / out}"]
        assert launch_main.main(given) == 0
        found = jobs(engine, tmp_path / out)
        monkeypatch.setenv("VIT_JAX_CODE", yaml.safe_load(found[0][1])["code"])  # as it is shipped
        return found

    both = submit(out="a")
    assert len(both) == 2
    assert run(*both[0], tmp_path / "0") == 0
    assert sorted(states().values()) == ["done", "pending"]
    [left] = submit(out="b")
    assert left == both[1]
    assert run(*left, tmp_path / "1") == 0
    [final] = submit("--stage=final", out="c")
    assert run(*final, tmp_path / "2") == 0
    assert list(states().values()) == ["done"] * 3
