# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Table 3 and BiT's upstream recipe, against numbers typed from the papers."""

import pytest

from vit_jax import paper
from vit_jax.models import variants
from vit_jax.paper import pretraining


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


@pytest.mark.parametrize("name", ["vit_paper_tables", "vtab_tasks", "augreg", "bit_hyperrule"])
def test_data_says_where_it_is_from(name):
    text = str(paper.table(name))
    assert "arXiv:" in text
    assert "source" in text
