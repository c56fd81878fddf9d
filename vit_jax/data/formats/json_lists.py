# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads large lists of a JSON object one member at a time. Start from `read`."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def read(text: str, take: Mapping[str, Callable[[int, Any], None]]) -> None:
    """Hands over the members of some lists of an object in the order of the text.

    Only the member at hand is in memory as objects. Other values of the object are parsed and
    dropped.

    Args:
      text: JSON.
      take: name of a list -> called with the number of each member, from 0, and the member.

    Raises:
      ValueError: the text is not JSON or not an object, or it lacks one of the lists.
    """
    reader, found = _Reader(text), set[str]()
    if not reader.passes("{"):
        raise ValueError("its top level is not an object")
    for _ in reader.entries("}"):
        key = reader.value()
        if not isinstance(key, str) or not reader.passes(":"):
            raise ValueError(f"it is not JSON: {key!r} is not a name with a colon")
        if key not in take:
            reader.value()
            continue
        if key in found:
            raise ValueError(f"it has two lists {key}")
        found.add(key)
        if not reader.passes("["):
            raise ValueError(f"its {key} are not a list")
        for number, _ in enumerate(reader.entries("]")):
            take[key](number, reader.value())
    if not reader.is_done():
        raise ValueError("it is not JSON: something comes after the object")
    if lacking := [key for key in take if key not in found]:
        raise ValueError(f"it lacks the list {' and the list '.join(lacking)}")


class _Reader:
    """A place in a text."""

    def __init__(self, text: str):
        self._text, self._at = text, 0

    def passes(self, character: str) -> bool:
        """Moves behind a character; returns False and stays if another one comes next."""
        self._skip_space()
        there = self._text.startswith(character, self._at)
        self._at += there
        return there

    def value(self) -> Any:
        """Returns the value that comes next, and moves behind it."""
        self._skip_space()
        try:
            value, self._at = _DECODER.raw_decode(self._text, self._at)
        except json.JSONDecodeError as e:
            raise ValueError(f"it is not JSON: {e}") from e
        return value

    def entries(self, end: str) -> Iterator[None]:
        """Yields once for each entry of a list or an object, which the caller then reads."""
        if self.passes(end):
            return
        yield
        while not self.passes(end):
            if not self.passes(","):
                raise ValueError(f"it is not JSON: no comma or {end} at character {self._at:,}")
            yield

    def is_done(self) -> bool:
        """Returns True if only space is left."""
        self._skip_space()
        return self._at == len(self._text)

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        self._at = match.end() if match else self._at
