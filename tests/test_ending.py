# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What is done before a process ends without its main thread."""

import os

import pytest

from vit_jax import ending


def test_what_is_registered_is_done_once_whatever_fails(monkeypatch):
    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", end)
    done = []
    with ending.last(lambda: done.append("first")), ending.last(lambda: 1 / 0):
        with pytest.raises(SystemExit) as ended:
            ending.end(43)
        assert ended.value.code == 43
    with pytest.raises(SystemExit):
        ending.end(1)
    assert done == ["first"]


def test_saying_to_nobody_does_not_fail(monkeypatch, capsys):
    ending.say("stopped")
    assert capsys.readouterr().err == "vit_jax: stopped\n"
    with open(os.devnull) as closed:
        pass
    monkeypatch.setattr("sys.stderr", closed)
    ending.say("stopped")
