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
from vit_jax.preflight import doctor as doctor_lib

CHECKS = ["python", "packages", "devices", "tensorflow", "workdir", "disk"]


@pytest.fixture
def children(monkeypatch):
    """What children answer, in the place of real ones: function -> answer."""
    answers = {
        "vit_jax.preflight.doctor:list_devices":
            {"count": 1, "kind": "cpu", "platform": "cpu", "reasons": []},
        "vit_jax.data.tensorflow:accelerators": ["2.21.0", [], []],
    }  # fmt: skip

    def call(function, secs, env=None):
        if isinstance(answers[function], Exception):
            raise answers[function]
        return answers[function]

    monkeypatch.setattr(doctor_lib, "call", call)
    monkeypatch.setattr(doctor_lib.detect, "present_accelerators", lambda: [])
    return answers


def doctor(*args):
    return main.main(["doctor", *args])


def test_machine_where_all_is_well(children, tmp_path, capsys):
    assert doctor(f"--workdir={tmp_path}") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [["ok", name] for name in CHECKS]
    assert list(tmp_path.iterdir()) == []


def test_one_fix_a_line_and_exit_code_1(children, tmp_path, capsys):
    failed = doctor_lib.Failed("failed: ModuleNotFoundError: x")
    children["vit_jax.data.tensorflow:accelerators"] = failed
    assert doctor(f"--workdir={tmp_path}") == 1
    bad = [line for line in capsys.readouterr().out.splitlines() if line.startswith("bad")]
    said = "cannot be imported, failed: ModuleNotFoundError: x: run pip install for vit_jax again"
    assert bad == [f"bad  tensorflow   {said}"]


def test_json_for_programs(children, tmp_path, capsys):
    children["vit_jax.data.tensorflow:accelerators"] = doctor_lib.Failed("gone")
    assert doctor(f"--workdir={tmp_path}", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert [check["check"] for check in told["checks"]] == CHECKS
    assert [check["check"] for check in told["checks"] if not check["ok"]] == ["tensorflow"]
    assert set(told["checks"][0]) == {"check", "said", "fix", "ok"}


def test_configuration_says_platform_and_data(children, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(doctor_lib, "room", lambda *args: seen.append(args) or [])
    monkeypatch.setattr(doctor_lib, "devices", lambda *args: seen.append(args) or [])
    data = f"--config.data.data_dir={tmp_path / 'data'}"
    assert doctor(f"--config={QUICKSTART}", *TINY, data, "--config.platform=cpu") == 0
    [folders] = next(args for args in seen if isinstance(args[0], dict))
    assert folders["datasets"] == tmp_path / "data"
    assert "cpu" in [args[0] for args in seen]


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
        yield from real({"packages": checks["packages"]})
        raise KeyboardInterrupt

    real = doctor_lib.run
    monkeypatch.setattr(doctor_lib, "run", interrupted)
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
        env={**doctor_lib.os.environ, "PYTHONPATH": f"{tmp_path}:{doctor_lib.os.getcwd()}"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == CHECKS
    bad = {line.split()[1] for line in lines if line.startswith("bad")}
    assert bad == {"devices", "tensorflow"}
    assert "absent for a test" in done.stdout
