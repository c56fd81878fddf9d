# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Real processes: the README's commands, and runs that are killed."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import model_commands
import numpy as np
import pytest
from conftest import NO_BACKEND
from test_train import QUICKSTART, TINY, logged, run, same_parameters

from vit_jax.cli import main
from vit_jax.models import variants
from vit_jax.storage.jsonl import read_rows

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parent.parent
LONG = (
    "--config.length=400 steps",
    "--config.report.page=false",
    "--config.checkpoint.every=40 steps",
    "--config.evals.val.every=100 steps",
    "--config.ema.decay=0",
)


PAGES = ("README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")))


def blocks(language, pages=PAGES):
    """The fenced blocks of pages in a language."""
    text = "\n".join((ROOT / page).read_text() for page in pages)
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def readme_commands(name="train", pages=PAGES):
    """The `vit_jax NAME` commands of pages, continued lines joined; test_hub runs those of hf:."""
    lines = "\n".join(blocks("bash", pages)).replace("\\\n", " ").splitlines()
    return [
        c.strip()
        for line in lines
        for c in line.split("&&")
        if f"vit_jax {name}" in c and "hf:" not in c
    ]


def command_line(command, workdir, *extra):
    """A README command as arguments for this interpreter, with a workdir of the test."""
    words = shlex.split(command)
    assert words[0] == "vit_jax"
    words = [w for w in words[1:] if not w.startswith("--workdir=")]
    return [sys.executable, "-m", "vit_jax", *words, f"--workdir={workdir}", *extra]


def plain_environment():
    """Without the eight fake devices of the tests, as a user has it."""
    return {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}


