# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`vit_jax report`: its arguments, and the command of the README. Pages: test_real_run_pages.py."""

import shlex

import pytest
from test_e2e import readme_commands
from workdirs import written

from vit_jax.cli import main


@pytest.mark.parametrize("words, said", [([], "RUN"), ([""], "RUN is empty")])
def test_run_is_asked_for(words, said, capsys):
    assert main.main(["report", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.integration
def test_commands_of_the_pages_are_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("quickstart", "mine", "first", "second"):
        written(tmp_path / "runs" / name)
    commands = readme_commands("report")
    assert len(commands) >= 2
    for command in commands:
        assert main.main(shlex.split(command)[1:]) == 0
        made = capsys.readouterr().out.strip()
        assert (tmp_path / made).read_text().startswith("<!DOCTYPE html>")
