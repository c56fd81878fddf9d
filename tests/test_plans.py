# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The committed plans: complete, sound against counts by hand, and what a compiler says today."""

import dataclasses
import functools
import importlib.util
import math

import jax
import plans_page
import pytest

from configs import pretrain
from vit_jax.config import load as config_lib
from vit_jax.data.sources import builtin
from vit_jax.hardware import topology
from vit_jax.models import variants

ROWS = plans_page.load()
OTHERS = plans_page.load(plans_page.OTHERS_GOLDEN)
IDS = ["-".join(plans_page.key(row)) for row in ROWS]


def argument(row, name):
    return dict(part.split("=") for part in row["recipe"].split(","))[name]


def test_every_recipe_has_a_plan_for_tpuv3_and_for_one_of_today():
    assert [plans_page.key(row) for row in ROWS] == [
        plans_page.key(row) for row in plans_page.recipes()
    ]
    assert {row["accelerator"] for row in ROWS} == {"v3-8", "v3-512", plans_page.TODAY}


def test_page_is_made_from_the_table():
    assert plans_page.PAGE.read_text() == plans_page.page(ROWS, OTHERS)


@pytest.mark.parametrize("recipe, accelerator", plans_page.OTHERS.items())
def test_other_recipes_have_a_plan_that_fits(recipe, accelerator):
    (row,) = [row for row in OTHERS if row["recipe"] == recipe]
    assert (row["accelerator"], row["fits"]) == (accelerator, True)
    config = config_lib.load(f"configs/{recipe}")
    chips = topology.find(accelerator).chips
    steps = row["steps"]
    length, unit = config.length.split()
    if unit == "steps":
        assert steps == int(length)
    elif unit == "examples":
        assert steps == pytest.approx(int(length) / config.batch_size, rel=1e-5)
    else:
        source = config.data.source.removeprefix("synthetic:")
        images = (builtin.SIZES | builtin.DENSE)[source][1]
        trained_on = 0.99 if source == "imagenet" else 1.0
        examples = trained_on * images * int(length)
        assert steps == pytest.approx(examples / config.batch_size, rel=2e-3)
    hours = steps * row["estimated_step_secs"] / 3600
    assert row["estimated_chip_hours"] == pytest.approx(hours * chips, rel=1e-6)
    assert row["estimated_step_secs"] > row["flops"] / topology.find(accelerator).generation.flops


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
@pytest.mark.parametrize("recipe", plans_page.OTHERS)
def test_compiler_says_the_same_of_other_recipes_today(recipe):
    made = plans_page.make_other(recipe)
    (row,) = [row for row in OTHERS if row["recipe"] == recipe]
    assert made["peak_bytes"] == pytest.approx(row["peak_bytes"], rel=0.02)
    assert made["estimated_step_secs"] == pytest.approx(row["estimated_step_secs"], rel=0.05)


def size(dataset):
    """(classes, images)"""
    return builtin.SIZES[pretrain.STAND_INS[dataset].removeprefix("synthetic:")]


@functools.lru_cache
def counted(dataset, model):
    """(parameters, forward FLOPs of an image, those with layers unrolled) with a dataset's head."""
    overrides = [f"--config.{s}" for s in ("length=1 epochs",)]
    epochs = pretrain.TABLE_3[dataset][model].epochs[0]
    config = config_lib.load(
        f"configs/pretrain.py:model={model},dataset={dataset},epochs={epochs}", overrides
    )
    cfg = variants.of(config.model, size(dataset)[0])
    leaves = jax.tree.leaves(variants.shapes(cfg, 224, 224))
    alone = dataclasses.replace(cfg, unrolled=True) if hasattr(cfg, "unrolled") else cfg
    forward = (variants.forward_flops(one, 224, 224) for one in (cfg, alone))
    return sum(math.prod(x.shape) for x in leaves), *forward


