# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax doctor`: a line for each check, exit codes, and that it works where packages do not."""

import json
import re
import shlex
import subprocess
import sys

import pytest
from test_train import QUICKSTART, TINY

from vit_jax.cli import main
from vit_jax.preflight.doctor import accelerators, examination, limits
from vit_jax.preflight.doctor import folders as folders_lib

CHECKS = ["python", "packages", "holders", "devices", "tensorflow", "workdir", "disk", "clock",
          "coordinator"]  # fmt: skip


@pytest.fixture
def children(monkeypatch):
    """What children answer, in the place of real ones: (function, arguments) -> answer."""
    asked = []
    answers = {
        "vit_jax.preflight.doctor.accelerators:listed":
            {"count": 1, "kind": "cpu", "platform": "cpu", "reasons": []},
        "vit_jax.data.tensorflow:accelerators": ["2.21.0", [], []],
        "vit_jax.preflight.doctor.folders:checkpoints": [2**20, 5],
    }  # fmt: skip

    def call(function, args, secs, env=None):
        asked.append((function, args))
        if isinstance(answers[function], Exception):
            raise answers[function]
        return answers[function]

    monkeypatch.setattr(limits, "call", call)
    monkeypatch.setattr(examination.detect, "present_accelerators", lambda: [])
    return answers


def doctor(*args):
    return main.main(["doctor", *args])


def test_machine_where_all_is_well(children, tmp_path, capsys):
    assert doctor(f"--workdir={tmp_path}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", name] for name in CHECKS]
    assert list(tmp_path.iterdir()) == []


def test_one_fix_a_line_and_exit_code_1(children, tmp_path, capsys):
    children["vit_jax.data.tensorflow:accelerators"] = limits.Failed(
        "failed: ModuleNotFoundError: x"
    )
    assert doctor(f"--workdir={tmp_path}", "--coordinator=odd") == 1
    bad = [line for line in capsys.readouterr().out.splitlines() if line.startswith("bad")]
    assert bad[0] == (
        "bad  tensorflow   cannot be imported, failed: ModuleNotFoundError: x: pip install -e ."
    )
    assert bad[1].startswith("bad  coordinator  ")
    assert len(bad) == 2


def test_json_for_programs(children, tmp_path, capsys):
    children["vit_jax.data.tensorflow:accelerators"] = limits.Failed("gone")
    assert doctor(f"--workdir={tmp_path}", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert [check["check"] for check in told["checks"]] == CHECKS
    assert [check["check"] for check in told["checks"] if not check["ok"]] == ["tensorflow"]
    assert set(told["checks"][0]) == {"check", "said", "fix", "ok"}


def test_configuration_says_platform_data_and_checkpoints(children, tmp_path, capsys, monkeypatch):
    seen = []
    monkeypatch.setattr(folders_lib, "disk", lambda *args: seen.append(args) or [])
    monkeypatch.setattr(accelerators, "devices", lambda *args: seen.append(args) or [])
    data = f"--config.data.data_dir={tmp_path / 'data'}"
    assert doctor(f"--config={QUICKSTART}", *TINY, data, "--config.platform=cpu") == 0
    folders, size, count = next(args for args in seen if isinstance(args[0], dict))
    assert (size, count) == (2**20, 5)
    assert folders["datasets"] == tmp_path / "data"
    assert "cpu" in [args[0] for args in seen]


def test_checkpoint_that_cannot_be_worked_out_is_a_line(children, tmp_path, capsys):
    children["vit_jax.preflight.doctor.folders:checkpoints"] = limits.Failed(
        "failed: BadInput: no data"
    )
    assert doctor(f"--config={QUICKSTART}", f"--workdir={tmp_path}") == 1
    assert "worked out, failed: BadInput: no data" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args, said",
    [
        (["--config.seed=1"], "without --config"),
        (["--config=absent.py"], "absent.py"),
        ([f"--config={QUICKSTART}", "--config.sed=1"], "seed"),
    ],
)
def test_wrong_arguments_are_bad_input(children, capsys, args, said):
    assert doctor(*args) == 2
    assert said in capsys.readouterr().err


def test_command_of_the_page(children, tmp_path, monkeypatch, root):
    page = (root / "docs" / "health.md").read_text()
    [command] = re.findall(r"```bash\n(.*?)\n```", page)
    monkeypatch.chdir(tmp_path)
    assert main.main(shlex.split(command)[1:]) == 0
    table = re.findall(r"^\| (`.*?`(?:, `.*?`)*) \|", page.split("## During")[0], re.MULTILINE)
    assert [name.strip("`") for row in table for name in row.split(", ")] == CHECKS


def test_interrupt_ends_it_with_130_and_what_was_found_is_said(
    children, tmp_path, monkeypatch, capsys
):
    def interrupted(checks):
        if checks[0].name == "devices":
            raise KeyboardInterrupt
        yield from real(checks)

    real = limits.run
    monkeypatch.setattr(limits, "run", interrupted)
    assert doctor(f"--workdir={tmp_path}") == 130
    said = capsys.readouterr()
    assert "packages" in said.out
    assert "Traceback" not in said.err


@pytest.mark.slow
def test_real_doctor_where_jax_and_tensorflow_are_absent(tmp_path):
    """And they are imported by none of the checks that run in the doctor's own process."""
    for name in ("jax", "tensorflow"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('absent for a test')")
    done = subprocess.run(
        [sys.executable, "-m", "vit_jax", "doctor", f"--workdir={tmp_path}"],
        env={**examination.os.environ, "PYTHONPATH": f"{tmp_path}:{examination.os.getcwd()}"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == CHECKS
    bad = {line.split()[1] for line in lines if line.startswith("bad")}
    assert bad == {"devices", "tensorflow"}
    assert "absent for a test" in done.stdout
