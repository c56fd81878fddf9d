# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Variants: their names, sizes and settings, and what all families have in common."""

import dataclasses
import functools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from vit_jax import sharding, tree
from vit_jax.errors import BadInput
from vit_jax.models import bit, mixer, resnet, variants, vit, vit_config
from vit_jax.weights import architecture

# Published numbers of parameters at 224 pixels and 1000 classes (reference/compatibility.md, 2.4,
# and reference/protocols.md, "Models beyond the published checkpoints").
PUBLISHED = {
    "Ti/16": 5_717_416,
    "S/16": 22_050_664,
    "S/32": 22_878_952,
    "B/8": 86_576_872,
    "B/16": 86_567_656,
    "B/32": 88_224_232,
    "L/16": 304_326_632,
    "L/32": 306_535_400,
    "H/14": 632_045_800,
    "g/14": 1_037_857_384,
    "G/14": 1_882_797_416,
    "e/14": 3_875_135_720,
    "So400m/14": 428_833_704,
    "g-opt/16": 1_164_613_096,
    "G-opt/16": 1_699_646_952,
    "R+Ti/16": 6_337_704,
    "R26+S/32": 36_431_912,
    "R26+B/32": 101_383_976,
    "R50+B/16": 98_659_112,
    "R50+B/32": 110_945_832,
    "R50+L/16": 316_483_624,
    "R50+L/32": 328_994_856,
    "BiT-R50x1": 25_549_352,
    "BiT-R50x3": 217_319_080,
    "BiT-R101x1": 44_541_480,
    "BiT-R101x3": 387_934_888,
    "BiT-R152x2": 236_335_208,
    "BiT-R152x4": 936_533_224,
    "Mixer-B/16": 59_880_472,
    "Mixer-B/32": 60_293_428,
    "Mixer-L/16": 208_196_168,
}
# For these none is published; the others of a family fix what they are made of.
UNPUBLISHED = {
    *("b/32", "BiT-R50x2", "BiT-R152x1", "BiT-R200x3"),
    *("Mixer-S/8", "Mixer-S/16", "Mixer-S/32", "Mixer-L/32"),
}
# There are no files of these; test_axial compares their sizes with what is known.
AXIAL = {"AxialViT-B/16", "AxialViT-B/32", "AxialResNet50", "AxialResNet-S"}
MAPPED = ("g/14", "G/14", "e/14", "So400m/14", "g-opt/16", "G-opt/16")  # pooled by attention
# ImageNet-21k has 21,843 classes; that of B/16 has pre-logits.
PUBLISHED_21K = {
    "B/16": 103_186_515,
    "BiT-R50x1": 68_256_659,
    "BiT-R50x3": 345_399_315,
    "BiT-R101x1": 87_248_787,
    "BiT-R101x3": 516_015_123,
    "BiT-R152x2": 321_728_979,
    "BiT-R152x4": 1_107_299_923,
}
HYBRIDS = [name for name in variants.NAMED if name.startswith("R")]
BITS = [name for name in variants.NAMED if name.startswith("BiT")]
EVERY_FAMILY = pytest.mark.parametrize("family", tiny.FAMILIES)


def config(variant, classes=1000, **settings):
    settings = variants.published(variant) | settings
    return variants.config(variant=variant, classes=classes, **settings)


# --- sizes ---


@pytest.mark.parametrize("variant", variants.NAMED)
def test_every_fact_of_a_named_variant(variant):
    cfg = config(variant)
    shapes = tiny.shapes(cfg, 224, 224)
    if variant in PUBLISHED:
        assert tree.size(shapes) == PUBLISHED[variant]
    if variant in PUBLISHED_21K:
        more = (21_843 - 1000) * (shapes["head"]["kernel"].shape[0] + 1)
        pre_logits = 768 * 769 if variant == "B/16" else 0
        assert tree.size(shapes) + more + pre_logits == PUBLISHED_21K[variant]
    assert_axes(cfg, shapes, classes=1000)
    assert (getattr(cfg, "pool", None) == "map") == (variant in MAPPED)
    settings = dataclasses.asdict(variants.Settings(variant))
    assert variants.config(**settings, classes=9) == variants.config(variant=variant, classes=9)
    if variant not in AXIAL:
        assert_is_found_from_shapes(variant, cfg, shapes)
    assert_described(variant, cfg)


def assert_is_found_from_shapes(variant, cfg, shapes):
    """The weights of a variant are told from all others by the shapes of their tensors."""
    flat = dict(tree.leaves_with_paths(tree.unstack_blocks(tiny.indexable(shapes))))
    found, size = architecture.settings_of(variants.family(cfg), flat, None)
    assert (found["variant"], size) == (variant, (224, 224))
    assert variants.config(**found) == cfg


