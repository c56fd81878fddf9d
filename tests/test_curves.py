# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Curves: what is thinned keeps its spikes, a colour is one evaluation, empty ones are left out."""

import itertools
import xml.etree.ElementTree as ET

from workdirs import rows, written

from vit_jax.reports.run import curves, history


def test_few_points_stay_as_they_are():
    points = [(float(i), i * 0.5) for i in range(2 * curves.STRETCHES)]
    assert curves.thinned(points) == (points, False)


def test_many_points_keep_their_ends_and_every_spike():
    points = [(float(i), 1.0) for i in range(100_000)]
    points[54_321] = (54_321.0, 9.0)
    points[77_777] = (77_777.0, -9.0)
    found, fewer = curves.thinned(points)
    assert fewer
    assert len(found) <= 2 * (curves.STRETCHES + 1) + 2
    assert found == sorted(found)
    assert {points[0], points[-1], points[54_321], points[77_777]} <= set(found)
    xs = [x for x, _ in found]
    assert max(b - a for a, b in itertools.pairwise(xs)) < 2 * 100_000 / curves.STRETCHES


def test_caption_says_that_rows_were_thinned(tmp_path):
    many = [{"step": i, "train/loss": 1.0 + i % 7, "train/lr": 0.1} for i in range(1, 1001)]
    run = history.read(written(tmp_path / "run", metrics=many))
    drawn = {caption for svg, caption in curves.of_one(run) if svg}
    assert len(drawn) == 2
    assert all("Of many rows" in caption for caption in drawn)


def titles(figures):
    labels = [ET.fromstring(svg).get("aria-label") for svg, _ in figures if svg]
    return [label.removesuffix(" by step") for label in labels]


def listed(svg, names):
    """The names that the legend lists, in order."""
    texts = [e.text for e in ET.fromstring(svg).iter() if e.tag.endswith("text")]
    return [text for text in texts if text in names]


def test_of_one_run_everything_that_it_has_is_drawn(tmp_path):
    metrics = [row | {"perf/mfu": 0.3} if "perf/img_per_sec" in row else row for row in rows()]
    metrics.insert(3, {"step": 500, "fewshot_pets/5shot": 0.3})
    run = history.read(written(tmp_path / "a", metrics=metrics))
    assert titles(curves.of_one(run)) == [
        "loss", "top-1 in %", "few-shot top-1 in %", "learning rate", "images a second",
        "MFU in %", "waiting in %",
    ]  # fmt: skip
    plain = history.read(written(tmp_path / "b"))
    assert "MFU in %" not in titles(curves.of_one(plain))
    assert "few-shot top-1 in %" not in titles(curves.of_one(plain))  # it was measured once
    (loss, _), (top1, _) = curves.of_one(plain)[:2]
    for svg in (loss, top1):
        assert listed(svg, {"train", "val", "test", ""}) == ["train", "val", "test"]


def test_of_several_runs_each_is_a_line_and_what_nobody_has_is_left_out(tmp_path):
    runs = [history.read(written(tmp_path / name)) for name in ("first", "second")]
    figures = curves.of_several(runs)
    expected = ["training loss", "val top-1 in %", "learning rate", "images a second"]
    assert titles(figures) == expected
    for svg, _ in figures:
        assert listed(svg, {"first", "second"}) == ["first", "second"]
