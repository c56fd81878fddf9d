# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A run whose terminal is closed, or the reader of its log gone, or the disk of its log full."""

import json
import os
import subprocess
import sys
import termios

import pytest
from test_train import QUICKSTART, TINY

from vit_jax import console
from vit_jax.storage.jsonl import read_rows


def terminal():
    """A pseudo-terminal of a usual size."""
    reader, writer = os.openpty()
    termios.tcsetwinsize(writer, (24, 80))
    return reader, writer


OPEN = {"pipe": os.pipe, "pty": terminal, "full": lambda: (None, os.open("/dev/full", os.O_RDWR))}


def start(kind, *words):
    """A child, and what reads its output and errors: a descriptor, or None where nothing can."""
    reader, writer = OPEN[kind]()
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=writer, stderr=writer)
    os.close(writer)
    return child, reader


def read_until(reader, text):
    found = b""
    while text not in found:
        more = os.read(reader, 65536)
        assert more, found
        found += more


PRINTS = """
import logging, sys
from vit_jax import console
console.begin()
logging.basicConfig(handlers=[console.Handler()])
{first}
for _ in range(3):
    {then}
print("of another", file={stream})
sys.exit(42)
"""
SHOW = 'console.show("a line")'
WAYS = {
    SHOW: "sys.stderr",
    'logging.warning("a line")': "sys.stderr",
    'console.show("a line", file=sys.stdout)': "sys.stdout",
}

BAR = 'with console.bar("a line") as shown: shown(1, 2); sys.stdin.read(); shown(2, 2)'


def program(then, stream="sys.stderr", first=""):
    return [sys.executable, "-c", PRINTS.format(first=first, then=then, stream=stream)]


@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.parametrize("then, stream", WAYS.items())
def test_what_nobody_can_read_changes_no_exit_code(kind, then, stream):
    first = "" if kind == "full" else f"{SHOW}; sys.stdin.read()"
    child, reader = start(kind, *program(then, stream, first))
    if reader is not None:
        read_until(reader, b"a line")
        os.close(reader)
    child.communicate()
    assert child.returncode == 42


def test_terminal_that_is_closed_during_a_bar_changes_no_exit_code():
    child, reader = start("pty", *program(BAR))
    read_until(reader, b"a line")
    os.close(reader)
    child.communicate()
    assert child.returncode == 42


SLOWER = """with console.bar("a line") as shown:
    start, done = time.monotonic(), 0
    while time.monotonic() < start + 0.8: done += 1; shown(done, 10**9)
    time.sleep(0.6)
    shown(done + 1, 10**9 + 7)
"""


@pytest.mark.parametrize("size", [(24, 80), (0, 0)])
def test_bar_goes_on_after_a_fast_start_whatever_the_size_of_the_terminal(size):
    reader, writer = os.openpty()
    termios.tcsetwinsize(writer, size)
    words = [sys.executable, "-c", f"import time\nfrom vit_jax import console\n{SLOWER}"]
    child = subprocess.Popen(words, stderr=writer)
    os.close(writer)
    try:
        read_until(reader, b"/1000000007 ")
    finally:
        child.wait()
        os.close(reader)


def test_streams_that_are_closed_at_the_start_are_not_files_of_the_run(tmp_path):
    then = f"assert sys.stderr.fileno() == 2 and not sys.stderr.isatty(); {'; '.join(WAYS)}"
    closed = ["sh", "-c", '"$@" >&- 2>&-', "sh"]
    assert subprocess.run([*closed, *program(then)]).returncode == 42


def test_error_of_the_logging_itself_is_seen():
    words = program('logging.warning("%d", "x")')
    done = subprocess.run(words, capture_output=True, text=True)
    assert "TypeError" in done.stderr
    assert done.stderr.endswith("of another\n")


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["pipe", pytest.param("pty", marks=pytest.mark.slow)])
def test_run_goes_on_when_its_reader_is_gone(tmp_path, kind):
    words = ["train", f"--config={QUICKSTART}", f"--workdir={tmp_path}", *TINY]
    child, reader = start(kind, sys.executable, "-m", "vit_jax", *words)
    read_until(reader, b"step 1/12")
    os.close(reader)
    child.communicate()
    assert child.returncode == 0
    assert json.loads((tmp_path / "results.json").read_text())["step"] == 12
    assert read_rows(tmp_path / "goodput.jsonl")[-1]["code"] == 0


@pytest.mark.parametrize(
    "encoding, variable, anew",
    [("ascii", None, True), ("iso8859-1", "0", True), ("ascii", "1", False), ("utf-8", "0", False)],
)
def test_a_program_starts_anew_where_names_are_not_utf_8(monkeypatch, encoding, variable, anew):
    """Once at most: the variable says that it was tried."""
    seen = []
    monkeypatch.setattr(os, "execve", lambda *given: seen.append(given))
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: encoding)
    monkeypatch.delenv("PYTHONUTF8", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYTHONUTF8", variable)
    console.in_utf8()
    assert len(seen) == anew
    for program, words, environ in seen:
        assert (program, words) == (sys.executable, [sys.executable, *sys.orig_argv[1:]])
        assert environ == os.environ | {"PYTHONUTF8": "1"}
