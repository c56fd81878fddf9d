# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pages: well-formed, of one file, and what is text stays text."""

import os
from html.parser import HTMLParser

from vit_jax.reports import pages

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Checker(HTMLParser):
    """Holds open elements; fails on one that is closed out of order."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.words = [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def check(text):
    """The parsed page; fails unless it is whole, and needs nothing from elsewhere."""
    parsed = Checker()
    parsed.feed(text)
    parsed.close()
    assert parsed.open == []
    assert text.startswith("<!DOCTYPE html>")
    for tag, attributes in parsed.seen:
        assert tag not in ("script", "link", "iframe")
        assert not {"href", "onload"} & attributes.keys()
        assert attributes.get("src", "data:").startswith("data:")
    assert "url(" not in text
    assert "@import" not in text
    return parsed


def test_page_is_well_formed_and_escapes_text():
    table = pages.table(["a", "<b>"], [["1 < 2", "x & y"]], numbers=[0], codes=[1],
                        styles={0: "good"})  # fmt: skip
    text = pages.page("T <1>", [pages.paragraph("<script>"), table, ""])
    parsed = check(text)
    assert "".join(parsed.words).count("<script>") == 1
    assert ("tr", {"class": "good"}) in parsed.seen
    assert "<code>x &amp; y</code>" in text
    assert text.count("<title>T &lt;1&gt;</title>") == 1


def test_picture_is_part_of_the_page_and_has_words_beside_it():
    text = pages.page("T", [pages.heading("a < b"), pages.image(b"\x89PNG", 'the "first" one')])
    parsed = check(text)
    assert ("img", {"alt": 'the "first" one', "src": "data:image/png;base64,iVBORw=="}) in (
        parsed.seen
    )
    assert {"a < b", 'the "first" one'} <= set(parsed.words)


def test_what_is_wide_scrolls_by_itself():
    wide = ("div", {"class": "wide"})
    sheet = pages.image(b"x", "y", wide=True)
    for part in (pages.table(["a"], [["1"]]), pages.drawing("<svg></svg>"), sheet):
        assert wide in check(pages.page("T", [part])).seen
    assert wide not in check(pages.page("T", [pages.image(b"x", "y")])).seen
    long = pages.table(["a"], [["1"]] * 100)
    assert ("div", {"class": "wide high"}) in check(pages.page("T", [long])).seen


def test_charts_stand_in_a_row_and_empty_ones_are_left_out():
    text = pages.page("T", [pages.row([("<svg></svg>", "a < b"), ("", "nothing")])])
    parsed = check(text)
    assert [tag for tag, _ in parsed.seen].count("figure") == 1
    assert "a < b" in parsed.words
    assert "nothing" not in parsed.words
    assert pages.row([("", "nothing")]) == ""
    assert pages.drawing("") == ""


def test_facts_have_names_and_empty_ones_are_left_out():
    parsed = check(pages.page("T", [pages.facts({"model": "<b>", "MFU": ""})]))
    assert {"model", "<b>"} <= set(parsed.words)
    assert "MFU" not in parsed.words


def test_paragraph_has_a_style_or_none():
    assert pages.paragraph("a & b", "bad") == '<p class="bad">a &amp; b</p>'
    assert pages.paragraph("a") == "<p>a</p>"


def test_names_of_files_may_be_any_bytes():
    name = os.fsdecode(b"caf\xe9.png")
    made = pages.page(name, [pages.paragraph(name)])
    assert made.encode().decode().count("caf\\udce9.png") == 3
