# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The papers' tables as the readers give them, against numbers typed from the papers."""

import math

import pytest

from vit_jax import paper
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.paper import augreg, hyperrule, pretraining, results, transfer, vtab

# --- table 3, BiT's upstream recipe and masked patches ---


@pytest.mark.parametrize(
    "dataset, model, row",
    [
        ("jft", "B/16", ((7,), 8e-4, "linear", 0.1, 0.0)),
        ("jft", "L/16", ((7, 14), 4e-4, "linear", 0.1, 0.0)),
        ("jft", "H/14", ((14,), 3e-4, "linear", 0.1, 0.0)),
        ("jft", "BiT-R50x2", ((7,), 1e-3, "linear", 0.1, 0.0)),
        ("jft", "R50+L/32", ((7,), 2e-4, "linear", 0.1, 0.0)),
        ("imagenet21k", "L/32", ((30, 90), 1e-3, "linear", 0.03, 0.1)),
        ("imagenet", "B/32", ((300,), 3e-3, "cosine", 0.3, 0.1)),
    ],
)
def test_row_of_table_3(dataset, model, row):
    assert pretraining.table_3()[dataset][model] == pretraining.Row(*row)


def test_table_3_has_14_models_on_jft_and_4_on_each_imagenet():
    assert {d: len(rows) for d, rows in pretraining.table_3().items()} == {
        "jft": 14, "imagenet21k": 4, "imagenet": 4,
    }  # fmt: skip


def test_every_model_of_table_3_is_one_of_ours():
    for rows in pretraining.table_3().values():
        assert set(rows) <= set(variants.NAMED)


def test_caption_of_table_3():
    common = pretraining.common()
    assert (common.batch_size, common.warmup_steps, common.resolution) == (4096, 10_000, 224)
    assert common.clip == {"imagenet": 1.0, "imagenet21k": 0.0, "jft": 0.0}


@pytest.mark.parametrize(
    "dataset, epochs, drops",
    [
        ("jft", 40, (10, 23, 30, 37)),
        ("imagenet21k", 90, (30, 60, 80)),
        ("imagenet", 90, (30, 60, 80)),
    ],
)
def test_upstream_recipe_of_bit(dataset, epochs, drops):
    found = pretraining.bit(dataset)
    assert (found.epochs, found.drops) == (epochs, drops)
    assert (found.batch_size, found.momentum, found.warmup_steps) == (4096, 0.9, 5000)
    assert found.lr == pytest.approx(0.48)
    assert found.weight_decay == 1e-4


def test_masked_patch_prediction_is_that_of_appendix_b12():
    expected = pretraining.Masked("B/16", "jft", 0.5, 1_000_000, 4096, 2e-4, 10_000, "cosine", 79.9)
    assert pretraining.masked() == expected


@pytest.mark.parametrize(
    "name", ["vit_paper_tables", "vtab_tasks", "augreg", "bit_hyperrule", "replications"]
)
def test_data_says_where_it_is_from(name):
    text = str(paper.table(name))
    assert "arXiv:" in text or "google-research/vision_transformer @" in text
    assert "source" in text


# --- table 4 ---


def test_rows_of_table_4():
    """test_recipes.py checks the rows of other datasets in their recipes."""
    row = transfer.table_4()["imagenet"]
    assert (row.steps, row.rates, row.held_out_percent) == (20_000, (0.003, 0.01, 0.03, 0.06), 1)
    assert (row.batch_size, row.momentum, row.clip, row.weight_decay) == (512, 0.9, 1.0, 0.0)
    assert row.resolution == 384
    assert {row.rates for name, row in transfer.table_4().items() if name != "imagenet"} == {
        (0.001, 0.003, 0.01, 0.03), (0.01,),
    }  # fmt: skip


def test_table_4_has_six_rows():
    assert len(transfer.table_4()) == 6


# --- biT-HyperRule ---


DROPS = ("30 percent", "60 percent", "90 percent")


