# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The batch script, run by bash with programs in the place of srun, scontrol and the trainer."""

import launch_jobs
import pytest

from launch.engines import slurm
from launch.engines.slurm import Options
from vit_jax.errors import BadInput

# Two tasks: the first as it is, the second as srun's --kill-on-bad-exit leaves it.
SRUN = """
printf '%s\\n' "$@" > "$NOTES/srun"
while [[ $1 == --* ]]; do shift; done
"$@"; code=$?
[ $code -eq 0 ] || exit 137
"""
SCONTROL = 'printf "%s\\n" "$*" >> "$NOTES/scontrol"'


def directives(rendered):
    lines = rendered.files[0].content.splitlines()
    found = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    return dict(line.partition("=")[::2] for line in found)


@pytest.fixture
def start(tmp_path):
    """Renders a job and runs its script, as sbatch would."""

    def run(job, code=0, **env):
        folder, notes = job.folder, tmp_path / "notes"
        launch_jobs.write(slurm.render(job, Options()), folder)
        bins = launch_jobs.programs(tmp_path / "bin", srun=SRUN, scontrol=SCONTROL)
        notes.mkdir(exist_ok=True)
        (notes / "code").write_text(str(code))
        given = {"SLURM_JOB_ID": "7", **env}
        return launch_jobs.bash([f"{folder}/job.sh"], bins, notes, **given), notes

    return run


def test_what_is_odd_arrives_letter_by_letter(start, tmp_path):
    folder = tmp_path / 'it\'s $HOME "odd"%j'
    done, notes = start(launch_jobs.odd_job(folder, "cpu-2", workdir=f"{folder}/run"))
    assert done.returncode == 0, done.stderr
    [call] = launch_jobs.calls(notes)
    assert call["argv"] == [f"@{folder}/job.json"]
    words = ["train", f"--config={folder}/config.yaml", f"--workdir={folder}/run"]
    assert call["job"]["arguments"] == [*words, *launch_jobs.OVERRIDES]
    assert launch_jobs.ENVIRONMENT.items() <= call["env"].items()


@pytest.mark.parametrize("code, then", [(0, 0), (1, 1), (2, 2), (42, 137), (43, 137), (137, 137)])
def test_codes_restart_or_end(start, tmp_path, code, then):
    done, notes = start(launch_jobs.job(tmp_path / "job", "cpu-1"), code)
    assert done.returncode == then, done.stderr
    requeued = (notes / "scontrol").exists()
    assert requeued == (code > 2)
    assert not requeued or (notes / "scontrol").read_text() == "requeue 7\n"


def test_a_code_of_the_last_start_is_forgotten(start, tmp_path):
    job = launch_jobs.job(tmp_path / "job", "cpu-1")
    assert start(job, 2)[0].returncode == 2
    done, notes = start(job, 43)
    assert done.returncode == 137
    assert (notes / "scontrol").exists()


def test_it_is_not_requeued_for_ever_without_a_new_checkpoint(start, tmp_path):
    job = launch_jobs.job(tmp_path / "job", "cpu-1", workdir=str(tmp_path / "run"))
    for step, count in (("", 1), ("", 2), ("9", 1), ("9", 2), ("10", 1)):
        (tmp_path / "run/checkpoints" / step).mkdir(parents=True, exist_ok=True)
        (tmp_path / "run/checkpoints/11.damaged").mkdir(exist_ok=True)
        done, notes = start(job, 43)
        assert done.returncode == 137
        assert (tmp_path / "job/ends-7").read_text() == f"{step or 'none'} {count}\n"
    requeued = (notes / "scontrol").read_text()
    (tmp_path / "job/ends-7").write_text("10 50\n")
    done, notes = start(job, 43)
    assert done.returncode == 1
    assert "given up after 50 restarts" in done.stderr
    assert (notes / "scontrol").read_text() == requeued


def test_a_job_is_not_told_what_another_one_ended_with(start, tmp_path):
    job = launch_jobs.job(tmp_path / "job", "cpu-1")
    assert start(job, 2, SLURM_JOB_ID="8")[0].returncode == 2
    (tmp_path / "job/needs-a-person-8").write_text("2\n")
    assert start(job, 42)[0].returncode == 137


def test_cores_of_each_task_are_handed_on(start, tmp_path):
    job = launch_jobs.job(tmp_path / "job", "cpu-1")
    launch_jobs.write(slurm.render(job, Options()), job.folder)
    bins = launch_jobs.programs(tmp_path / "bin", srun='env > "$NOTES/env"')
    given = {"SLURM_JOB_ID": "7", "SLURM_CPUS_PER_TASK": "12"}
    launch_jobs.bash([f"{job.folder}/job.sh"], bins, tmp_path / "notes", **given)
    assert "SRUN_CPUS_PER_TASK=12\n" in (tmp_path / "notes/env").read_text()


