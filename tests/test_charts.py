# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Charts: valid XML, every point inside, the axes the right way round."""

import itertools
import xml.etree.ElementTree as ET

import pytest

from vit_jax.reports import charts
from vit_jax.reports.charts import Series


def discs(svg):
    """(x, y) of every disc, those of the legend, which is below, left out."""
    found = [e for e in ET.fromstring(svg) if e.tag.endswith("circle")]
    places = [(float(e.get("cx")), float(e.get("cy"))) for e in found]
    return [(x, y) for x, y in places if y <= charts.HEIGHT]


def words(svg):
    return [e.text for e in ET.fromstring(svg) if e.tag.endswith("text")]


@pytest.mark.parametrize("log", [False, True])
def test_points_lie_inside_and_in_order(log):
    svg = charts.chart([Series("a & b", [(1, 10), (10, 20), (100, 40)], line=True)], "x", "y",
                       log_x=log, log_y=log)  # fmt: skip
    (x0, y0), (x1, y1), (x2, y2) = discs(svg)
    assert 0 < x0 < x1 < x2 < charts.WIDTH
    assert charts.HEIGHT > y0 > y1 > y2 > 0  # larger is higher
    assert (x1 - x0 == pytest.approx(x2 - x1, abs=0.2)) == log
    assert (y0 - y1 == pytest.approx(y1 - y2, abs=0.2)) == log
    assert {"a & b", "x", "y"} <= set(words(svg))


def test_nothing_to_draw_is_empty_and_one_point_is_not():
    assert charts.chart([], "x", "y") == ""
    for point in ((3.0, 5.0), (0.0, 0.0), (-1.0, -2.0)):
        assert len(discs(charts.chart([Series("", [point])], "x", "y"))) == 1


def test_ticks_are_round_or_named():
    svg = charts.chart([Series("", [(0, 71.2), (3, 88.5)])], "x", "y")
    assert {"75", "80", "85"} <= set(words(svg))
    svg = charts.chart([Series("", [(1, 1), (2, 2)])], "x", "y", x_names={1: "one", 2: "two"})
    assert {"one", "two"} <= set(words(svg))
    assert "1.2" not in words(svg)[:2]


@pytest.mark.parametrize("ends", [(2.3, 4.9), (21, 40), (1.01, 1.02), (2.8056e-8, 2.8217e-8)])
def test_a_logarithmic_axis_of_less_than_a_decade_has_several_ticks(ends):
    svg = charts.chart([Series("", [(x, 1) for x in ends])], "x", "y", log_x=True)
    below = [
        e.text for e in ET.fromstring(svg)
        if e.tag.endswith("text") and float(e.get("y")) == charts.HEIGHT - 46 + 16
    ]  # fmt: skip
    assert len(below) >= (2 if ends[0] > 1e-3 else 1)
    assert len(set(below)) == len(below)


def test_diagonal_runs_upwards_between_the_ends():
    svg = charts.chart([Series("", [(80, 81), (90, 89)])], "x", "y", diagonal=True)
    lines = [e.get("points") for e in ET.fromstring(svg) if e.get("stroke-dasharray")]
    (x0, y0), (x1, y1) = ([float(v) for v in p.split(",")] for p in lines[0].split())
    assert x0 < x1
    assert y0 > y1


@pytest.mark.parametrize("size", [(charts.WIDTH, charts.HEIGHT), (charts.NARROW, charts.LOW)])
def test_legend_of_many_series_is_below_in_columns(size):
    names = [f"run {i}" for i in range(12)]
    series = [Series(name, [(0, i), (1, i)], True, colour=i) for i, name in enumerate(names)]
    svg = charts.chart(series, "x", "y", size=size)
    frame = [float(v) for v in ET.fromstring(svg).get("viewBox").split()]
    assert frame[2] == size[0]
    places = {}
    for e in ET.fromstring(svg):
        if e.tag.endswith("text") and e.text in names:
            places[e.text] = float(e.get("x")), float(e.get("y"))
    assert list(places) == names
    assert len(set(places.values())) == 12
    assert all(size[1] <= y <= frame[3] and 0 <= x <= size[0] - 60 for x, y in places.values())
    assert len({y for _, y in places.values()}) < 12


def test_name_without_room_keeps_its_ends():
    name = "the first words of it, " + "x" * 200 + " and the last"
    svg = charts.chart([Series(name, [(0, 0)])], "x", "y", size=(charts.NARROW, charts.LOW))
    (shown,) = [word for word in words(svg) if "…" in word]
    assert name.startswith(shown.split("…")[0])
    assert name.endswith(shown.split("…")[1])
    assert len(shown) < 60


def test_line_whose_colour_comes_again_is_dashed():
    series = [Series(str(i), [(0, i), (1, i)], True, colour=i) for i in range(9)]
    lines = [
        (e.get("stroke"), e.get("stroke-dasharray"))
        for e in ET.fromstring(charts.chart(series, "x", "y"))
        if e.tag.endswith("polyline") and e.get("stroke") in charts.COLOURS
    ][:9]
    assert lines[0] == (charts.COLOURS[0], None)
    assert lines[8][0] == charts.COLOURS[0]
    assert lines[8][1]
    assert len(set(lines)) == 9


def test_marks_can_be_left_out_but_for_a_single_point():
    assert discs(charts.chart([Series("", [(0, 1), (1, 2)], True, marks=False)], "x", "y")) == []
    assert len(discs(charts.chart([Series("", [(0, 1)], True, marks=False)], "x", "y"))) == 1


@pytest.mark.parametrize(
    "value, text",
    [
        (0, "0"), (1500, "1,500"), (100000, "100,000"), (0.05, "0.05"), (0.1 + 0.2, "0.3"),
        (-2.5, "-2.5"), (2e-5, "2e-5"), (1.5e10, "1.5e10"), (1e7, "1e7"),
    ],
)  # fmt: skip
def test_numbers_are_as_one_writes_them(value, text):
    assert charts.number(value) == text


@pytest.mark.parametrize("high", [30, 900, 40_000, 3_000_000, 2e12, 3e-7])
@pytest.mark.parametrize("log", [False, True])
def test_ticks_do_not_touch(high, log):
    size = (charts.NARROW, charts.LOW)
    svg = charts.chart(
        [Series("", [(high / 1e5, 1), (high, 2)])], "steps", "y", log_x=log, size=size
    )
    below = [
        (float(e.get("x")), e.text) for e in ET.fromstring(svg)
        if e.tag.endswith("text") and float(e.get("y")) == size[1] - 46 + 16
    ]  # fmt: skip
    assert len(below) >= 2
    for (a, one), (b, two) in itertools.pairwise(below):
        assert b - a > 6.7 * (len(one) + len(two)) / 2
