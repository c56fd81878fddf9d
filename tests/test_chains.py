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


@pytest.mark.parametrize(
    "name, size, chain",
    [
        ("vit_eval", 384, "decode|resize(384)"),
        ("big_vision_eval", 224, "decode|bv_resize_small(256)|central_crop(224)"),
        ("big_vision_transfer_eval", 384, "decode|bv_resize_small(448)|central_crop(384)"),
        ("inception_crop", 384, "decode|inception_crop(384)|flip_lr"),
        ("resmall_crop", 384, "decode|bv_resize_small(448)|random_crop(384)|flip_lr"),
        ("resize_crop", 384, "decode|bv_resize(448)|random_crop(384)|flip_lr"),
    ],
)
def test_chains_have_the_published_sizes(name, size, chain):
    found = preprocess.parse("k", chains.CHAINS[name], size)
    assert found == preprocess.parse("k", chain, 1)


def test_all_chains_are_tested_and_fit_any_size():
    assert len(chains.CHAINS) == 6
    for chain in chains.CHAINS.values():
        for size in (32, 64, 224, 512, 518):
            sizes = [op.size for op in preprocess.parse("k", chain, size) if hasattr(op, "size")]
            assert sizes[-1] == size == min(sizes)
