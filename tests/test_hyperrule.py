# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""BiT-HyperRule, against numbers typed from arXiv:1912.11370, section 3.3, and its code."""

import pytest

from vit_jax.paper import hyperrule, vtab

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