def assert_described(variant, cfg):
    """The description is JSON with every number of the model."""
    found = json.loads(json.dumps(variants.describe(variant, cfg)))
    assert (found.pop("variant"), found.pop("family")) == (variant, variants.family(cfg))
    expected = dataclasses.asdict(cfg)
    for of_training_alone in ("patch_outputs", "maps", "tokens", "class_std"):
        expected.pop(of_training_alone, None)
    inner = expected.pop("backbone", None) or expected.pop("resnet", None) or {}
    expected |= {{"width": "root_width"}.get(key, key): value for key, value in inner.items()}
    if inner:
        expected["stages"] = list(inner["stages"])
    assert found == expected


def test_parameter_count_with_pre_logits_and_the_head_of_imagenet21k_is_the_published_one():
    cfg = config("B/16", 21_843, representation=768)
    assert tree.size(tiny.shapes(cfg, 224, 224)) == PUBLISHED_21K["B/16"]


def test_every_named_variant_has_a_count_or_none_is_published():
    assert set(variants.NAMED) == PUBLISHED.keys() | UNPUBLISHED | AXIAL
    assert not PUBLISHED.keys() & UNPUBLISHED
    assert len(variants.NAMED) == len(set(variants.NAMED))
    sizes = {re.sub(r"^(R\d*\+|Mixer-)", "", v).partition("/")[0] for v in set(variants.NAMED)}
    assert sizes >= vit.SIZES.keys() | mixer.SIZES.keys()


def test_half_of_b_has_its_layers_and_heads():
    half, base = config("b/32"), config("B/32")
    assert dataclasses.replace(base, width=384, mlp=1536) == half


@pytest.mark.parametrize(
    "variant, cls",
    [("B/16", vit.ViT), ("R50+B/16", vit.ViT), ("BiT-R50x1", bit.BiT), ("Mixer-B/16", mixer.Mixer)],
)
def test_make_builds_the_model_of_the_family(variant, cls):
    cfg = config(variant)
    assert isinstance(variants.make(cfg), cls)
    assert variants.make(cfg).cfg == cfg
    assert variants.make(cfg).rules is None
    assert variants.family(cfg) == cls.__name__.lower()


# --- names ---


@pytest.mark.parametrize(
    "name, same",
    [("R50x1", "BiT-R50x1"), ("R200x3", "BiT-R200x3"), ("ViT-B/16", "B/16"), ("ViT-b/32", "b/32")],
)
def test_other_names_of_a_variant(name, same):
    assert config(name) == config(same)


def test_numbers_replace_those_of_the_variant():
    assert config("B/16", 10) == vit.ViTConfig(16, 768, 12, 3072, 12, 10)  # the rest is default
    given = {"depth": 3, "heads": 6, "width": 36, "mlp": 50, "gelu": "erf", "ln_epsilon": 1e-5}
    given |= {"pool": "gap", "posemb": "learned2d", "posemb_at": "every", "registers": 4}
    given |= {"posemb_std": 0.03, "mup_base_width": 24}
    given |= {"representation": 5, "head_bias": -3.0, "dropout": 0.1, "attention_dropout": 0.2}
    given |= {"drop_path": 0.3, "dtype": "bfloat16", "scan": False, "remat": "dots"}
    found = config("B/16", 10, **given)
    given |= {"patch": 16, "classes": 10, "backbone": None, "attention": "plain"}
    given |= {"patch_outputs": 0, "maps": (), "unrolled": False, "in_order": False}
    given |= {"class_std": 0.0, "tokens": False}
    options = {name: getattr(vit.ViTConfig, name) for name in vit_config.OPTIONS}  # defaults
    assert dataclasses.asdict(found) == given | options


@pytest.mark.parametrize(
    "variant, given",
    [
        ("custom/32", {"width": 1024, "depth": 8, "mlp": 2048, "heads": 16}),
        ("R50+custom/16", {"width": 64, "depth": 8, "mlp": 128, "heads": 4}),
        ("Mixer-custom/8", {"width": 64, "depth": 8, "mlp": 128, "token_mlp": 32}),
    ],
)
def test_free_sizes_are_those_given(variant, given):
    cfg = config(variant, **given)
    assert {field: getattr(cfg, field) for field in given} == given


def test_published_constants_of_hybrids_are_the_default_and_give_way():
    found = config("R50+L/32").backbone
    assert (found.gn_epsilon, found.ws_epsilon, found.ws_epsilon_in) == (1e-6, 1e-5, "std")
    assert (found.width, found.stem) == (64, "standard")
    given = {"gn_epsilon": 1e-3, "ws_epsilon": 1e-4, "ws_epsilon_in": "variance"}
    given |= {"stages": (1, 2), "stem": "small", "stem_stride": 2}
    cfg = config("R50+L/32", root_width=96, **given)
    assert cfg.backbone == resnet.ResNetConfig(width=96, **given)
    assert cfg.patch == 4


# --- tokens ---


