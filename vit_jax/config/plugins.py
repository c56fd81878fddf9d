# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Functions and classes of a user's own package, by name: `MODULE:NAME` or `MODULE:NAME(key=3)`.

A configuration holds that text alone, so it is saved, compared and swept over like any other value.
The module is one that Python can import: installed, or in a folder of PYTHONPATH. Start from
`find`.
"""

import ast
import functools
import importlib
import inspect
import re
import sys
from typing import Any

from vit_jax.errors import BadInput, unknown

USAGE = "MODULE:NAME"  # how it is written, in lists of options
_NAME = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)(\(.*\))?", re.DOTALL)


def is_own(text: str) -> bool:
    """Whether a name is one of a user's own package; none of ours has a colon."""
    return ":" in text


def find(said: str, text: str, *args: Any, **kwargs: Any) -> functools.partial[Any]:
    """What a name stands for, with the arguments in its parentheses; it is not called.

    Args:
      said: what messages begin with, e.g. `loss.name='m:f'`.
      text: `MODULE:NAME` or `MODULE:NAME(key=value, ...)`; values are literals of Python.
      *args: what it will be called with, as far as its signature is concerned.
      **kwargs: likewise.

    Raises:
      BadInput: written otherwise, no such module, one that cannot be imported, no such name in it,
        a part of Python itself, or a signature that does not take these arguments.
    """
    module_name, name, given = _parse(said, text)
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        raise BadInput(f"{said}: {module_name} is a part of Python; name a module of yours.")
    module = _module(said, module_name)
    found = getattr(module, name, None)
    if not callable(found):
        own = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise unknown(f"{said}: name in {module_name}", name, own)
    try:
        signature = inspect.signature(found)
    except ValueError as e:  # of some that are written in C
        raise BadInput(f"{said}: {name} has no signature; give one that has.") from e
    try:
        twice = kwargs.keys() & given.keys()
        if twice:
            raise TypeError(f"{', '.join(sorted(twice))} is given already")
        if "options" in kwargs and "options" not in signature.parameters:  # **anything is not meant
            raise TypeError("it has no parameter called options")
        signature.bind(*args, **kwargs, **given)
    except TypeError as e:
        raise BadInput(f"{said}: {e}; it is {name}{signature}.") from e
    return functools.partial(found, **given)


def _parse(said: str, text: str) -> tuple[str, str, dict[str, Any]]:
    """Module, name and arguments."""
    match = _NAME.fullmatch(text)
    try:
        if match is None:
            raise ValueError("no name")
        call = ast.parse(f"f{match[3] or '()'}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
            raise ValueError("not a call by keywords")
        given = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg}
        if len(given) < len(call.keywords):
            raise ValueError("an argument twice, or **")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise BadInput(
            f"{said} is not a name; write {USAGE}, or {USAGE}(key=value) with plain "
            "values, e.g. my_package.losses:focal(gamma=2.0)."
        ) from None
    return match[1], match[2], given


def _module(said: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{name}.".startswith(f"{e.name}."):
            raise BadInput(f"{said}: {name} imports {e.name}, which is not there.") from e
        raise BadInput(
            f"{said}: there is no module {e.name}; install the package that has it, or "
            "put its folder on PYTHONPATH."
        ) from e
    except (Exception, SystemExit) as e:  # a module of the user's: it may raise anything
        what = " ".join(str(e).split())[:300]
        raise BadInput(f"{said}: {name} cannot be imported: {type(e).__name__}: {what}") from e
