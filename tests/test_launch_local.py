# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Jobs on this machine, among them a real run of two processes that dies twice."""

import json
import os
import signal
import subprocess
import sys
import time

import launch_jobs
import pytest
from test_train import QUICKSTART, TINY, logged

from launch.engines import local
from launch.engines.local import Options
from vit_jax.errors import BadInput

pytestmark = pytest.mark.integration


def words(rendered):
    return list(rendered.submit[0].argv)


def test_what_is_odd_reaches_the_process(tmp_path):
    job = launch_jobs.odd_job(tmp_path / "a b", "cpu-2")
    env = words(local.render(job, Options()))
    until = env.index(sys.executable)
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    said = subprocess.run([*env[: until + 1], "-c", code], capture_output=True, text=True).stdout
    assert launch_jobs.ENVIRONMENT.items() <= json.loads(said).items()
    assert env[-1] == f"@{tmp_path}/a b/job.json"


@pytest.mark.parametrize("processes, each", [(1, 4), (2, 2), (4, 1)])
def test_devices_of_a_cpu_are_shared(tmp_path, processes, each):
    argv = words(local.render(launch_jobs.job(tmp_path, "cpu-4"), Options(processes)))
    assert f"XLA_FLAGS=--xla_force_host_platform_device_count={each}" in argv
    assert f"--count={processes}" in argv


def test_each_gpu_has_a_process(tmp_path):
    argv = words(local.render(launch_jobs.job(tmp_path, "h100-8", processes="per_gpu"), Options()))
    assert {"--count=8", "--per_gpu", "--again"} <= set(argv)


def test_a_sweep_is_that_of_vit_jax(tmp_path):
    job = launch_jobs.job(tmp_path, points=2, sweep=("sweep", "--config=a b", "--parallel=2"))
    rendered = local.render(job, Options())
    assert words(rendered)[-5:] == ["-m", "vit_jax", "sweep", "--config=a b", "--parallel=2"]
    assert rendered.files == ()


@pytest.mark.parametrize(
    "accelerator, processes, more, message",
    [
        ("h100-16", 1, {}, "h100-16 is 2 machines.*at most h100-8"),
        ("v4-32", 1, {}, "v4-32 is 4 machines.*at most v4-8"),
        ("cpu-4", 3, {}, "--processes=3.*divides 4 devices"),
        ("", 0, {}, "--processes=0; give a number from 1 on"),
        ("", 2, {"points": 2}, "--parallel"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, accelerator, processes, more, message):
    with pytest.raises(BadInput, match=message):
        local.render(launch_jobs.job(tmp_path, accelerator, **more), Options(processes))


def test_it_is_always_the_same(tmp_path):
    one, two = (local.render(launch_jobs.odd_job(tmp_path, "cpu-2"), Options()) for _ in range(2))
    assert one == two


# ---------------------------------------------------------------- for real


def submit(root, workdir, processes, *more):
    """Starts `launch local submit` of a small run."""
    return subprocess.Popen(
        [
            sys.executable, "-m", "launch", "local", "submit", f"--config={QUICKSTART}",
            f"--workdir={workdir}", "--accelerator=cpu-4", f"--processes={processes}", *TINY,
            "--config.platform=cpu", *more,
        ],
        cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_processes_train_together(tmp_path, root, processes):
    short = ["--config.length=3 steps", "--config.checkpoint.every=0"]
    started = submit(root, tmp_path / "run", processes, *short)
    said, _ = started.communicate(timeout=500)
    assert started.returncode == 0, said
    assert f"{processes} processes" in said
    assert (tmp_path / "run/launch/log.txt").read_text() in said
    assert max(step for step, _ in logged(tmp_path / "run")) == 3


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_two_processes_train_through_the_death_of_one(tmp_path, root):
    """The other leaves with 43; both start again from the checkpoint, and finish."""
    workdir = tmp_path / "run"
    steps = ["--config.length=24 steps", "--config.checkpoint.every=6 steps"]
    started = submit(root, workdir, 2, *steps, "--config.evals.val.every=8 steps")
    end = time.monotonic() + 1000
    while time.monotonic() < end and not (workdir / "checkpoints" / "6").is_dir():
        assert started.poll() is None
        time.sleep(0.05)
    kill_one(workdir, signal.SIGKILL)
    said, _ = started.communicate(timeout=1200)
    assert started.returncode == 0, said
    assert "ended with code 43" in said or "ended with code 137" in said
    assert "again from step" in said
    assert max(step for step, _ in logged(workdir)) == 24


def kill_one(workdir, number):
    """Kills the last started of the trainers of a workdir, found by the job file in its words."""
    job = f"@{workdir}/launch/job.json"
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                argv = file.read().decode().split("\0")
        except OSError:
            continue
        if job in argv and "vit_jax" in argv:
            found.append(int(pid))
    os.kill(max(found), number)
