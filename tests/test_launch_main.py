# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`python -m launch` from its arguments to the engine's commands, with programs in their place."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import launch_jobs
import pytest

from launch import main, running
from launch.job import Command
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput, PeerLost
from vit_jax.experiments.sweeps import folder as sweep_folder
from vit_jax.experiments.sweeps import points as sweep_lib
from vit_jax.storage import files as storage

RECIPE = """
from configs import quickstart
def get_config(arg=None):
    return quickstart.get_config()
def sweep(arg=None):
    rule = {"metric": "val/top1", "eta": 2, "rungs": (50,)}
    select = [{"seed": s} for s in (1, 2, 3)]
    if arg == "halved":
        select = {"points": select, "halving": rule}
    return {"select": select, "final": lambda rows: [{"seed": 4}]}
"""


@pytest.fixture
def launch(tmp_path, monkeypatch, capfd):
    """Runs the command in an empty folder; returns (code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.py").write_text(RECIPE)
    notes = 'printf "%s\\0" "$0" "$@" >> "$NOTES/called"; echo >> "$NOTES/called"'
    bins = launch_jobs.programs(
        tmp_path / "bin",
        sbatch=notes,
        scancel=f"{notes}; exit $(cat $NOTES/exit 2>/dev/null || echo 0)",
        squeue=f"[[ $* == *--noheader* ]] && exec cat $NOTES/queued; {notes}",
    )
    monkeypatch.setenv("PATH", f"{bins}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(tmp_path))

    def run(*argv):
        code = main.main(argv)
        return code, *capfd.readouterr()

    return run


def called(tmp_path):
    """Returns the words that each program was called with."""
    file = tmp_path / "called"
    lines = file.read_text().splitlines() if file.exists() else []
    return [[os.path.basename(line.split("\0")[0]), *line.split("\0")[1:-1]] for line in lines]


SLURM = ("--config=recipe.py", "--workdir=run", "--accelerator=cpu-2")


def test_rendering_shows_everything_and_touches_nothing(launch, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    code, out, _ = launch("slurm", "render", *SLURM)
    assert code == 0
    for shown in ("#SBATCH --requeue", '"arguments"', "sbatch --output=", "squeue --name=",
                  "scancel --name=", "tail -n 200"):  # fmt: skip
        assert shown in out
    assert [p for p in sorted(tmp_path.rglob("*")) if "__pycache__" not in p.parts] == before
    assert launch("slurm", "render", *SLURM)[1] == out
    assert called(tmp_path) == []


def test_what_is_submitted_is_what_was_shown(launch, tmp_path):
    shown = launch("slurm", "render", *SLURM)[1]
    code, out, _ = launch("slurm", "submit", *SLURM)
    assert code == 0
    [argv] = called(tmp_path)
    assert shlex.join(argv) in shown
    assert f"|| {shlex.join(argv)}" in out
    job = json.loads((tmp_path / "run/launch/job.json").read_text())
    saved = config_lib.load(str(tmp_path / "run/launch/config.yaml"))
    assert config_lib.fingerprint(saved) == job["config"]
    assert job["arguments"][1] == f"--config={tmp_path}/run/launch/config.yaml"


def test_status_logs_and_cancel_need_the_workdir_alone(launch, tmp_path):
    launch("slurm", "submit", *SLURM)
    assert launch("slurm", "status", "--workdir=run")[0] == 0
    (tmp_path / "exit").write_text("3")
    code, _, err = launch("slurm", "cancel", "--workdir=run")
    assert code == 3
    assert "scancel ended with code 3" in err
    [_, status, cancel] = called(tmp_path)
    assert status[0] == "squeue"
    assert cancel[1].startswith("--name=run-")
    (tmp_path / "exit").write_text("0")
    assert launch("slurm", "cancel", "--workdir=run")[0] == 0  # not yet forgotten
    assert launch("slurm", "cancel", "--workdir=run")[0] == 2  # nothing is left


def test_what_is_queued_is_not_submitted_again_and_its_files_stay(launch, tmp_path):
    launch("slurm", "submit", *SLURM)
    files = {p: p.read_bytes() for p in (tmp_path / "run/launch").rglob("*") if p.is_file()}
    (tmp_path / "queued").write_text("7 run PENDING")
    code, out, _ = launch("slurm", "submit", *SLURM, "--config.seed=5")
    assert code == 0
    assert "# is there already" in out
    assert len(called(tmp_path)) == 1
    assert files == {p: p.read_bytes() for p in files}


def test_later_submissions_do_not_hide_what_earlier_ones_have_started(launch, tmp_path):
    sweep = ("slurm", "submit", *SLURM, "--sweep")
    launch(*sweep, "--name=a")
    launch(*sweep, "--name=b", f"--out={tmp_path}/run/launch")
    launch("slurm", "cancel", "--workdir=run")
    assert [argv for argv in called(tmp_path) if argv[0] == "scancel"] == [
        ["scancel", "--name=a"], ["scancel", "--name=b"],
    ]  # fmt: skip


def test_status_of_what_was_never_submitted_is_bad_input(launch):
    code, _, err = launch("slurm", "status", "--workdir=run")
    assert code == 2
    assert "nothing was submitted" in err


def test_status_of_another_engine_is_bad_input(launch):
    launch("slurm", "submit", *SLURM)
    code, _, err = launch("local", "cancel", "--workdir=run")
    assert code == 2
    assert "was submitted by slurm" in err


def test_odd_arguments_arrive(launch, tmp_path):
    for number, text in enumerate(("".join(launch_jobs.ODD), "--leading=dash")):
        odd = f"--config.data.data_dir={text}"
        code, _, err = launch("slurm", "render", *SLURM, odd, f"--out=out{number}")
        assert code == 0, err
        job = json.loads((tmp_path / f"out{number}/job.json").read_text())
        assert job["arguments"][-1] == odd
        saved = config_lib.load(str(tmp_path / f"out{number}/config.yaml"), [odd])
        assert saved.data.data_dir == text
        assert config_lib.fingerprint(saved) == job["config"]


@pytest.mark.parametrize(
    "argv, message",
    [
        (["slrum", "render"], "unknown engine 'slrum'.*'slurm'"),
        (["slurm", "render", *SLURM, "--partiton=a"], "'--partiton'.*'--partition'"),
        (["slurm", "render", *SLURM, "--config.sed=1"], "unknown config key 'sed'.*'seed'"),
        (["slurm", "render", *SLURM, "--accelerator=h100-12"], "the nearest is h100-8."),
        (["slurm", "render", "--workdir=run"], "--config is missing"),
        (["slurm", "render", "--config=recipe.py", "--workdir="], "--workdir is empty"),
        (["slurm", "render", *SLURM, "--name=A"], "--name='A'"),
        (["slurm", "render", *SLURM, "--env=A"], "--env=A; write"),
        (["slurm", "render", *SLURM, "--env=VIT_JAX_CODE=a"], "the job sets it"),
        (["slurm", "render", *SLURM[:1], "--workdir=s3://b/x"], "s3:// is not read"),
        (["gke", "render", *SLURM[:1], "--workdir=gs://bucket"], "a name inside a bucket"),
        (["gke", "render", *SLURM[:1], "--workdir=gs://bucket/a*b"], "a name in a bucket has no"),
        (["slurm", "render", *SLURM[:1], "--workdir=a\udcff"], "is not UTF-8"),
        (["slurm", "render", *SLURM, "--parallel=0"], "--parallel=0"),
        (["slurm", "render", *SLURM, "--sweep", "--stage=slect"], "'slect'.*'select'"),
        (["slurm", "render", *SLURM, "--sweep", "--stage=final"], "not finished: select/000"),
        (["slurm", "render", "--config=recipe.py:halved", "--workdir=run", "--sweep"],
         "'select' stops runs early.*slurm starts each by itself"),
    ],
)  # fmt: skip
def test_bad_input_ends_with_code_2_and_leaves_nothing(launch, tmp_path, argv, message):
    code, _, err = launch(*argv)
    assert code == 2
    assert re.search(message, err, re.DOTALL), err
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_a_program_that_is_not_there_is_bad_input(launch, tmp_path, monkeypatch):
    (tmp_path / "bin/sbatch").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    code, _, err = launch("slurm", "submit", *SLURM)
    assert code == 2
    assert "sbatch is not installed here" in err


# ---------------------------------------------------------------- sweeps


def finish(workdir, *runs):
    for run in runs:
        (workdir / run).mkdir(parents=True, exist_ok=True)
        (workdir / run / "results.json").write_text('{"step": 1, "val": {"top1": 0.5}}')


def test_points_are_those_of_vit_jax_sweep_and_finished_ones_are_left_out(launch, tmp_path):
    sweep = ("slurm", "submit", *SLURM, "--sweep", "--parallel=2")
    assert launch(*sweep)[0] == 0
    assert "#SBATCH --array=0,1,2%2" in (tmp_path / "run/launch/job.sh").read_text()
    finish(tmp_path / "run", "select/001-seed=2")
    code, out, _ = launch(*sweep)
    assert code == 0
    assert ": 2 runs, each on cpu-2" in out
    assert "#SBATCH --array=0,2%2" in (tmp_path / "run/launch/job.sh").read_text()
    jobs = [json.loads((tmp_path / f"run/launch/{i}/job.json").read_text()) for i in (0, 2)]
    assert [f"--workdir={tmp_path}/run/select/{n}" for n in ("000-seed=1", "002-seed=3")] == [
        job["arguments"][2] for job in jobs
    ]
    read = sweep_lib.read(str(tmp_path / "recipe.py"))
    found = sweep_folder.entries(tmp_path / "run")
    assert [e.run for e in found] == [p.run for p in read.points("select")]
    assert [e.state for e in found] == ["pending", "done", "pending"]


def test_the_next_stage_is_made_of_what_was_reached(launch, tmp_path):
    launch("slurm", "submit", *SLURM, "--sweep")
    finish(tmp_path / "run", *[f"select/00{i}-seed={i + 1}" for i in range(3)])
    code, _, err = launch("slurm", "render", *SLURM, "--sweep")
    assert code == 2
    assert "all 3 runs of the sweep are finished; --stage=final is next" in err
    code, out, _ = launch("slurm", "render", *SLURM, "--sweep", "--stage=final")
    assert code == 0
    assert f"--workdir={tmp_path}/run/final/000-seed=4" in out


def test_where_no_store_answers_all_points_are_shown_and_none_is_submitted(launch, monkeypatch):
    def workdir(*_):
        raise PeerLost("the store does not answer")

    monkeypatch.setattr(storage, "workdir", workdir)
    given = ("--config=recipe.py", "--workdir=gs://bucket/m", "--accelerator=v5e-16", "--sweep")
    given = (*given, "--no_plan", f"--image=vit_jax@sha256:{'0' * 64}")
    code, out, err = launch("gke", "render", *given)
    assert code == 0, err
    assert out.count("kind: JobSet") == 3
    assert launch("gke", "submit", *given)[0] == 43


def test_all_points_are_cancelled_also_those_that_are_finished(launch, tmp_path):
    launch("slurm", "submit", *SLURM, "--sweep")
    finish(tmp_path / "run", *[f"select/00{i}-seed={i + 1}" for i in range(3)])
    assert launch("slurm", "cancel", *SLURM, "--sweep")[0] == 0
    assert called(tmp_path)[-1][0] == "scancel"


def test_a_local_sweep_is_the_command_itself(launch, tmp_path):
    argv = ("--config=recipe.py", "--workdir=run", "--sweep", "--parallel=2", "--config.seed=1")
    code, out, err = launch("local", "render", "--data=digits", *argv[:-1])
    assert code == 0, err
    line = next(line for line in out.splitlines() if " sweep " in line and "env" in line)
    assert shlex.split(line)[-5:] == [
        "sweep", "--config=recipe.py", f"--workdir={tmp_path}/run", "--parallel=2",
        "--config.data.source=digits",
    ]  # fmt: skip
    code, _, err = launch("local", "render", *argv)
    assert code == 2
    assert "seed is swept over" in err


# ---------------------------------------------------------------- running


def test_what_was_done_already_is_not_done_again(tmp_path, capfd):
    made = Command(("touch", f"{tmp_path}/b"), unless=("test", "-e", f"{tmp_path}/a"))
    assert running.not_run_yet([made]) == [made]
    (tmp_path / "a").touch()
    assert running.not_run_yet([made]) == []
    assert "is there already" in capfd.readouterr().out
    assert not (tmp_path / "b").exists()


def test_what_has_failed_before_is_in_the_way():
    state = ("echo", "SUSPENDED")
    assert running.not_run_yet([Command(("true",), unless=state)]) == []
    with pytest.raises(BadInput, match="is SUSPENDED: `cancel` it"):
        running.not_run_yet([Command(("true",), unless=state, dead=("FAILED", "SUSPENDED"))])


def test_a_submission_stops_at_what_fails_and_a_cancellation_does_not(tmp_path):
    commands = [Command(("false",)), Command(("touch", f"{tmp_path}/a")), Command(("true",))]
    assert running.run(commands, all_of_them=False) == 1
    assert not (tmp_path / "a").exists()
    assert running.run(commands, all_of_them=True) == 1
    assert (tmp_path / "a").exists()


def test_ctrl_c_is_waited_out(tmp_path):
    """As a terminal sends it: to the launcher and to what it runs."""
    saves = f"trap 'sleep 1; touch {tmp_path}/saved; exit 42' INT; touch {tmp_path}/ready; "
    words = ("bash", "-c", saves + "while :; do sleep 0.05; done")
    code = (
        "from launch import running; from launch.job import Command; import sys; "
        f"sys.exit(running.run([Command({words!r})], all_of_them=False))"
    )
    started = subprocess.Popen([sys.executable, "-c", code], process_group=0)
    end = time.monotonic() + 60
    while not (tmp_path / "ready").exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGINT)
    assert started.wait(60) == 42
    assert (tmp_path / "saved").exists()


def test_help_names_engines_and_their_flags(capsys):
    assert main.main(["--help"]) == 0
    assert main.main(["slurm", "--help"]) == 0
    out = capsys.readouterr().out
    for said in ("tpu_vm", "JobSet", "--partition", "--procs_per_node"):
        assert said in out
