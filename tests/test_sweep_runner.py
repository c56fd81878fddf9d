# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The runner of sweeps, with shell scripts in the place of trainings; and one real one."""

import csv
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import foreign
import pytest

from vit_jax.build import defaults
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.experiments.sweeps import cost, places
from vit_jax.experiments.sweeps import points as sweep
from vit_jax.experiments.sweeps import runner as sweep_runner
from vit_jax.experiments.sweeps import stage as sweep_stage
from vit_jax.experiments.sweeps.stage import Stopped
from vit_jax.storage import jsonl

# A script has its workdir in $1, and `finish VALUE`, which writes results.json.
PRELUDE = """
cd "$1"
echo started >> starts
finish() { echo '{"step": 1, "val": {"top1": '$1'}}' > tmp; mv tmp results.json; }
"""
LINGER = "for i in $(seq 1000); do sleep 0.02; done"  # not for ever, if a test fails
SEEDS = [{"seed": 1}, {"seed": 2}, {"seed": 3}]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a sweep whose runs are a shell script; returns its entries."""
    monkeypatch.setattr(sweep_stage, "POLL_SECS", 0.01)

    def started(script, stages=SEEDS, *overrides, **given):
        file = tmp_path / f"{abs(hash(script))}.sh"
        file.write_text(PRELUDE + script)
        stages = stages if isinstance(stages, dict) else {"": stages}
        whole = sweep.Sweep("configs/quickstart.py", overrides, stages)
        command = lambda folder: ["/bin/sh", str(file), str(folder)]  # noqa: E731
        return sweep_runner.run(whole, tmp_path / "sweep", command=command, **given)

    started.dir = tmp_path / "sweep"
    return started


def states(entries):
    return [entry.state for entry in entries]


def starts(folder):
    return (folder / "starts").read_text().count("started")


def table(folder):
    with open(folder / "sweep.csv", newline="") as file:
        return list(csv.DictReader(file))


# ---------------------------------------------------------------- what runs


def test_all_points_run_and_are_collected(run):
    found = run("finish 0.$(basename $PWD | cut -c3)")
    assert states(found) == ["done"] * 3
    assert [row["val/top1"] for row in table(run.dir)] == ["0.0", "0.1", "0.2"]
    assert "$ /bin/sh" in (run.dir / "000-seed=1" / "log.txt").read_text()


def test_what_is_finished_does_not_run_again(run):
    once = "case $PWD in *seed=2) exit 1;; esac; finish 0.5"
    assert states(run(once)) == ["done", "failed", "done"]
    assert states(run("finish 0.5")) == ["done"] * 3
    assert [starts(run.dir / f"00{i}-seed={i + 1}") for i in range(3)] == [1, 2, 1]
    assert not (run.dir / "001-seed=2" / "failed.json").exists()


def test_the_second_stage_is_made_of_the_first(run):
    def final(rows):
        best = max(rows, key=lambda row: row["val/top1"])
        assert (run.dir / best["run"]).samefile(best["workdir"])
        return [{"schedule.lr": best["schedule.lr"], "seed": seed} for seed in (5, 6)]

    stages = {"select": [{"schedule.lr": 0.1}, {"schedule.lr": 0.2}], "final": final}
    found = run("case $PWD in *=0.2) finish 0.9;; *) finish 0.1;; esac", stages)
    assert [e.run for e in found][2:] == ["final/000-lr=0.2_seed=5", "final/001-lr=0.2_seed=6"]
    assert [row["run"] for row in table(run.dir)] == [e.run for e in found]
    assert states(found) == ["done"] * 4


def test_a_stage_alone_needs_the_one_before(run):
    stages = {"select": SEEDS, "final": lambda rows: [{"seed": 7, "schedule.lr": 0.5}]}
    with pytest.raises(BadInput, match=r"'select'.*select/000-seed=1 \(missing\).*--stage=select"):
        run("finish 0.5", stages, stage="final")
    assert not run.dir.exists()
    found = run("case $PWD in *=3) exit 2;; esac; finish 0.5", stages, stage="select")
    assert states(found) == ["done", "done", "failed"]
    with pytest.raises(BadInput, match=r"not finished: select/002-seed=3 \(failed\); run"):
        run("finish 0.5", stages, stage="final")
    assert states(run("finish 0.5", stages, stage="select")) == ["done"] * 3
    assert [e.run for e in run("finish 0.5", stages, stage="final")][3:] == [
        "final/000-seed=7_lr=0.5"
    ]


def test_no_stage_follows_one_that_failed(run):
    stages = {"select": SEEDS, "final": lambda rows: [{"seed": 7}]}
    found = run("case $PWD in *=1) exit 1;; esac; finish 0.5", stages)
    assert states(found) == ["failed", "done", "done"]
    assert not (run.dir / "final").exists()


def test_a_stage_that_is_foreseen_may_have_chains_of_its_weights(run):
    auto = {"data.train_ops": "auto", "data.eval_ops": "auto"}
    stages = {"select": [{"seed": 1}], "final": lambda rows: [{**auto, "seed": 7}]}
    assert states(run("finish 0.5", stages)) == ["done", "done"]


@pytest.mark.integration
def test_a_rate_that_fails_each_time_is_left_out_as_the_page_says(tmp_path, capsys, monkeypatch):
    script = """case $1 in *select*lr=0.03*) exit 1;; esac
    cd $1; echo '{"step": 1, "val": {"top1": 0.5}}' > tmp; mv tmp results.json"""
    monkeypatch.setattr(sweep_runner.run, "__kwdefaults__", {
        **sweep_runner.run.__kwdefaults__,
        "command": lambda folder: ["/bin/sh", "-c", script, "sh", str(folder)],
    })  # fmt: skip

    def command(args):
        config = f"--config=configs/transfer.py:dataset=pets,standin=true{args}"
        return main.main(["sweep", config, f"--workdir={tmp_path}"])

    for _ in range(2):  # it is tried again
        assert command("") == 1
        assert not (tmp_path / "final").exists()
    assert command(",rates=0.003+0.01+0.03") == 2  # the others have moved
    assert "holds another run" in capsys.readouterr().err
    assert command(",rates=0.001+0.003+0.01") == 1
    assert [row["state"] for row in table(tmp_path)] == ["done"] * 3 + ["failed"] + ["done"] * 3


@pytest.mark.parametrize("parallel", [1, 2, 3])
def test_so_many_run_at_a_time(run, parallel):
    script = """
    touch ../here-$$; ls .. | grep -c here- >> ../most
    for i in $(seq 1000); do
        [ $(ls .. | grep -c here-) -ge PARALLEL ] || [ -e ../full ] && break; sleep 0.02
    done
    touch ../full; sleep 0.1; rm ../here-$$; finish 0.5
    """
    run(script.replace("PARALLEL", str(parallel)), parallel=parallel)
    assert max(map(int, (run.dir / "most").read_text().split())) == parallel


# A script that writes the number of runs beside it, once it is not alone or has waited.
BESIDE = """
touch ../here-$$
for i in $(seq WAIT); do [ $(ls .. | grep -c here-) -ge 2 ] && break; sleep 0.02; done
ls .. | grep -c here- > most; env | grep -E 'CUDA_VISIBLE|MEM_FRACTION' | sort > variables
sleep 0.1; rm ../here-$$
"""


def test_auto_on_a_cpu_is_one_run_until_its_memory_is_known(run, monkeypatch):
    machine = places.Machine("cpu", cores=2, host_bytes=10 * places.GIB)
    monkeypatch.setattr(places, "here", lambda platform: machine)
    monkeypatch.setattr(places, "_LOOK_SECS", 0.0)
    tell = """echo '{"step": 1, "memory/host_bytes": 2147483648}' >> metrics.jsonl; """
    wait = BESIDE.replace("WAIT", "$(case $PWD in *seed=1) echo 5;; *) echo 500;; esac)")
    points = [{"seed": seed} for seed in range(1, 6)]
    found = run(wait + tell + "finish 0.5", points, parallel=sweep_runner.AUTO)
    assert states(found) == ["done"] * 5
    most = [int((run.dir / e.run / "most").read_text()) for e in found]
    assert most[:3] == [1, 2, 2]  # 10 GiB would hold three; there are two cores
    assert max(most) == 2


def test_auto_gives_each_run_its_gpu_and_a_share(run, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    machine = places.Machine("gpu", 64, places.GIB, "NVIDIA H100", 2, 80 * places.GIB)
    monkeypatch.setattr(places, "here", lambda platform: machine)
    asked = []

    def need(planner, config, accelerator):
        asked.append(accelerator.name)
        planner.chip_hours[config_lib.fingerprint(config)] = 0.25 * config.seed
        return places.Need(30 * places.GIB, True, 0.25)

    monkeypatch.setattr(cost.Planner, "__call__", need)
    points = [{"seed": seed} for seed in range(1, 5)]
    found = run(BESIDE.replace("WAIT", "500") + "finish 0.5", points, parallel=sweep_runner.AUTO)
    assert [entry.planned for entry in found] == [0.25, 0.5, 0.75, 1.0]
    assert set(asked) == {"h100-1"}
    seen = [(run.dir / e.run / "variables").read_text().split() for e in found]
    # The longest starts first; two share a GPU: 0.95 / 2 less 1 GiB of 80.
    share = "XLA_PYTHON_CLIENT_MEM_FRACTION=0.4625"
    assert seen == [[f"CUDA_VISIBLE_DEVICES={n}", share] for n in (1, 0, 1, 0)]
    assert (
        f"$ CUDA_VISIBLE_DEVICES=1 {share} /bin/sh"
        in (run.dir / "000-seed=1" / "log.txt").read_text()
    )


def test_runs_that_are_planned_to_take_long_are_first(run):
    run.dir.mkdir()
    cost.write_planned(run.dir, {"001-seed=2": 0.5, "002-seed=3": 2.0})
    run("basename $PWD >> ../order; finish 0.5")
    order = (run.dir / "order").read_text().split()
    assert order == ["002-seed=3", "001-seed=2", "000-seed=1"]


MISSING = {
    "data": {"data.source": "folder:/no/such"},
    "an evaluation": {"evals.test.source": "folder:/no/such"},
    "labels": {"evals.test.labels": "/no/such.json"},
    "few shots": {"fewshot.sources": (("few", "folder:/no/such"),)},
    "a split": {"data.split": "trane"},
    "a split of an evaluation": {"evals.val.split": "/no/such"},
    "a value": {"batch_size": -7},
}


@pytest.mark.parametrize("stage", ["select", "final"])
@pytest.mark.parametrize("what", MISSING)
def test_what_any_stage_lacks_is_said_before_the_first_run(run, stage, what):
    def made(name):
        return [{"seed": 5}, {"seed": 6, **(MISSING[what] if name == stage else {})}]

    with pytest.raises(BadInput, match=r"/no/such|trane|-7"):
        run("finish 0.5", {"select": made("select"), "final": lambda rows: made("final")})
    assert not run.dir.exists()


def test_weights_of_another_model_are_said_before_the_first_run(run, tmp_path, monkeypatch):
    weights = foreign.random(foreign.vit(), 12, 12)
    file = foreign.npz(tmp_path / "w.npz", foreign.original_vit(weights))
    checked, check = [], defaults.check_weights
    monkeypatch.setattr(defaults, "check_weights", lambda c: [checked.append(c), check(c)])
    points = [{"seed": s, "model.width": w} for w in (32, 64) for s in (0, 1)]
    model = {"variant": "Ti/4", "depth": "2", "mlp": "48", "pool": "token"}
    given = [f"--config.model.{key}={value}" for key, value in model.items()]
    with pytest.raises(BadInput) as caught:
        run("finish 0.5", points, f"--config.init={file}", *given)
    said = str(caught.value)
    assert said.startswith(f"002-seed=0_width=64, 003-seed=1_width=64: {file} and Ti/4: the")
    assert "attn/query/kernel: (32, 4, 8), the model has (64, 4, 16)" in said
    assert len(checked) == 2  # each model once
    assert not run.dir.exists()
    assert states(run("finish 0.5", points[:2], f"--config.init={file}", *given)) == ["done"] * 2
    file.unlink()
    assert states(run("finish 0.5", points[:2], f"--config.init={file}", *given)) == ["done"] * 2


def test_what_several_stages_lack_is_said_at_once(run):
    stages = {
        "select": [{"data.source": "folder:/no/a"}],
        "final": lambda rows: [{"evals.val.source": "folder:/no/b", "init": rows[0]["workdir"]}],
    }
    with pytest.raises(BadInput, match=r"(?s)^2 problems:\n- .*/no/a.*\n- .*/no/b"):
        run("finish 0.5", stages)


def test_data_of_runs_that_are_finished_may_be_gone(run, image_folder, tmp_path):
    source = tmp_path / "images"
    shutil.copytree(image_folder, source)
    points = [{"data.source": f"folder:{source}", "seed": 1}]
    stages = {"select": points, "final": lambda rows: [{**points[0], "seed": 2}]}
    assert states(run("finish 0.5", stages)) == ["done"] * 2
    shutil.rmtree(source)
    assert states(run("finish 0.5", stages)) == ["done"] * 2


# ---------------------------------------------------------------- how runs end


@pytest.mark.parametrize(
    "how", ["exit 42", "exit 43", "kill -KILL $$", "kill -ABRT $$", "exit 137"]
)
def test_a_run_that_died_runs_again(run, how):
    found = run(f"[ $(wc -l < starts) = 3 ] || {how}; finish 0.5", SEEDS[:1])
    assert states(found) == ["done"]
    assert starts(run.dir / "000-seed=1") == 3


def test_a_run_that_dies_without_a_new_checkpoint_is_given_up(run):
    found = run("echo gone; kill -KILL $$", SEEDS[:1])
    assert states(found) == ["failed"]
    assert starts(run.dir / "000-seed=1") == 6
    assert "5 restarts without a new checkpoint; was ended by SIGKILL: gone" in found[0].message


def test_a_new_checkpoint_gives_new_restarts(run):
    script = (
        "n=$(wc -l < starts); mkdir -p checkpoints/$n; cd checkpoints/$n; "
        "touch commit_success.txt checksums.sha256; cd ../..; [ $n = 9 ] || exit 43; finish 0.5"
    )
    assert states(run(script, SEEDS[:1])) == ["done"]
    assert starts(run.dir / "000-seed=1") == 9


@pytest.mark.parametrize(
    "code, script, said",
    [
        (2, "echo 'vit_jax: first'; echo 'vit_jax: no such file;' >&2; echo ' give another' >&2",
         "ended with code 2: no such file;\n give another"),
        (1, "printf 'Traceback:\\n  File x\\nKeyError: 3\\n'", "ended with code 1: KeyError: 3"),
        (0, "true", "ended with code 0: it said nothing"),
    ],
)  # fmt: skip
def test_a_run_that_failed_is_not_tried_again_and_says_why(run, code, script, said):
    found = run(f"case $PWD in *=2) {script}; exit {code};; esac; finish 0.5")
    assert states(found) == ["done", "failed", "done"]
    assert starts(run.dir / "001-seed=2") == 1
    if code:
        assert found[1].message == said
    assert json.loads((run.dir / "001-seed=2" / "failed.json").read_text())["code"] == code


def test_a_message_is_that_of_the_last_start(run):
    script = "[ $(wc -l < starts) = 2 ] || { echo 'vit_jax: old'; exit 43; }; echo new; exit 1"
    assert run(script, SEEDS[:1])[0].message == "ended with code 1: new"


# ---------------------------------------------------------------- being stopped


def interrupt(folder, *numbers):
    """Sends signals to this process, each once one more run says that it is ready."""

    def send():
        for count, number in enumerate(numbers, 1):
            end = time.monotonic() + 60
            while len(list(folder.glob("*/ready*"))) < count and time.monotonic() < end:
                time.sleep(0.01)
            os.kill(os.getpid(), number)

    threading.Thread(target=send, daemon=True).start()


@pytest.mark.parametrize("number", ["INT", "TERM", "HUP"])
def test_a_signal_ends_the_runs_first_and_the_sweep_continues_later(run, number):
    script = f"trap 'echo {number} > heard; exit 1' {number}; touch ready; {LINGER}"
    before = signal.getsignal(getattr(signal, f"SIG{number}"))
    interrupt(run.dir, getattr(signal, f"SIG{number}"))
    with pytest.raises(Stopped, match=f"SIG{number}; run again") as stopped:
        run(script)
    assert stopped.value.exit_code == 42
    assert (run.dir / "000-seed=1" / "heard").read_text().strip() == number
    assert [row["state"] for row in table(run.dir)] == ["pending"] * 3
    assert signal.getsignal(getattr(signal, f"SIG{number}")) == before
    assert states(run("finish 0.5")) == ["done"] * 3


def test_a_file_stop_ends_the_sweep_and_an_older_one_is_removed(run, monkeypatch):
    monkeypatch.setattr(sweep_runner.signals, "POLL_SECS", 0.01)
    with pytest.raises(Stopped, match="stopped by STOP; run again"):
        run(f"trap 'echo TERM > heard; exit 1' TERM; touch ../STOP; {LINGER}")
    assert (run.dir / "000-seed=1" / "heard").read_text().strip() == "TERM"
    assert [row["state"] for row in table(run.dir)] == ["pending"] * 3
    os.utime(run.dir / "STOP", (1, 1))
    assert states(run("finish 0.5")) == ["done"] * 3
    assert not (run.dir / "STOP").exists()


def test_a_second_signal_kills_what_does_not_end(run):
    script = f"trap 'touch ready2' TERM; touch ready; {LINGER}"
    interrupt(run.dir, signal.SIGTERM, signal.SIGTERM)
    with pytest.raises(Stopped):
        run(script)
    assert [row["state"] for row in table(run.dir)] == ["pending"] * 3


def test_a_signal_that_is_ignored_from_the_start_stays_so(run):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        interrupt(run.dir, signal.SIGHUP)
        assert states(run("touch ready; sleep 0.3; finish 0.5", SEEDS[:1])) == ["done"]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_run_is_not_in_the_group_that_a_terminal_interrupts(run):
    groups = []

    def look():
        while not list(run.dir.glob("*/pid")):
            time.sleep(0.01)
        groups.append(os.getpgid(int(next(run.dir.glob("*/pid")).read_text())))
        (run.dir / "go").touch()

    threading.Thread(target=look, daemon=True).start()
    wait = "for i in $(seq 1000); do [ -e ../go ] && break; sleep 0.02; done"
    run(f"echo $$ > tmp; mv tmp pid; {wait}; finish 0.5", SEEDS[:1])
    assert groups != [os.getpgrp()]


def test_a_second_sweep_is_kept_out(run):
    run.dir.mkdir()
    with open(run.dir / "sweep.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BadInput, match="another sweep"):
            run("finish 0.5")
    assert list(run.dir.iterdir()) == [run.dir / "sweep.lock"]


def test_a_run_that_is_left_keeps_the_folder_locked(run):
    run("touch ready; (sleep 0.5; touch late) & finish 0.5", SEEDS[:1])
    with pytest.raises(BadInput, match="a run that it left behind"):
        run("finish 0.5", SEEDS[:1])
    while not (run.dir / "000-seed=1" / "late").exists():
        time.sleep(0.02)
    for _ in range(100):
        try:
            assert states(run("finish 0.5", SEEDS[:1])) == ["done"]
            break
        except BadInput:
            time.sleep(0.02)


def test_a_changed_sweep_starts_nothing(run):
    run("finish 0.5")
    with pytest.raises(BadInput, match=r"001-seed=2 holds another run:\s+schedule\.lr"):
        run("finish 0.5", [SEEDS[0], {"seed": 2, "schedule.lr": 0.5}, {"seed": 9}])
    assert [row["run"] for row in table(run.dir)] == ["000-seed=1", "001-seed=2", "002-seed=3"]


# ---------------------------------------------------------------- the command

RECIPE = """
from configs import quickstart

