# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The page of the claims on blocks and optimizers: its verdicts follow from its figures."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from vit_jax.config import load

SEEDS = (3, 4, 5)


@pytest.fixture
def page(root):
    return (root / "docs/modern_claims.md").read_text()


def table(page, start):
    """The cells of the rows of the table whose first header is `start`."""
    rows = page[page.index(f"| {start} |") :].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip("` *") for cell in row.strip("|").split(" | ")] for row in rows]


def numbers_of_claims(page):
    """The number of each claim and seed, from the tables of single runs."""
    _, results = page.split("## Results")
    sensitivity = {}
    for arm, *losses, stated in table(results, "arm, seed"):
        if "-" in losses:
            continue
        capped = [
            min(float(x), math.log(10)) if x != "not finite" else math.log(10) for x in losses
        ]
        name, seed = arm.replace("`", "").split(", ")
        sensitivity[name, int(seed)] = np.mean(capped) - min(capped)
        assert float(stated) == pytest.approx(sensitivity[name, int(seed)], abs=1.1e-3)
    rows = [row for part in results.split("\n\n") for row in part.splitlines()]
    of_arm = {}
    for row in rows:
        if found := re.match(r"\| `(learned|rope|adamw|muon)` \|((?: [\d., ]+ \|){3})$", row):
            of_arm[found[1]] = [
                [float(x) for x in cell.split(",")] for cell in found[2].strip(" |").split("|")
            ]
    change = {arm: np.diff(of_arm[arm], axis=1)[:, 0] for arm in ("learned", "rope")}
    loss = {arm: np.array(of_arm[arm])[:, 0] for arm in ("adamw", "muon")}
    pairs = [[(arm, seed) for arm in ("plain", "normed")] for seed in SEEDS]
    whole = [pair for pair in pairs if all(one in sensitivity for one in pair)]
    return [
        np.array([sensitivity[plain] - sensitivity[normed] for plain, normed in whole]),
        change["rope"] - change["learned"],
        loss["adamw"] - loss["muon"],
    ]


def test_verdicts_follow_from_the_figures(page):
    """By scipy's test of one sample, with Holm's correction by hand; missing: a p of 1."""
    _, results = page.split("## Results")
    stated = table(results, "claim")
    every = numbers_of_claims(page)
    ps = [stats.ttest_1samp(x, 0).pvalue if len(x) == len(SEEDS) else 1.0 for x in every]
    order, open_ = np.argsort(ps), True
    for rank, number in enumerate(order):
        open_ = open_ and ps[number] <= 0.05 / (3 - rank)
        if len(every[number]) < len(SEEDS):
            assert stated[number][-1] == "missing"
            continue
        side = "shown" if every[number].mean() > 0 else "opposite"
        assert stated[number][-1] == (side if open_ else "not shown")
    for values, p, (_, _, each, mean, said, _) in zip(every, ps, stated, strict=True):
        if len(values) < len(SEEDS):
            continue
        unit = 10.0 ** -len(each.split(",")[0].partition(".")[2])
        np.testing.assert_allclose([float(x) for x in each.split(",")], values, atol=2.1 * unit)
        middle, error = re.fullmatch(r"(\S+) \((\S+)\)", mean).groups()
        assert float(middle) == pytest.approx(values.mean(), abs=2.1 * unit)
        assert float(error) == pytest.approx(stats.sem(values), abs=2.1 * unit)
        assert float(said) == pytest.approx(p, rel=0.15, abs=2e-3)


def test_the_bold_rate_is_the_best(page):
    _, tuned = page.split("Tuning:")
    for row in tuned.split("\n\n")[1].splitlines()[2:]:
        cells = [cell.strip() for cell in row.strip("| ").split("|")[1:]]
        losses = {cell: float(cell.strip("*")) for cell in cells if cell}
        assert min(losses, key=losses.get).startswith("**")
        assert sum(cell.startswith("**") for cell in cells) == 1


def test_the_commands_set_keys_that_exist(page, root):
    """And arms that the table names."""
    script = page.split("```sh\n")[1].split("```")[0].replace("\\\n", " ")
    assert script.count("--config=") == 1
    recipe = re.search(r"--config=(\S+)", script)[1].replace("configs", str(root / "configs"))
    values = {"$RATE": "1e-3", "$BEST_OF_ADAMW": "1e-3", "$BEST_OF_MUON": "1e-2", "$2": "3"}
    shared = re.findall(r'--config\.[^=\s]+=(?:"[^"]*"|[^\s"]+)', script.split("}\n")[0])
    runs = [line.strip() for line in script.split("}\n")[1].splitlines()]
    runs = [line for line in runs if line.startswith("train ")]
    assert len(runs) == 8
    for line in runs:
        images = line.split()[3]
        given = [*shared, *(word for word in line.split() if word.startswith("--config."))]
        given = [word.replace('"', "").replace("$3", images) for word in given]
        for name, value in values.items():
            given = [word.replace(name, value) for word in given]
        config = load.load(recipe, given)
        assert config.length == f"{images} examples"
        assert config.model.qk_norm == ("normed" in line)
        assert config.model.rope == ("axial" if " rope " in line else "none")
