# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns plain values into frozen sections, and sections into plain values or arguments.

Must not: know keys (`sections` declares them), or check values (`schema` does). Start from
`filled`.
"""

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from vit_jax.config import schema

_T = TypeVar("_T")
_hints = functools.cache(typing.get_type_hints)


def filled(kind: type[_T], values: Any) -> _T:
    """Returns a section with values from nested mappings; a key that they lack has its default.

    Args:
      kind: the dataclass of the section.
      values: an object with `items`, such as a dict; its names and types are checked already.
    """
    return kind(**{name: _typed(_hints(kind)[name], value) for name, value in values.items()})


def _typed(hint: Any, value: Any) -> Any:
    """Returns a plain value as the type that its field declares."""
    if dataclasses.is_dataclass(hint):
        return filled(hint, value)  # type: ignore[arg-type]
    if typing.get_origin(hint) is Mapping:
        kind = typing.get_args(hint)[1]
        return types.MappingProxyType({name: filled(kind, v) for name, v in value.items()})
    return float(value) if hint is float else tuples(value)


def tuples(value: Any) -> Any:
    """Returns a value with tuples in place of lists, at every depth."""
    return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value


def replaced(section: Any, key: str, value: Any) -> Any:
    """Returns a copy of a section with another value of a dotted key."""
    name, _, rest = key.partition(".")
    if isinstance(section, Mapping):  # evaluations by name
        return types.MappingProxyType({**section, name: replaced(section[name], rest, value)})
    inner = replaced(getattr(section, name), rest, value) if rest else None
    new = inner if rest else _typed(_hints(type(section))[name], value)
    return dataclasses.replace(section, **{name: new})


def defaults(section: Any) -> dict[str, Any]:
    """Returns all values in a section as nested dicts; tuples stay tuples."""
    names = [field.name for field in dataclasses.fields(section)]
    return {name: _plain(getattr(section, name), defaults) for name in names}


def saved(section: Any) -> dict[str, Any]:
    """Returns the values in a section that count as nested dicts, sorted as in config.yaml.

    Sub-sections that `name` does not choose are left out.
    """
    left_out = set(schema.options(type(section))) - {getattr(section, "name", "")}
    names = {field.name for field in dataclasses.fields(section)} - left_out
    return {name: _plain(getattr(section, name), saved) for name in sorted(names)}


def _plain(value: Any, inner: Callable[[Any], dict[str, Any]]) -> Any:
    if dataclasses.is_dataclass(value):
        return inner(value)
    return {k: inner(v) for k, v in sorted(value.items())} if isinstance(value, Mapping) else value


def arguments(section: Any) -> dict[str, Any]:
    """Returns the keys of a section and of its chosen sub-section as arguments of one function."""
    own = {name: getattr(section, name) for name in schema.keys(type(section))}
    chosen = getattr(section, section.name) if schema.options(type(section)) else None
    return own if chosen is None else own | arguments(chosen)
