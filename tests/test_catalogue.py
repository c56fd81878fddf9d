# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""All tables and figures: which cells are whose, what they want, what needs no run."""

import collections
import re

import pytest

from vit_jax import paper
from vit_jax.errors import BadInput
from vit_jax.experiments.tables import compute, filling, recipe_diff
from vit_jax.experiments.tables.cells import TABLES, find
from vit_jax.models import variants


@pytest.fixture(scope="module")
def tables():
    return {name: find(name) for name in TABLES}


def kinds(table):
    return dict(collections.Counter(cell.kind for cell in table.cells if cell.counts))


@pytest.mark.parametrize(
    "name, expected",
    [
        ("1", {"public": 15}),
        ("2", {"public": 7, "private": 14, "external": 9, "absent": 5}),
        ("6", {"public": 18, "private": 108}),
        ("7", {"private": 24}),
        ("8", {"private": 8, "absent": 4}),
        ("9", {"public": 20, "private": 40}),
        ("figure2", {"private": 4, "external": 12}),
        ("figure3", {"public": 8, "private": 5, "external": 6, "absent": 2}),
        ("figure4", {"private": 24}),
        ("figure5", {"private": 18}),
        ("figure8", {"private": 44}),
        ("figure9", {"private": 62}),
        ("figure12", {"unfillable": 80}),
        ("augreg3", {"public": 63, "unfillable": 27, "external": 3, "absent": 6}),
        ("augreg5", {"unfillable": 594}),
        ("augreg6", {"public": 3, "unfillable": 3}),
        ("augreg_figure4", {"public": 378}),
        ("replication", {"public": 30}),
        ("big_vision", {"public": 5}),
        ("mixer", {"public": 4}),
        ("masked", {"private": 1}),
        ("objectnet", {"private": 2}),
    ],
)
def test_cells_are_of_whom_the_protocol_says(tables, name, expected):
    assert kinds(tables[name]) == expected


def test_the_page_has_the_numbers_of_public_cells(tables, root):
    page = (root / "docs" / "tables.md").read_text()
    told = {name: int(count) for name, count in re.findall(r"`(\w+)`: (\d+)", page)}
    public = {name: kinds(table).get("public", 0) for name, table in tables.items()}
    assert told == {name: count for name, count in public.items() if count}


def test_public_cells_of_table_5_are_counted_from_the_file(tables):
    counted = collections.Counter()
    for row in paper.table("vit_paper_tables")["tables"]["table_5"]["rows"]:
        filled = sum(value is not None for value in row["values"].values())
        counted[row["pretrain_dataset"]] += filled
    assert counted == {"ImageNet": 24, "ImageNet-21k": 30, "JFT-300M": 30}
    found = kinds(tables["5"])
    assert found["public"] == counted["ImageNet"] + counted["ImageNet-21k"] == 54
    assert found["private"] == counted["JFT-300M"]


def test_labels_are_as_many_as_columns_and_differ(tables):
    for table in tables.values():
        labels = [cell.labels for cell in table.cells]
        assert len(set(labels)) == len(labels), table.name
        assert {len(one) for one in labels} == {len(table.columns)}


def test_what_a_cell_wants_is_a_recipe(tables):
    cells = [cell for table in tables.values() for cell in table.cells]
    wants = {want for cell in cells if cell.kind == "public" for want in cell.wants}
    for want in {(w.variant, w.dataset) for w in wants if w.dataset}:
        assert recipe_diff.fine_tuning(*want)["model.variant"] == want[0]
    for want in wants:
        if want.recipe != "mixer":  # published weights only
            assert recipe_diff.pre_training(
                want.variant, want.upstream, want.recipe, want.epochs[-1]
            ), want


def test_no_cell_of_jft_is_public(tables):
    for table in tables.values():
        for cell in table.cells:
            if any(want.upstream == "jft" for want in cell.wants):
                assert cell.kind in ("private", "absent")


def test_recipes_and_models_are_the_papers(tables):
    for name, public in (("1", 15), ("3", 312), ("4", 54)):
        report = filling.fill(tables[name], None)
        assert report.summary == f"{public} of {public} public cells reproduced"


