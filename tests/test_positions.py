# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax figures` with several models: one picture, and the settings in which the runs differ."""

import io
import re
import shlex
import shutil

import numpy as np
import pytest
import test_pages
import tiny
from PIL import Image
from test_e2e import readme_commands

import vit_jax
from vit_jax.cli import main
from vit_jax.config import load as config_lib
from vit_jax.models import variants
from vit_jax.reports import drawing, positions


@pytest.fixture(scope="module")
def others(digits_run, tmp_path_factory):
    """Copies of a run with other settings: name -> workdir."""
    root, changed = tmp_path_factory.mktemp("others"), {}
    for name, more in {
        "low": {"schedule.lr": 0.0002, "optimizer.weight_decay": 0.01},
        "high": {"schedule.lr": 0.0004, "optimizer.weight_decay": 0.1},
        "longer": {"schedule.lr": 0.0004, "length": "14 epochs", "checkpoint.keep_last": 7},
    }.items():
        changed[name] = root / name
        shutil.copytree(digits_run, changed[name])
        file = changed[name] / "config.yaml"
        config = config_lib.read(str(file))
        flags = [f"--config.{key}={value}" for key, value in more.items()]
        file.write_text(config_lib.to_yaml(config_lib.read(str(file), flags)))
        assert config != config_lib.read(str(file))
    return changed


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Weights files: kind -> path."""
    root, paths = tmp_path_factory.mktemp("weights"), {}
    for kind, cfg in {"vit": tiny.config(), "bit": tiny.bit()}.items():
        paths[kind] = root / f"{kind}.npz"
        vit_jax.save(paths[kind], variants.make(cfg), tiny.params(cfg, 16, 16), "npz")
    return paths


def run(*words):
    return main.main(["figures", *map(str, words)])


@pytest.mark.integration
def test_command_of_the_page_draws_a_panel_for_each_run(others, tmp_path, monkeypatch):
    (command,) = [c for c in readme_commands("figures") if "--images" not in c]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name, folder in others.items():
        (tmp_path / "runs" / name).symlink_to(folder)
    assert main.main(shlex.split(command)[1:]) == 0
    out = tmp_path / "runs" / "positions"
    assert {path.name for path in out.iterdir()} == {"index.html", "posemb.png"}
    words = " ".join(test_pages.check((out / "index.html").read_text()).words)
    low, high, longer = (re.search(rf"runs/{name}: (.*?)\.\s", words)[1] for name in others)
    keys = re.findall(r"([\w.]+) = ", low)
    assert keys == ["length", "schedule.lr", "optimizer.weight_decay"]  # those of Figure 10 first
    assert "schedule.lr = 0.0004" in high
    assert "length = 14 epochs" in longer
    assert "keep_last" not in words  # changes no result
    assert low.count(" = ") == high.count(" = ") == longer.count(" = ") == 3
    width, height = Image.open(io.BytesIO((out / "posemb.png").read_bytes())).size
    assert height > 2 * width  # three panels, one below the other


@pytest.mark.integration
def test_runs_that_differ_in_nothing_and_files_have_no_settings(digits_run, files):
    assert positions.differing([str(digits_run), str(digits_run), str(files["vit"])]) == [{}] * 3


def test_only_a_few_settings_stand_above_a_panel_but_all_in_a_sentence(monkeypatch):
    drawn = []
    monkeypatch.setattr(drawing, "similarity", lambda panels: drawn.append(panels) or b"png")
    table = np.ones((2, 3, 4, 3, 4))  # two layers
    settings = {f"key{i}": str(i) for i in range(6)}
    figure, (first, second) = positions.draw({"a": table, "b": table[:1]}, [settings, {}])
    assert [title.splitlines() for title in drawn[0]] == [
        ["a", "key0 = 0", "key1 = 1", "key2 = 2", "key3 = 3", "and 2 more"], ["b"]
    ]  # fmt: skip
    assert all(panel.shape == (3, 4, 3, 4) for panel in drawn[0].values())
    every = "; ".join(f"{key} = {value}" for key, value in settings.items())
    assert first == f"a: a grid of 3 x 4, the first layer; {every}."
    assert second == "b: a grid of 3 x 4."
    assert (figure.name, figure.png) == ("posemb", b"png")


def test_titles_are_drawn_and_longer_ones_are_cut():
    table = np.ones((2, 2, 2, 2))
    plain, named, long = (
        drawing.similarity({title: table, "b": table}) for title in ("a", "a\nlr = 1", "a$" * 99)
    )
    sizes = [Image.open(io.BytesIO(png)).size for png in (plain, named, long)]
    assert sizes[1][1] > sizes[0][1]
    assert sizes[2][0] < 850


@pytest.mark.parametrize("words, message", [
    (["{run}", "{vit}", "--images={run}"], "leave --images out"),
    (["{run}", "{run}"], "name each run once"),
    (["{run}", "{bit}"], "BiT has neither position embeddings nor attention"),
    (["{run}", "{run}/none"], "does not exist"),
    (["{run}"], "give --images=IMAGE"),
])  # fmt: skip
def test_what_cannot_be_compared_is_one_message(
    digits_run, files, tmp_path, capsys, words, message
):
    given = [word.format(run=digits_run, **files) for word in words]
    assert run(*given, f"--out={tmp_path}/out") == 2
    said = capsys.readouterr().err
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "out").exists()
