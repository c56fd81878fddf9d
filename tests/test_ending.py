# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What is done before a process ends without its main thread."""

import os
import threading

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


def test_what_fails_or_waits_for_ever_does_not_keep_the_process(monkeypatch):
    done, never = [], threading.Event()
    assert ending.briefly(lambda: done.append(1), 20)
    assert not ending.briefly(lambda: 1 / 0, 20)
    assert not ending.briefly(never.wait, 0.05)
    monkeypatch.setattr(ending, "LAST_SECS", 0.05)
    monkeypatch.setattr(os, "_exit", done.append)
    with ending.last(lambda: done.append("first")), ending.last(never.wait):
        ending.end(43)
    never.set()
    assert done == [1, "first", 43]


def test_exit_hooks_end_with_the_code_that_was_about_to_be_returned(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    assert ending.returns(2) == 2
    ending.end_with_that()
    assert ended == [2]
