# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The form in which each platform computes a model, and that no form changes an update."""

import collections
import dataclasses
import re

import jax
import numpy as np
import pytest
from test_attention import devices

from vit_jax.build import execution, program
from vit_jax.config import load as config_lib
from vit_jax.models import attention, mae, products, variants
from vit_jax.preflight.bench.our_steps import random_batch

LONG, SHORT = 1e18, 1e12  # FLOPs of a run on one device


def chosen(platform, variant, flops=LONG, side=224, kind="", **settings):
    """Returns the reason for the form of a model in bfloat16 on one device without a mesh."""
    values = {"variant": variant, "dtype": "bfloat16"} | settings
    overrides = [f"--config.model.{key}={value}" for key, value in values.items()]
    section = config_lib.load("configs/base.py", overrides).model
    rules = devices(platform, kind=kind)
    cfg = variants.of(section, 10)
    return execution.choose(cfg, section, rules, platform, flops, (side, side)).reason


@pytest.mark.parametrize(
    "platform, variant, reason",
    [
        ("cpu", "B/16", "layers unrolled; attention memory-efficient; remat none"),
        ("tpu", "B/16", "layers unrolled; attention packed (groups of 2); remat none"),
        ("tpu", "H/14", "layers unrolled; attention packed (groups of 1, keys first); remat none"),
        ("gpu", "B/16", "layers unrolled; attention cudnn; remat none"),
        ("cpu", "R26+S/32", "layers unrolled; attention memory-efficient; remat none"),
        ("tpu", "Mixer-B/16", "layers unrolled; remat none"),
        ("gpu", "Mixer-B/16", "layers unrolled; remat none"),
        ("tpu", "BiT-R50x1", "remat dots"),
    ],
)
def test_the_form_for_each_platform_and_family(platform, variant, reason):
    assert chosen(platform, variant, remat="auto") == reason


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_a_short_run_or_another_remat_scans_its_layers(platform):
    assert chosen(platform, "B/16").startswith("layers unrolled; ")
    short = "layers scanned (1e+12 FLOPs a device do not pay for compiling each layer); "
    assert chosen(platform, "B/16", SHORT).startswith(short)
    assert chosen(platform, "B/16", remat="full").startswith("layers scanned (model.remat=full); ")
    alone = chosen(platform, "B/16", scan=False, remat="auto")
    assert alone.startswith("layers unrolled (model.scan=false); ")
    assert alone.endswith("; remat none")
    assert chosen(platform, "B/16", SHORT, remat="auto").endswith("; remat dots")


def test_many_tokens_have_attention_that_never_holds_all_scores():
    assert "attention packed" in chosen("tpu", "H/14", side=378)
    assert "attention splash (1369 tokens)" in chosen("tpu", "H/14", side=518)
    assert "attention packed" in chosen("tpu", "H/14", side=518, attention="plain")
    assert "attention splash (256 tokens)" in chosen("tpu", "H/14", attention="fused")


@pytest.mark.parametrize("kind", ["TPU v6 lite", "TPU v6e", "TPU7x"])
def test_newer_tpus_have_large_heads_apart_in_unrolled_layers(kind):
    apart = "attention memory-efficient (heads of 80, tokens in order)"
    of_72 = "attention packed" if kind == "TPU7x" else apart.replace("80", "72")
    assert of_72 in chosen("tpu", "So400m/14", kind=kind)
    assert apart in chosen("tpu", "H/14", kind=kind)
    assert apart in chosen("tpu", "H/14", kind=kind, attention="plain")
    assert apart in chosen("tpu", "H/14", kind=kind, scan=False)
    assert "attention packed" in chosen("tpu", "H/14", kind=kind, side=378)
    assert "attention packed" in chosen("tpu", "H/14", SHORT, kind=kind)
    assert "attention packed" in chosen("tpu", "H/14", kind="TPU v5 lite")
    for other in ("L/16", "g/14"):
        assert "attention packed" in chosen("tpu", other, kind=kind)
    assert "attention splash" in chosen("tpu", "H/14", kind=kind, attention="fused")
    assert "in order" not in chosen("tpu", "H/14", kind=kind, attention_dropout=0.1)


