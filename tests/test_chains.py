# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published choices by name."""

import pytest

from vit_jax.data import chains, preprocess
from vit_jax.errors import BadInput


@pytest.mark.parametrize(
    "level, added, alpha",
    [
        ("none", "", 0.0),
        ("light1", "|randaug(2, 0)", 0.0),
        ("light2", "|randaug(2, 10)", 0.2),
        ("medium1", "|randaug(2, 15)", 0.2),
        ("medium2", "|randaug(2, 15)", 0.5),
        ("strong1", "|randaug(2, 20)", 0.5),
        ("strong2", "|randaug(2, 20)", 0.8),
    ],
)
def test_levels_of_augreg(level, added, alpha):
    assert chains.augreg(level) == (added, alpha)
    preprocess.parse("data.train_ops", "decode|inception_crop({size})|flip_lr" + added, 224)


def test_there_are_no_other_levels():
    assert len(chains.LEVELS) == 7
    with pytest.raises(BadInput, match=r"unknown augmentation level 'medium'.*medium1"):
        chains.augreg("medium")
