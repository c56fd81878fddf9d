# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The printed numbers: as many as the files have, and some known by heart."""

import math

import pytest

from vit_jax import paper
from vit_jax.models import variants
from vit_jax.paper import results


def leaves(tree):
    """Numbers and empty cells in a part of a file."""
    if isinstance(tree, dict):
        return sum(map(leaves, tree.values()))
    return sum(map(leaves, tree)) if isinstance(tree, list) else 1


@pytest.mark.parametrize("number", [5, 7, 8, 9])
def test_every_cell_of_a_table_is_read(number):
    rows = paper.table("vit_paper_tables")["tables"][f"table_{number}"]["rows"]
    found = getattr(results, f"table_{number}")()
    assert len(found) == sum(leaves(row["values"]) for row in rows)
    assert len({value.labels for value in found}) == len(found)


@pytest.mark.parametrize(
    "number, count", [(2, 16), (3, 19), (4, 24), (5, 18), (8, 44), (9, 62), (12, 80)]
)
def test_every_point_of_a_figure_is_read(number, count):
    found = results.figure(number)
    assert len(found) == count
    assert len({value.labels for value in found}) == count
    assert (found[0].x is not None) == (number > 3)


@pytest.mark.parametrize(
    "reader, labels, value",
    [
        ("table_2", ("ImageNet", "Ours-JFT (ViT-H/14)"), 88.55),
        ("table_5", ("JFT-300M", "Oxford-IIIT Pets", "ViT-H/14"), 97.56),
        ("table_5", ("ImageNet", "CIFAR-10", "ViT-H/14"), None),
        ("table_6", ("ViT-L/16", "14", "exaFLOPs"), 1567),
        ("table_7", ("Average", "ResNet50 SGD"), 88.79),
        ("table_8", ("No Pos. Emb.", "Default/Stem"), 61.382),  # percent, printed as a share
        ("table_9", ("ViT-L/16 (I21k)", "Mean"), 72.7),
        ("augreg_3", ("384", "i21k_300", "B/16"), 85.49),
    ],
)
def test_cell_has_the_papers_value(reader, labels, value):
    found = {v.labels: v.value for v in getattr(results, reader)()}
    assert found[labels] == pytest.approx(value) if value else found[labels] is None


def test_models_of_all_tables_are_ours():
    names = {v.labels[2] for v in results.table_5()} | {v.labels[0] for v in results.table_6()}
    names |= {v.labels[1] for v in results.table_7()} | {v.labels[0] for v in results.table_9()}
    names |= {v.labels[0] for n in (4, 5) for v in results.figure(n)}
    assert {results.variant(name) for name in names} <= set(variants.NAMED)
    assert results.variant("R50x1+ViT-L/16 (7 ep)") == "R50+L/16"
    assert results.variant("ResNet152x2 SGD") == "BiT-R152x2"


def test_spread_is_of_the_row_of_the_data_set():
    assert results.spread("CIFAR-10") == (0.03, pytest.approx(math.sqrt((36 + 9 + 9) / 3) / 100))
    assert results.spread("CIFAR10") == results.spread("CIFAR-10")  # as Table 7 writes it
    assert results.spread("ImageNet ReaL")[0] == 0.05
    assert results.spread("ImageNet")[0] == 0.02


def test_best_level_of_augreg_is_the_one_of_the_highest_accuracy():
    values = paper.table("augreg")["figure_4"]["values"]["i21k_300ep"]["B/16"]
    level, rate = results.augreg_best("B/16", "i21k_300ep")
    rows = {0.0: values["no_regularization"], 0.1: values["regularization_0.1"]}
    assert rows[rate][level] == max(max(row.values()) for row in rows.values())