@pytest.mark.parametrize(
    "variant, kind, side, in_order",
    [
        ("H/14", "TPU7x", 224, True),
        ("H/14", "TPU7x", 378, False),
        ("H/14", "TPU v5", 224, False),
        ("L/16", "TPU v6 lite", 224, True),
        ("L/16", "TPU v6 lite", 384, False),
        ("L/16", "TPU v5", 224, False),
        ("B/16", "TPU7x", 224, True),
        ("S/16", "TPU7x", 224, False),
        ("g/14", "TPU7x", 224, False),
    ],
)
def test_newer_tpus_keep_tokens_of_wide_models_in_order(variant, kind, side, in_order):
    section = config_lib.load("configs/base.py", [f"--config.model.variant={variant}"]).model
    cfg, rules = variants.of(section, 10), devices("tpu", kind=kind)
    form = execution.choose(cfg, section, rules, "tpu", LONG, (side, side))
    assert form.cfg.in_order == in_order
    assert ("tokens in order" in form.reason) == in_order
    short = execution.choose(cfg, section, rules, "tpu", SHORT, (side, side))
    assert not short.cfg.in_order


@dataclasses.dataclass(frozen=True)
class Own(variants.Config):
    """A user's model whose attention alone a platform may choose."""

    FORMS = ("attention",)
    stride = 16
    width: int = 160
    heads: int = 2
    attention: str = "plain"
    dtype: str = "bfloat16"

    def make(self, rules):
        raise NotImplementedError

    def forward_flops(self, height, width):
        return 0


@pytest.mark.parametrize("kind", ["TPU v4", "TPU v6 lite"])
def test_a_model_may_leave_only_its_attention_to_the_platform(kind):
    section = config_lib.load("configs/base.py").model
    form = execution.choose(Own(), section, devices("tpu", kind=kind), "tpu", LONG, (224, 224))
    assert form.cfg.attention == "packed_keys_first"


@pytest.mark.parametrize(
    "kind, of_pairs",
    [("TPU v3", ""), ("TPU v5", ""), ("TPU v6 lite", ", keys first"), ("TPU7x", ", keys first")],
)
def test_scores_have_keys_first_for_a_head_alone_and_on_newer_tpus(kind, of_pairs):
    assert f"attention packed (groups of 2{of_pairs})" in chosen("tpu", "S/16", kind=kind)
    assert "attention packed (groups of 1, keys first)" in chosen("tpu", "g/14", kind=kind)


def test_a_decoder_keeps_its_small_heads_packed_beside_an_encoder_with_large_ones():
    section = config_lib.load("configs/base.py", ["--config.model.variant=H/14"]).model
    plain = variants.of(section, 10)
    encoder = {f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)}
    cfg = mae.MaskedAutoencoderConfig(**encoder)
    rules = devices("tpu", kind="TPU7x")
    form = execution.choose(cfg, section, rules, "tpu", LONG, (224, 224))
    assert form.cfg.decoder().attention == "packed_keys_first"


def made(variant, form, platform="cpu", devices=1):
    """Returns the program of a platform with a form of the model; on several devices, fsdp=2.

    The momentum is float32: rounded to bfloat16, a difference of 1e-8 may become one of 1e-5.
    """
    given = {"model.variant": variant, "data.image_size": 32, "batch_size": 4}
    given |= {f"model.{key}": value for key, value in SIZES[variant].items()}
    given |= {"optimizer.name": "sgd", "schedule.lr": 0.1}
    given |= {"optimizer.sgd.accumulator_dtype": "float32", "mesh.fsdp": min(devices, 2)}
    config = config_lib.load("configs/base.py", [f"--config.{k}={v}" for k, v in given.items()])

    def choose(cfg, *_, **_options):
        return execution.Execution(dataclasses.replace(cfg, **form), "")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_BLOCK", 128)
        patch.setattr(execution, "choose", choose)
        patch.setattr(products, "on_gpu", lambda rules: platform == "gpu")
        return program.make(
            config, classes=10, examples=1000, devices=jax.devices()[:devices], platform=platform
        )


