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
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 450, 60


def faults(path, text):
    """Returns what a source file has that none should have."""
    module = ast.parse(text)
    if text.count("\n") > MOST_LINES:
        yield f"{text.count(chr(10))} lines"
    if not text.startswith("# SPDX-FileCopyrightText"):
        yield "no licence header"
    if path.stem in ("utils", "common", "misc", "helpers"):
        yield "a drawer"
    if not ast.get_docstring(module):
        yield "no docstring"
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and node.name != "get_config":
            lines = node.end_lineno - node.lineno + 1
            if lines > MOST_LINES_OF_A_FUNCTION:
                yield f"{node.name} has {lines} lines"
        if isinstance(node, ast.Call):
            if "configs" not in path.parts and hides_a_default(node):
                yield f"line {node.lineno}: config.get hides a default"
            if depends_on_the_locale(node):
                yield f"line {node.lineno}: text without encoding="


def hides_a_default(call):
    get = isinstance(call.func, ast.Attribute) and call.func.attr == "get"
    return get and "config" in ast.unparse(call.func.value)


def depends_on_the_locale(call):
    """Says whether a call opens, reads or writes text without `encoding`."""
    if any(k.arg == "encoding" for k in call.keywords):
        return False
    called, values = ast.unparse(call.func), [*call.args, *(k.value for k in call.keywords)]
    modes = [v.value for v in values if isinstance(v, ast.Constant)]
    modes = [m for m in modes if isinstance(m, str) and re.fullmatch(r"[rwax]\+?[bt]?\+?", m)]
    opens = called == "open" or (bool(modes) and called.endswith(("open", "TemporaryFile")))
    text = opens and not called.startswith("tarfile.") and not any("b" in m for m in modes)
    return text or called.endswith((".read_text", ".write_text"))


def test_source_files_have_no_fault():
    found = {path: list(faults(path, path.read_text(encoding="utf-8"))) for path in SOURCES}
    assert len(found) > 200
    assert {path: faults for path, faults in found.items() if faults} == {}


HEADER = '# SPDX-FileCopyrightText: x\n"""A module."""\n'


@pytest.mark.parametrize(
    "name, text, fault",
    [
        ("a", HEADER + "x = 1\n" * 450, "452 lines"),
        ("a", '"""A module."""\n', "no licence header"),
        ("utils", HEADER, "a drawer"),
        ("a", "# SPDX-FileCopyrightText: x\n", "no docstring"),
        ("a", HEADER + "def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
        ("a", HEADER + "config.data.get('x', 3)", "config.get"),
        ("a", HEADER + "open('x')", "encoding="),
        ("a", HEADER + "p.open(mode='r')", "encoding="),
        ("a", HEADER + "p.read_text()", "encoding="),
        ("a", HEADER + "open('x', 'rb'); p.read_text(encoding='utf-8'); d.get('x')", None),
    ],
)
def test_each_fault_is_found(name, text, fault):
    found = list(faults(Path(f"vit_jax/{name}.py"), text))
    assert len(found) == (fault is not None)
    assert fault is None or fault in found[0]


def test_rooms_are_folders_and_few_modules_lie_beside_them():
    assert len(list(ROOT.glob("vit_jax/*.py"))) <= 6
    for room in {path.parent for path in ROOT.glob("vit_jax/**/*.py")}:
        assert (room / "__init__.py").is_file(), room


def test_extras_of_the_readme_exist():
    setup, readme = (ROOT / "setup.py").read_text(), (ROOT / "README.md").read_text()
    for extra in ("cuda12", "cuda13", "tpu", "plan", "gcs", "dev", "export"):
        assert f'"{extra}": [' in setup
        assert re.search(rf"\.\[(\w+,)?{extra}\]", readme)
