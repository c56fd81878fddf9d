# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The shape of the project: sizes, licence headers, no drawers, what a fence cannot say."""

import ast
import re
import tomllib
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


def test_no_file_names_a_private_module_of_jax_or_orbax():
    """They change without notice; the fence of import-linter sees imports of our packages only."""
    files = [p for folder in ("vit_jax", "launch", "configs", "tests", "docs")
             for p in ROOT.glob(f"{folder}/**/*.py")]  # fmt: skip
    private = re.compile(r"\b(jax|orbax[\w.]*|flax|optax)\._src\b|(import|from) jaxlib")
    assert len(files) > 500
    assert [p for p in files if private.search(p.read_text(encoding="utf-8"))] == []


def test_extras_of_the_readme_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    readme = (ROOT / "README.md").read_text()
    for extra in ("cuda12", "cuda13", "tpu", "tf", "plan", "gcs", "coco", "dev", "export"):
        assert extra in project["optional-dependencies"]
        assert re.search(rf"\.\[(\w+,)?{extra}\]", readme)


def test_no_room_but_config_names_a_config_dict():
    """A fence sees who imports ml_collections, but not who takes its class from `config.load`."""
    named = {p.relative_to(ROOT) for p in SOURCES if "ConfigDict" in p.read_text(encoding="utf-8")}
    rooms = {path for path in named if path.parts[0] != "configs"}
    assert rooms == {Path("vit_jax/config/load.py"), Path("vit_jax/config/sections.py")}


FAMILIES = {f"vit_jax/models/{name}.py" for name in ("vit", "bit", "mixer", "custom")}
PROTOCOL = {"vit_jax/models/settings.py", "vit_jax/models/variants.py"}
LEFT = {"vit_jax/weights/convert.py": ["cfg.FAMILY"]}  # chooses tables of names, by their family


def questions_of_family(text):
    """Returns the code that asks which family the configuration of a model belongs to."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == "FAMILY":
            found.append(ast.unparse(node))
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            kinds = called in ("isinstance", "issubclass") and ast.unparse(node.args[1])
            if kinds and re.search(r"(ViT|BiT|Mixer|Own|ResNet|Model|Token)Config\b", kinds):
                found.append(ast.unparse(node))
            if called.split(".")[-1] == "family":
                found.append(ast.unparse(node))
    return found


def test_no_room_asks_for_the_family_of_a_model():
    found = {
        path.relative_to(ROOT).as_posix(): questions_of_family(path.read_text(encoding="utf-8"))
        for path in SOURCES
    }
    assert found["vit_jax/models/variants.py"]  # which may ask
    outside = {n: q for n, q in found.items() if q and n not in FAMILIES | PROTOCOL}
    assert outside == LEFT


@pytest.mark.parametrize("text, count", [
    ("isinstance(cfg, vit.ViTConfig)", 1),
    ("isinstance(cfg, BiTConfig | OwnConfig)", 1),
    ("x = cfg.FAMILY == 'vit'", 1),
    ("x = {'bit': 1}[variants.family(cfg)]", 1),
    ("isinstance(config, ConfigDict); form.family == 'vit'; cfg.FORMS", 0),
])  # fmt: skip
def test_each_question_of_family_is_found(text, count):
    assert len(questions_of_family(text)) == count
