# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds and runs recipe files. `load` and the sweeps interpret the results.

A recipe is a Python program with `get_config(arg=None)`; some also have `sweep(arg=None)`.
Start from `call`.
"""

import difflib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from vit_jax.errors import BadInput
from vit_jax.storage import files as storage


def split(spec: str) -> tuple[Path, str]:
    """Splits `FILE:ARGS` into (file, "ARGS"); a saved YAML file may be in a bucket.

    Raises:
      BadInput: the file does not exist, or it is a recipe in a bucket.
    """
    if storage.is_remote(spec):
        path = storage.path(spec)
        if path.suffix not in (".yaml", ".yml"):
            raise BadInput(f"--config={spec}: a recipe is a program on a disk; copy it to one.")
        return path, ""
    name, _, args = (spec, "", "") if _is_file(spec) else spec.partition(":")
    if not _is_file(name):
        kind = _kind(name)
        if kind not in ("", storage.FOLDER):
            raise BadInput(f"--config={spec}: {name} is a {kind}, not a file; give a file.")
        problem = f"{name} is a folder, not a file" if kind else f"no file {name[:200]}"
        raise BadInput(f"--config={spec[:200]}: {problem}.{_suggested(name, args)}")
    return Path(os.path.expanduser(name)), args


def _suggested(name: str, args: str) -> str:
    """Returns a hint: the recipe that resembles a name such as `quickstart`, and all recipes."""
    folder = root() / "configs"
    shipped = sorted(p.stem for p in folder.glob("*.py") if p.stem not in ("__init__", "base"))
    relative = os.path.relpath(folder)
    place = str(folder) if relative.startswith("..") else relative
    near = difflib.get_close_matches(Path(name[:200]).stem, shipped, n=1)
    meant = f"{place}{os.sep}{near[0]}.py{':' * bool(args)}{args[:200]}" if near else ""
    hint = f" Did you mean --config={meant}?" if near else ""
    return f"{hint} The recipes in {place}: {', '.join(shipped)}; give the path of one."


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
    """Returns the folder that holds the shipped `configs` package."""
    return Path(__file__).resolve().parent.parent.parent


def _run_file(path: Path) -> ModuleType:
    """Runs a recipe with the shipped `configs` package and its own folder importable."""
    loaded = sys.modules.get("configs")
    shipped = str(root() / "configs")
    if loaded is not None and list(getattr(loaded, "__path__", [])) != [shipped]:
        for name in [n for n in sys.modules if n == "configs" or n.startswith("configs.")]:
            del sys.modules[name]
    spec = importlib.util.spec_from_file_location(f"recipe_{path.stem}", path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    folder = path.resolve().parent
    extra, before = [str(root()), str(folder)], set(sys.modules)
    sys.path[:0] = extra
    try:
        spec.loader.exec_module(module)
    finally:
        for entry in extra:
            sys.path.remove(entry)
        for name in set(sys.modules) - before:  # another recipe may have modules of these names
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().parent == folder and "." not in name:
                del sys.modules[name]
    return module
