# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Simulates many processes; writes golden/scale.json and the tables of docs/scale.md.

    python tests/scale_page.py links 100 300 1000        the links of the package, by processes
    python tests/scale_page.py jax 100 300              jax's coordination service, by processes

Without arguments it writes the tables from the file.
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"
BEGIN, END = "<!-- tests/scale_page.py {} begins -->\n", "<!-- tests/scale_page.py {} ends -->\n"
LINKS = {
    "connect": "all meet",
    "barrier": "a barrier",
    "gather 64 B": "an agreement on a digest",
    "gather 200 B": "a row of each host, at the start of the local tier",
    "stop": "a stop is agreed on, after a notice",
    "loss": "all are told that one was killed",
    "signs of life": "signs of life, in 100 s",
}
JAX = {"connect": "all connect", "barrier": "a barrier", "key": "one value to all"}


def measure(part: str, count: int) -> dict[str, Any]:
    """Returns the figures of a part for a number of processes."""
    import many_processes

    if part == "links":
        return many_processes.control_traffic(count, repeats=3)
    return many_processes.coordination_service(count)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _milli(secs: float) -> str:
    return f"{1000 * secs:.3g} ms"


def _link_cell(part: str, figures: dict[str, float]) -> str:
    sent, cpu = figures["sent_bytes"], figures["cpu_secs"]
    if part == "signs of life":  # measured for 10 s or a little more
        sent, cpu = 10 * sent, 100 * cpu / figures["secs"]
    return f"{_milli(cpu)}, {sent / 1e6:,.3g} MB"


def tables(figures: dict[str, Any]) -> dict[str, str]:
    """Returns part -> its table in Markdown."""
    links, jax = figures["links"], figures["jax"]
    return {
        "links": _table(
            ["exchange", *(f"{int(n):,} processes" for n in links)],
            [[text, *(_link_cell(part, links[n][part]) for n in links)]
             for part, text in LINKS.items()],
        ),
        "jax": _table(
            ["exchange", *(f"{int(n):,} processes" for n in jax)],
            [[text, *(_milli(jax[n][part]) for n in jax)] for part, text in JAX.items()],
        ),
    }  # fmt: skip


def page(text: str, figures: dict[str, Any]) -> str:
    """Returns the text of the page with the tables of these figures."""
    for part, table in tables(figures).items():
        before, _, rest = text.partition(BEGIN.format(part))
        _, _, after = rest.partition(END.format(part))
        text = before + BEGIN.format(part) + table + END.format(part) + after
    return text


def main(part: str = "", *words: str) -> None:
    """Measures a part, if one is given, and writes the page."""
    figures = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if part:
        figures[part] = figures.get(part, {})
        for word in words:  # one after the other: a run that is cut keeps the others
            figures[part][word] = measure(part, int(word))
            GOLDEN.write_text(json.dumps(figures, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), json.loads(GOLDEN.read_text())))


if __name__ == "__main__":
    main(*sys.argv[1:])
