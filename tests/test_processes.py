# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Runs of several real processes on this machine: equal results, and how they end together."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ports import free_port
from test_e2e import ROOT
from test_train import QUICKSTART, TINY, logged, parameters, run, same_parameters

import vit_jax
from vit_jax.runtime import goodput
from vit_jax.storage import files as storage
from vit_jax.storage import jsonl

pytestmark = pytest.mark.integration

STEPS = (
    "--config.length=24 steps",
    "--config.report.page=false",
    "--config.checkpoint.every=6 steps",
    "--config.checkpoint.keep_last=4",
    "--config.checkpoint.keep_best=val/top1",
    "--config.evals.val.every=8 steps",
    "--config.ema.decay=0",
    "--config.platform=cpu",
)
GONE_SECS = 5  # until the others have ended


def environment(devices):
    """Returns the environment of a child process with so many fake devices."""
    flag = "--xla_force_host_platform_device_count"
    flags = os.environ["XLA_FLAGS"].replace(f"{flag}=8", f"{flag}={devices}")
    return dict(os.environ, XLA_FLAGS=flags)


def launch(
    count, workdir, *extra, each=None, devices=8, coordinator="", told=None, cwd=ROOT, log="",
    program=("-m", "vit_jax"),
):  # fmt: skip
    """Starts `vit_jax train` `count` times, with `devices` fake ones in all.

    Args:
      each: index -> further arguments, and environment variables (a dict), of that process.
      told: the number of processes that they are told, if not `count`.
      log: where their output goes begins so; beside the workdir by default.
      program: for the interpreter.
    """
    address = coordinator or f"127.0.0.1:{free_port()}"
    children = []
    for index in range(count):
        words = [w for w in (each or {}).get(index, ()) if isinstance(w, str)]
        variables = [w for w in (each or {}).get(index, ()) if isinstance(w, dict)]
        arguments = [
            sys.executable, *program, "train", f"--config={QUICKSTART}",
            f"--workdir={workdir}", f"--coordinator={address}", f"--process_id={index}",
            f"--num_processes={told or count}", *TINY, *STEPS, *extra, *words,
        ]  # fmt: skip
        whole = environment(devices // count)
        for more in variables:
            whole |= more
        said = open(f"{log or workdir}.log.{index}", "w+")
        children.append(subprocess.Popen(arguments, cwd=cwd, env=whole, stdout=said, stderr=said))
        children[-1].log = said
    return children


def outcome(children, timeout=400):
    """(exit codes, what they printed) once all have ended."""
    end = time.monotonic() + timeout
    try:
        codes = [child.wait(max(0.1, end - time.monotonic())) for child in children]
    finally:
        texts = []
        for child in children:
            child.kill()
            child.wait()
            child.log.seek(0)
            texts.append(child.log.read())
            child.log.close()
    return codes, texts


def wait_for_save(workdir, step, children, timeout=120):
    end = time.monotonic() + timeout
    while time.monotonic() < end and all(child.poll() is None for child in children):
        if (Path(workdir) / "checkpoints" / str(step)).is_dir():
            return
        time.sleep(0.005)
    raise AssertionError(f"the run never saved step {step}: {outcome(children)}")


def close(a, b):
    """All logged values of two runs agree: counts exactly, the rest up to the order of sums."""
    a, b = logged(a), logged(b)
    assert a.keys() == b.keys()
    for (step, key), value in a.items():
        if key.endswith(("examples", "top1", "top5")):
            assert value == b[step, key], (step, key)
        else:  # Adam makes much of the rounding of small gradients
            rtol = 1e-4 if key == "norm/updates" else 1e-5
            np.testing.assert_allclose(value, b[step, key], rtol=rtol, err_msg=f"{step} {key}")
    return len(a)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The run of one process with eight devices: this one."""
    workdir = tmp_path_factory.mktemp("one") / "run"
    assert run(workdir, *STEPS) == 0
    return workdir


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """The run of two processes with four devices each, never interrupted."""
    workdir = tmp_path_factory.mktemp("two") / "run"
    codes, texts = outcome(launch(2, workdir))
    assert codes == [0, 0], texts
    return workdir, texts


def test_two_processes_log_what_one_does(one, two):
    workdir, texts = two
    assert close(workdir, one) > 24 * 4
    assert json.loads((workdir / "results.json").read_text())["test"]["examples"] == 365
    assert "2 processes" in texts[0]
    assert "step 24/24" in texts[0]
    ours = re.compile(r"^(\d\d:\d\d:\d\d |vit_jax: |step )", re.MULTILINE)
    assert len(ours.findall(texts[0])) > 3
    assert not ours.search(texts[1]), texts[1]  # compiled code may say what it waits for


def back_to(workdir, copy, step):
    """A copy of a run as it was when `step` had just been saved."""
    shutil.copytree(workdir, copy)
    (copy / "results.json").unlink()
    for folder in (copy / "checkpoints").iterdir():
        if int(folder.name.removesuffix(".damaged")) > step:
            shutil.rmtree(folder)
    return copy


def test_checkpoint_of_two_processes_continues_in_one(one, two, tmp_path):
    workdir = back_to(two[0], tmp_path / "run", 12)
    assert run(workdir, *STEPS) == 0
    close(workdir, one)


@pytest.mark.slow
def test_checkpoint_of_two_processes_continues_in_four(one, two, tmp_path):
    workdir = back_to(two[0], tmp_path / "run", 12)
    codes, texts = outcome(launch(4, workdir))
    assert codes == [0] * 4, texts
    assert "at step 12" in texts[0]
    close(workdir, one)


def test_checkpoint_of_two_processes_is_plain_numpy(one, two):
    assert all(type(leaf) is np.ndarray for leaf in parameters(two[0]))
    images = np.random.default_rng(0).normal(size=(5, 8, 8, 3)).astype(np.float32)
    logits = []
    for workdir in (one, two[0]):
        model, params, _ = vit_jax.load(workdir)
        logits.append(model.apply({"params": params}, images, train=False))
    np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-5)
    assert np.ptp(logits[0]) > 0.01


def kill(workdir, victim):
    """Kills one of two processes once step 6 is saved; the other ends with 43."""
    children = launch(2, workdir)
    wait_for_save(workdir, 6, children)
    children[victim].send_signal(signal.SIGKILL)
    codes, texts = outcome(children, GONE_SECS)
    assert codes[victim] == -9
    assert codes[1 - victim] == 43, texts
    said = texts[1 - victim]
    assert f"process {victim} of 2 ({socket.gethostname()}) is gone" in said
    assert "Run again to continue from step " in said


def test_killed_process_ends_the_other(tmp_path):
    kill(tmp_path / "run", 1)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_run_whose_process_was_killed_continues(two, tmp_path, victim):
    workdir = tmp_path / "run"
    kill(workdir, victim)
    codes, texts = outcome(launch(2, workdir))
    assert codes == [0, 0], texts
    assert "start: resuming" in texts[0]
    assert logged(workdir) == logged(two[0])
    assert same_parameters(workdir, two[0])
    if victim:
        turns = jsonl.read_rows(workdir / goodput.FILE)
        first, new = [row for row in turns if row["event"] == "new_step"]
        assert first["parts"][0][0] == "process_start"
        assert new["parts"][0][0] == "noticing"
        begun, *_, ended = [row["time"] for row in turns if row["event"] in ("start", "exit")][1:-1]
        assert new["secs"] == pytest.approx(new["time"] - min(begun, ended), abs=0.1)
        assert [row["code"] for row in turns if row["event"] == "exit"] == [43, 0]


@pytest.mark.slow
def test_two_processes_in_a_bucket_are_killed_and_stopped_and_continue(two, tmp_path, store):
    """The store is all that they share: no disk is given to them."""
    workdir, log = "gs://bucket/runs/run", str(tmp_path / "run")

    def begin(event, count):
        children = launch(2, workdir, log=log)
        end = time.monotonic() + 200
        while [row["event"] for row in turns()].count(event) < count:
            assert time.monotonic() < end, outcome(children)
            time.sleep(0.05)
        return children

    def turns():
        found = jsonl.read_rows(storage.path(workdir) / goodput.FILE)
        return sorted(found, key=lambda row: row["time"])

    children = begin("save", 1)
    children[1].send_signal(signal.SIGKILL)
    codes, texts = outcome(children, GONE_SECS)
    assert codes == [43, -9], texts
    children = begin("initialised", 2)
    storage.write(storage.path(workdir) / "STOP", "")
    codes, texts = outcome(children)
    assert codes == [42, 42], texts
    codes, texts = outcome(launch(2, workdir, log=log))
    assert codes == [0, 0], texts
    assert "start: resuming" in texts[0]
    assert logged(workdir) == logged(two[0])
    assert same_parameters(workdir, two[0])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.log.0", "run.log.1"]
    assert [row["code"] for row in turns() if row["event"] == "exit"] == [43, 42, 0]


@pytest.mark.slow
@pytest.mark.parametrize("process", [0, 1])
def test_damage_in_what_a_process_has_written_is_seen_by_all(two, tmp_path, process):
    workdir = back_to(two[0], tmp_path / "run", 18)
    file = max((workdir / "checkpoints" / "18").glob(f"state/ocdbt.process_{process}/d/*"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)
    codes, texts = outcome(launch(2, workdir))
    assert codes == [0, 0], texts
    assert f"step 18 is damaged (state/ocdbt.process_{process}/d/{file.name} has" in texts[0]
    assert "continuing from step 16: 2 steps are done again" in texts[0]
    assert "damaged" not in texts[1]
    assert logged(workdir) == logged(two[0])
    assert same_parameters(workdir, two[0])
    again = back_to(workdir, tmp_path / "again", 18)
    for file in (again / "checkpoints").glob("*/state/manifest.ocdbt"):
        file.write_bytes(b"")
    codes, texts = outcome(launch(2, again))
    assert codes == [1, 1], texts
    assert "holds no checkpoint that is whole" in texts[0]


def test_other_config_in_one_process_is_refused_by_all(tmp_path):
    each = {1: ["--config.seed=7"]}
    codes, texts = outcome(launch(2, tmp_path / "run", each=each))
    assert codes == [2, 2], texts
    for text in texts:
        assert "process 1 of 2" in text
        assert "has seed=7; process 0" in text
        assert "has seed=0." in text
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_workdir_that_is_not_shared_is_refused_by_all(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    each = {i: [f"--workdir={tmp_path / name / 'run'}"] for i, name in enumerate("ab")}
    codes, texts = outcome(launch(2, tmp_path / "log", each=each))
    assert codes == [2, 2], texts
    for text in texts:
        assert "process 1 of 2" in text
        assert "shared" in text or "share" in text
    assert not [p for folder in "ab" for p in (tmp_path / folder).iterdir()]


# ---------------------------------------------------------------- slow


@pytest.mark.slow
def test_four_processes_log_what_one_does(one, tmp_path):
    codes, texts = outcome(launch(4, tmp_path / "run"))
    assert codes == [0] * 4, texts
    close(tmp_path / "run", one)


@pytest.mark.slow
def test_killed_process_ends_all_of_four(tmp_path):
    children = launch(4, tmp_path / "run")
    wait_for_save(tmp_path / "run", 6, children)
    children[2].send_signal(signal.SIGKILL)
    codes, texts = outcome(children, GONE_SECS)
    assert codes == [43, 43, -9, 43], texts
    assert all("process 2 of 4" in texts[i] for i in (0, 1, 3))


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["fsdp=2", "tensor=2", "replica=2"])
def test_other_meshes_over_two_processes(one, tmp_path, mesh):
    codes, texts = outcome(launch(2, tmp_path / "run", f"--config.mesh.{mesh}"))
    assert codes == [0, 0], texts
    close(tmp_path / "run", one)


@pytest.mark.slow
def test_weights_of_another_run_start_two_processes(two, tmp_path):
    start = (f"--config.init={two[0]}", "--config.length=3 steps", "--config.checkpoint.every=0")
    codes, texts = outcome(launch(2, tmp_path / "run", *start))
    assert codes == [0, 0], texts
    assert run(tmp_path / "alone", *STEPS, *start) == 0
    close(tmp_path / "run", tmp_path / "alone")


@pytest.mark.slow
def test_other_code_in_one_process_is_refused_by_all(tmp_path):
    each = {0: [{"VIT_JAX_CODE": "v1"}], 1: [{"VIT_JAX_CODE": "v2"}]}
    codes, texts = outcome(launch(2, tmp_path / "run", each=each))
    assert codes == [2, 2], texts
    assert all("has code=v2; process 0" in text and "has code=v1" in text for text in texts)


def on_two_hosts(tmp_path, image_folder, damage):
    """A run of two processes that each have a copy of the images; that of process 1 is damaged."""
    shutil.copytree(image_folder, tmp_path / "0" / "images")
    shutil.copytree(image_folder, tmp_path / "1" / "images")
    damage(tmp_path / "1" / "images" / "train" / "red")
    ops = [f"--config.data.{k}_ops=decode|resize({{size}})" for k in ("train", "eval")]
    address, children = f"127.0.0.1:{free_port()}", []
    for index in "01":
        children += launch(
            1, tmp_path / "run", "--config.data.source=folder:images", *ops,
            coordinator=address, told=2, devices=4, cwd=tmp_path / index,
            each={0: [f"--process_id={index}", {"PYTHONPATH": str(ROOT)}]},
            log=tmp_path / f"log.{index}",
        )  # fmt: skip
    return outcome(children)


@pytest.mark.slow
def test_other_data_in_one_process_is_refused_by_all(tmp_path, image_folder):
    codes, texts = on_two_hosts(tmp_path, image_folder, lambda red: (red / "7.jpg").unlink())
    assert codes == [2, 2], texts
    assert all("process 1 of 2" in text and "split train=" in text for text in texts)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_image_that_one_process_cannot_read_ends_all(tmp_path, image_folder):
    def damage(red):
        for number in range(20):
            (red / f"{number}.jpg").write_bytes(b"not an image")

    codes, texts = on_two_hosts(tmp_path, image_folder, damage)
    assert codes == [2, 2], texts
    assert all("train/red/" in text and "cannot be decoded" in text for text in texts)
    assert "process 1 of 2" in texts[0]
    assert "failed: train/red/" in texts[0]


@pytest.mark.slow
def test_process_that_never_starts_is_named(tmp_path):
    code, text = outcome(
        launch(1, tmp_path / "run", "--config.processes.connect_secs=3", told=2, devices=4)
    )
    assert code == [43]
    assert "process 1 of 2 did not connect" in text[0]


@pytest.mark.slow
def test_process_0_that_cannot_be_reached_is_named(tmp_path):
    each = {0: ["--process_id=1"]}
    code, text = outcome(
        launch(1, tmp_path / "run", "--config.processes.connect_secs=3", each=each, told=2,
               devices=4)
    )  # fmt: skip
    assert code == [43]
    assert "process 1 of 2 cannot reach process 0 at 127.0.0.1:" in text[0]


@pytest.mark.slow
@pytest.mark.parametrize("rate, metric", [("1e30", "norm/updates"), ("1e15", "train/loss")])
def test_what_is_not_finite_stops_all_processes_alike(tmp_path, rate, metric):
    """Adam's first update is as large as the rate; the squares in its norm overflow first."""
    more = f"--config.schedule.lr={rate}", "--config.schedule.warmup=0"
    codes, texts = outcome(launch(2, tmp_path / "run", *more), timeout=400)
    assert codes == [1, 1]
    said = [re.search(rf"^vit_jax: ({metric} is \w+ at step \d+; .*)$", t, re.M) for t in texts]
    assert said[0][1] == said[1][1]
    assert not list((tmp_path / "run/checkpoints").glob("[0-9]*"))


@pytest.mark.slow
@pytest.mark.parametrize("mesh", ["data=-1", "fsdp=2"])
def test_two_processes_end_with_one_report(tmp_path, mesh):
    """The first reads what all have saved, and draws alone; also where parameters are split."""
    more = (f"--config.mesh.{mesh}", "--config.report.page=true", "--config.length=4 steps")
    codes, texts = outcome(launch(2, tmp_path / "run", *more))
    assert codes == [0, 0], texts
    page = (tmp_path / "run" / "report.html").read_text()
    assert page.count("<img") == 5  # the sheet, and figures of the model
    assert "2 processes" in page
    assert [text.count("report: ") for text in texts] == [1, 0]
