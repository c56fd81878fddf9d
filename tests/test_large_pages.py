# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""A program starts anew with large pages where it can, once, and with all it was given."""

import os
import subprocess
import sys

import pytest

from vit_jax import __main__
from vit_jax.hardware import host_memory

PROGRAM = """
import os, pathlib, sys
from vit_jax.hardware import host_memory
host_memory._POLICY = pathlib.Path(sys.argv[1])
if "GLIBC_TUNABLES" not in os.environ: print("first", os.getpid(), flush=True)
host_memory.start_with_large_pages()
print("then", os.getpid(), os.environ.get("GLIBC_TUNABLES"), *sys.argv[2:], sys.flags.optimize)
"""


@pytest.fixture
def started(monkeypatch, tmp_path):
    """(policy, glibc) -> what the program was started anew with: arguments and the tunables."""
    seen = []

    def execve(program, words, environ):
        seen.append((program, words, environ["GLIBC_TUNABLES"]))

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(host_memory, "_POLICY", tmp_path / "enabled")
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)

    def start(policy="always [madvise] never", libc="glibc 2.36", tunables=None):
        (tmp_path / "enabled").write_text(f"{policy}\n")
        monkeypatch.setattr(os, "confstr", lambda name: libc)
        if tunables is not None:
            monkeypatch.setenv("GLIBC_TUNABLES", tunables)
        host_memory.start_with_large_pages()
        return seen

    return start


def test_a_program_starts_anew_with_what_it_was_given(tmp_path):
    if not (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc"):
        pytest.skip("this is not glibc")
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    environ = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    said = subprocess.run(
        [sys.executable, "-O", "-c", PROGRAM, tmp_path / "enabled", "a b", "--c=*"],
        capture_output=True,
        text=True,
        check=True,
        env=environ,
    ).stdout.splitlines()
    (first, process), then = said[0].split(), said[1:]
    assert first == "first"
    assert then == [f"then {process} glibc.malloc.hugetlb=1 a b --c=* 1"]


def test_other_tunables_stay(started):
    tunables = "glibc.malloc.check=1:glibc.malloc.hugetlb=1"
    assert started(tunables="glibc.malloc.check=1") == [
        (sys.executable, [sys.executable, *sys.orig_argv[1:]], tunables)
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"policy": "[always] madvise never"},
        {"policy": "always madvise [never]"},
        {"libc": "glibc 2.34"},
        {"libc": "musl 1.2"},
        {"libc": None},
        {"tunables": "glibc.malloc.hugetlb=0"},
    ],
)
def test_where_there_is_nothing_to_gain_it_goes_on(started, given):
    assert started(**given) == []


def test_a_system_without_that_file_goes_on(started, monkeypatch, tmp_path):
    assert len(started()) == 1
    monkeypatch.setattr(host_memory, "_POLICY", tmp_path / "none")
    host_memory.start_with_large_pages()
    assert len(started()) == 1


def test_a_program_that_is_not_shown_the_variable_starts_anew_once(tmp_path):
    (tmp_path / "enabled").write_text("always [madvise] never\n")
    blind = 'import os, sys; print("started"); os.environ.pop("GLIBC_TUNABLES", 0)\n' + PROGRAM
    words = [sys.executable, "-uc", blind, tmp_path / "enabled"]
    said = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert 1 <= said.count("started") <= 2  # 1 where there is nothing to gain
    assert said.splitlines()[-1].startswith("then")


def test_where_no_program_can_be_started_it_goes_on(started, monkeypatch):
    def gone(*given):
        raise FileNotFoundError(2, "No such file or directory")

    assert len(started()) == 1
    monkeypatch.setattr(os, "execve", gone)
    assert len(started()) == 1
    assert not {"GLIBC_TUNABLES", "VIT_JAX_STARTED_ANEW"} & os.environ.keys()


def test_the_command_asks_first(started, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["vit_jax", "--version"])
    asked = []
    monkeypatch.setattr(host_memory, "start_with_large_pages", lambda: asked.append(1))
    assert (__main__.program(), asked) == (0, [1])
