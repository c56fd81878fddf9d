# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Each command of the pages about launching is one: it renders, or says what it was not given."""

import json
import re
import shlex

import pytest

from launch import main

PAGES = ("local", "slurm", "gke", "tpu_vm", "sky")


def commands(root):
    for page in PAGES:
        for block in re.findall(
            r"```sh\n(.*?)```", (root / f"docs/launch/{page}.md").read_text(), re.S
        ):
            for line in block.splitlines():
                yield page, shlex.split(line)


@pytest.mark.integration
def test_commands_render(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for page, words in commands(root):
        assert words[:4] == ["python", "-m", "launch", page]
        words = [w.replace("--config=configs", f"--config={root}/configs") for w in words[3:]]
        words = [w.replace("--workdir=/shared", f"--workdir={tmp_path}") for w in words]
        if words[1] == "submit":
            words[1] = "render"
        code = main.main(words)
        out, err = capsys.readouterr()
        if words[1] == "render":
            assert code == 0, err
            assert "# submit" in out
        else:
            assert "nothing was submitted with this --workdir" in err
    assert not list(tmp_path.rglob("launch.json"))


def test_command_of_the_report_runs(root, tmp_path, monkeypatch, capsys):
    text = (root / "docs/launch/README.md").read_text()
    words = shlex.split(re.search(r"```sh\n(.*?)```", text, re.S)[1])
    assert words[:3] == ["python", "-m", "launch"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / words[-1]).mkdir(parents=True)
    rows = [
        {"step": 0, "event": "start", "time": 1.0, "restarts": 0},
        {"step": 9, "event": "exit", "time": 5.0, "code": 0},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / words[-1] / "goodput.jsonl").write_text(text)
    assert main.main(words[3:]) == 0
    shown = capsys.readouterr().out.splitlines()[0].split()
    page = (root / "docs/launch/README.md").read_text()
    assert all(f"| `{column}` |" in page for column in shown if column not in ("run", "restarts"))


@pytest.mark.parametrize("page", PAGES)
def test_flags_of_a_page_exist(root, page):
    known = {o for a in main.parser(page)._actions for o in a.option_strings}
    text = (root / f"docs/launch/{page}.md").read_text()
    for flag in re.findall(r"(?<![\w-])python -m launch [^`\n]*", text):
        given = {w.partition("=")[0] for w in flag.split() if w.startswith("--")}
        assert given - {g for g in given if g.startswith("--config.")} <= known


def test_each_page_says_what_people_ask(root):
    for page in PAGES:
        text = (root / f"docs/launch/{page}.md").read_text()
        for said in ("**You need**", "**Logs", "**To stop", "cost"):
            assert said in text, (page, said)


def test_the_image_is_made_of_what_is_there(root):
    text = (root / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (.*)$", text, re.M):
        for name in line.split()[:-1]:
            assert (root / name).exists()
    for extra in ("cuda12", "cuda13", "tpu"):
        assert extra in text
        assert f'"{extra}": [' in (root / "setup.py").read_text()