@pytest.mark.parametrize(
    "variant, stages, patch, tokens",
    [
        ("R+Ti/16", (), 8, 49),  # the published name, though its stride is 32
        ("R26+S/32", (2, 2, 2, 2), 1, 49),
        ("R50+B/16", (3, 4, 9), 1, 196),
        ("R50+L/16", (3, 4, 9), 1, 196),
        ("R50+B/32", (3, 4, 6, 3), 1, 49),
        ("R26+B/64", (2, 2, 2, 2), 2, 9),
        ("R101+B/16", (3, 4, 26), 1, 196),
    ],
)
def test_hybrids_have_the_stages_and_tokens_of_their_names(variant, stages, patch, tokens):
    cfg = config(variant)
    assert (cfg.backbone.stages, cfg.patch) == (stages, patch)
    assert tiny.shapes(cfg, 224, 224)["posemb"].shape[1] == 1 + tokens
    assert np.prod(variants.grid(cfg, 224, 224)) == tokens


@pytest.mark.parametrize(
    "variant, size, expected",
    [
        ("B/16", (224, 32), (14, 2)),
        ("Mixer-B/32", (64, 96), (2, 3)),
        ("R50+B/16", (96, 64), (6, 4)),
        ("BiT-R50x1", (33, 47), (2, 2)),
        ("BiT-R50x1", (224, 256), (7, 8)),
    ],
)
def test_grid_has_rows_and_columns(variant, size, expected):
    assert variants.grid(config(variant), *size) == expected


@pytest.mark.parametrize("stem_stride", [0, 1, 2])
def test_small_stem_suits_images_of_32_pixels(stem_stride):
    for variant in (*HYBRIDS, *BITS):
        cfg = config(variant, stem="small", stem_stride=stem_stride)
        variants.check_image_size(cfg, 32, 32)
        assert min(variants.grid(cfg, 32, 32)) >= 2
        backbone = getattr(cfg, "backbone", None) or cfg.resnet
        assert backbone.stem_stride == (stem_stride or 1)


SMALL = "(--config.data.image_size), or model.stem=small."
SIZE_ALONE = "(--config.data.image_size)."


@pytest.mark.parametrize(
    "variant, settings, size, words",
    [
        ("B/16", {}, (224, 225), ["225 is not divisible by the 16 pixels", "use 224 or 240 ("]),
        ("B/16", {}, (40, 32), ["use 32 or 48 ("]),
        ("B/16", {}, (10, 10), ["grid of 0 position", "use 32 or more ("]),
        ("B/16", {}, (224, 16), ["16 gives a grid of 1 position", "2 is the least", "use 32 or"]),
        ("B/16", {}, (20, 224), ["20 gives a grid of 1 position", "use 32 or more ("]),
        ("B/16", {}, (0, 0), ["use 32 or more ("]),
        ("H/14", {}, (384, 384), ["use 378 or 392 ("]),
        ("Mixer-B/32", {}, (32, 32), ["grid of 1 position", "use 64 or more ("]),
        ("Mixer-S/32", {}, (100, 100), ["use 96 or 128 ("]),
        ("R50+B/16", {}, (16, 16), ["grid of 1 position", "use 32 or more", SMALL]),
        ("R50+B/32", {}, (32, 32), ["grid of 1 position", "use 64 or more", SMALL]),
        ("R+Ti/16", {}, (48, 48), ["grid of 1 position", "use 64 or more", SMALL]),
        ("R+Ti/16", {}, (72, 72), ["the 32 pixels of a token", "use 64 or 96", SMALL]),
        ("R50+B/32", {}, (100, 100), ["use 96 or 128", SIZE_ALONE]),
        ("R50+B/32", {}, (32, 100), ["use 64 or more", SIZE_ALONE]),
        ("R50+B/32", {"stem": "small"}, (8, 8), ["use 16 or more", SIZE_ALONE]),
        ("BiT-R50x1", {}, (32, 47), ["grid of 1 position", "use 33 or more", SMALL]),
        ("BiT-R50x1", {}, (5, 5), ["grid of 1 position", "use 33 or more", SIZE_ALONE]),
        ("BiT-R50x1", {"stem": "small"}, (8, 8), ["use 9 or more", SIZE_ALONE]),
    ],
)
def test_image_size_that_does_not_fit_names_what_does(variant, settings, size, words):
    with pytest.raises(BadInput) as caught:
        variants.check_image_size(config(variant, **settings), *size)
    for word in ("(--config.data.image_size)", *words):
        assert word in str(caught.value)


# One variant of each number of pixels that a token has.
PLAIN = ("B/8", "H/14", "B/16", "S/32", "Mixer-S/8", "Mixer-L/16", "Mixer-B/32")
RESNETS = ("R+Ti/16", "R26+S/32", "R50+B/16", "BiT-R50x1")
STEMS = {variant: config(variant, stem="small") for variant in RESNETS}


def accepted(cfg, size):
    try:
        variants.check_image_size(cfg, size, size)
    except BadInput:
        return False
    return True


