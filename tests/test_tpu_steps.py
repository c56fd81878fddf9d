# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The committed steps by the TPU compiler's clock: sound, and what a compiler says today."""

import dataclasses
import importlib.util
import math

import pytest
import tpu_steps

from vit_jax.hardware import topology
from vit_jax.models import variants
from vit_jax.preflight.bench import our_steps
from vit_jax.preflight.bench.interleaved import Asked

KNOWN = tpu_steps.known()


def test_page_is_made_from_the_table():
    assert tpu_steps.PAGE.read_text() == tpu_steps.page(tpu_steps.load())


def test_no_row_is_missing():
    wanted = {(model, tpu): images for model, tpu, images in tpu_steps.cells()}
    assert {key: row["batch"] for key, row in KNOWN.items()} == wanted


@pytest.mark.parametrize("model", tpu_steps.IMAGES)
def test_figures_agree_with_counts_of_ours(model):
    config = our_steps.config(Asked(model, 1, 224, "bfloat16"))
    cfg = variants.of(config.model, our_steps.CLASSES)
    whole = 3 * variants.forward_flops(cfg, 224, 224)  # the plain step computes all tokens
    if "unrolled" in cfg.FORMS:
        cfg = dataclasses.replace(cfg, unrolled=True)
    flops = 3 * variants.forward_flops(cfg, 224, 224)
    rows = [row for (name, _), row in KNOWN.items() if name == model]
    assert rows
    for row in rows:
        device, plain = topology.GENERATIONS[row["tpu"]], row.get("baseline")
        for found, each in ((row["ours"], flops), *([(plain, whole)] if plain else [])):
            assert found["img_per_sec"] == pytest.approx(row["batch"] / found["secs"])
            assert found["mfu"] == pytest.approx(each * found["img_per_sec"] / device.flops)
            assert found["peak_bytes"] < device.memory_bytes
        if plain:
            assert row["ratio"] == pytest.approx(plain["secs"] / row["ours"]["secs"])


def test_no_step_is_slower_than_that_of_big_vision():
    for key, millis in tpu_steps.BIG_VISION.items():
        assert 1000 * KNOWN[key]["ours"]["secs"] < millis, key


def test_goals_have_the_figures_of_the_table():
    goals = tpu_steps.PAGE.read_text().partition("### Goals")[2].partition("\n### ")[0]
    compared = [f"{1000 * KNOWN[key]['ours']['secs']:.1f}" for key in tpu_steps.BIG_VISION]
    assert ", ".join(compared) + " ms" in goals
    large = [key for key in KNOWN if key[0] in ("L/16", "H/14", "g/14", "So400m/14")]
    for model, tpu in (key for key in large if key[1] in ("v4", "v5e", "v5p")):
        assert f"{model} {tpu} {100 * KNOWN[model, tpu]['ours']['mfu']:.0f} %" in goals
    for model in ("L/16", "H/14"):
        assert f"{KNOWN[model, 'v3']['ours']['img_per_sec']:.1f} with" in goals
    gib = [KNOWN[key]["ours"]["peak_bytes"] / 2**30 for key in (("B/16", "v5e"), ("B/16", "v6e"))]
    assert ", ".join(f"{each:.2f}" for each in gib) in goals
    for (model, tpu), row in KNOWN.items():
        ratio = row["ours"]["peak_bytes"] / (row.get("baseline") or row["ours"])["peak_bytes"]
        assert (f"{model} {tpu} {ratio:.2f}" in goals) == (ratio > 1.05)
        ratio = row.get("ratio") or math.inf
        assert ratio > 1 or f"{model} {tpu} {ratio:.2f}" in goals


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
@pytest.mark.parametrize("tpu", [tpu for model, tpu in KNOWN if model == "S/16"])
def test_the_compiler_says_the_same_today(tpu):
    """Minutes each; other models take up to 40."""
    row = KNOWN["S/16", tpu]["ours"]
    made = tpu_steps.make("S/16", tpu, KNOWN["S/16", tpu]["batch"], alone=True)["ours"]
    assert made["secs"] == pytest.approx(row["secs"], rel=0.02)
    assert made["peak_bytes"] == pytest.approx(row["peak_bytes"], rel=0.02)
