# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Charts: valid XML, every point inside, the axes the right way round."""

import xml.etree.ElementTree as ET

import pytest

from vit_jax import charts
from vit_jax.charts import Series


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


def test_diagonal_runs_upwards_between_the_ends():
    svg = charts.chart([Series("", [(80, 81), (90, 89)])], "x", "y", diagonal=True)
    lines = [e.get("points") for e in ET.fromstring(svg) if e.get("stroke-dasharray")]
    (x0, y0), (x1, y1) = ([float(v) for v in p.split(",")] for p in lines[0].split())
    assert x0 < x1
    assert y0 > y1