@pytest.mark.parametrize(
    "variant, settings",
    [
        *((variant, {}) for variant in (*PLAIN, *RESNETS)),
        *((variant, {"stem": "small"}) for variant in RESNETS),
        *((variant, {"stem": "small", "stem_stride": 2}) for variant in RESNETS),
    ],
    ids=str,
)
def test_image_sizes_that_an_error_recommends_are_the_nearest_that_are_accepted(variant, settings):
    cfg, refused = config(variant, **settings), 0
    with_small = None if settings else STEMS.get(variant)
    for size in range(150):
        try:
            variants.check_image_size(cfg, size, size)
        except BadInput as e:
            refused += 1
            numbers = re.search(r"use (\d+)(?: or (\d+))?", str(e)).groups()
            sizes = [int(n) for n in numbers if n]
            low, high = (size, *sizes)[-2:]
            assert low <= size < high
            for fits in sizes:
                variants.check_image_size(cfg, fits, fits)
            for nearer in range(low + len(sizes) - 1, high):
                assert not accepted(cfg, nearer)
            advised = "model.stem=small" in str(e)
            assert advised == (with_small is not None and accepted(with_small, size))
        else:
            assert min(variants.grid(cfg, size, size)) >= 2
    assert refused > 5


# --- bad input ---

UNKNOWN = [
    ("B16", ["'B16'", "Did you mean", "'B/16'"]),
    ("X/16", ["'X/16'", "'B/16'"]),
    ("B/0", ["'B/0'", "'B/16'"]),
    ("B/", ["'B/'", "'B/16'"]),
    ("b/16x", ["'b/16x'", "'B/16'"]),
    ("R50+X/16", ["'R50+X/16'", "'R50+B/16'"]),
    ("R51+B/16", ["'R51+B/16'", "'R50+B/16'"]),
    ("R50+B/0", ["'R50+B/0'", "'R50+B/32'"]),
    ("BiT-R51x1", ["'BiT-R51x1'", "'BiT-R50x1'"]),
    ("BiT-R50x0", ["'BiT-R50x0'", "'BiT-R50x1'"]),
    ("BiT-R50", ["'BiT-R50'", "'BiT-R50x1'"]),
    ("Mixer-X/16", ["'Mixer-X/16'", "'Mixer-S/16'"]),
    ("Mixer-B/0", ["'Mixer-B/0'", "'Mixer-B/16'"]),
    ("DeiT!", ["'DeiT!'", "Known:", "Ti/16", "BiT-R50x1", "Mixer-S/16", "any patch side"]),
    ("", ["''", "Known:", "Ti/16"]),
]