@pytest.mark.parametrize(
    "examples, steps, mixup",
    [(1_000, 500, 0.0), (19_999, 500, 0.0), (20_000, 10_000, 0.1), (499_999, 10_000, 0.1),
     (500_000, 20_000, 0.1), (1_281_167, 20_000, 0.1)],
)  # fmt: skip
def test_length_and_mixup_follow_the_number_of_examples(examples, steps, mixup):
    rule = hyperrule.rule(examples=examples, side=224)
    assert (rule.steps, rule.mixup, rule.warmup_steps, rule.drops) == (steps, mixup, 0, DROPS)
    assert (rule.lr, rule.momentum, rule.batch_size, rule.weight_decay) == (0.003, 0.9, 512, 0.0)


@pytest.mark.parametrize(
    "side, model, sides",
    [(32, "", (160, 128)), (95, "", (160, 128)), (96, "", (448, 384)), (224, "", (448, 384)),
     (224, "BiT-R152x4", (512, 480)), (32, "BiT-R152x4", (160, 128))],
)  # fmt: skip
def test_resolution_follows_the_area(side, model, sides):
    rule = hyperrule.rule(examples=1, side=side, model=model)
    assert (rule.resize, rule.crop) == sides


@pytest.mark.parametrize(
    "examples, warmup, drops",
    [(1_000, 100, (200, 300, 400)), (50_000, 500, (3000, 6000, 9000)),
     (1_281_167, 500, (6000, 12000, 18000))],
)  # fmt: skip
def test_the_code_warms_up_and_drops_elsewhere(examples, warmup, drops):
    rule = hyperrule.rule(examples=examples, side=224, code=True)
    assert (rule.warmup_steps, rule.drops) == (warmup, tuple(f"{n} steps" for n in drops))
    assert (rule.resize, rule.crop) == (512, 480)
    assert hyperrule.rule(examples=examples, side=32, code=True).crop == 128


def test_small_images_of_vtab_are_those_whose_shape_is_known_to_be_small():
    known = {}
    for row in hyperrule.paper.table("vtab_tasks")["tasks"]:
        side = row["image"]["native_shape"][0]
        known[vtab.find(row["name"]).slug] = side if side and side < 96 else 224
    assert {slug: hyperrule.size(f"vtab/{slug}")[1] for slug in known} == known
    assert hyperrule.size("vtab/dtd") == (1000, 224)


def test_a_dataset_that_is_not_known_has_no_size():
    assert hyperrule.size("mine") == (0, 0)


# --- augReg ---


def test_levels():
    levels = augreg.levels()
    assert len(levels) == 7
    assert (levels["none"], levels["none"].ops) == (augreg.Level(0, 0, 0.0), "")
    assert levels["light1"].ops == "|randaug(2, 0)"  # not the identity
    assert (levels["strong2"], levels["strong2"].ops) == (
        augreg.Level(2, 20, 0.8), "|randaug(2, 20)",
    )  # fmt: skip


@pytest.mark.parametrize(
    "dataset, epochs, bias, default",
    [
        ("imagenet21k", (30, 300), -10.0, {"Ti/16": "none", "B/16": "medium1", "L/16": "strong1"}),
        ("imagenet", (300,), -6.9, {"Ti/16": "light1", "B/16": "medium2", "L/16": "medium2"}),
    ],
)
def test_recipe(dataset, epochs, bias, default):
    found = augreg.pretraining(dataset)
    assert (found.batch_size, found.lr, found.warmup_steps, found.clip) == (4096, 1e-3, 10_000, 1.0)
    assert (found.epochs, found.head_bias) == (epochs, bias)
    assert found.default_level.items() >= default.items()
    assert set(found.default_level.values()) <= set(augreg.levels())
    assert (set(found.weight_decays), found.rates) == ({0.1, 0.03}, (0.0, 0.1))


def test_a_dataset_that_augreg_did_not_train_on_is_bad_input():
    with pytest.raises(BadInput, match=r"'jft'.*imagenet21k, imagenet"):
        augreg.pretraining("jft")


# --- the printed results ---


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
    level, rate = results.augreg_best("B/16", "i21k_300ep")[0]
    rows = {0.0: values["no_regularization"], 0.1: values["regularization_0.1"]}
    assert rows[rate][level] == max(max(row.values()) for row in rows.values())
