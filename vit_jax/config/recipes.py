# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds and runs recipe files. `load` and the sweeps interpret the results.

A recipe is a Python program with `get_config(arg=None)`; some also have `sweep(arg=None)`.
Recipes of a user are files. Those of this package are also called `vit_jax:NAME`: they lie in
`configs/` of a checkout, and inside the package where a wheel is installed. Start from `call`.
"""

import contextlib
import difflib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage

OWN = "vit_jax:"  # precedes the name of a shipped recipe
_PACKAGE = "configs"  # recipes import shipped ones from here
_shipped: dict[str, ModuleType] = {}  # `configs` and its modules while no recipe runs


def split(spec: str) -> tuple[Path, str]:
    """Splits `FILE:ARGS` or `vit_jax:NAME:ARGS` into (file, "ARGS").

    A saved YAML file may be in a bucket.

    Raises:
      BadInput: the file does not exist, or it is a recipe in a bucket.
    """
    if storage.is_remote(spec):
        path = storage.path(spec)
        if path.suffix not in (".yaml", ".yml"):
            raise BadInput(f"--config={spec}: a recipe is a program on a disk; copy it to one.")
        return path, ""
    if spec.startswith(OWN):
        name, _, args = spec.removeprefix(OWN).partition(":")
        if name not in (*names(), "base"):
            problem = f"no recipe {name[:200]!r} in this package"
            raise BadInput(f"--config={spec[:200]}: {problem}.{_suggested(name, args)}")
        return file(name), args
    name, _, args = (spec, "", "") if _is_file(spec) else spec.partition(":")
    if not _is_file(name):
        kind = _kind(name)
        if kind not in ("", storage.FOLDER):
            raise BadInput(f"--config={spec}: {name} is a {kind}, not a file; give a file.")
        problem = f"{name} is a folder, not a file" if kind else f"no file {name[:200]}"
        raise BadInput(f"--config={spec[:200]}: {problem}.{_suggested(name, args)}")
    return Path(os.path.expanduser(name)), args


def names() -> list[str]:
    """Returns the names of the shipped recipes, without `base`, from which they all start."""
    return sorted(p.stem for p in _folder().glob("*.py") if p.stem not in ("__init__", "base"))


def file(name: str) -> Path:
    """Returns the file of a shipped recipe; it need not exist."""
    return _folder() / f"{name}.py"


def _folder() -> Path:
    """Returns the folder of the shipped recipes: in the package (a wheel), or in the checkout."""
    inside = root() / "vit_jax" / _PACKAGE
    return inside if inside.is_dir() else root() / _PACKAGE


def _suggested(name: str, args: str) -> str:
    """Returns a hint: the recipe that resembles a name such as `quickstart`, and all recipes."""
    near = difflib.get_close_matches(Path(name[:200]).stem, names(), n=1)
    hint = ""
    if near:
        beside = Path(name).with_name(f"{near[0]}.py")  # another file in the same folder
        meant = str(beside) if _is_file(str(beside)) else OWN + near[0]
        hint = f" Did you mean --config={meant}{':' * bool(args)}{args[:200]}?"
    listed = ", ".join(OWN + one for one in names())
    return f"{hint} The recipes of this package: {listed}. Your own: give the path of the file."


def _is_file(text: str) -> bool:
    return _kind(text) == storage.FILE


def _kind(text: str) -> str:
    """Returns the kind of file at a path; "" if it does not exist or cannot be looked up."""
    try:
        return storage.kind(os.path.expanduser(text))
    except OSError:
        return ""


def call(path: Path, function: str, args: str) -> Any:
    """Calls a function of a recipe and returns its result.

    Args:
      path: the recipe file.
      function: the name of the function: `get_config` or `sweep`.
      args: the argument of the function; with "" it is called without an argument.

    Raises:
      BadInput: the recipe has no such function, or raises any error.
    """
    if path.suffix != ".py":
        raise BadInput(
            f"{path} is not a recipe; recipes end in .py, and the configuration of a run in .yaml."
        )
    try:
        with _shipped_importable():
            module = _run_file(path)
            if not hasattr(module, function):
                raise BadInput(
                    f"{path} has no {function} function; a recipe defines {function}(arg=None)."
                )
            callee = getattr(module, function)
            return callee(args) if args else callee()
    except BadInput:
        raise
    except Exception as e:  # a recipe is the user's program: it may raise anything
        where = ""
        if args and isinstance(e, TypeError) and "positional argument" in str(e):
            where = f" It takes no argument; leave out {args!r}."
        reason = " ".join(str(e).split("\n\n")[0].split())
        reason = reason if len(reason) < 300 else reason[:300] + " ..."
        raise BadInput(f"{path} cannot be read: {type(e).__name__}: {reason}{where}") from e


def root() -> Path:
    """Returns the folder that holds the package `vit_jax`, such as a checkout."""
    return Path(__file__).resolve().parent.parent.parent


@contextlib.contextmanager
def _shipped_importable() -> Iterator[None]:
    """Makes `from configs import base` mean the shipped package while a recipe runs.

    Another package called `configs`, imported earlier or later, is left to its owner.
    """
    before = _removed()
    if list(getattr(before.get(_PACKAGE), "__path__", [])) == [str(_folder())]:
        _shipped.update(before)
    if not _shipped:
        _shipped[_PACKAGE] = _imported(_PACKAGE, _folder() / "__init__.py")
    sys.modules.update(_shipped)
    try:
        yield
    finally:
        _shipped.update(_removed())
        sys.modules.update(before)


def _removed() -> dict[str, ModuleType]:
    """Removes `configs` and its modules from those that are imported, and returns them."""
    own = [n for n in sys.modules if n.partition(".")[0] == _PACKAGE]
    return {name: sys.modules.pop(name) for name in own}


def _run_file(path: Path) -> ModuleType:
    """Runs a recipe with its own folder importable."""
    folder, before = path.resolve().parent, set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        return _imported(f"recipe_{path.stem}", path)
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before:  # another recipe may have modules of these names
            source = getattr(sys.modules[name], "__file__", None)
            if source and Path(source).resolve().parent == folder and "." not in name:
                del sys.modules[name]


def _imported(name: str, path: Path) -> ModuleType:
    """Returns the module that a file defines, without an entry in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