@pytest.mark.parametrize("variant, words", UNKNOWN)
def test_unknown_variant_names_near_ones(variant, words):
    with pytest.raises(BadInput, match="unknown model variant") as caught:
        variants.config(variant=variant, classes=3)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "variant, settings, words",
    [
        # options
        ("B/16", {"pool": "mean"}, ["model.pool", "'mean'", "token, gap, map"]),
        ("B/16", {"pool": ""}, ["model.pool", "''", "token, gap, map"]),
        ("B/16", {"remat": "some"}, ["model.remat", "'some'", "none, dots, full"]),
        ("B/16", {"remat": ""}, ["model.remat", "''", "none, dots, full, query, key"]),
        ("B/16", {"remat": "query,"}, ["model.remat", "''"]),
        ("B/16", {"remat": "query,conv"}, ["model.remat", "'conv'", "mlp_up, mlp_down, or"]),
        ("B/16", {"remat": "query,full"}, ["model.remat", "'full'", "value"]),
        ("BiT-R50x1", {"remat": "query"}, ["model.remat", "'query'", "none, dots, full, conv"]),
        ("Mixer-B/16", {"remat": "value"}, ["model.remat", "'value'", "full, mlp_up, mlp_down"]),
        ("B/16", {"attention": "flash"}, ["model.attention", "'flash'", "auto, plain, fused"]),
        (
            "B/16",
            {"attention": "fused", "attention_dropout": 0.1},
            ["model.attention=fused", "model.attention_dropout=0.1", "leave"],
        ),
        ("B/16", {"attention": "fused", "posemb": "relative"}, ["model.posemb=relative"]),
        ("B/16", {"dtype": "float16"}, ["model.dtype", "'float16'", "float32, bfloat16"]),
        ("B/16", {"dtype": ""}, ["model.dtype", "''", "float32, bfloat16"]),
        ("B/16", {"gelu": "relu"}, ["model.gelu", "'relu'", "auto, tanh, erf"]),
        ("B/16", {"gelu": ""}, ["model.gelu", "''", "auto, tanh, erf"]),
        (
            "B/16",
            {"posemb": "learned"},
            ["model.posemb", "Did you mean", "'learned1d'", "sincos2d"],
        ),
        ("B/16", {"posemb": ""}, ["model.posemb", "''", "none, learned1d", "relative"]),
        ("B/16", {"posemb_at": "all"}, ["model.posemb_at", "'all'", "stem, every, shared"]),
        ("R50x1", {"stem": "tiny"}, ["model.stem", "'tiny'", "standard, small"]),
        ("R50x1", {"root_pool": "none"}, ["model.root_pool", "'none'", "auto, zero, -inf"]),
        ("R50x1", {"ws_epsilon_in": ""}, ["model.ws_epsilon_in", "''", "auto, std, variance"]),
        # numbers
        ("B/16", {"heads": 5}, ["5 heads do not divide the width 768", "[1, 2, 3, 4, 6, 8, 12"]),
        ("B/16", {"width": 100}, ["12 heads do not divide the width 100", "[1, 2, 4, 5, 10"]),
        ("B/16", {"dropout": 1.0}, ["model.dropout=1.0", "[0, 1)"]),
        ("B/16", {"dropout": -0.1}, ["model.dropout=-0.1", "[0, 1)"]),
        ("B/16", {"attention_dropout": 2.0}, ["model.attention_dropout=2.0", "[0, 1)"]),
        ("Mixer-B/16", {"drop_path": 1.5}, ["model.drop_path=1.5", "[0, 1)"]),
        ("B/16", {"drop_path": float("nan")}, ["model.drop_path=nan", "[0, 1)"]),
        ("R50x1", {"stages": (3, 0)}, ["model.stages=(3, 0)", "(3, 4, 9)"]),
        ("R50x1", {"stages": (3, 1.5)}, ["model.stages=(3, 1.5)", "(3, 4, 9)"]),
        ("R50x1", {"stages": ("3",)}, ["model.stages=('3',)", "(3, 4, 9)"]),
        ("R50x1", {"root_width": 48}, ["model.root_width=48", "32 groups", "use 32 or 64"]),
        ("R50x1", {"root_width": 100}, ["model.root_width=100", "use 96 or 128"]),
        ("R50x1", {"root_width": 1}, ["model.root_width=1 ", "use 32 or 64"]),
        ("R50+B/16", {"root_width": 48}, ["model.root_width=48", "use 32 or 64"]),
        # free sizes
        ("custom/16", {}, ["model.width, model.depth, model.mlp, model.heads", "custom/16"]),
        ("custom/16", {"width": 32, "mlp": 9}, ["give model.depth, model.heads (1 or more)"]),
        ("R+custom/16", {"width": 32}, ["R+custom/16", "give model.depth, model.mlp"]),
        ("Mixer-custom/16", {"width": 8}, ["give model.depth, model.mlp, model.token_mlp"]),
        ("BiT-custom", {}, ["BiT-custom", "give model.stages and model.root_width"]),
        ("BiT-custom", {"stages": (1,)}, ["give model.stages and model.root_width"]),
        ("BiT-custom", {"root_width": 32}, ["give model.stages and model.root_width"]),
        # what does not go together
        ("R50x1", {"stem_stride": 2}, ["model.stem_stride=2", "standard", "set model.stem=small"]),
        ("R50+B/16", {"stem_stride": 1}, ["model.stem_stride=1", "set model.stem=small"]),
        ("R50x1", {"stem": "small", "stem_stride": 4}, ["model.stem_stride=4", "[0, 2]"]),
        (
            "B/16",
            {"posemb": "none", "posemb_at": "every"},
            ["posemb_at=every", "which adds nothing"],
        ),
        ("B/16", {"posemb": "relative", "posemb_at": "shared"}, ["posemb_at=shared", "attention"]),
        ("B/16", {"posemb": "learned2d", "width": 33, "heads": 1}, ["learned2d", "33 is odd"]),
        ("B/16", {"posemb": "sincos2d", "width": 6, "heads": 1}, ["sincos2d", "8, 12, 16", "6"]),
        ("B/16", {"posemb": "sincos2d", "width": 4, "heads": 1}, ["sincos2d", "8, 12, 16", "4"]),
        ("R50+B/16", {"stages": (3, 4, 6, 3)}, ["stride 32", "does not divide 16", "use /32"]),
        ("R50+B/40", {}, ["(3, 4, 6, 3) have stride 32", "does not divide 40", "use /64"]),
        ("R+Ti/7", {}, ["stride 2", "does not divide 7", "use /8", "model.stages"]),
    ],
)
def test_bad_values_say_what_would_do(variant, settings, words):
    with pytest.raises(BadInput) as caught:
        variants.config(variant=variant, classes=3, **settings)
    for word in words:
        assert word in str(caught.value)


NUMBERS = [
    f.name
    for f in dataclasses.fields(variants.Settings)
    if f.type in (int, float) and f.name != "head_bias"
]


@pytest.mark.parametrize("field", NUMBERS)
def test_negative_numbers_are_bad_input_and_biases_are_not(field):
    assert len(NUMBERS) == 29
    for variant in ("B/16", "BiT-R50x1", "Mixer-B/16"):
        with pytest.raises(BadInput, match=rf"model\.{field}=-1"):
            variants.config(variant=variant, classes=3, **{field: -1})
        assert variants.config(variant=variant, classes=3, head_bias=-10.0).head_bias == -10.0


