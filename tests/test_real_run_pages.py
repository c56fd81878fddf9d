# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""report.html of real runs: made when they end, made again on demand, never a reason to fail.

In a real browser it is whole, legible and offline, as wide as a screen and as a telephone.
"""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys

import browser
import pytest
import test_plan
from test_pages import check, table_page
from test_train import TINY
from workdirs import QUICKSTART, rows, written

from vit_jax.build import splits
from vit_jax.cli import main
from vit_jax.preflight.plan import plan, summary
from vit_jax.reports import charts
from vit_jax.reports.run import make
from vit_jax.reports.run.pictures import Pictures
from vit_jax.storage import files as storage

LIKE_THIS = ("--config.report.page=true", "--config.seed=5", "--config.evals.val.every=3 steps")
NOTHING = Pictures(None, (), ())


def train(workdir, *extra):
    words = [f"--config={QUICKSTART}", f"--workdir={workdir}", *TINY, *LIKE_THIS, *extra]
    return main.main(["train", *words])


def unreported(finished, workdir):
    """A copy of a run that was killed after its last save."""
    shutil.copytree(finished, workdir)
    for name in ("report.html", "results.json"):
        (workdir / name).unlink()
    return workdir


def failed(finished, workdir, error):
    """One that then ended with an error while its page was made."""

    def fails(*_):
        raise error

    unreported(finished, workdir)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make.pictures, "draw", fails)
        with pytest.raises(error):
            train(workdir)
    return workdir


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with its report."""
    workdir = tmp_path_factory.mktemp("runs") / "first"
    assert train(workdir) == 0
    return workdir


@pytest.mark.integration
def test_run_ends_with_a_page_of_all_that_it_is(finished):
    text = (finished / "report.html").read_text()
    parsed = check(text)
    headings = [
        "Results", "Curves", "Where the time went", "Differences from", "Training images",
        "Inside the model", "Versions",
    ]  # fmt: skip
    found = parsed.all("h2")
    assert [title[: len(heading)] for title, heading in zip(found, headings, strict=True)] == (
        headings
    )
    assert "This run is done." in parsed.words
    assert sum(tag == "img" for tag, _ in parsed.seen) == 5  # sheet and four figures
    assert sum(tag == "svg" for tag, _ in parsed.seen) == 5
    assert "5" in parsed.words  # the seed
    assert not [word for word in parsed.words if word.startswith("No ")]


@pytest.mark.integration
def test_finished_run_is_not_reported_again(finished):
    before = (finished / "report.html").stat().st_mtime_ns
    assert train(finished) == 0
    assert (finished / "report.html").stat().st_mtime_ns == before


@pytest.mark.integration
def test_run_that_was_killed_while_it_was_reported_gets_its_page(finished, tmp_path, monkeypatch):
    """The results, which say that a run is done, come after the page."""

    workdir = failed(finished, tmp_path / "run", KeyboardInterrupt)
    assert not (workdir / "results.json").exists()
    monkeypatch.setattr(make.pictures, "draw", lambda *_: NOTHING)
    assert train(workdir) == 0
    assert (workdir / "report.html").exists()
    assert (workdir / "results.json").exists()


@pytest.mark.integration
def test_disk_that_is_full_is_a_line_and_no_failure(finished, tmp_path, monkeypatch, caplog):
    write = storage.write

    def full(path, content):
        if path.name == "report.html":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, content)

    workdir = unreported(finished, tmp_path / "run")
    monkeypatch.setattr(storage, "write", full)
    monkeypatch.setattr(make.pictures, "draw", lambda *_: NOTHING)
    assert train(workdir) == 0
    assert json.loads((workdir / "results.json").read_text())["step"] == 12
    (line,) = [r.message for r in caplog.records if "report" in r.message]
    assert f"{workdir / 'report.html'} is not written" in line
    assert "No space left" in line


@pytest.mark.integration
def test_bug_of_the_page_is_seen_once_and_costs_no_results(finished, tmp_path):
    workdir = failed(finished, tmp_path / "run", ZeroDivisionError)
    assert json.loads((workdir / "results.json").read_text())["step"] == 12
    assert train(workdir) == 0


