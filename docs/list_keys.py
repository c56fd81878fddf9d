# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Writes the tables of docs/config.md from the declarations of the configuration keys.

    python docs/list_keys.py

The text above the mark in the page is written by hand. Start from `page`.
"""

from pathlib import Path

from vit_jax.config import reference

PAGE = Path(__file__).with_name("config.md")
MARK = "<!-- keys -->\n"


def page() -> str:
    """Returns the text of the page."""
    introduction, mark, _ = PAGE.read_text(encoding="utf-8").partition(MARK)
    return f"{introduction}{mark}\n{reference.tables()}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
