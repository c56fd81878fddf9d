# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Charts: valid XML, every point inside, the axes the right way round, texts that can be read."""

import os
import re
import xml.etree.ElementTree as ET

import matplotlib
import pytest

from vit_jax.reports import charts
from vit_jax.reports.charts import COLOURS, Series

LINK = "{http://www.w3.org/1999/xlink}href"


def parts(svg, tag):
    return [e for e in ET.fromstring(svg).iter() if e.tag.endswith(tag)]


def discs(svg, colour=COLOURS[0], legend=False):
    """(x, y) of every disc of a colour in the chart, or in the legend, which is below."""
    places = [
        (float(e.get("x")), float(e.get("y")))
        for e in parts(svg, "use")
        if f"stroke: {colour}" in e.get("style")
    ]
    return [(x, y) for x, y in places if (y > charts.HEIGHT) == legend]


def words(svg):
    return [e.text for e in parts(svg, "text")]


def lines(svg):
    """(colour, dashes) of every line."""
    styles = [e.get("style") or "" for e in parts(svg, "path")]
    found = [re.search(r"stroke: (#\w+)", style) for style in styles]
    return [
        (colour[1], re.search(r"dasharray: ([\d., ]+)", style))
        for colour, style in zip(found, styles, strict=True)
        if colour and "fill: none" in style and colour[1] in COLOURS[:6]
    ]


@pytest.mark.parametrize("log", ["", "xy"])
def test_points_lie_inside_and_in_order(log):
    svg = charts.chart([Series("a & b", [(1, 10), (10, 20), (100, 40)], line=True)], "x", "y",
                       log=log)  # fmt: skip
    (x0, y0), (x1, y1), (x2, y2) = discs(svg)
    assert 0 < x0 < x1 < x2 < charts.WIDTH
    assert charts.HEIGHT > y0 > y1 > y2 > 0  # larger is higher
    assert (x1 - x0 == pytest.approx(x2 - x1, abs=0.2)) == bool(log)
    assert (y0 - y1 == pytest.approx(y1 - y2, abs=0.2)) == bool(log)
    assert {"a & b", "x", "y"} <= set(words(svg))


def test_nothing_to_draw_is_empty_and_one_point_is_not():
    assert charts.chart([], "x", "y") == ""
    for point in ((3.0, 5.0), (0.0, 0.0), (-1.0, -2.0)):
        assert len(discs(charts.chart([Series("", [point])], "x", "y"))) == 1


def test_equal_charts_are_equal_texts_and_settings_stay_as_they_were():
    series = [Series("a", [(0, 0), (1, 1)], line=True)]
    before = dict(matplotlib.rcParams)
    assert charts.chart(series, "x", "y") == charts.chart(series, "x", "y")
    assert dict(matplotlib.rcParams) == before


def test_charts_of_one_page_share_no_names_of_parts():
    svgs = [charts.chart([Series("a", [(0, i), (1, 1)])], "x", f"y{i}") for i in range(2)]
    first, second = ({e.get("id") for e in ET.fromstring(svg).iter()} - {None} for svg in svgs)
    assert first
    assert not first & second
    assert {e.get(LINK)[1:] for e in parts(svgs[0], "use")} <= first


def test_ticks_are_round_or_named():
    svg = charts.chart([Series("", [(0, 71.2), (3, 88.5)])], "x", "y")
    assert {"75", "80", "85"} <= set(words(svg))
    svg = charts.chart([Series("", [(1, 1), (2, 2)])], "x", "y", x_names={1: "one", 2: "two"})
    assert words(svg)[:3] == ["one", "two", "x"]


@pytest.mark.parametrize("ends", [(2.3, 4.9), (21, 40), (1.01, 1.02), (2.8056e-8, 2.8217e-8)])
def test_a_logarithmic_axis_of_less_than_a_decade_has_several_ticks(ends):
    svg = charts.chart([Series("", [(x, 1) for x in ends])], "steps", "y", log="x")
    below = words(svg)[: words(svg).index("steps")]
    assert len(below) >= 2
    assert len(set(below)) == len(below)


@pytest.mark.parametrize(
    "value, text",
    [(1500, "1,500"), (100_000, "100,000"), (0.02, "0.02"), (2e-5, "2e−05"), (2e10, "2e+10")],
)
def test_numbers_are_as_one_writes_them(value, text):
    svg = charts.chart([Series("", [(1, 0), (1, 2 * value)], line=True)], "steps", "y")
    assert text in words(svg)


