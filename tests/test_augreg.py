# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""AugReg's levels and recipe, against numbers typed from the paper."""

import pytest

from vit_jax.errors import BadInput
from vit_jax.paper import augreg


@pytest.mark.parametrize(
    "name, level, ops",
    [
        ("none", (0, 0, 0.0), ""),
        ("light1", (2, 0, 0.0), "|randaug(2, 0)"),  # not the identity
        ("light2", (2, 10, 0.2), "|randaug(2, 10)"),
        ("medium1", (2, 15, 0.2), "|randaug(2, 15)"),
        ("medium2", (2, 15, 0.5), "|randaug(2, 15)"),
        ("strong1", (2, 20, 0.5), "|randaug(2, 20)"),
        ("strong2", (2, 20, 0.8), "|randaug(2, 20)"),
    ],
)
def test_level(name, level, ops):
    assert augreg.levels()[name] == augreg.Level(*level)
    assert augreg.levels()[name].ops == ops


def test_there_are_seven_levels():
    assert len(augreg.levels()) == 7


@pytest.mark.parametrize(
    "dataset, epochs, bias, default",
    [
        ("imagenet21k", (30, 300), -10.0, {"Ti/16": "none", "B/16": "light2", "L/16": "medium2"}),
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
