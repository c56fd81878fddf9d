# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes HTML pages: single files that need no network, no script and no other file.

Start from `page`. Its body consists of `heading`, `paragraph`, `facts`, `table` and `image`, and of
`drawing` or `row` with charts from `charts`.
"""

import base64
from collections.abc import Mapping, Sequence
from html import escape

_MANY = 25  # rows shown at once; longer tables scroll below the header
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em;
       color: #1a1a1a; background: #fff }
h1 { font-size: 1.35em; overflow-wrap: anywhere }
h2 { font-size: 1.15em; margin: 1.8em 0 .4em }
p, dd, figcaption { overflow-wrap: anywhere }
figure { margin: 1em 0; break-inside: avoid }
figcaption { font-size: .92em; color: #444; max-width: 760px }
img { max-width: 100%; height: auto; display: block }
.wide > img { max-width: max(100%, 640px) }
.wide { overflow-x: auto; margin: 1em 0 }
figure > .wide { margin: 0 0 .4em; max-width: 900px }
.high { max-height: 70vh }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: left;
         vertical-align: top }
td { min-width: 3em; max-width: 26em; overflow-wrap: break-word }
th { border-bottom: 2px solid #888; position: sticky; top: 0; background: #fff }
.number { text-align: right; white-space: nowrap }
.good { background: #e3f4e6 } .bad { background: #fbe3de } .some { background: #fdf5d9 }
p.good, p.bad, p.some { padding: .5em .8em }
.quiet { color: #767676 }
dl { display: grid; grid-template-columns: minmax(6em, max-content) 1fr; gap: .2em 1.2em;
     margin: 1em 0 }
dt { color: #555 } dd { margin: 0 }
.row { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 400px), 1fr));
       gap: 1em 1.6em }
.row > figure { margin: 0; max-width: 560px }
svg { max-width: 760px; width: 100%; display: block; font-family: system-ui, sans-serif }
.wide > svg { min-width: 600px }
code { font-size: .92em }
@media print { body { margin: 0; max-width: none } .wide, .high { overflow: visible;
  max-height: none } th { position: static } img { max-width: 100% }
  * { print-color-adjust: exact } }
"""


def page(title: str, body: Sequence[str]) -> str:
    """Returns a whole document.

    Args:
      title: plain text.
      body: HTML elements, in order.
    """
    text = "\n".join([
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>",
        f"<body><h1>{escape(title)}</h1>",
        *filter(None, body),
        "</body></html>",
    ])  # fmt: skip
    return text.encode(errors="backslashreplace").decode()  # file names may be any bytes


def paragraph(text: str, style: str = "") -> str:
    """Returns plain text as a paragraph; the style is good, bad, some or quiet."""
    return f'<p class="{style}">{escape(text)}</p>' if style else f"<p>{escape(text)}</p>"


def heading(text: str) -> str:
    """Returns plain text as the title of a section."""
    return f"<h2>{escape(text)}</h2>"


def image(png: bytes, caption: str, *, wide: bool = False) -> str:
    """Returns a picture with plain text below, no wider than the page.

    Args:
      png: the picture.
      caption: the plain text.
      wide: whether to keep the picture wide and let it scroll on a narrow page.
    """
    data = base64.b64encode(png).decode()
    shown = f'<img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
    shown = f'<div class="wide">{shown}</div>' if wide else shown
    return f"<figure>{shown}<figcaption>{escape(caption)}</figcaption></figure>"


def drawing(svg: str) -> str:
    """Returns a chart of `charts.WIDTH`, which scrolls by itself on a narrower page."""
    return f'<div class="wide">{svg}</div>' if svg else ""


def row(figures: Sequence[tuple[str, str]]) -> str:
    """Returns charts of `charts.NARROW` with plain text below, as many side by side as fit."""
    drawn = [
        f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
        for svg, caption in figures
        if svg
    ]
    return "\n".join(['<div class="row">', *drawn, "</div>"]) if drawn else ""


def facts(pairs: Mapping[str, str]) -> str:
    """Returns plain texts with their names, one below the other; leaves out empty texts."""
    inside = [
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs.items() if text
    ]
    return "\n".join(["<dl>", *inside, "</dl>"])


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    codes: Sequence[int] = (),
    styles: Mapping[int, str] | None = None,
) -> str:
    """Returns a table of plain text, which scrolls by itself if it is too wide or too high.

    Args:
      header: titles of the columns.
      rows: rows with as many texts.
      numbers: columns to align to the right.
      codes: columns to show as commands.
      styles: row -> good, bad, some or quiet.
    """

    def cell(tag: str, i: int, text: str) -> str:
        inside = escape(text)
        if tag == "td" and i in codes:
            inside = f"<code>{inside}</code>"
        begin = f'<{tag} class="number">' if i in numbers else f"<{tag}>"
        return f"{begin}{inside}</{tag}>"

    box = "wide high" if len(rows) > _MANY else "wide"
    lines = [f'<div class="{box}"><table>']
    lines.append("<thead><tr>" + "".join(cell("th", i, t) for i, t in enumerate(header)))
    lines[-1] += "</tr></thead><tbody>"
    for n, row in enumerate(rows):
        style = (styles or {}).get(n, "")
        begin = f'<tr class="{style}">' if style else "<tr>"
        lines.append(begin + "".join(cell("td", i, t) for i, t in enumerate(row)) + "</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])
