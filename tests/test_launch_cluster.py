# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs what `launch slurm` renders on a real Slurm cluster of two nodes on this machine."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import slurm_cluster
from test_launch_jobs import commands
from test_train import QUICKSTART, TINY, logged, same_parameters

from launch import main
from vit_jax.checkpoints import step_folders
from vit_jax.cli import main as vit_jax_main

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(why := slurm_cluster.missing()), reason=why),
]
STEPS = (
    "--config.length=60 steps",
    "--config.report.page=false",
    "--config.checkpoint.every=10 steps",
    "--config.evals.val.every=30 steps",
    "--config.report.every=10 steps",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with slurm_cluster.serve(tmp_path_factory.mktemp("cluster")) as environment:
        yield environment


@pytest.fixture
def cluster(served, monkeypatch):
    """The environment of somebody who submits to it, vit_jax being active."""
    monkeypatch.setenv("SLURM_CONF", served["SLURM_CONF"])
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{served['PATH']}")


def asked(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60).stdout


def fields(number):
    """Returns the facts that Slurm gives about a job."""
    return dict(re.findall(r"(\S+?)=(\S*)", asked("scontrol", "show", "job", str(number))))


def wait(number, states, secs=300):
    """Until a job is in one of the states; returns what Slurm says of it."""
    end = time.monotonic() + secs
    while (found := fields(number))["JobState"] not in states:
        assert time.monotonic() < end, found
        time.sleep(0.2)
    return found


def submit(capfd, workdir, *words):
    """Submits; returns the number of the job."""
    level = "--env=XLA_FLAGS=--xla_backend_optimization_level=0"
    given = [f"--workdir={workdir}", "--no_plan", level, *words]
    assert main.main(["slurm", "submit", *given]) == 0
    return int(re.search(r"Submitted batch job (\d+)", capfd.readouterr().out)[1])


@pytest.mark.slow  # 2 minutes of waiting; the array below is a real job, too
@pytest.mark.timeout(1500)
def test_job_of_two_nodes_is_stopped_and_requeued_and_ends_as_if_nothing_had_been(
    cluster, tmp_path, capfd
):
    given = [f"--config={QUICKSTART}", "--accelerator=cpu-4", "--nodes=2", *TINY, *STEPS]
    whole, cut = tmp_path / "it's whole", tmp_path / "it's cut"
    numbers = submit(capfd, whole, *given), submit(capfd, cut, *given)
    end = time.monotonic() + 300
    while not step_folders.committed(cut):
        assert time.monotonic() < end, (cut / "launch/log.txt").read_text()
        time.sleep(0.1)
    asked("scancel", "--signal=TERM", str(numbers[1]))
    found = wait(numbers[1], ["PENDING", "COMPLETED", "FAILED"])
    assert found["JobState"] == "PENDING", (cut / "launch/log.txt").read_text()
    asked("scontrol", "update", f"JobId={numbers[1]}", "StartTime=now+10")  # instead of two minutes
    ended = [wait(number, ["COMPLETED", "FAILED", "CANCELLED"]) for number in numbers]
    log = (cut / "launch/log.txt").read_text()
    assert [found["JobState"] for found in ended] == ["COMPLETED"] * 2, log
    assert [found["Restarts"] for found in ended] == ["0", "1"]
    assert [found["NumNodes"] for found in ended] == ["2", "2"]
    for process in (0, 1):
        assert re.search(rf"^{process}: .*SIGTERM received", log, re.MULTILINE)
    assert "2 processes" in log
    assert "start: resuming" in log
    assert logged(cut) == logged(whole)
    assert same_parameters(cut, whole)


def test_array_trains_the_points_of_a_sweep(cluster, tmp_path, capfd):
    recipe = tmp_path / "two.py"
    recipe.write_text(
        "from configs import quickstart\n"
        "def get_config(arg=None):\n    return quickstart.get_config()\n"
        "def sweep(arg=None):\n    return [{'seed': 0}, {'seed': 1}]\n"
    )
    given = [f"--config={recipe}", "--accelerator=cpu-1", "--sweep", "--parallel=2", *TINY]
    number = submit(capfd, tmp_path / "runs", *given)
    for task in (0, 1):
        found = wait(f"{number}_{task}", ["COMPLETED", "FAILED", "CANCELLED"])
        assert found["JobState"] == "COMPLETED"
    assert vit_jax_main.main(["sweep", f"--workdir={tmp_path / 'runs'}", "--collect"]) == 0
    states = (tmp_path / "runs/sweep.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in states] == ["state", "done", "done"]
    found = [json.loads(p.read_text()) for p in (tmp_path / "runs").glob("*/results.json")]
    assert len(found) == 2
    assert found[0]["test"]["loss"] != found[1]["test"]["loss"]


def trial(script, *words):
    """(code, words) of Slurm about a script that it does not run."""
    done = subprocess.run(["sbatch", "--test-only", *words, script], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_slurm_takes_every_script_of_the_page(cluster, root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scripts = []
    for page, words in commands(root):
        if page != "slurm" or words[4] not in ("render", "submit"):
            continue
        words = [w.replace("--config=configs", f"--config={root}/configs") for w in words[3:]]
        words = [w.replace("--workdir=/shared", f"--workdir={tmp_path}") for w in words]
        scripts.append(tmp_path / str(len(scripts)))
        assert main.main([words[0], "render", *words[2:], f"--out={scripts[-1]}"]) == 0
    assert len(scripts) >= 4
    for script in scripts:
        text = (script / "job.sh").read_text().replace("--account=lab", "--comment=lab")
        (script / "job.sh").write_text(text)  # accounts are of a database that this cluster lacks
        code, said = trial(script / "job.sh")
        assert code == 0, said
        assert "to start at" in said


@pytest.mark.parametrize(
    "changed, said",
    [
        (("--gres=", "--gress="), "unrecognized option"),
        (("--nodes=2", "--nodes=64"), "not available"),
        (("--gres=gpu:8", "--gres=gpu:9"), "not available"),
        (("--partition=gpu", "--partition=cpu"), "invalid partition"),
    ],
)
def test_slurm_refuses_what_is_misspelt_or_cannot_be(cluster, tmp_path, changed, said):
    given = ["--accelerator=h100-16", "--partition=gpu", f"--out={tmp_path}"]
    words = [f"--config={QUICKSTART}", "--workdir=/shared/q", "--config.batch_size=32", *given]
    assert main.main(["slurm", "render", *words]) == 0
    script = tmp_path / "job.sh"
    assert trial(script)[0] == 0
    assert changed[0] in script.read_text()
    script.write_text(script.read_text().replace(*changed))
    code, found = trial(script)
    assert code != 0
    assert said in found