def get_config():
    config = quickstart.get_config()
    config.length = "4 steps"
    config.model.depth = 1
    config.model.width = config.model.mlp = 16
    config.model.heads = 2
    config.schedule.warmup = "0"
    config.report.writers = ()
    config.report.page = False
    config.evals.val.every = "0"
    config.report.every = "1 steps"
    return config

def final(rows):
    best = max(rows, key=lambda row: row["val/top1"])
    return [{"schedule.lr": best["schedule.lr"], "seed": seed} for seed in (0, 1)]

def sweep():
    return {"select": [{"schedule.lr": lr} for lr in (0.001, 0.01)], "final": final}
"""


ONE = """
def sweep():
    return {"one": [{"schedule.lr": 0.125}]}
"""


def real(tmp_path, *extra, more="", to="sweep"):
    (tmp_path / "recipe.py").write_text(RECIPE + (ONE if "--stage=one" in extra else more))
    config = f"--config={tmp_path / 'recipe.py'}"
    return main.main(["sweep", config, f"--workdir={tmp_path / to}", *extra])


def test_the_command_says_what_failed_and_exits_with_1(tmp_path, capsys, monkeypatch):
    fails = lambda folder: ["/bin/sh", "-c", "echo 'vit_jax: too bad' >&2; exit 2"]  # noqa: E731
    monkeypatch.setattr(sweep_runner.run, "__kwdefaults__", {
        **sweep_runner.run.__kwdefaults__, "command": fails,
    })  # fmt: skip
    assert real(tmp_path) == 1
    shown = capsys.readouterr().out
    assert "2 failed:" in shown
    assert "select/001-lr=0.01: ended with code 2: too bad" in shown


@pytest.mark.integration
def test_commands_of_the_page(tmp_path, capsys, monkeypatch, root):
    done = """cd $1; echo '{"step": 1, "val": {"top1": 0.5}}' > tmp; mv tmp results.json"""
    monkeypatch.setattr(sweep_runner.run, "__kwdefaults__", {
        **sweep_runner.run.__kwdefaults__,
        "command": lambda folder: ["/bin/sh", "-c", done, "sh", str(folder)],
    })  # fmt: skip
    monkeypatch.chdir(tmp_path)
    page = (root / "docs" / "sweeps.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^vit_jax (sweep .*)$", page, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        command = command.replace("init=runs/b16", "standin=true")
        words = shlex.split(command.replace("configs/", f"{root}/configs/"))
        assert main.main(words) == 0
    assert len(table(tmp_path / "runs" / "pets")) == 4 + 3
    assert "final :lr=0.001" in capsys.readouterr().out


def test_the_command_of_a_run_is_that_of_train():
    words = sweep_runner.train_command(Path("d"))
    assert words == [
        sys.executable,
        "-m",
        "vit_jax",
        "train",
        "--config=d/config.yaml",
        "--workdir=d",
    ]


@pytest.mark.integration
def test_a_sweep_of_a_real_run(tmp_path, monkeypatch, capsys, root):
    monkeypatch.setenv("PYTHONPATH", str(root))
    assert real(tmp_path, "--stage=one") == 0
    (row,) = table(tmp_path / "sweep")
    assert (row["run"], row["state"], row["schedule.lr"]) == ("000-lr=0.125", "done", "0.125")
    folder = tmp_path / "sweep" / row["run"]
    results = json.loads((folder / "results.json").read_text())
    assert float(row["val/top1"]) == results["val"]["top1"]
    rows = jsonl.read_rows(folder / "metrics.jsonl")
    assert next(r["train/lr"] for r in rows if "train/lr" in r) == 0.125
    assert "schedule.lr=0.125" in capsys.readouterr().out
    assert real(tmp_path, "--stage=one") == 0
    assert (folder / "log.txt").read_text().count("$ ") == 1


@pytest.mark.slow
def test_both_stages_of_real_runs(tmp_path, monkeypatch, root):
    monkeypatch.setenv("PYTHONPATH", str(root))
    assert real(tmp_path, "--parallel=2") == 0
    assert [row["state"] for row in table(tmp_path / "sweep")] == ["done"] * 4
    assert real(tmp_path) == 0


LONGER = """
short = get_config