# A value that is not the default, and the families that have the setting.
TAKEN = {
    "width": (96, "vhm"),
    "depth": (5, "vhm"),
    "mlp": (99, "vhm"),
    "heads": (2, "vh"),
    "token_mlp": (99, "m"),
    "stages": ((1, 1), "hb"),
    "root_width": (96, "hb"),
    "stem": ("small", "hb"),
    "root_pool": ("-inf", "b"),
    "pool": ("gap", "vh"),
    "posemb": ("sincos2d", "vh"),
    "posemb_at": ("every", "vh"),
    "posemb_std": (0.03, "vh"),
    "mup_base_width": (64, "v"),
    "registers": (4, "vh"),
    "representation": (9, "vh"),
    "head_bias": (-10.0, "vhbm"),
    "dropout": (0.1, "vh"),
    "attention_dropout": (0.1, "vh"),
    "drop_path": (0.1, "vhm"),
    "gelu": ("erf", "vhm"),
    "ln_epsilon": (1e-5, "vhm"),
    "gn_epsilon": (1e-4, "hb"),
    "ws_epsilon": (1e-4, "hb"),
    "ws_epsilon_in": ("OTHER", "hb"),
    "dtype": ("bfloat16", "vhbm"),
    "scan": (False, "vhm"),
    "remat": ("full", "vhbm"),
    "attention": ("fused", "vh"),
    "patches": ((8, 16), ""),  # of FlexiViT alone
    "class_token": (True, "vh"),
    "distillation": (True, "vh"),
    "rope": ("axial", "vh"),
    "rope_base": (10.0, "vh"),
    "rope_coordinates": ("index", "vh"),
    "rope_grid": (16, "vh"),
    "rope_jitter": (1.5, "vh"),
    "rope_rescale": (1.5, "vh"),
    "stem_bias": (False, "vh"),
    "stem_norm": ("tokens", "vh"),
    "norm": ("rms", "vh"),
    "norm_at": ("post", "vh"),
    "final_norm": ("pooled", "vh"),
    "parallel": (True, "vh"),
    "layer_scale": (1e-5, "vh"),
    "qk_norm": (True, "vh"),
    "gate": ("silu", "vh"),
    "mlp_norm": (True, "vh"),
    "biases": ("none", "vh"),
    "patch_dropout": (0.5, "vh"),
    "merge": (2, "vh"),
    "window": (2, "vh"),
    "global_blocks": (2, "vh"),
    "naflex": (4, "v"),
    "naflex_filter": ("bicubic", "v"),
    "naflex_square": (True, "v"),
    "pool_heads": (2, "vh"),
    "pool_mlp": (100, "vh"),
}

# What a setting needs beside it.
NEEDED = {name: {"rope": "axial"} for name in TAKEN if name.startswith("rope_")}
NEEDED["rope_grid"] |= {"rope_coordinates": "index"}
NEEDED["class_token"] = {"pool": "gap"}
NEEDED["naflex_filter"] = NEEDED["naflex_square"] = {"naflex": 4}
NEEDED["global_blocks"] = {"window": 2}
NEEDED["pool_heads"] = NEEDED["pool_mlp"] = {"pool": "map"}


def test_every_setting_is_taken_or_refused_below():
    fields = {f.name for f in dataclasses.fields(variants.Settings)}
    assert fields - {"variant", "stem_stride"} == TAKEN.keys()


@pytest.mark.parametrize(
    "letter, variant", [("v", "S/16"), ("h", "R50+S/16"), ("b", "BiT-R50x1"), ("m", "Mixer-S/16")]
)
def test_a_setting_changes_the_model_or_is_refused_where_there_is_none(letter, variant):
    for field, (value, families) in TAKEN.items():
        if value == "OTHER":
            value = {"h": "variance"}.get(letter, "std")
        if letter in families:
            needed = NEEDED.get(field, {})
            found = variants.config(variant=variant, classes=3, **needed, **{field: value})
            assert found != variants.config(variant=variant, classes=3, **needed), field
            continue
        with pytest.raises(BadInput) as caught:
            variants.config(variant=variant, classes=3, **{field: value})
        for word in (f"model.{field}={value!r}", f"{variant} has no {field}", "leave it out"):
            assert word in str(caught.value)


def test_a_stride_without_a_stem_is_refused():
    for variant in ("S/16", "Mixer-S/16"):
        with pytest.raises(BadInput, match=f"{variant} has no stem_stride"):
            variants.config(variant=variant, classes=3, stem_stride=2)


def test_unknown_settings_are_a_type_error():
    with pytest.raises(TypeError, match="widht"):
        variants.config(variant="B/16", classes=3, widht=3)


# --- logical axes ---

WHOLE = ("pre_logits/bias", "token_mlp/down/bias")  # small, and of dimensions that are not split
WHOLE += ("height/relative", "width/relative")


