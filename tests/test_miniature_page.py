# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""docs/miniature.md and README: intervals and counts of both executions, computed again."""

import re

T90 = 2.919986  # Student's t, two degrees of freedom, 90 % interval
NUMBER = r"([+-]\d+\.\d+)"


def section(root):
    page = (root / "docs/miniature.md").read_text()
    return page, page[page.index("**Repetition.**") : page.index("## The night")]


def verdict(low, high, bound):
    if bound.startswith("within"):
        margin = float(bound.split()[1])
        return "shown" if -margin < low and high < margin else "not shown"
    above = (low, high) if bound == "above 0" else (-high, -low)
    return "shown" if above[0] > 0 else "opposite" if above[1] < 0 else "not shown"


def first(root):
    """The first execution of the claims that changed: (mean, se, low, high, bound, verdict)."""
    pattern = rf"\| ([^|]+) \| {NUMBER} \((\d\.\d+)\), {NUMBER} to {NUMBER}, ([a-z ]+) \|"
    return re.findall(pattern, section(root)[1])


def second(root):
    """Every claim of the second execution: (claim, criterion, mean, se, verdict)."""
    pattern = rf"^\| ([^|]+) \| ([^|]+) \| {NUMBER} \| (\d\.\d+) \| (\w[a-z ]*) \|$"
    return re.findall(pattern, section(root)[0], re.MULTILINE)


def test_changed_verdicts_have_the_intervals_that_follow_from_mean_and_error(root):
    rows = first(root)
    assert len(rows) == 3
    for bound, mean, error, low, high, said in rows:
        assert abs(float(mean) - T90 * float(error) - float(low)) < 0.02
        assert abs(float(mean) + T90 * float(error) - float(high)) < 0.02
        assert verdict(float(low), float(high), bound) == said
    assert "within rounding of their bounds" not in section(root)[1]
    assert "lie close to their bounds" not in section(root)[1]


def test_counts_are_those_of_both_executions(root):
    verdicts = [row[-1] for row in second(root)]
    assert len(verdicts) == 9
    changed = [row[-1] for row in first(root)]
    now = dict.fromkeys(("shown", "not shown", "opposite"), 0)
    for one in verdicts:
        now[one] += 1
    assert list(now.values()) == [6, 1, 2]
    same = {"shown": now["shown"] - 2, "opposite": now["opposite"]}  # two of the changed are shown
    then = same["shown"] + changed.count("shown"), changed.count("not shown"), same["opposite"]
    assert then == (5, 2, 2)
    text = section(root)[1].replace("\n", " ")
    assert "5 claims shown, 2 not shown and 2 opposite, the second 6, 1 and 2" in text
    readme = " ".join((root / "README.md").read_text().split())
    assert "four were shown and two came out opposite both times" in readme
    assert same == {"shown": 4, "opposite": 2}
    assert "three verdicts changed" in readme
