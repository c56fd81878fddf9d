# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Settings of the documentation site.

From the root of the checkout, without a network:

    sphinx-build -W --keep-going -q -c docs . build/site

Pages are read where they lie, so that their links work on the site as they do in a repository.
The side bar has the pages in the order of docs/index.md.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

from vit_jax import __version__

project = "vit_jax"
author = copyright = "The vit_jax authors"
version = release = __version__
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = ["runs", "build", "dist", "tests", "vit_jax", ".*"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["html_image"]  # <img> with a width
myst_heading_anchors = 4  # links to headings, as in a repository
nitpicky = False  # annotations of other packages have no page here
default_role = "code"  # `name` in a docstring
autodoc_typehints = "description"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
html_theme = "furo"
html_title = f"vit_jax {release}"
html_copy_source = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
_START = '<!DOCTYPE html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'


def add_side_bar(app: Sphinx, page: str, source: list[str]) -> None:
    """Adds a hidden table of contents to docs/index.md: one part for each of its headings."""
    if page != root_doc:
        return
    for part in re.split(r"^(?=## )", source[0], flags=re.MULTILINE):
        heading = re.match(r"## (.*)", part)
        caption = [f":caption: {heading[1]}"] if heading else []
        names = dict.fromkeys(re.findall(r"\]\(([^)#:]+)\.md\)", part))
        lines = ["```{toctree}", ":hidden:", *caption, "", *names, "```"]
        source[0] += "\n\n" + "\n".join(lines) + "\n"


def mark_examples(
    app: Sphinx, what: str, name: str, part: object, options: object, lines: list[str]
) -> None:
    """Marks indented blocks of a docstring as code: they follow a blank line, sections do not."""
    for i in range(len(lines) - 1, 1, -1):
        before, blank, line = lines[i - 2 : i + 1]
        if before[:1].strip() and not blank and line.startswith("    "):
            lines[i - 1 : i] = ["", "::", ""]


def add_start(app: Sphinx, error: Exception | None) -> None:
    """Writes the page that a visitor of the root of the site gets."""
    Path(app.outdir, "index.html").write_text(_START, encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Connects the functions above."""
    app.connect("source-read", add_side_bar)
    app.connect("autodoc-process-docstring", mark_examples, priority=400)  # before napoleon
    app.connect("build-finished", add_start)
