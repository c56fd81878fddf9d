# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""`python -m launch report`: a line a run, and messages."""

import pytest
from test_spent import row, start, write

from launch import main, report
from vit_jax.storage import files as storage


def test_runs_and_their_sum_are_shown(tmp_path, capsys):
    write(tmp_path / "a", start(0, 0, row(3610, "exit", 90, code=0)))
    write(tmp_path / "b", start(0, 0, row(310, "save", 90)))
    assert main.main(["report", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == report.HEADER
    assert lines[2][1:] == ["done", "0", "1:00:10", "1:00:00", "0:10", "0:00", "0:00", "99.7%"]
    assert lines[3][1:] == ["dead", "0", "5:10", "5:00", "0:10", "0:00", "0:00", "96.8%"]
    assert lines[4] == ["all", "0", "1:05:20", "1:05:00", "0:20", "0:00", "0:00", "99.5%"]


@pytest.mark.parametrize(
    "content", [None, "", "{", '{"step": 1}\n', '{"step": 0, "time": 1.0}\n', '{"time": 1.0}\n']
)
def test_no_run_is_one_message(tmp_path, capsys, content):
    if content is not None:
        (tmp_path / "goodput.jsonl").write_text(content)
    assert main.main(["report", str(tmp_path)]) == 2
    assert "has no goodput.jsonl of a run; give the workdir of a run" in capsys.readouterr().err


def test_what_cannot_be_read_is_one_message(tmp_path, capsys):
    (tmp_path / "goodput.jsonl").mkdir()
    for name in (str(tmp_path), "a" * 300):
        assert main.main(["report", name]) == 2
        assert "cannot be read" in capsys.readouterr().err


def test_store_that_does_not_answer_asks_for_another_start(store, monkeypatch, capsys):
    def lost(*_, **__):
        raise storage.StoreLost("gs://bucket/run: the store does not answer")

    monkeypatch.setattr(storage, "listed", lost)
    assert main.main(["report", "gs://bucket/run"]) == 43
    assert "does not answer" in capsys.readouterr().err


def test_workdir_is_asked_for(capsys):
    assert main.main(["report"]) == 2
    assert "WORKDIR" in capsys.readouterr().err
