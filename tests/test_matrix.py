# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""tests/matrix, without an environment: what it makes of a run, and the table that is committed."""

import importlib.machinery
import importlib.util
import shutil
import sys

import pytest


@pytest.fixture
def matrix(root, tmp_path, monkeypatch):
    """The script, whose page is a copy with two rows."""
    loader = importlib.machinery.SourceFileLoader("matrix", str(root / "tests" / "matrix"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("matrix", loader))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    before = (root / "docs" / "versions.md").read_text(encoding="utf-8")
    start, end = before.partition(module.BEGIN)[0], before.partition(module.END)[2]
    module.PAGE = tmp_path / "versions.md"
    head = f"| {' | '.join(module.HEAD)} |\n|---|\n"
    module.PAGE.write_text(f"{start}{module.BEGIN}\n{head}{module.END}{end}", encoding="utf-8")
    for name in ("newest", "lowest"):
        module.write(row(module, name, "7"))
    return module


def row(module, name, passed):
    values = dict.fromkeys(module.HEAD, "1") | {"set": name, "Python": "3.11", "passed": passed}
    return values


def table(module):
    text = module.PAGE.read_text(encoding="utf-8")
    lines = text.partition(module.BEGIN)[2].partition(module.END)[0].strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_run_replaces_its_own_row_and_no_other(matrix):
    before = matrix.PAGE.read_text(encoding="utf-8")
    matrix.write(row(matrix, "newest", "8"))
    at = matrix.HEAD.index("passed")
    assert [(cells[0], cells[at]) for cells in table(matrix)] == [("lowest", "7"), ("newest", "8")]
    after = matrix.PAGE.read_text(encoding="utf-8")
    assert after.partition(matrix.BEGIN)[0] == before.partition(matrix.BEGIN)[0]
    assert after.partition(matrix.END)[2] == before.partition(matrix.END)[2]


@pytest.mark.parametrize(
    "said, code, counts",
    [
        ("2 failed, 52 passed, 3 skipped in 7.71s", 1, {"failed": 2, "passed": 52, "skipped": 3}),
        ("81 passed, 1 error in 9.1s", 1, {"passed": 81, "error": 1}),
        ("81 passed, 2 errors in 9.1s", 1, {"passed": 81, "error": 2}),
    ],
)
def test_counts_are_those_of_the_last_line(matrix, tmp_path, said, code, counts):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "pytest"
    program.write_text(f"#!{shutil.which('sh')}\necho 1 passed\necho '{said}'\nexit {code}\n")
    program.chmod(0o755)
    assert matrix.test(str(tmp_path), [])[:2] == (counts, code)


def test_no_test_of_the_committed_table_failed(matrix, root):
    matrix.PAGE = root / "docs" / "versions.md"
    rows = [dict(zip(matrix.HEAD, cells, strict=True)) for cells in table(matrix)]
    assert {one["set"] for one in rows} == set(matrix.SETS)
    assert [one for one in rows if one["failed"] != "0"] == []
