# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Names MODULE:NAME in the run of a stranger import nothing; those of the user are trusted."""

import shutil
import subprocess
import sys
from pathlib import Path

import model_commands
import pytest
import yaml
from test_train import QUICKSTART

import vit_jax
from vit_jax.build import splits
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.config import plugins
from vit_jax.errors import BadInput
from vit_jax.inference import model as inference
from vit_jax.step import losses
from vit_jax.training import metric_writer

MODULE = "strange_code"
NAMES = {
    ("model", "variant"): f"{MODULE}:Net(size=3)",
    ("data", "source"): f"python:{MODULE}:open",
    ("loss", "name"): f"{MODULE}:loss",
    ("report", "writers"): [f"{MODULE}:Writer"],
}

FINETUNE = f"--config={Path(QUICKSTART).with_name('finetune.py')}"
SWEPT = """
from vit_jax.config import recipes

def get_config(arg=None):
    config = recipes.call(recipes.Path("{finetune}"), "get_config", "")
    config.init, config.data.source = "{run}", "digits"
    return config

def sweep(arg=None):
    return [dict(seed=0), dict(seed=1)]
"""


@pytest.fixture
def stranger(digits_run, tmp_path, monkeypatch):
    """A run whose configuration names a module that would raise, were it imported."""
    folder = tmp_path / "stranger"
    shutil.copytree(digits_run, folder)
    (tmp_path / f"{MODULE}.py").write_text("raise RuntimeError('I was imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    values = yaml.safe_load((folder / "config.yaml").read_text())
    for (section, key), name in NAMES.items():
        values[section][key] = name
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    yield folder
    assert MODULE not in sys.modules


def refused(folder):
    return rf"{folder}.*names {MODULE}:\w+, .*--trust-code"


def test_the_run_of_a_stranger_is_not_loaded(stranger):
    with pytest.raises(BadInput, match=refused(stranger)):
        vit_jax.load(stranger)
    with pytest.raises(BadInput, match="I was imported"):
        vit_jax.load(stranger, trust_code=True)
    with pytest.raises(BadInput, match=refused(stranger)):  # trust does not last
        vit_jax.load(stranger)


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "RUN"),
        ("predict", "RUN", "IMAGE"),
        ("features", "RUN", "IMAGE", "--out=OUT/f.npz"),
        ("features", "RUN", "--data=digits", "--out=OUT/f.npz"),
        ("fewshot", "RUN", "--data=digits"),
        ("evaluate", "RUN", "--out=OUT"),
        ("evaluate", "RUN", "--data=digits", "--out=OUT"),
        ("export", "RUN", "--format=npz", "--out=OUT/x.npz"),
        ("push", "RUN", "a/b", "--out=OUT/x"),
        ("figures", "RUN", "--images=IMAGE", "--out=OUT"),
        ("train", f"--config={QUICKSTART}", "--workdir=OUT/new", "--config.init=RUN",
         "--config.model.variant=auto"),
        ("plan", FINETUNE, "--config.init=RUN", "--config.data.source=digits",
         "--accelerator=h100-8"),
        ("sweep", "--config=SWEEP", "--workdir=OUT/sweep"),
    ],
    ids=lambda words: " ".join(words[:1] + words[2:3]),
)  # fmt: skip
def test_no_command_imports_what_a_stranger_names(stranger, tmp_path, capsys, words):
    (image,) = model_commands.digit_files(tmp_path / "digits", 1)
    (tmp_path / "swept.py").write_text(SWEPT.format(run=stranger, finetune=FINETUNE[9:]))
    places = {"RUN": str(stranger), "IMAGE": image, "OUT": str(tmp_path / "out")}
    places["SWEEP"] = str(tmp_path / "swept.py")
    for name, place in places.items():
        words = [word.replace(name, place) for word in words]
    code, shown, said = model_commands.command(capsys, *words)
    assert f"names {MODULE}:" in said + shown
    assert "--trust-code" in said + shown
    assert code == 2


def test_the_flag_trusts_for_one_command(stranger, capsys):
    code, _, said = model_commands.command(capsys, "inspect", stranger, "--trust-code")
    assert (code, "I was imported" in said) == (2, True)
    code, _, said = model_commands.command(capsys, "inspect", stranger)
    assert (code, "I was imported" in said) == (2, False)


def test_data_and_losses_and_writers_ask_too(stranger):
    saved = config_lib.read(str(stranger / "config.yaml"))
    for use in (
        lambda: splits.open_source(saved.data),
        lambda: inference.open_data(str(stranger), "", ""),
        lambda: losses.find(saved.loss.name),
        lambda: metric_writer.check_writers(saved.report.writers),
    ):
        with pytest.raises(BadInput, match=refused(stranger)):
            use()


def test_what_the_user_gives_is_trusted(stranger, tmp_path):
    config_lib.read(str(stranger / "config.yaml"))
    config_lib.load(QUICKSTART, [f"--config.loss.name={MODULE}:loss"])
    with pytest.raises(BadInput, match="I was imported"):
        losses.find(f"{MODULE}:loss")
    # Another name is another function.
    for name in (f"{MODULE}:losses", f"{MODULE}:los", f"{MODULE[3:]}:loss"):
        plugins.read_from("config.yaml", [name])
        with pytest.raises(BadInput, match="--trust-code"):
            plugins.find("loss.name", name)


def test_a_saved_configuration_is_a_strangers_also_after_config(stranger, tmp_path, capsys):
    words = "train", f"--config={stranger / 'config.yaml'}", f"--workdir={tmp_path / 'new'}"
    code, _, said = model_commands.command(capsys, *words)
    assert (code, "--trust-code" in said, "I was imported" in said) == (2, True, False)
    code, _, said = model_commands.command(capsys, *words, "--trust-code")
    assert (code, "I was imported" in said) == (2, True)


@pytest.mark.integration
def test_processes_that_are_started_trust_what_the_user_gave(stranger):
    """As the runs of a sweep do, whose configurations are YAML files."""
    use = (
        "import sys; from vit_jax.config import load; from vit_jax.step import losses;"
        "losses.find(load.load(sys.argv[1]).loss.name)"
    )

    def said():
        words = [sys.executable, "-c", use, str(stranger / "config.yaml")]
        return subprocess.run(words, capture_output=True, text=True, check=False).stderr

    assert "--trust-code" in said()
    config_lib.load(QUICKSTART, [f"--config.loss.name={MODULE}:loss"])
    assert f"no module {MODULE}" in said()  # its folder is not on PYTHONPATH


@pytest.mark.integration
def test_the_same_command_continues_a_run_without_the_flag(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_own_loss.py").write_text(
        "def loss(logits_BY, targets_BY):\n    return -(logits_BY * targets_BY).mean(axis=1)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    words = [
        "train", f"--config={QUICKSTART}", f"--workdir={tmp_path / 'run'}",
        "--config.loss.name=my_own_loss:loss", "--config.length=1 steps", "--config.batch_size=8",
        "--config.model.depth=1", "--config.report.page=false", "--config.report.writers=()",
        "--config.schedule.warmup=0", "--config.evals.val.every=0",
    ]  # fmt: skip
    assert main.main(words) == 0
    monkeypatch.setenv("VIT_JAX_TRUST_CODE", "")  # a new process begins
    plugins._of_runs.clear()
    (tmp_path / "run" / "results.json").unlink()
    assert main.main(words) == 0
    assert (tmp_path / "run" / "results.json").exists()