def get_config():
    config = short()
    config.length = "240 steps"
    config.evals.val.every = "25 percent"
    config.report.every = "20 steps"
    return config

RATES = [{"schedule.lr": lr} for lr in (0.001, 0.01)]
"""
WHOLE = (
    LONGER
    + """
def sweep():
    return {"": RATES}
"""
)
HALVED = (
    LONGER
    + """
def sweep():
    return {"": {"points": RATES, "halving": {"metric": "val/loss", "eta": 2, "rungs": (25,)}}}
"""
)


@pytest.mark.slow
def test_runs_side_by_side_that_survive_a_rung_are_those_one_after_another(
    tmp_path, monkeypatch, root
):
    monkeypatch.setenv("PYTHONPATH", str(root))
    monkeypatch.setenv("XLA_FLAGS", "")  # one device, and a quick step
    assert real(tmp_path, more=WHOLE, to="whole") == 0
    assert real(tmp_path, "--parallel=auto", more=HALVED, to="halved") == 0
    rows = table(tmp_path / "halved")
    assert sorted(row["state"] for row in rows) == ["done", "stopped"]

    def measured(to, run, most):
        """The evaluations up to a step; a row of training covers the steps since a start."""
        found = jsonl.read_rows(tmp_path / to / run / "metrics.jsonl")
        return [
            (row["step"], {key: row[key] for key in row if key.startswith(("val/", "test/"))})
            for row in found
            if row["step"] <= most and "perf/eval_secs" in row
        ]

    for row in rows:
        last = int(row["stopped_at"] or 240)
        assert last == (60 if row["state"] == "stopped" else 240)
        halved = measured("halved", row["run"], last)
        assert len(halved) == last // 60
        assert halved == measured("whole", row["run"], last)
    lost = max(row["step"] for row in jsonl.read_rows(
        tmp_path / "halved" / next(r["run"] for r in rows if r["stopped_at"]) / "metrics.jsonl"
    ))  # fmt: skip
    assert lost < 240
