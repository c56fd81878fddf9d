# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The shape of the project: sizes, licence headers, no drawers, what a fence cannot say."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    [*ROOT.glob("vit_jax/**/*.py"), *ROOT.glob("launch/**/*.py"), *ROOT.glob("configs/*.py")]
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_source_file_keeps_to_the_budget(path):
    text = path.read_text()
    assert text.count("\n") <= 450
    assert text.startswith("# SPDX-FileCopyrightText")
    assert path.stem not in ("utils", "common", "misc", "helpers")
    module = ast.parse(text)
    assert ast.get_docstring(module)
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name != "get_config":
            lines = node.end_lineno - node.lineno + 1
            assert lines <= 60, f"{node.name} has {lines} lines"


@pytest.mark.parametrize("path", [p for p in SOURCES if "configs" not in p.parts], ids=str)
def test_no_default_is_hidden_in_a_config_get(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert not (node.func.attr == "get" and "config" in ast.unparse(node.func.value)), (
                f"line {node.lineno}: config.get hides a default"
            )


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_text_has_one_encoding_whatever_the_locale(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or any(k.arg == "encoding" for k in node.keywords):
            continue
        called, values = ast.unparse(node.func), [*node.args, *(k.value for k in node.keywords)]
        modes = [v.value for v in values if isinstance(v, ast.Constant)]
        modes = [m for m in modes if isinstance(m, str) and re.fullmatch(r"[rwax]\+?[bt]?\+?", m)]
        opens = called == "open" or (bool(modes) and called.endswith(("open", "TemporaryFile")))
        text = opens and not called.startswith("tarfile.") and not any("b" in m for m in modes)
        assert not text, f"line {node.lineno}: {called} without encoding="
        assert not called.endswith((".read_text", ".write_text")), f"line {node.lineno}: likewise"


def test_rooms_are_folders_and_few_modules_lie_beside_them():
    assert len(list(ROOT.glob("vit_jax/*.py"))) <= 6
    for room in {path.parent for path in ROOT.glob("vit_jax/**/*.py")}:
        assert (room / "__init__.py").is_file(), room


def test_extras_of_the_readme_exist():
    setup, readme = (ROOT / "setup.py").read_text(), (ROOT / "README.md").read_text()
    for extra in ("cuda12", "cuda13", "tpu", "plan", "gcs", "dev", "export"):
        assert f'"{extra}": [' in setup
        assert re.search(rf"\.\[(\w+,)?{extra}\]", readme)
