# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Renders a filled table, a plan, or choices as markdown, CSV or one HTML file.

Start from `render_table`, `render_plan` or `render_choices`.
"""

import csv
import io
from collections.abc import Sequence

from vit_jax.errors import unknown
from vit_jax.experiments.tables import filling
from vit_jax.experiments.tables.filling import Filled, Report
from vit_jax.experiments.tables.missing_runs import Plan
from vit_jax.paper import replications
from vit_jax.reports import pages

FORMATS = ("md", "csv", "html")
PLAN_FORMATS = (*FORMATS, "sh")
_COLUMNS = ("paper", "ours", "std", "difference", "seeds", "status", "fits also", "stand-in")
_STYLES = {
    filling.WITHIN: "good",
    filling.OFF: "bad",
    **dict.fromkeys(filling.FEW, "some"),
    filling.RUNNING: "some",
    filling.EXTERNAL: "quiet",
    filling.ABSENT: "quiet",
    filling.PRIVATE: "quiet",
    filling.UNFILLABLE: "quiet",
}


def check(name: str, *, of_plan: bool = False) -> None:
    """Raises BadInput for an unknown format.

    Raises:
      BadInput: the message lists the formats.
    """
    options = PLAN_FORMATS if of_plan else FORMATS
    if name not in options:
        raise unknown("--format", name, options)


def render_table(report: Report, form: str) -> str:
    """Renders a filled table; the last line counts the reproduced cells."""
    header = (*report.table.columns, *_COLUMNS)
    rows = [_row(filled, report.table.digits) for filled in report.cells]
    about = [*report.table.notes, *report.remarks, *_not_told_apart(report)]
    if report.protocol:
        rates = " and ".join(map(str, report.dropouts))
        dropout = f", dropout {rates}" if rates else ""
        about = [f"Protocol of the runs: {report.protocol}{dropout}.", *about]
    if form == "csv":
        return csv_text([header, *rows, (report.summary,)])
    if form == "html":
        first = len(report.table.columns)
        styles = {i: _STYLES.get(filled.status, "") for i, filled in enumerate(report.cells)}
        content = {"header": header, "rows": rows, "numbers": range(first, first + 5)}
        return pages.render(
            "table.html",
            report.table.title,
            charts=_charts(report),
            content={**content, "styles": styles},
            notes=[*about, report.summary],
        )
    return markdown(report.table.title, header, rows, [*about, report.summary])


def _not_told_apart(report: Report) -> list[str]:
    """Returns a note on the pairs of models that cells within tolerance do not tell apart."""
    pairs: dict[tuple[frozenset[str], tuple[str, ...]], str] = {}
    for filled in report.cells:
        name, row = filling.split(report.table, filled.cell)
        for other in filled.also if filled.status == filling.WITHIN else ():
            text = f"{name} and {other} ({', '.join(row)})"
            pairs.setdefault((frozenset((name, other)), row), text)
    return [f"Within tolerance, but not told apart: {'; '.join(pairs.values())}."] if pairs else []


def render_plan(title: str, plan: Plan, form: str) -> str:
    """Renders the commands of a plan; as `sh`, one command a line."""
    header = ("command", "cells", "chip-hours")
    rows = [(job.command, str(job.cells), _hours(job.chip_hours)) for job in plan.jobs]
    notes = list(plan.notes) if rows else ["No missing cell has a run that a command makes."]
    title = f"{title}: runs to do"
    if form == "sh":
        return "\n".join(
            [f"# {title}", *(f"# {note}" for note in notes), *(row[0] for row in rows)]
        )
    return _in_format(form, title, header, rows, notes, numbers=(1, 2))


def render_choices(form: str) -> str:
    """Renders the choices that a fine-tuning has, each with its evidence."""
    header = ("configs/transfer.py", "default for", "status", "evidence")
    rows = [(c.name, c.default_for, c.status, c.evidence) for c in replications.choices()]
    notes = [
        "A table has runs of one preprocess: --protocol=released, paper or big_vision chooses it. "
        "A cell also wants the dropout of its recipe; runs with another one have no verdict."
    ]
    return _in_format(form, "Choices that the paper leaves open", header, rows, notes)


def _in_format(
    form: str, title: str, header: Sequence[str], rows: Sequence[Sequence[str]],
    notes: Sequence[str], numbers: Sequence[int] = (),
) -> str:  # fmt: skip
    """Renders a table without charts, whose first column is code."""
    if form == "csv":
        return csv_text([header, *rows])
    if form == "html":
        content = {"header": header, "rows": rows, "numbers": numbers, "codes": (0,)}
        return pages.render("table.html", title, charts=[], content=content, notes=notes)
    return markdown(title, header, rows, notes)


def _hours(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _row(filled: Filled, digits: int) -> tuple[str, ...]:
    cell = filled.cell
    ours = "n/a" if filled.partial else _number(filled.ours, digits)
    gap = filled.difference
    return (
        *cell.labels,
        _number(cell.paper, digits),
        ours,
        _number(filled.std, 2),
        "" if gap is None else f"{gap:+.{digits}f}",
        str(filled.seeds) if filled.seeds else "",
        filled.status,
        ", ".join(filled.also),
        " | ".join(filled.stand_ins),
    )


def _number(value: float | str | None, digits: int) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:.{digits}f}"


def csv_text(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows as CSV, without a final line break."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().rstrip("\n")


def markdown(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], after: Sequence[str]
) -> str:
    """Formats a title, a table with aligned columns, and paragraphs."""
    clean = [[text.replace("|", "\\|").replace("\n", " ") for text in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *clean]) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)) + " |"

    table = [line(header), "|-" + "-|-".join("-" * w for w in widths) + "-|", *map(line, clean)]
    return "\n\n".join(
        [f"# {title}", "\n".join(table), *(text.replace("\n", " ") for text in after)]
    )


# ---------------------------------------------------------------- charts


def _charts(report: Report) -> list[tuple[str, str]]:
    """Draws a figure of the paper with our values in it; for a table, ours against the paper's.

    Returns (name, SVG) of each chart; a single chart has no name.
    """
    if report.table.axes is None:
        return [("", _agreement(report))]
    panels: dict[tuple[str, ...], list[Filled]] = {}
    for filled in report.cells:
        if filled.cell.x is not None:
            labels = filled.cell.labels[: max(0, report.table.series - 1)]
            panels.setdefault(labels, []).append(filled)
    return [
        (", ".join(labels), _panel(report, len(labels), cells)) for labels, cells in panels.items()
    ]


def _panel(report: Report, first: int, cells: Sequence[Filled]) -> str:
    """Draws one chart; the labels from `first` on name its lines."""
    from vit_jax.reports import charts  # imports matplotlib

    table = report.table
    assert table.axes is not None
    lines: dict[str, list[Filled]] = {}
    for filled in cells:
        name = ", ".join(filled.cell.labels[first : table.series])
        lines.setdefault(name or "paper", []).append(filled)
    paper, ours = [], []
    for i, (name, line) in enumerate(lines.items()):
        printed = _points([(f.cell.x, f.cell.paper) for f in line])
        measured = _points([(f.cell.x, f.ours) for f in line])
        if printed:
            paper.append(charts.Series(name, printed, table.series > 0, False, i))
        if measured:
            ours.append(charts.Series(f"{name} (ours)", measured, colour=i))
    return charts.chart(
        [*paper, *ours],
        *table.axes,
        log=table.log,
        x_names=dict(table.x_names),
    )


def _points(pairs: Sequence[tuple[object, object]]) -> list[tuple[float, float]]:
    """Returns the pairs of numbers among these pairs."""
    return [
        (float(x), float(y))
        for x, y in pairs
        if isinstance(x, float | int) and isinstance(y, float | int)
    ]


def _agreement(report: Report) -> str:
    """Draws our values against the paper's, with one colour for each status; "" without values."""
    from vit_jax.reports import charts  # imports matplotlib

    colours = {filling.WITHIN: 2, filling.OFF: 1} | dict.fromkeys(filling.FEW, 4)
    groups = {
        status: _points([(f.cell.paper, f.ours) for f in report.cells if f.status == status])
        for status in colours
    }
    series = [
        charts.Series(status, points, colour=colours[status])
        for status, points in groups.items()
        if points
    ]
    return charts.chart(series, "paper", "ours", diagonal=True)
