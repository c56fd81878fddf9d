# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pages: well-formed, of one file, and what is text stays text."""

import os
from html.parser import HTMLParser

import pytest

from vit_jax.reports import pages

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """A parsed page; fails on an element that is closed out of order.

    Attributes:
      open: open elements.
      seen: (tag, attributes) of every element.
      words: every text, without white space around it.
      texts: (heading above, tag, attributes, whole text) of every element, inner ones first.
      tables: (heading above, rows) of every table.
    """

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.words, self.texts, self.tables = [], [], [], [], []
        self._heading = ""

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append((self._heading, []))
        if tag == "tr":
            self.tables[-1][1].append([])
        if tag not in VOID:
            self.open.append([tag, dict(attrs), ""])

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, tag
        opened, attributes, text = self.open.pop()
        assert opened == tag
        text = " ".join(text.split())
        if tag == "h2":
            self._heading = text
        if tag in ("td", "th"):
            self.tables[-1][1][-1].append(text)
        self.texts.append((self._heading, tag, attributes, text))

    def handle_data(self, data):
        if data.strip():
            self.words.append(" ".join(data.split()))
        for element in self.open:
            element[2] += data

    def all(self, tag, heading=None):
        """The texts of all elements of a kind, below a heading if one is given."""
        return [text for h, t, _, text in self.texts if t == tag and heading in (None, h)]

    def table(self, heading, number=0):
        """The rows of a table below a heading that begins like this."""
        return [rows for h, rows in self.tables if h.startswith(heading)][number]


def check(text):
    """The parsed page; fails unless it is whole, and needs nothing from elsewhere."""
    parsed = Page()
    parsed.feed(text)
    parsed.close()
    assert parsed.open == []
    assert text.startswith("<!DOCTYPE html>")
    for tag, attributes in parsed.seen:
        assert tag not in ("script", "link", "iframe")
        assert not {"href", "onload"} & attributes.keys()
        assert attributes.get("src", "data:").startswith("data:")
        assert attributes.get("xlink:href", "#").startswith("#")
    assert text.count("url(") == text.count("url(#")
    assert "@import" not in text
    return parsed


def table_page(title="T", *, header=("a",), rows=(("1",),), charts=(), notes=(), **content):
    """A page of a table, as `vit_jax table` makes it."""
    content |= {"header": header, "rows": rows}
    return pages.render("table.html", title, charts=charts, notes=notes, content=content)


def test_page_is_well_formed_and_escapes_text():
    page = check(
        table_page("T <1>", header=["a", "<b>"], rows=[["1 < 2", "x & y"]], numbers=[0], codes=[1],
                   styles={0: "good"}, notes=["<script>"])
    )  # fmt: skip
    assert page.all("p") == ["<script>"]
    assert page.tables == [("", [["a", "<b>"], ["1 < 2", "x & y"]])]
    assert ("tr", {"class": "good"}) in page.seen
    assert page.all("code") == ["x & y"]
    assert page.all("title") == page.all("h1") == ["T <1>"]


def test_picture_is_part_of_the_page_and_has_words_beside_it():
    figure = {"title": "a < b", "png": b"\x89PNG", "caption": 'the "first" one'}
    page = check(pages.render("figures.html", "T", notes=[], figures=[figure]))
    source = "data:image/png;base64,iVBORw=="
    assert ("img", {"alt": 'the "first" one', "src": source}) in page.seen
    assert page.all("h2") == ["a < b"]
    assert page.all("figcaption") == ['the "first" one']


def test_what_is_wide_scrolls_by_itself():
    page = check(table_page(charts=[("", "<svg></svg>")]))
    assert page.seen.count(("div", {"class": "wide"})) == 2  # the chart and the table
    page = check(table_page(rows=[["1"]] * 100))
    assert ("div", {"class": "wide high"}) in page.seen


def test_a_variable_that_is_missing_is_an_error():
    with pytest.raises(pages.jinja2.UndefinedError, match="notes"):
        pages.render("figures.html", "T", figures=[])


def test_names_of_files_may_be_any_bytes():
    name = os.fsdecode(b"caf\xe9.png")
    page = check(table_page(name, notes=[name]).encode().decode())
    assert page.words.count("caf\\udce9.png") == 3