@pytest.mark.integration
def test_page_can_be_left_out(finished, tmp_path, capsys):
    workdir = unreported(finished, tmp_path / "run")
    assert train(workdir, "--config.report.page=false") == 0
    assert (workdir / "results.json").exists()
    assert not (workdir / "report.html").exists()
    assert "report " not in capsys.readouterr().out


# ---------------------------------------------------------------- vit_jax report


def test_page_is_made_again_from_the_workdir_alone(digits_run, tmp_path, capsys, monkeypatch):
    shutil.copytree(digits_run, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "checkpoints")
    monkeypatch.setattr(splits, "open_source", _gone)
    assert main.main(["report", str(tmp_path / "copy")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'copy' / 'report.html'}\n"
    found = check((tmp_path / "copy" / "report.html").read_text())
    assert "No training images: /data is gone" in found.words
    assert any(word.startswith("No figures of the model: ") for word in found.words)
    assert not [tag for tag, _ in found.seen if tag == "img"]
    assert [tag for tag, _ in found.seen if tag == "svg"]


def _gone(*_):
    raise make.BadInput("/data is gone")


def test_several_are_compared_where_one_stands(digits_run, tmp_path, capsys, monkeypatch):
    shutil.copytree(digits_run, tmp_path / "second", ignore=shutil.ignore_patterns("checkpoints"))
    monkeypatch.chdir(tmp_path)
    assert main.main(["report", str(digits_run), "second"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    found = check((tmp_path / "report.html").read_text())
    assert {"2 runs", "digits_run", "second", "In no key."} <= set(found.words)
    out = tmp_path / "new" / "x.html"
    assert main.main(["report", str(digits_run), "second", f"--out={out}"]) == 0
    assert out.read_bytes() == (tmp_path / "report.html").read_bytes()


def test_all_that_is_wrong_is_one_message(digits_run, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    shutil.copytree(digits_run, tmp_path / "torn", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "torn" / "metrics.jsonl").write_text("x\n")
    names = [str(tmp_path / name) for name in ("none", "empty", "torn")]
    assert main.main(["report", str(digits_run), *names]) == 2
    said = capsys.readouterr().err
    assert "3 problems" in said
    for name in names:
        assert name in said
    assert said.count("is not a run") == 2
    assert "is damaged: 1 lines are not rows" in said
    assert not (tmp_path / "report.html").exists()


def test_place_that_cannot_be_written_is_bad_input(digits_run, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for out, said in (
        (tmp_path, "is a folder; give a file"),
        (tmp_path / "file" / "x.html", "cannot be written"),
        ("-", "is not a path; give one"),
    ):
        assert main.main(["report", str(digits_run), f"--out={out}"]) == 2
        assert f"--out={out} {said}" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_pipe_is_written_and_not_replaced(digits_run, tmp_path):
    out = tmp_path / "pipe"
    os.mkfifo(out)
    end = os.open(out, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, 2**20)  # takes a page that nobody reads yet
    try:
        copy = tmp_path / "copy"
        shutil.copytree(digits_run, copy, ignore=shutil.ignore_patterns("checkpoints"))
        assert main.main(["report", str(digits_run), str(copy), f"--out={out}"]) == 0
        assert os.read(end, 15) == b"<!DOCTYPE html>"
    finally:
        os.close(end)
    assert out.is_fifo()


# ---------------------------------------------------------------- in a browser

SCROLL = "return [document.documentElement.scrollWidth, window.innerWidth]"
IMAGES = "return [...document.images].map(i => i.complete && i.naturalWidth > 0)"
HEADINGS = """
return [...document.querySelectorAll('h1, h2')].map(h => {
  const r = h.getBoundingClientRect();
  return h.checkVisibility() && r.width > 0 && r.height > 0 && r.left >= 0
    && r.right <= window.innerWidth});
"""
OUTSIDE = """
return [...document.querySelectorAll('p, dd, dt, figcaption')].filter(
  e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent);
"""


@pytest.fixture(scope="module")
def made(finished, tmp_path_factory):
    """Pages by name: of a real run, of many runs with long names, with a wide chart, of a plan."""
    root = tmp_path_factory.mktemp("pages")
    runs = [
        written(root / f"{i:03}-model=vit,learning_rate={i}e-3,seed=0" / "run",
                f"--config.seed={i}", f"--config.schedule.lr={i + 1}e-3",
                metrics=rows(steps=50_000, every=500, loss=1 + 0.1 * i, top1=0.6 + i / 100))
        for i in range(14)
    ]  # fmt: skip
    assert main.main(["report", *map(str, runs), f"--out={root / 'several.html'}"]) == 0
    wide = [
        charts.Series(
            f"B/16 pre-trained on dataset number {i}", [(1, 1), (10, 2 + i)], True, i < 9, i
        )
        for i in range(20)
    ]
    drawn = charts.chart(wide, "exaFLOPs", "top-1 in %", log="x")
    row = ["a " * 20] * 12
    (root / "table.html").write_text(
        table_page("A table", charts=[("It is wide", drawn)], header=row, rows=[row] * 40)
    )
    parts = {f"attention: part number {i} of a step": {"forward": i, "update": 1} for i in range(9)}
    figures = test_plan.figures(27.0, estimated_secs=45.0, parts=parts)
    planned = plan.Plan(test_plan.V4, 2, test_plan.V4.generation.memory_bytes, figures)
    name = "configs/pretrain.py:model=B/16 " + " ".join(test_plan.SMALL)
    (root / "plan.html").write_text(summary.page(planned, name))
    return {
        "one": finished / "report.html", "several": root / "several.html",
        "table": root / "table.html", "plan": root / "plan.html",
    }  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("width", browser.WIDTHS)
@pytest.mark.parametrize(
    "name, images, drawings", [("one", 5, 5), ("several", 0, 4), ("table", 0, 1), ("plan", 0, 1)]
)
def test_page_is_whole_legible_and_offline(made, tmp_path, width, name, images, drawings):
    with browser.opened(made[name], width, tmp_path) as driver:
        assert driver.execute_script("return window.innerWidth") == width
        assert browser.requests(driver) == [made[name].as_uri()]
        assert driver.get_log("browser") == []
        scrolled, inner = driver.execute_script(SCROLL)
        assert scrolled <= inner
        assert driver.execute_script(IMAGES) == [True] * images
        assert all(driver.execute_script(HEADINGS))
        assert driver.execute_script(OUTSIDE) == []
        found = browser.charts(driver)
        assert len(found) == drawings
        assert all(chart["texts"] for chart in found)
        assert [fault for chart in found for fault in browser.faults(chart)] == []


SPOILT = """
<svg viewBox="0 0 400 100" style="width: 400px; min-width: 0">
<text x="380" y="20" font-size="12">cut off here</text>
<text x="10" y="50" font-size="12">over</text><text x="12" y="52" font-size="12">each other</text>
<text x="10" y="90" font-size="5">tiny</text>
</svg>
"""


def test_faults_are_seen(tmp_path):
    """The test above would find each fault on a page that has it."""
    page = tmp_path / "bad.html"
    gone = '<img src="https://localhost:1/x.png">'
    wide = '<div style="width: 2000px">wide</div>'
    page.write_text(table_page(charts=[("", part) for part in (gone, SPOILT)]) + wide)
    (tmp_path / "profile").mkdir()
    with browser.opened(page, 400, tmp_path / "profile") as driver:
        assert len(browser.requests(driver)) == 2
        assert driver.get_log("browser")
        scrolled, inner = driver.execute_script(SCROLL)
        assert scrolled > inner
        assert driver.execute_script(IMAGES) == [False]
        (chart,) = browser.charts(driver)
        assert browser.faults(chart) == [
            "'cut off here' is cut off", "'each other' lies over 'over'", "'tiny' has 5.0 pixels",
        ]  # fmt: skip


@pytest.mark.integration
def test_training_brings_no_matplotlib_before_it_draws():
    program = (
        "import sys; from vit_jax.training import train; assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