def test_recipe_that_differs_from_table_3_is_off(monkeypatch):
    def changed(*args):
        return {**found(*args), "schedule.lr": 0.5}

    found = recipe_diff.pre_training
    monkeypatch.setattr(recipe_diff, "pre_training", changed)
    cells = filling.fill(find("3"), None).cells
    assert {f.cell.labels[3] for f in cells if f.status == "off"} == {"schedule.lr"}


def test_rates_of_table_4_are_those_that_the_recipe_takes(tables):
    found = {c.labels: (c.paper, c.ours) for c in tables["4"].cells}
    assert found["ImageNet", "schedule.lr"][1] == "0.003, 0.01, 0.03, 0.06"
    assert found["VTAB (19 tasks)", "schedule.lr"][1] == "0.01"
    assert found["VTAB (19 tasks)", "length"][1] == "2500 steps"


# ---------------------------------------------------------------- compute


def test_exaflops_of_table_6_agree_to_its_rounding_or_say_why_not(tables):
    report = filling.fill(tables["6"], None)
    assert report.summary == "15 of 18 public cells reproduced"
    off = {f.cell.labels[:2]: f.stand_ins[0] for f in report.cells if f.status == "off"}
    assert set(off) == {("ViT-B/32", "7"), ("ViT-H/14", "14"), ("R50x1+ViT-L/16", "7")}
    assert off["ViT-B/32", "7"].startswith("+2.0%: Figure 5 has 56")
    assert off["ViT-H/14", "14"] == "-0.1%: not explained"
    assert off["R50x1+ViT-L/16", "7"].startswith("-2.9%: the paper contradicts itself")
    for cell in (f.cell for f in report.cells if f.cell.kind == "public"):
        low, high = cell.accepts
        resnet = cell.labels[0].startswith("R")
        assert high == pytest.approx(cell.ours + 0.5)
        assert resnet or low == pytest.approx(cell.ours - 0.5)


@pytest.mark.parametrize("variant", ["BiT-R50x1", "R50+B/32"])
def test_zeros_of_padding_are_counted_as_by_summing_over_positions(variant):
    """One by one: every tap of every convolution that lies outside its map."""

    def outside(side, kernel, stride):
        before, count = kernel // 2, 0
        for y in range(0, side, stride):
            for x in range(0, side, stride):
                for i in range(-before, kernel - before):
                    for j in range(-before, kernel - before):
                        count += not (0 <= y + i < side and 0 <= x + j < side)
        return count

    total = outside(224, 7, 2) * 3 * 64
    for side, width, units, stride in ((56, 64, 3, 1), (56, 128, 4, 2), (28, 256, 6, 2),
                                       (14, 512, 3, 2)):  # fmt: skip
        total += outside(side, 3, stride) * width**2
        total += (units - 1) * outside(side // stride, 3, 1) * width**2
    assert compute.padding_multiply_adds(variant) == total
    assert compute.padding_multiply_adds("B/16") == 0


def test_exaflops_are_three_forward_passes_of_every_image():
    macs = variants.forward_flops(variants.config(variant="B/16", classes=1000), 224, 224) / 2
    assert compute.exaflops("B/16", 7) == pytest.approx(3 * 2 * macs * 303e6 * 7 / 1e18)
    # 12 x (197 (4 D^2 + 2 D F) + 2 197^2 D) + 196 16^2 3 D + 1000 D, D = 768, F = 3072
    assert macs == 12 * (197 * 12 * 768**2 + 2 * 197**2 * 768) + 196 * 768 * 768 + 1000 * 768


def test_core_days_of_h14_imply_what_the_protocol_says(tables):
    assert any("implies 19.7 TFLOP/s a core" in note for note in tables["2"].notes)
    assert compute.core_days("H/14", 14, "jft", compute.utilisation()) == pytest.approx(2500)
    # one chip-hour is two cores at a share of 61.5 TFLOP/s for 3,600 s
    assert compute.chip_hours(compute.utilisation() * 2 * 61.5e12 * 3600) == pytest.approx(1)


def test_unknown_table_lists_all():
    with pytest.raises(BadInput, match=r"figure12.*augreg3.*replication.*miniature"):
        find("rows")