def test_diagonal_runs_upwards():
    svg = charts.chart([Series("", [(80, 81), (90, 89)])], "x", "y", diagonal=True)
    (path,) = [e for e in parts(svg, "path") if "stroke: #999999" in (e.get("style") or "")]
    x0, y0, x1, y1 = map(float, re.findall(r"-?[\d.]+", path.get("d")))
    assert x0 < x1
    assert y0 > y1


def test_axes_of_shares_go_from_0_to_1_also_if_all_are_0():
    zeros = [Series("a", [(0.0, 0.0), (1.0, 0.0)])]
    assert ">0.04<" in charts.chart(zeros, "recall", "precision")
    drawn = charts.chart(zeros, "recall", "precision", shares=True)
    assert ">0.04<" not in drawn
    assert drawn.count(">0.8<") == 2  # on both axes


@pytest.mark.parametrize("size", [(charts.WIDTH, charts.HEIGHT), (charts.NARROW, charts.LOW)])
def test_legend_of_many_series_is_below_in_columns(size):
    names = [f"run {i}" for i in range(12)]
    series = [Series(name, [(0, i), (1, i)], True, colour=i) for i, name in enumerate(names)]
    svg = charts.chart(series, "x", "y", size=size)
    frame = [float(v) for v in ET.fromstring(svg).get("viewBox").split()]
    assert frame[2] == size[0]
    places = {
        e.text: (float(e.get("x")), float(e.get("y")))
        for e in parts(svg, "text")
        if e.text in names
    }
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


@pytest.mark.parametrize(
    "name", ["_a", "$x", "a_b$", "<b>", "名前", os.fsdecode(b"caf\xe9"), "a\nb"]
)
def test_any_name_is_in_the_legend_as_text(name):
    svg = charts.chart([Series(name, [(0, 0)]), Series("other", [(1, 1)])], "x", "y")
    plain = name.replace("\udce9", "?").replace("\n", "?")
    assert {plain, "other"} <= set(words(svg))


def test_line_whose_colour_comes_again_is_dashed():
    series = [Series("", [(0, i), (1, i)], True, colour=i) for i in range(9)]
    drawn = lines(charts.chart(series, "x", "y"))
    assert [colour for colour, _ in drawn] == [*COLOURS[:6], COLOURS[0]]
    assert [bool(dashes) for _, dashes in drawn] == [False] * 6 + [True]


def test_points_of_a_long_line_are_left_out():
    short, long = ([(i, i) for i in range(count)] for count in (2, 100))
    assert len(discs(charts.chart([Series("", short, True)], "x", "y"))) == 2
    assert discs(charts.chart([Series("", long, True)], "x", "y")) == []
    assert len(discs(charts.chart([Series("", long)], "x", "y"))) == 100


def test_long_line_is_short_text_that_keeps_every_spike():
    points = [(i, i % 7) for i in range(100_000)]
    points[54_321], points[77_777] = (54_321, 99.0), (77_777, -99.0)
    svg = charts.chart([Series("", points, True)], "x", "y", size=(charts.NARROW, charts.LOW))
    (line,) = [e for e in parts(svg, "path") if f"stroke: {COLOURS[0]}" in (e.get("style") or "")]
    places = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", line.get("d"))]
    assert len(places) < 2000
    left, right = min(x for x, _ in places), max(x for x, _ in places)
    for spike, extreme in ((54_321, min), (77_777, max)):
        x, y = extreme(places, key=lambda place: place[1])
        assert x == pytest.approx(left + (right - left) * spike / 100_000, abs=1.5)
        assert abs(y - charts.LOW / 2) > 70


def test_bars_stand_end_to_end_in_the_order_of_the_rows():
    svg = charts.bars({"a & b": (1, 3, 0), "c": (2, 0, 2)}, ("one", "two", "three"), "ms")
    drawn = {}
    for path in parts(svg, "path"):
        fill = re.search(r"fill: (#\w+)", path.get("style") or "")
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", path.get("d"))]
        if fill and fill[1] in COLOURS[:3] and min(numbers[0::2]) != max(numbers[0::2]):
            drawn.setdefault(fill[1], []).append(numbers)
    one, two, three = (drawn[colour] for colour in COLOURS[:3])
    ends = [(min(n[0::2]), max(n[0::2]), n[1]) for n in (one[0], two[0], one[1], three[0])]
    (start, joint, top), (again, end, _), (low_start, low_end, low), (low_again, last, _) = ends
    assert start == low_start
    assert joint == again
    assert low_end == low_again
    assert (end - joint) / (joint - start) == pytest.approx(3, rel=0.01)
    assert end == pytest.approx(last, abs=0.1)
    assert top < low  # the first row is on top
    assert {"a & b", "c", "one", "two", "three", "ms"} <= set(words(svg))
    assert charts.bars({}, ("one",), "ms") == ""
