# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Finds parts by name and imports them on use: those of this package, and those of a user's.

A run imports only the parts that it uses, so tables of parts hold their places: see `Registry`.

A configuration names a function or class of a user's package by a text: `MODULE:NAME` or
`MODULE:NAME(key=3)`. The text is saved, compared and swept over like any other value. Python must
be able to import the module: it is installed, or in a folder of PYTHONPATH. Start from `find`.

A name in the config.yaml of a run may be a stranger's, who must not choose what is imported here.
`find` refuses it, unless the user trusts the run (`trusting`) or gives the same name himself: as a
value on the command line, in a recipe or in a call.
"""

import contextlib
import functools
import importlib
import inspect
import os
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import Any

from vit_jax.config import calls
from vit_jax.errors import BadInput, unknown

USAGE = "MODULE:NAME"  # the notation, as shown in lists of options
_NAME = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)(\(.*\))?", re.DOTALL)


def is_own(text: str) -> bool:
    """Returns True if a name belongs to a user's package; names of this package have no colon."""
    return ":" in text


def find(key: str, text: str, *args: Any, **kwargs: Any) -> functools.partial[Any]:
    """Returns the object that a name stands for, with its arguments bound; does not call it.

    Args:
      key: the beginning of messages, e.g. `loss.name='m:f'`.
      text: `MODULE:NAME` or `MODULE:NAME(key=value, ...)`; values are Python literals.
      *args: the arguments of the later call, to check the signature.
      **kwargs: the keyword arguments of the later call, likewise.

    Raises:
      BadInput: the text has another form; the module does not exist, cannot be imported or is part
        of Python; the name is not in it; the signature does not take these arguments; or only the
        configuration of a run has the name, and it is not trusted.
    """
    module_name, name, bound = _parse(key, text)
    _check_trust(key, f"{module_name}:{name}")
    if module_name.partition(".")[0] in sys.stdlib_module_names:
        raise BadInput(f"{key}: {module_name} is a part of Python; name a module of yours.")
    module = _module(key, module_name)
    callee = getattr(module, name, None)
    if not callable(callee):
        own = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise unknown(f"{key}: name in {module_name}", name, own)
    try:
        signature = inspect.signature(callee)
    except ValueError as e:  # raised for some functions written in C
        raise BadInput(f"{key}: {name} has no signature; give one that has.") from e
    try:
        twice = kwargs.keys() & bound.keys()
        if twice:
            raise TypeError(f"{', '.join(sorted(twice))} is given already")
        if "options" in kwargs and "options" not in signature.parameters:  # **kwargs does not count
            raise TypeError("it has no parameter called options")
        signature.bind(*args, **kwargs, **bound)
    except TypeError as e:
        raise BadInput(f"{key}: {e}; it is {name}{signature}.") from e
    return functools.partial(callee, **bound)


# Texts in the configurations of runs that contain a colon, as a name does, with the file of each.
_of_runs: dict[str, str] = {}
# What is trusted: "1" for everything, otherwise the texts that the user gave, one a line. It is in
# the environment, so that processes started later know it.
_TRUSTED = "VIT_JAX_TRUST_CODE"
_ALL = "1"


def give(values: Iterable[object]) -> None:
    """Records the values of a configuration that the user gives: its names are trusted."""
    _trust(set(_texts(values)))


def give_own(values: Iterable[object]) -> None:
    """Does the same, except for values that the configuration of a run has."""
    _trust(set(_texts(values)) - _of_runs.keys())


def _trust(texts: set[str]) -> None:
    before = os.environ.get(_TRUSTED, "")
    if before != _ALL and (names := {one for one in texts if "\0" not in one}):
        os.environ[_TRUSTED] = "\n".join(sorted({*before.split("\n"), *names} - {""}))


def read_from(file: str, values: Iterable[object]) -> None:
    """Records the values in a configuration file that the user did not give as his own.

    The names in the YAML file of a run are not trusted for that; a recipe is code anyway.
    """
    if not file.endswith((".yaml", ".yml")):
        give(values)
        return
    for text in _texts(values):
        _of_runs.setdefault(text, file)


def _texts(values: Iterable[object]) -> Iterator[str]:
    for value in values:
        if isinstance(value, tuple):
            yield from _texts(value)
        elif isinstance(value, str) and ":" in value:
            yield value


@contextlib.contextmanager
def trusting(trust_code: bool) -> Iterator[None]:
    """Makes `find` accept every name inside the block if `trust_code` is True."""
    before = os.environ.get(_TRUSTED, "")
    if trust_code:
        os.environ[_TRUSTED] = _ALL
    try:
        yield
    finally:
        if trust_code:
            os.environ[_TRUSTED] = before


def _check_trust(key: str, name: str) -> None:
    inside = re.compile(rf"(?<![\w.]){re.escape(name)}(?!\w)")
    files = [file for text, file in _of_runs.items() if inside.search(text)]
    trusted = os.environ.get(_TRUSTED, "")
    if files and trusted != _ALL and not inside.search(trusted):
        raise BadInput(
            f"{key}: {files[0]} names {name}, and to use it would import and run that code. If you "
            "trust it and whoever made the run, add --trust-code (in Python: trust_code=True)."
        )


def _parse(key: str, text: str) -> tuple[str, str, dict[str, Any]]:
    """Returns module, name and arguments."""
    match = _NAME.fullmatch(text)
    try:
        if match is None:
            raise ValueError("no name")
        _, args, arguments = calls.parse(f"f{match[3] or '()'}")
        if args:
            raise ValueError("not a call by keywords")
    except ValueError:
        raise BadInput(
            f"{key} is not a name; write {USAGE}, or {USAGE}(key=value) with plain "
            "values, e.g. my_package.losses:focal(gamma=2.0)."
        ) from None
    return match[1], match[2], arguments


def _module(key: str, name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        if e.name is None or not f"{name}.".startswith(f"{e.name}."):
            raise BadInput(f"{key}: {name} imports {e.name}, which is not installed.") from e
        raise BadInput(
            f"{key}: there is no module {e.name}; install the package that has it, or "
            "put its folder on PYTHONPATH."
        ) from e
    except (Exception, SystemExit) as e:  # a user's module may raise anything
        reason = " ".join(str(e).split())[:300]
        raise BadInput(f"{key}: {name} cannot be imported: {type(e).__name__}: {reason}") from e


# ---------------------------------------------------------------- parts of this package


def resolve(place: str) -> Any:
    """Imports "package.module" or "package.module:name" and returns it."""
    return pkgutil.resolve_name(place)


class Registry(MutableMapping[str, Any]):
    """A table whose values are imported when they are looked up.

    Args:
      places: name -> a text for `resolve`.
    """

    def __init__(self, places: Mapping[str, str]):
        self._found: dict[str, Any] = dict(places)

    def __getitem__(self, name: str) -> Any:
        value = self._found[name]
        if isinstance(value, str):
            value = self._found[name] = resolve(value)
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def __setitem__(self, name: str, value: Any) -> None:
        self._found[name] = value

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
