# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Processes of one machine: who they are, how they end together, when they start again."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

from launch import node
from vit_jax.errors import BadInput
from vit_jax.runtime import process_identity, recovery
from vit_jax.runtime.job_file import JobFile

SKY = {
    "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2",
}  # fmt: skip


def test_several_processes_of_one_machine_find_each_other():
    found = [process_identity.resolve({}, env) for env in node.environments(3, False, {})]
    assert [(who.index, who.count) for who in found] == [(0, 3), (1, 3), (2, 3)]
    assert len({who.coordinator for who in found}) == 1
    assert all(who.loopback for who in found)


def test_one_process_is_alone():
    assert node.environments(1, False, {"A": "1"}) == [{"A": "1"}]


def test_processes_of_several_machines_are_numbered_through():
    found = [process_identity.resolve({}, env) for env in node.environments(4, True, SKY)]
    assert [(who.index, who.count) for who in found] == [(i, 8) for i in range(4, 8)]
    assert found[0].coordinator.startswith("10.0.0.1:")


def test_each_process_has_its_gpu():
    made = node.environments(2, True, {})
    assert [env["CUDA_VISIBLE_DEVICES"] for env in made] == ["0", "1"]
    made = node.environments(2, True, {"CUDA_VISIBLE_DEVICES": "3,5,7"})
    assert [env["CUDA_VISIBLE_DEVICES"] for env in made] == ["3", "5"]
    with pytest.raises(BadInput, match="does not have 2 GPUs"):
        node.environments(2, True, {"CUDA_VISIBLE_DEVICES": "3"})


def test_a_tpu_has_one_process():
    with pytest.raises(BadInput, match="one process for each machine"):
        node.environments(4, True, {"TPU_WORKER_HOSTNAMES": "a,b"})


# ---------------------------------------------------------------- running


def run(script, count=2, received=()):
    """(code, lines) of processes whose index is $I."""
    lines = []
    words = ["/bin/bash", "-c", script]
    environments = [{"I": str(i), "PATH": "/usr/bin:/bin"} for i in range(count)]
    code = node.run(words, environments, received, lambda i, line: lines.append((i, line)))
    return code, sorted(lines)


def test_all_that_is_printed_is_said():
    assert run("echo hello $I; echo error >&2") == (
        0, [(0, b"error\n"), (0, b"hello 0\n"), (1, b"error\n"), (1, b"hello 1\n")]
    )  # fmt: skip


@pytest.mark.parametrize("how, code", [("exit 2", 2), ("exit 42", 42), ("kill -9 $$", 137)])
def test_the_code_is_that_of_the_first_that_failed(how, code):
    assert run(f"[ $I = 0 ] && {how}; sleep 0.5; exit 43")[0] == code


def test_the_next_start_is_told_when_the_first_process_failed(monkeypatch):
    monkeypatch.setenv(recovery.ENDED, "")
    begin = time.time()
    _, lines = run('if [ "$I" = 1 ]; then exit 43; fi; sleep 0.5; date +%s.%N')
    assert begin < float(os.environ[recovery.ENDED]) < float(lines[0][1])
    os.environ[recovery.ENDED] = "7.0"
    run("exit 0")
    assert os.environ[recovery.ENDED] == "7.0"


def test_what_does_not_follow_is_killed(monkeypatch):
    monkeypatch.setattr(node, "GONE_SECS", 0.2)
    began = time.monotonic()
    assert run("[ $I = 0 ] && exit 43; exec sleep 60")[0] == 43
    assert time.monotonic() - began < 30


def test_a_signal_is_handed_on():
    received = []
    threading.Timer(0.5, lambda: received.append(signal.SIGTERM)).start()
    assert run("trap 'exit 42' TERM; while :; do sleep 0.02; done", 2, received)[0] == 42


def test_a_second_signal_kills():
    received = []
    for delay in (0.5, 0.8):
        threading.Timer(delay, lambda: received.append(signal.SIGTERM)).start()
    assert run("trap '' TERM; while :; do sleep 0.02; done", 1, received)[0] == 137


# ---------------------------------------------------------------- again


def again(codes, saved, stopping=False):
    """(last code, starts) where each start takes the next code and the next newest step."""
    codes, steps = iter(codes), iter([-1, *saved])
    starts = []

    def start():
        starts.append(1)
        return next(codes)

    return node.run_until_done(start, lambda: next(steps), lambda: stopping), len(starts)


@pytest.mark.parametrize("code", [0, 1, 2, 126, 127])
def test_these_codes_end(code):
    assert again([code], [-1]) == (code, 1)


@pytest.mark.parametrize("code", [42, 43, 134, 137, 139])
def test_these_codes_start_again(code):
    assert again([code, 0], [6]) == (0, 2)


def test_it_gives_up_after_five_restarts_without_a_checkpoint(caplog):
    assert again([43] * 9, [-1] * 9) == (1, 6)
    assert "given up after 5 restarts" in caplog.text


def test_a_checkpoint_is_progress():
    assert again([43] * 12 + [0], range(12)) == (0, 13)


def test_what_a_person_stopped_does_not_start_again():
    assert again([42], [6], stopping=True) == (42, 1)


# ---------------------------------------------------------------- the command


def test_the_command_runs_a_job_again_and_notes_what_it_says(tmp_path, monkeypatch, capfdbinary):
    trainer = tmp_path / "vit_jax"
    trainer.write_text("#!/bin/bash\necho started\n[ -e seen ] || { touch seen; exit 43; }\n")
    trainer.chmod(0o755)
    (tmp_path / "job.json").write_text(JobFile(("train", f"--workdir={tmp_path}/w")).to_json())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(node.sys, "executable", "/bin/bash")
    real = node.run
    monkeypatch.setattr(node, "run", lambda words, *rest: real([str(trainer)], *rest))
    assert node.main(["--again", "--log=log.txt", f"@{tmp_path}/job.json"]) == 0
    assert (tmp_path / "log.txt").read_text() == "started\nstarted\n"
    assert capfdbinary.readouterr().out.count(b"started") == 2


def test_a_run_goes_on_when_nobody_listens_any_more(tmp_path, monkeypatch):
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb", buffering=0) as gone:
        monkeypatch.setattr(node.sys, "stdout", SimpleNamespace(buffer=gone))
        with node._output(str(tmp_path / "log"), 1) as say:
            say(0, b"one\n")
            say(0, b"two\n")
    assert (tmp_path / "log").read_text() == "one\ntwo\n"


def test_a_job_that_is_not_there_is_bad_input(tmp_path, capsys):
    assert node.main([f"@{tmp_path}/none.json"]) == 2
    assert "cannot be read" in capsys.readouterr().err
