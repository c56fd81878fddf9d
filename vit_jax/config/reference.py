# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Prints the declarations of the configuration keys: `--help-config`, and docs/config.md.

Start from `text`, for a terminal, and `tables`, for the page.
"""

import textwrap
from collections.abc import Iterator

from vit_jax.config import schema, sections
from vit_jax.config.schema import Declared
from vit_jax.errors import unknown

# Dotted name -> dataclass; "" is the whole configuration.
SECTIONS = {name.replace("*", "NAME"): kind for name, kind in schema.sections(sections.Config)}
_TYPES = {bool: "True or False", int: "whole number", float: "number", str: "text"}
COLUMNS = ("key", "type", "default", "range or choices", "unit", "changes", "meaning")


def row(key: str, declared: Declared) -> tuple[str, ...]:
    """Returns the texts of `COLUMNS` for a key."""
    default = declared.default
    shown = schema.short(default) if type(default) is float else str(default) or '""'
    kind = _TYPES.get(type(default), "tuple")
    kind += " or text" if declared.key.allowed == "size" else ""
    allowed, key_of = schema.allowed(declared), declared.key
    return key, kind, shown, allowed, key_of.unit, key_of.effect, key_of.meaning


def rows(section: str) -> list[tuple[str, ...]]:
    """Returns a row for each key of a section itself."""
    found = schema.keys(SECTIONS[section])
    return [row(f"{section}.{key}".lstrip("."), declared) for key, declared in found.items()]


def text(name: str) -> str:
    """Returns the reference of a section, with all sections inside it, or of a key.

    Args:
      name: a dotted name; "" stands for the keys outside of sections, and lists the sections.

    Raises:
      BadInput: there is no such key or section; the message has near ones.
    """
    name = name.removeprefix("--").removeprefix("config.")
    if declared := sections.find(name):
        return _paragraph(row(name, declared))
    if not name:
        listed = f"Sections, for --help-config=SECTION: {', '.join(filter(None, SECTIONS))}."
        return "\n\n".join([*_paragraphs(""), textwrap.fill(listed, 100)])
    inside = [section for section in SECTIONS if f"{section}.".startswith(f"{name}.")]
    if not inside:
        keys = [key.replace("*", "NAME") for key in sections.KEYS]
        raise unknown("config key or section", name, [*filter(None, SECTIONS), *keys])
    return "\n\n".join(paragraph for section in inside for paragraph in _paragraphs(section))


def _paragraphs(section: str) -> Iterator[str]:
    yield f"{section}: {SECTIONS[section].__doc__}".lstrip(": ")
    yield from map(_paragraph, rows(section))


def _paragraph(row: tuple[str, ...]) -> str:
    key, kind, default, allowed, unit, effect, meaning = row
    facts = f"{kind}{f' of {unit}' if unit else ''}{f': {allowed}' if allowed else ''}"
    lines = [meaning, f"{facts}; default {default}; changes {effect}"]
    return "\n".join([key, *(textwrap.indent(textwrap.fill(line, 96), "    ") for line in lines)])


def tables() -> str:
    """Returns a heading and a Markdown table for each section."""
    parts = []
    for section, kind in SECTIONS.items():
        title = f"`{section}`" if section else "Outside of sections"
        parts += [f"{'###' if '.' in section else '##'} {title}", str(kind.__doc__)]
        if rows(section):
            lines = [COLUMNS, ["---"] * len(COLUMNS), *map(_cells, rows(section))]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    return "\n\n".join(parts) + "\n"


def _cells(row: tuple[str, ...]) -> list[str]:
    """Returns the row with everything that a user types as code."""
    key, kind, default, allowed, unit, effect, meaning = (part.replace("|", r"\|") for part in row)
    return [f"`{key}`", kind, f"`{default}`", allowed, unit, effect, meaning]