@pytest.mark.parametrize(
    "length, top1, verdict",
    [
        (("--config.length=12 epochs",), 0.75, "BELOW the tolerance; "),  # a tenth: 87 %
        pytest.param((), 0.96, "within the tolerance", marks=pytest.mark.slow),
    ],
)
def test_quickstart_command_of_the_readme_learns_digits(tmp_path, length, top1, verdict):
    command = next(c for c in readme_commands() if "quickstart" in c)
    done = subprocess.run(
        command_line(command, tmp_path / "run", *length),
        cwd=ROOT, env=plain_environment(), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["test"]["top1"] >= top1
    assert results["test"]["examples"] == 365
    for promised in ("top-1", "checkpoint", "metrics", "results", "next", verdict):
        assert promised in done.stdout
    assert "Traceback" not in done.stderr
    assert "warning" not in done.stderr.lower()


@pytest.mark.slow
def test_other_commands_of_the_readme_run(tmp_path, monkeypatch, image_folder, digits_run):
    monkeypatch.chdir(ROOT)
    # In test_image_shapes, test_branch and test_trainable.
    elsewhere = "quickstart.py", "EuroSAT_MS", "runs/constant", "runs/lora"
    commands = [c for c in readme_commands() if not any(word in c for word in elsewhere)]
    assert commands
    for number, command in enumerate(commands):
        command = command.replace("/path/to/images", str(image_folder))
        command = command.replace("/path/to/cifar10", str(image_folder))
        command = command.replace("--config.init=runs/quickstart", f"--config.init={digits_run}")
        words = command_line(command, tmp_path / str(number))[3:]
        short = ["--config.length=1 steps", "--config.batch_size=8", "--config.schedule.warmup=0"]
        short += ["--config.report.writers=()", "--config.report.page=false"]
        assert main.main([*words, *short]) == 0, command


def test_every_command_of_the_readme_is_run_by_a_test():
    assert {c.split()[1] for c in readme_commands("")} == set(main.COMMANDS)


@pytest.mark.parametrize(
    "name, page",
    [
        ("sweep", "sweeps"),
        ("fewshot", "fewshot"),
        ("export", "export"),
        ("report", "runs"),
        ("table", "tables"),
        ("doctor", "health"),
        ("predict", "use"),
        ("evaluate", "use"),
        ("save", "finetuning"),
    ],
)
def test_command_of_the_readme_is_one_that_its_page_has(name, page):
    """Whose own test runs it."""
    own = readme_commands(name, ("README.md",))
    assert own
    assert set(own) <= set(readme_commands(name, (f"docs/{page}.md",)))


def test_models_and_inspect_commands_of_the_readme(digits_run, capsys, monkeypatch):
    monkeypatch.setattr(variants, "NAMED", ("R50+L/32", "B/16"))  # test_models lists them all
    for command in readme_commands("models") + readme_commands("inspect"):
        if "runs/lora" in command:  # in test_trainable
            continue
        assert main.main(shlex.split(command.replace("runs/quickstart", str(digits_run)))[1:]) == 0
    shown = capsys.readouterr().out
    assert "R50+L/32" in shown
    assert "posemb" in shown


def test_figures_command_of_the_readme(digits_run, image_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (command,) = {c for c in readme_commands("figures") if "--images" in c}  # test_positions: rest
    command = command.replace("runs/quickstart", str(digits_run))
    words = shlex.split(command.replace("/path/to/images", str(image_folder / "test")))[1:]
    assert main.main(words) == 0
    assert {path.name for path in (tmp_path / "runs" / "inside").iterdir()} == {
        "index.html", "filters.png", "posemb.png", "attention_distance.png", "rollout.png"
    }  # fmt: skip


def test_data_commands_of_the_readme(image_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "none"))
    (tmp_path / "runs").mkdir()
    for command in dict.fromkeys(readme_commands("data")):
        words = shlex.split(command.replace("/path/to/images", str(image_folder)))[1:]
        assert main.main(words) == (2 if "vtab/eurosat" in command else 0), command
    shown = capsys.readouterr().out
    assert "EuroSAT.zip" in shown
    assert "50 images in 2 classes, 0 bad" in shown
    assert (tmp_path / "runs" / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_plan_commands_of_the_readme(capsys):
    commands = readme_commands("plan")
    assert commands
    for command in commands:
        if "=v3-8" in command and importlib.util.find_spec("libtpu") is None:
            pytest.skip("needs the extra `plan` (libtpu)")
        assert main.main(shlex.split(command)[1:]) == 0
    assert "v3-8: fits" in capsys.readouterr().out


def test_commands_of_using_what_was_trained(digits_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model_commands.digit_files(tmp_path / "digits", 3)
    shutil.copytree(digits_run, "runs/quickstart")
    for name in ("predict", "evaluate", "features"):
        commands = dict.fromkeys(readme_commands(name))
        assert commands
        for command in commands:
            words = shlex.split(command.replace("/path/to/digits", "digits"))[1:]
            assert main.main(words) == 0, command
    [text] = blocks("python", ("docs/use.md",))
    exec(text)
    assert {p.name for p in tmp_path.glob("runs/*")} == {
        "quickstart", "preds.csv", "evaluation", "features.npz",
    }  # fmt: skip


def test_python_of_the_readme(digits_run, image_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cat.jpg").write_bytes(next(image_folder.glob("test/*/*.jpg")).read_bytes())
    python = blocks("python", ("README.md",))
    assert python
    for text in python:
        names = {}
        exec(text.replace("runs/quickstart", str(digits_run)), names)
        assert names["logits"].shape == (1, 10)
        assert np.isfinite(names["logits"]).all()
    assert {p.name for p in tmp_path.rglob("*.*")} >= {"quickstart.npz", "model.safetensors"}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    """The run of the kill tests, never interrupted."""
    workdir = tmp_path_factory.mktemp("quiet")
    assert run(workdir, *LONG) == 0
    return workdir


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, 130, 270])
def test_killed_and_run_again_equals_uninterrupted(quiet, tmp_path, step):
    child = subprocess.Popen(
        [sys.executable, "-m", "vit_jax", "train", f"--config={QUICKSTART}",
         f"--workdir={tmp_path}", *TINY, *LONG],
        cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    end = time.monotonic() + 120
    while time.monotonic() < end and child.poll() is None:
        rows = read_rows(tmp_path / "metrics.jsonl")
        if rows and rows[-1]["step"] >= step:
            child.kill()
            break
        time.sleep(0.005)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == -9, f"the run ended before it was killed: {errors[-500:]!r}"
    assert run(tmp_path, *LONG) == 0
    assert logged(tmp_path) == logged(quiet)
    assert same_parameters(tmp_path, quiet)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_quickstart_reaches_its_goal_with_every_seed(tmp_path, seed):
    command = next(c for c in readme_commands() if "quickstart" in c)
    arguments = command_line(command, tmp_path, f"--config.seed={seed}")
    subprocess.run(arguments, cwd=ROOT, env=plain_environment(), timeout=600, check=True)
    assert json.loads((tmp_path / "results.json").read_text())["test"]["top1"] >= 0.96


@pytest.mark.slow
def test_cifar10_from_jpeg_folders_learns(tmp_path, data_dir):
    subprocess.run(["tar", "xf", data_dir / "cifar10.tar.gz", "-C", tmp_path], check=True)
    arguments = [
        sys.executable, "-m", "vit_jax", "train", "--config=configs/cifar10.py",
        f"--workdir={tmp_path / 'run'}", f"--config.data.source=folder:{tmp_path / 'cifar10'}",
        "--config.length=1 epochs", "--config.schedule.warmup=20 steps",
    ]  # fmt: skip
    subprocess.run(arguments, cwd=ROOT, env=plain_environment(), timeout=1200, check=True)
    losses = [
        r["train/loss"] for r in read_rows(tmp_path / "run" / "metrics.jsonl") if "train/loss" in r
    ]
    assert losses[-1] < losses[0] - 0.5
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["test"]["examples"] == 10000
    assert results["test"]["top1"] > 0.3


def test_importing_the_trainer_starts_no_backend():
    code = f"import vit_jax.training.train; {NO_BACKEND}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
