# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pages in a real browser: Debian's chromium without a screen. Start from `opened`."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WIDTHS = (1280, 400)
_QUIET = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage",
)  # fmt: skip


@contextlib.contextmanager
def opened(page: Path, width: int, profile: Path) -> Iterator[Any]:
    """A driver that shows a page; the test is skipped where there is no chromium.

    Args:
      page: a file.
      width: pixels; 400 as a telephone, for no window is that narrow.
      profile: an empty folder.
    """
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs chromium and chromedriver (Debian's chromium-driver)")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*_QUIET, f"--user-data-dir={profile}", "--window-size=1280,1000"):
        options.add_argument(flag)
    if width < 500:
        metrics = {"width": width, "height": 800, "pixelRatio": 1.0}
        options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=driver)
    with webdriver.Chrome(options=options, service=service) as shown:
        shown.get("about:blank")
        shown.get_log("performance")  # of the page that a new browser shows
        shown.get(page.as_uri())
        yield shown


def requests(driver: Any) -> list[str]:
    """Returns the addresses that the page has asked for and that are no part of it."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    urls = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    return [url for url in urls if not url.startswith(("data:", "chrome:"))]


# Every text in a chart: its words, its rectangle and that of its chart, its font on screen.
_TEXTS = """
return [...document.querySelectorAll('svg')].map(svg => {
  const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width;
  const box = r => [r.left, r.top, r.right, r.bottom];
  return {frame: box(frame), texts: [...svg.querySelectorAll('text')].map(t => ({
    text: t.textContent, box: box(t.getBoundingClientRect()),
    font: parseFloat(getComputedStyle(t).fontSize) * scale}))};
});
"""


def charts(driver: Any) -> list[dict[str, Any]]:
    """The charts of a page: `frame`, and `texts` with `text`, `box` and `font`, in pixels."""
    return driver.execute_script(_TEXTS)


def faults(chart: dict[str, Any]) -> list[str]:
    """Texts of a chart that are cut off, lie over each other, or are too small to be read."""
    found, (left, top, right, bottom) = [], chart["frame"]
    for i, one in enumerate(chart["texts"]):
        a, b, c, d = one["box"]
        if a < left - 1 or b < top - 1 or c > right + 1 or d > bottom + 1:
            found.append(f"{one['text']!r} is cut off")
        if one["font"] < 9:
            found.append(f"{one['text']!r} has {one['font']:.1f} pixels")
        for other in chart["texts"][:i]:
            e, f, g, h = other["box"]
            if min(c, g) - max(a, e) > 1 and min(d, h) - max(b, f) > 4:  # lines have room to spare
                found.append(f"{one['text']!r} lies over {other['text']!r}")
    return found