def assert_axes(cfg, shapes, **sizes):
    axes = sharding.param_axes(shapes, variants.axes(cfg))
    leaves = dict(tree.leaves_with_paths(shapes))
    assert set(axes) == set(leaves)
    for path, names in axes.items():
        assert len(names) == len(leaves[path].shape)
        assert {*names} <= {None, *sharding.LOGICAL_AXES}
        for name, size in zip(names, leaves[path].shape, strict=True):
            if name in sizes and path != "head/kernel" and not path.startswith("backbone/"):
                assert size == sizes[name], (path, names)
        split = {"embed", "heads", "mlp", "classes"}.intersection(names)
        assert split or path.endswith(WHOLE), path  # nothing large is left whole
        assert ("layers" in names) == tree.is_stacked(path)


SIZES = {"embed": 32, "heads": 4, "head_dim": 8, "mlp": 48, "classes": 7, "layers": 3}


@pytest.mark.parametrize(
    "posemb, at, pool, scan",
    [
        ("none", "stem", "token", True),
        ("relative", "stem", "token", True),
        ("relative", "stem", "gap", False),
        ("sincos2d", "every", "map", False),
        ("learned1d", "stem", "token", False),
        ("learned1d", "every", "gap", True),
        ("learned1d", "shared", "map", True),
        ("learned2d", "stem", "gap", False),
        ("learned2d", "every", "token", True),
        ("learned2d", "every", "token", False),
        ("learned2d", "shared", "map", True),
    ],
)
def test_every_parameter_of_a_vit_has_logical_axes(posemb, at, pool, scan):
    changes = {"posemb": posemb, "posemb_at": at, "pool": pool, "scan": scan}
    cfg = tiny.config(**changes, registers=2, representation=9 if pool == "token" else 0)
    sizes = SIZES if posemb != "learned2d" else {k: v for k, v in SIZES.items() if k != "embed"}
    assert_axes(cfg, tiny.shapes(cfg), **sizes)


@pytest.mark.parametrize("scan", [True, False])
def test_every_parameter_of_a_mixer_has_logical_axes(scan):
    cfg = tiny.mixer(scan=scan, mlp=20, token_mlp=20)
    assert_axes(cfg, tiny.shapes(cfg), **SIZES | {"mlp": 20})


TABLE = (
    ("act_batch", ("replica", "data", "fsdp")),
    ("act_heads", ("tensor",)),
    ("act_mlp", ("tensor",)),
    ("embed", ("fsdp",)),
    ("heads", ("tensor",)),
    ("mlp", ("tensor",)),
)


@pytest.mark.integration
@EVERY_FAMILY
def test_logits_on_a_mesh_equal_those_of_one_device(family):
    cfg = tiny.FAMILIES[family](**{"pool": "map", "posemb": "relative"} if family == "vit" else {})
    mesh = sharding.make_mesh(replica=1, data=2, fsdp=2, tensor=2)
    rules = sharding.Rules(mesh, TABLE)
    params, images = tiny.params(cfg), tiny.images_of(cfg, 8)
    axes = sharding.param_axes(params, variants.axes(cfg))
    placed = tree.map_with_path(
        lambda path, x: jax.device_put(x, rules.sharding(axes[path], x.shape, path)), params
    )
    batch = jax.device_put(images, rules.sharding(("act_batch", None, None, None), images.shape))
    with jax.default_matmul_precision("highest"):
        program = tiny.forward(cfg, rules=rules).lower(placed, batch, None)
        found = program.compile()(placed, batch, None)
    assert program.as_text().count("sharding_constraint") >= 3
    split = sum(not x.sharding.is_fully_replicated for x in jax.tree.leaves(placed))
    assert split > 0.8 * len(jax.tree.leaves(placed))
    expected = tiny.logits(cfg, params, images)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=2e-5)


# --- what all families have in common ---


@pytest.mark.integration
@EVERY_FAMILY
def test_bfloat16_stays_near_float32_and_keeps_parameters_and_logits_float32(family):
    exact, rough = (tiny.FAMILIES[family](dtype=dtype) for dtype in ("float32", "bfloat16"))
    images = tiny.images_of(exact, 8)
    for leaf in jax.tree.leaves(tiny.shapes(rough)):
        assert leaf.dtype == jnp.float32
    params = tiny.params(exact)
    expected, found = tiny.logits(exact, params, images), tiny.logits(rough, params, images)
    assert found.dtype == np.float32
    headless = dataclasses.replace(rough, classes=0)  # pools in float32 too
    pooled = jax.eval_shape(tiny.forward(headless), tiny.shapes(headless), images, None)
    assert pooled.dtype == np.float32
    error = np.abs(found - expected).max() / expected.std()
    assert 1e-4 < error < 0.15  # bfloat16 has 8 bits; 0 would mean that it is not used


