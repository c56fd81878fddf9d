# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Simulates many processes; writes golden/scale.json and the tables of docs/scale.md.

    python tests/scale_page.py 100 300 1000

Without numbers of processes it writes the tables from the files. `commit_times` measures those of
the commits.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

from vit_jax.storage import checksums

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"
COMMITS = ROOT / "tests" / "golden" / "commits.json"
LISTED = 1000  # files that one answer lists
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


def _links(figures: dict[str, Any]) -> str:
    return _table(
        ["exchange", *(f"{int(n):,} processes" for n in figures)],
        [[text, *(_cell(part, figures[n][part]) for n in figures)] for part, text in PARTS.items()],
    )


def _secs(secs: float) -> str:
    return f"{secs:#.2g}" if secs < 9.95 else f"{secs:.0f}"


def _saves(measured: dict[str, Any]) -> str:
    delays = _delays(measured)
    head = [f"{delay} ms" for delay in delays]
    return _table(
        ["processes", "files", "requests", *(f"{text}: waits, committed" for text in head)],
        [
            [
                count,
                *(str(rows["50"][key]) for key in ("files", "requests")),
                *(
                    f"{_secs(rows[delay]['waits_secs'])}, {_secs(rows[delay]['committed_secs'])}"
                    for delay in delays
                ),
            ]
            for count, rows in measured.items()
        ],
    )


def _delays(measured: dict[str, Any]) -> list[str]:
    """Returns the delays of the store that were measured, in ms, from 0 on."""
    return list(next(iter(measured.values())))


def _checksums(measured: dict[str, Any]) -> str:
    rows, late = [], _delays(measured)[1:]
    for hosts, secs in measured.items():
        files = 4 * int(hosts) + 1  # and orbax's mark of the arrays
        lists = math.ceil(files / LISTED)
        requests, in_a_row = lists + files + 1, lists + math.ceil(files / checksums.READERS) + 1
        computed = {delay: in_a_row * int(delay) / 1000 for delay in late}
        cells = [f"{_secs(secs[delay])} ({_secs(computed[delay])})" for delay in late]
        rows.append([f"{int(hosts):,}", f"{requests:,}", _secs(secs["0"]), *cells])
    head = ["0 ms", *(f"{delay} ms: measured (computed)" for delay in late)]
    return _table(["hosts", "requests", *head], rows)


def page(text: str, figures: dict[str, Any], commits: dict[str, Any]) -> str:
    """Returns the text of the page with the tables of these figures."""
    tables = {
        "links": _links(figures),
        "saves": _saves(commits["saves"]),
        "checksums": _checksums(commits["checksums"]),
    }
    for name, table in tables.items():
        begin, end = (f"<!-- tests/scale_page.py: {name} {edge} -->\n" for edge in ("begin", "end"))
        before, _, rest = text.partition(begin)
        text = before + begin + table + end + rest.partition(end)[2]
    return text


def main(*counts: str) -> None:
    """Measures the links for these numbers of processes, and writes the page."""
    figures = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for count in counts:  # one after the other: a run that is cut keeps the others
        import many_processes

        figures[count] = many_processes.control_traffic(int(count), repeats=3)
        GOLDEN.write_text(json.dumps(figures, indent=1) + "\n")
    PAGE.write_text(page(PAGE.read_text(), figures, json.loads(COMMITS.read_text())))


if __name__ == "__main__":
    main(*sys.argv[1:])