def updated(variant, form, platform="cpu"):
    """Returns the parameters after two steps.

    In the first one the head is zero, and only its own gradient is not.
    """
    with_form = made(variant, form, platform)
    batch = random_batch(with_form)
    batch["labels"] = batch["labels"] % 10
    state = with_form.init()
    for _ in range(2):
        state, _ = with_form.step(state, batch, with_form.step_key)
    return jax.tree.map(np.asarray, state.params)


ENCODER, RESNET = (
    {"width": 64, "heads": 4, "mlp": 48, "depth": 2},
    {"stages": (1, 1), "root_width": 32},
)
SIZES = {
    "Ti/8": ENCODER,
    "R+Ti/8": ENCODER | RESNET,
    "BiT-custom": RESNET,
    "Mixer-S/16": {"token_mlp": 8, "depth": 2},
}
FORMS = {
    "Ti/8": [
        {"unrolled": False, "attention": "plain"},
        {"unrolled": True, "attention": "memory_efficient", "remat": "dots"},
        {"unrolled": True, "attention": "memory_efficient", "in_order": True},
        {"unrolled": True, "attention": "packed"},
        {"unrolled": True, "attention": "packed_keys_first"},
        {"unrolled": False, "attention": "splash"},
        {"unrolled": True, "attention": "splash"},
    ],
    "R+Ti/8": [
        {"unrolled": False, "attention": "plain"},
        {"unrolled": True, "attention": "packed", "remat": "dots"},
        {"unrolled": True, "attention": "memory_efficient"},
        {"unrolled": False, "attention": "splash"},
    ],
    "BiT-custom": [{"remat": "none"}, {"remat": "dots"}],
    "Mixer-S/16": [{"unrolled": False}, {"unrolled": True}, {"unrolled": False, "remat": "dots"}],
}


def assert_same(found, expected, message):
    for leaf, other in zip(*map(jax.tree.leaves, (expected, found)), strict=True):
        np.testing.assert_allclose(other, leaf, rtol=0, atol=1e-6, err_msg=message)


@pytest.mark.integration
@pytest.mark.parametrize("variant", FORMS)
def test_an_update_is_the_same_in_every_form(variant):
    first, *others = FORMS[variant]
    expected = updated(variant, first)
    for form in others:
        assert_same(updated(variant, form), expected, str(form))


@pytest.mark.integration
@pytest.mark.parametrize("platform, attention", [("gpu", "xla"), ("tpu", "packed")])
@pytest.mark.parametrize("variant", FORMS)
def test_an_update_is_the_same_as_another_platform_computes_it(variant, platform, attention):
    """On GPUs with jax's other path instead of cuDNN's attention: 17 tokens, an odd number."""
    first = FORMS[variant][0]
    other = first | ({"attention": attention} if "attention" in first else {})
    assert_same(updated(variant, other, platform), updated(variant, first), variant)


def lowered(monkeypatch, form, count=1, **settings):
    """Returns a step with unrolled layers and tokens in order."""
    monkeypatch.setitem(SIZES, "Ti/8", ENCODER | settings)
    return made("Ti/8", {"unrolled": True, "in_order": True} | form, "tpu", count).lower_step()


@pytest.mark.integration
@pytest.mark.parametrize(
    "form, settings, arrays",
    [
        ({}, {}, 4),  # tokens of two layers and their gradients
        ({}, {"scan": False}, 4),
        ({}, {"merge": 2}, 7),  # how many patches each stands for too; the first are constants
        ({"unrolled": False}, {}, 0),
        ({"in_order": False}, {}, 0),
    ],
)
def test_tokens_are_kept_in_order_before_each_layer(monkeypatch, form, settings, arrays):
    text = lowered(monkeypatch, form, **settings).as_text()
    assert text.count("LayoutConstraint") == arrays


@pytest.mark.integration
def test_tokens_in_order_are_not_gathered(monkeypatch):
    collectives = {}
    for in_order in (False, True):
        step = lowered(monkeypatch, {"in_order": in_order}, count=4)
        assert ("LayoutConstraint" in step.as_text()) == in_order
        found = re.findall(r" (all-\w+|reduce-scatter)\(", step.compile().as_text())
        collectives[in_order] = collections.Counter(found)
    assert collectives[False] == collectives[True] != {}