def test_a_point_of_an_array_runs_and_is_requeued_alone(start, tmp_path):
    job = launch_jobs.job(tmp_path / "job", "cpu-1", points=3, parallel=2)
    array = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2", "SLURM_JOB_ID": "7"}
    done, notes = start(job, 42, **array)
    assert done.returncode == 137
    [call] = launch_jobs.calls(notes)
    assert call["argv"] == [f"@{job.folder}/2/job.json"]
    assert f"--workdir={job.runs[2].workdir}" in call["job"]["arguments"]
    assert (notes / "scontrol").read_text() == "requeue 7_2\n"
    assert directives(slurm.render(job, Options()))["array"] == "0,1,2%2"


def test_proxies_do_not_reach_the_trainer(start, tmp_path):
    job = launch_jobs.job(tmp_path / "job", "cpu-1")
    launch_jobs.write(slurm.render(job, Options()), job.folder)
    bins = launch_jobs.programs(tmp_path / "bin", srun='env > "$NOTES/env"')
    proxies = {"http_proxy": "http://x", "HTTPS_PROXY": "http://y", "SLURM_JOB_ID": "7"}
    launch_jobs.bash([f"{job.folder}/job.sh"], bins, tmp_path / "notes", **proxies)
    assert "PROXY=" not in (tmp_path / "notes/env").read_text().upper()


def test_sigterm_is_for_the_trainer_whose_code_counts(tmp_path):
    job = launch_jobs.job(tmp_path / "job", "cpu-1")
    launch_jobs.write(slurm.render(job, Options()), job.folder)
    saves = 'trap "exit 42" TERM; kill -TERM $PPID $$; sleep 5'
    bins = launch_jobs.programs(tmp_path / "bin")
    launch_jobs.program(bins, "vit_jax", f"#!/bin/bash\n{saves}\n")
    words = [f"{job.folder}/task.sh", f"{job.folder}/job.json", f"{tmp_path}/asks"]
    assert launch_jobs.bash(words, bins, tmp_path / "notes").returncode == 42
    assert not (tmp_path / "asks").exists()


@pytest.mark.parametrize(
    "accelerator, more, options, nodes, tasks, gres",
    [
        ("h100-16", {}, Options(), "2", "1", "gpu:8"),
        ("h100-16", {"processes": "per_gpu"}, Options(), "2", "8", "gpu:8"),
        ("h100-16", {"processes": "per_gpu"}, Options(nodes=4), "4", "4", "gpu:4"),
        ("h100-8", {}, Options(gres="gpu:h100:8"), "1", "1", "gpu:h100:8"),
        ("cpu-4", {}, Options(nodes=2), "2", "1", None),
    ],
)
def test_machines(tmp_path, accelerator, more, options, nodes, tasks, gres):
    found = directives(slurm.render(launch_jobs.job(tmp_path, accelerator, **more), options))
    assert (found["nodes"], found["ntasks-per-node"], found.get("gres")) == (nodes, tasks, gres)


def test_each_machine_of_a_cpu_job_has_its_share_of_devices(tmp_path):
    script = slurm.render(launch_jobs.job(tmp_path, "cpu-4"), Options(nodes=2)).files[0].content
    assert "--xla_force_host_platform_device_count=2" in script


def test_the_contract_is_in_the_directives(tmp_path):
    given = Options("gpu", "lab", "high", "1-00:00:00", sbatch=("--mem=0", "--cpus-per-task=8"))
    found = directives(slurm.render(launch_jobs.job(tmp_path, "h100-8"), given))
    assert found.items() >= {
        "requeue": "", "open-mode": "append", "signal": "TERM@180", "partition": "gpu",
        "account": "lab", "qos": "high", "time": "1-00:00:00", "mem": "0", "cpus-per-task": "8",
    }.items()  # fmt: skip
    script = slurm.render(launch_jobs.job(tmp_path, "h100-8"), given).files[0].content
    assert "srun --kill-on-bad-exit=1 --label" in script


@pytest.mark.parametrize("points", [0, 2])
def test_scripts_are_bash_and_always_the_same(tmp_path, points):
    job = launch_jobs.odd_job(tmp_path / "a b", "h100-16", points=points)
    rendered = slurm.render(job, Options())
    launch_jobs.check_scripts(rendered)
    again = launch_jobs.odd_job(tmp_path / "a b", "h100-16", points=points)
    assert rendered == slurm.render(again, Options())


def test_percent_signs_of_a_folder_are_no_patterns(tmp_path):
    [submit] = slurm.render(launch_jobs.job(f"{tmp_path}/100%a", "cpu-1"), Options()).submit
    assert submit.argv[1] == f"--output={tmp_path}/100%%a/log.txt"


@pytest.mark.parametrize(
    "accelerator, options, message",
    [
        ("", Options(), "--accelerator is missing"),
        ("v4-8", Options(), "v4-8 is a TPU"),
        ("h100-16", Options(nodes=3), "--nodes=3 cannot share 16 devices equally; --nodes=2 can"),
        ("h100-8", Options(time="two days"), "--time"),
        ("h100-8", Options(partition="a b"), "--partition='a b'"),
        ("h100-8", Options(sbatch=("mem=0",)), "write the whole option"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, accelerator, options, message):
    with pytest.raises(BadInput, match=message):
        slurm.render(launch_jobs.job(tmp_path, accelerator), options)
