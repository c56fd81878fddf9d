# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Tables of parts that are found by name and imported on use.

A run imports only the parts that it uses, so a table holds their names. Start from `Registry`.
"""

import pkgutil
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any


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