@functools.lru_cache
def value_and_grads(family, remat):
    """(a weighted sum of logits and its gradients, text of the program)."""
    sizes = {
        "hybrid": {"variant": "R+Ti/4", "stages": (1,), "depth": 1},
        "bit": {"stages": (1,)},
        "mixer": {"depth": 2},
    }
    cfg = tiny.FAMILIES[family](remat=remat, **sizes[family])
    model, images = variants.make(cfg), tiny.images_of(cfg, 2)
    weights = np.random.default_rng(2).normal(size=(len(images), cfg.classes)).astype(np.float32)

    def weighted(params):
        out = model.apply({"params": params}, images, train=True)
        return jnp.sum(jnp.square(out) * weights)

    traced = jax.jit(jax.value_and_grad(weighted)).trace(tiny.params(cfg))
    found = traced.lower().compile()(tiny.params(cfg))
    return jax.tree.map(np.asarray, found), str(traced.jaxpr)


# Names that keep something of every family.
NAMES = {"hybrid": "conv,query,mlp_up", "bit": "conv", "mixer": "mlp_up"}


@pytest.mark.integration
@pytest.mark.parametrize(
    "remat", ["full", *(pytest.param(r, marks=pytest.mark.slow) for r in ("dots", "names"))]
)
@pytest.mark.parametrize("family", ["hybrid", "bit", "mixer"])
def test_remat_changes_neither_value_nor_gradients(family, remat):
    remat = NAMES[family] if remat == "names" else remat
    (value, grads), _ = value_and_grads(family, remat)
    (plain_value, plain_grads), _ = value_and_grads(family, "none")
    np.testing.assert_allclose(value, plain_value, rtol=1e-5)
    for (path, found), (_, expected) in zip(
        tree.leaves_with_paths(grads), tree.leaves_with_paths(plain_grads), strict=True
    ):
        scale = np.abs(expected).max()
        np.testing.assert_allclose(
            found, expected, rtol=1e-4, atol=1e-4 * scale + 1e-5, err_msg=path
        )


@pytest.mark.integration
@pytest.mark.parametrize("family", ["hybrid", "bit", "mixer"])
def test_remat_recomputes_what_it_says(family):
    def counts(remat):
        text = value_and_grads(family, remat)[1]
        convolutions = text.count("conv_general_dilated[")
        return text.count("dot_general["), convolutions, len(re.findall(r"= rsqrt", text))

    none, dots, full = counts("none"), counts("dots"), counts("full")
    scores = 2 if family == "hybrid" else 0  # queries by keys, weights by values
    assert dots[0] == none[0] + scores  # products with weights are kept
    assert dots[1] == none[1]  # and convolutions
    assert dots[2] > none[2]  # and norms are computed again
    assert full[2] > none[2]
    assert (full[0] > none[0]) == (family != "bit")  # in blocks
    assert (full[1] > none[1]) == (family != "mixer")  # in units


def kept_bytes(cfg, size=()):
    """Returns the bytes that the forward pass of eight images leaves for the backward pass."""
    size = size or tiny.size(cfg)
    model, images = variants.make(cfg), tiny.images(8, *size)

    def backward(params):
        return jax.vjp(lambda p: model.apply({"params": p}, images, train=True), params)[1]

    left = jax.eval_shape(backward, tiny.shapes(cfg, *size))
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(left))


@pytest.mark.integration
@pytest.mark.parametrize("scan", [True, pytest.param(False, marks=pytest.mark.slow)])
@EVERY_FAMILY
def test_what_is_kept_for_the_backward_pass_is_what_remat_says(family, scan):
    if family == "bit" and not scan:
        pytest.skip("BiT has no scan")
    given = {} if family == "bit" else {"scan": scan}
    name = {"bit": "conv", "hybrid": "conv"}.get(family, "mlp_up")
    cfgs = {r: tiny.FAMILIES[family](remat=r, **given) for r in ("none", "dots", name, "full")}
    none, dots, named, full = map(kept_bytes, cfgs.values())
    assert full < named <= dots < 0.6 * none  # which has weights of attention once, and MLPs twice
    assert named < dots or family == "bit"  # which has only convolutions
    if family in ("vit", "mixer"):
        hidden = 7 * 48 if family == "vit" else 6 * 48 + 20 * 32  # tokens by width, and turned
        expected = 4 * 3 * 8 * hidden  # float32, layers, images; biases of `up` are kept no more
        assert 0.97 * expected < named - full <= expected


@pytest.mark.integration
def test_several_names_keep_what_each_keeps():
    names = ("query", "key", "value", "attention", "attention_out", "mlp_up", "mlp_down")
    full = kept_bytes(tiny.config(remat="full"))
    each = {n: kept_bytes(tiny.config(remat=n)) - full for n in names}
    token = 4 * 3 * 8 * 7  # float32, layers, images, tokens
    bias = 4 * 3  # of the layer that made the activation: kept no more
    wide = dict.fromkeys(names[:5], (token - bias) * 32) | {"mlp_up": (token - bias) * 48}
    assert each == wide | {"attention": token * 32, "mlp_down": 0}  # nothing needs the last
    three = kept_bytes(tiny.config(remat="query,attention,mlp_up")) - full
    assert three == each["query"] + each["attention"] + each["mlp_up"]