@pytest.mark.parametrize(
    "row",
    [  # by default every fifth
        pytest.param(row, id=name, marks=[pytest.mark.slow] * (i % 5 > 0 or "R200x3" in name))
        for i, (row, name) in enumerate(zip(ROWS, IDS, strict=True))
    ],
)
def test_figures_agree_with_counts_by_hand(row):
    dataset, epochs = argument(row, "dataset"), int(argument(row, "epochs"))
    parameters, scanned, unrolled = counted(dataset, argument(row, "model"))
    # Unrolled, the last layer is computed for the class token alone.
    forward = unrolled if "estimated_hours" in row else scanned
    accelerator = topology.find(row["accelerator"])
    assert row["flops"] == pytest.approx(3 * forward * 4096 / accelerator.devices)
    trained_on = 0.99 if dataset == "imagenet" else 1.0
    steps = trained_on * size(dataset)[1] * epochs / 4096
    assert row["steps"] == pytest.approx(steps, rel=1e-3)
    assert row["limit_bytes"] == accelerator.generation.memory_bytes
    assert row["chip_hours"] == pytest.approx(
        row["steps"] * row["step_secs"] / 3600 * accelerator.chips, rel=1e-3
    )
    assert row["step_secs"] >= row["flops"] / accelerator.generation.flops * 0.999
    assert row["fits"]
    assert row["peak_bytes"] <= 0.92 * row["limit_bytes"]
    # Weights and two moments in float32, and at least their gradients in bfloat16.
    settings = dict(s.split("=") for s in row["settings"])
    own = parameters / int(settings.get("mesh.fsdp", 1))
    assert row["args_bytes"] >= 12 * own
    assert row["peak_bytes"] > 14 * own
    if "estimated_hours" in row:
        assert row["estimated_step_secs"] > row["step_secs"] > 0
        hours = row["steps"] * row["estimated_step_secs"] / 3600
        assert row["estimated_hours"] == pytest.approx(hours, rel=1e-3)
        assert row["estimated_chip_hours"] == pytest.approx(hours * accelerator.chips, rel=1e-3)
        mfu = row["flops"] / row["estimated_step_secs"] / accelerator.generation.flops
        assert row["estimated_mfu"] == pytest.approx(mfu)
        assert 0 <= row["unhidden_secs"] < row["estimated_step_secs"] / 2
    if row["collective_bytes"] is not None:
        reduced = sum(kinds["all-reduce"] for kinds in row["collective_bytes"].values())
        micro = int(settings.get("accumulation", 1))
        # In bfloat16 but for head and norms; the head's once, the blocks' in each micro-batch.
        assert 1.8 * parameters * micro <= reduced <= 4.4 * parameters * micro


def test_hours_of_the_paper_are_above_the_roofline():
    """Table 2: TPUv3 core-days that pre-training took."""
    printed = {("jft", "H/14"): 2500, ("jft", "L/16"): 680}
    for (dataset, model), days in printed.items():
        (row,) = [
            r for r in ROWS
            if (argument(r, "dataset"), argument(r, "model"), argument(r, "epochs"))
            == (dataset, model, "14") and r["accelerator"] == "v3-512"
        ]  # fmt: skip
        least = row["hours"] * 512 / 24
        assert 1.5 * least < days < 5 * least


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
@pytest.mark.parametrize("row", ROWS, ids=IDS)
def test_compiler_says_the_same_today(row):
    """Minutes each; BiT and hybrids the longest."""
    if "estimated_hours" not in row:
        pytest.skip("the row is of an earlier form of the step, and the page says so")
    made = plans_page.make({key: row[key] for key in ("recipe", "accelerator", "settings")})
    assert made["peak_bytes"] == pytest.approx(row["peak_bytes"], rel=0.02)
    assert made["estimated_step_secs"] == pytest.approx(row["estimated_step_secs"], rel=0.05)
    assert made["collective_bytes"] == row["collective_bytes"]
    assert made["fits"]
