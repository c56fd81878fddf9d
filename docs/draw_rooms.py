# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Draws docs/rooms.svg, the picture of the rooms, from the imports in the source.

    python docs/draw_rooms.py

Each row is a room, and its dots mark the rooms that it imports. All dots lie below the diagonal,
because a room imports only rooms above it in the picture. Start from `arrows`.
"""

import ast
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = Path(__file__).with_name("rooms.svg")
_ROW, _LEFT, _TOP = 22, 120, 100  # pixels


def rooms() -> list[str]:
    """Returns the rooms from the ground up, in the order that import-linter checks."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = contracts["tool"]["importlinter"]["contracts"][0]["layers"]
    names = [name.strip() for line in reversed(layers) for name in line.split("|")]
    found = [name.partition(".")[2] for name in names]
    return [name for name in found if name and (ROOT / "vit_jax" / name).is_dir()]


def arrows() -> dict[str, dict[str, int]]:
    """Returns room -> imported room -> the number of files that import it."""
    known, found = rooms(), dict[str, dict[str, int]]()
    for room in known:
        counts = found.setdefault(room, {})
        for path in sorted((ROOT / "vit_jax" / room).rglob("*.py")):
            for other in {name for name in _imported(path) if name in known and name != room}:
                counts[other] = counts.get(other, 0) + 1
    return found


def _imported(path: Path) -> set[str]:
    """Returns the rooms that a file imports, including imports inside functions."""
    found = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("vit_jax.")}
    return found


def purpose(room: str) -> str:
    """Returns the first sentence of a room's docstring."""
    text = (ROOT / "vit_jax" / room / "__init__.py").read_text(encoding="utf-8")
    docstring = ast.get_docstring(ast.parse(text)) or ""
    return " ".join(docstring.split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def picture() -> str:
    """Returns the picture as the text of an SVG file."""
    known, found = rooms(), arrows()
    side = _ROW * len(known)
    width, height = _LEFT + side + 700, _TOP + side + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="13">',
        "<title>The rooms of vit_jax, and which of them each imports</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, room in enumerate(known):
        y, x = _TOP + i * _ROW, _LEFT + i * _ROW
        shade = "#f3f5f8" if i % 2 else "white"
        parts += [
            f'<rect x="0" y="{y}" width="{width}" height="{_ROW}" fill="{shade}"/>',
            f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end" font-weight="bold">'
            f"{room}</text>",
            f'<text transform="translate({x + 15} {_TOP - 8}) rotate(-60)">{room}</text>',
            f'<rect x="{x + 4}" y="{y + 4}" width="14" height="14" fill="#c9d3e0"/>',
            f'<text x="{_LEFT + side + 16}" y="{y + 15}">{escape(purpose(room))}</text>',
        ]
    for i, room in enumerate(known):
        for other, files in sorted(found[room].items()):
            x, y = _LEFT + known.index(other) * _ROW + 11, _TOP + i * _ROW + 11
            radius = 3 + min(files, 8) / 2
            parts.append(
                f'<circle cx="{x}" cy="{y}" r="{radius}" fill="#1f5fa8">'
                f"<title>{room} imports {other} in {files} files</title></circle>"
            )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
