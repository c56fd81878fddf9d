# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The one maker of HTML pages: a file that needs no network, no script and no other file.

Start from `page`; its body is made of `heading`, `paragraph`, `table`, `image` and SVG such as that
of `charts`.
"""

import base64
from collections.abc import Mapping, Sequence
from html import escape

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; padding: 0 1em;
       color: #1a1a1a; background: #fff }
h1 { font-size: 1.35em }
h1, p, figcaption { overflow-wrap: anywhere }
h2 { font-size: 1.15em; margin: 1.8em 0 .4em }
figure { margin: 1em 0 }
figcaption { font-size: .92em; color: #444; max-width: 760px }
img { max-width: 100%; height: auto; display: block }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 1em 0 }
th, td { padding: .25em .7em; border-bottom: 1px solid #ddd; text-align: left;
         vertical-align: top }
th { border-bottom: 2px solid #888; position: sticky; top: 0; background: #fff }
.number { text-align: right; white-space: nowrap }
.good { background: #e3f4e6 } .bad { background: #fbe3de } .some { background: #fdf5d9 }
.quiet { color: #767676 }
svg { max-width: 760px; display: block; font-family: system-ui, sans-serif }
code { font-size: .92em; overflow-wrap: anywhere }
"""


def page(title: str, body: Sequence[str]) -> str:
    """A whole document.

    Args:
      title: plain text.
      body: HTML, one element after another.
    """
    return "\n".join([
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>",
        f"<body><h1>{escape(title)}</h1>",
        *filter(None, body),
        "</body></html>",
    ])  # fmt: skip


def paragraph(text: str) -> str:
    """Plain text as a paragraph."""
    return f"<p>{escape(text)}</p>"


def heading(text: str) -> str:
    """Plain text as the title of a section."""
    return f"<h2>{escape(text)}</h2>"


def image(png: bytes, caption: str) -> str:
    """A picture with plain text below; no wider than the page."""
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    codes: Sequence[int] = (),
    styles: Mapping[int, str] | None = None,
) -> str:
    """A table of plain text.

    Args:
      header: titles of the columns.
      rows: as many texts each.
      numbers: columns set to the right.
      codes: columns that are commands.
      styles: row -> good, bad, some or quiet.
    """

    def cell(tag: str, i: int, text: str) -> str:
        inside = escape(text)
        if tag == "td" and i in codes:
            inside = f"<code>{inside}</code>"
        begin = f'<{tag} class="number">' if i in numbers else f"<{tag}>"
        return f"{begin}{inside}</{tag}>"

    lines = ["<table>", "<thead><tr>" + "".join(cell("th", i, t) for i, t in enumerate(header))]
    lines[-1] += "</tr></thead><tbody>"
    for n, row in enumerate(rows):
        style = (styles or {}).get(n, "")
        begin = f'<tr class="{style}">' if style else "<tr>"
        lines.append(begin + "".join(cell("td", i, t) for i, t in enumerate(row)) + "</tr>")
    return "\n".join([*lines, "</tbody></table>"])
