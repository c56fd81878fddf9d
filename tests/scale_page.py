# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Simulates many processes; writes golden/scale.json and the table of docs/scale.md.

    python tests/scale_page.py 100 300 1000

Without numbers of processes it writes the table from the file.
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- tests/scale_page.py begins -->\n", "<!-- tests/scale_page.py ends -->\n"
PARTS = {
    "connect": "all meet",
    "barrier": "a barrier",
    "gather 64 B": "an agreement on a digest",
    "gather 200 B": "a row of each host, at the start of the local tier",
    "stop": "a stop is agreed on, after a notice",
    "loss": "all are told that one was killed",
    "signs of life": "signs of life, in 100 s",
}


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _milli(secs: float) -> str:
    return f"{1000 * secs:.3g} ms"


def _cell(part: str, figures: dict[str, float]) -> str:
    sent, cpu = figures["sent_bytes"], figures["cpu_secs"]
    if part == "signs of life":  # measured for 10 s or a little more
        sent, cpu = 10 * sent, 100 * cpu / figures["secs"]
    return f"{_milli(cpu)}, {sent / 1e6:,.3g} MB"


def page(text: str, figures: dict[str, Any]) -> str:
    """Returns the text of the page with the table of these figures."""
    table = _table(
        ["exchange", *(f"{int(n):,} processes" for n in figures)],
        [[text, *(_cell(part, figures[n][part]) for n in figures)] for part, text in PARTS.items()],
    )
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table + END + rest.partition(END)[2]


def main(*counts: str) -> None:
    """Measures the links for these numbers of processes, and writes the page."""
    figures = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for count in counts:  # one after the other: a run that is cut keeps the others
        import many_processes

        figures[count] = many_processes.control_traffic(int(count), repeats=3)
        GOLDEN.write_text(json.dumps(figures, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), figures))


if __name__ == "__main__":
    main(*sys.argv[1:])
