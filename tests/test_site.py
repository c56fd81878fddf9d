# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The documentation site: strict links, every page, nothing from elsewhere, fits a phone."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import browser
import pytest
import yaml

from vit_jax import __version__

ROOT = Path(__file__).resolve().parent.parent

# Headings, paragraphs and pictures beyond the edge of the window; tables and code scroll.
TOO_WIDE = """
return [...document.querySelectorAll('article :is(h1, h2, h3, p, li, dt, img)')]
  .filter(e => !e.closest('.table-wrapper, pre') && e.getBoundingClientRect().right > innerWidth)
  .map(e => e.outerHTML.slice(0, 80));
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("sphinx", reason="needs the extra `docs`")
    out = tmp_path_factory.mktemp("site")
    words = ["-W", "--keep-going", "-q", "-d", str(out / "cache"), "-c", "docs", "."]
    command = [sys.executable, "-m", "sphinx", *words, str(out / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.mark.integration
def test_site_has_every_page_and_needs_no_network(site, tmp_path):
    pages = {p.relative_to(ROOT).with_suffix(".html") for p in (ROOT / "docs").rglob("*.md")}
    written = {p.relative_to(site) for p in site.rglob("*.html")}
    assert pages | {Path("README.html"), Path("CHANGELOG.html"), Path("index.html")} <= written
    assets = r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]*"'
    for page in site.rglob("*.html"):
        assert re.findall(assets, page.read_text(encoding="utf-8")) == [], page
    api = (site / "docs/api.html").read_text(encoding="utf-8")
    for name in ("vit_jax.load", "vit_jax.save", "vit_jax.config.sections.Config"):
        assert f'id="{name}"' in api
    assert 'href="../_downloads/' in (site / "docs/runs.html").read_text()  # configs/base.py


@pytest.mark.integration
def test_site_fits_a_phone_and_is_searched_without_a_server(site, tmp_path):
    with browser.opened(site / "docs/config.html", 390, tmp_path / "profile") as shown:
        for name in ("docs/config", "docs/api", "docs/architecture", "docs/index"):
            shown.get((site / f"{name}.html").as_uri())
            assert shown.execute_script(TOO_WIDE) == [], name
        shown.get((site / "search.html").as_uri() + "?q=preemption")
        shown.implicitly_wait(20)
        assert shown.find_elements("css selector", "ul.search li a")
        assert [url for url in browser.requests(shown) if not url.startswith("file:")] == []


def test_the_example_of_the_api_page_runs():
    [example] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/api.md").read_text(), re.DOTALL)
    names = {}
    exec(example, names)
    assert (names["config"].seed, names["config"].data.source) == (1, "digits")


def test_files_of_the_project_agree():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [hooks] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert f"ruff=={hooks['rev'].removeprefix('v')}" in extras["optional-dependencies"]["dev"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert f"## {__version__.removesuffix('.dev0')} " in (ROOT / "CHANGELOG.md").read_text()
    index = (ROOT / "docs/index.md").read_text()
    pages = (p.relative_to(ROOT / "docs").as_posix() for p in (ROOT / "docs").rglob("*.md"))
    assert [name for name in pages if name != "index.md" and f"]({name})" not in index] == []
