# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The model that weights belong to, from their shapes alone."""

import foreign
import numpy as np
import pytest

from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.weights import architecture

# Fields that no tensor shows; the file's format or a configuration gives them.
UNSEEN = {"gelu", "ln_epsilon", "gn_epsilon", "ws_epsilon", "ws_epsilon_in", "root_pool"}


def settings(cfg, height, width, image_size=None):
    flat = foreign.flat(foreign.zeros(cfg, height, width))
    return architecture.settings_of(variants.family(cfg), flat, image_size)


MODELS = {
    "B/8": (variants.config(variant="B/8", classes=21_843, representation=768), 64),
    "H/14": (variants.config(variant="H/14", classes=0), 224),
    "So400m/14": (variants.config(variant="So400m/14", classes=10, pool="map"), 224),
    "L/7": (variants.config(variant="L/7", classes=10, pool="gap"), 56),
    "S/16, registers": (variants.config(variant="S/16", classes=3, registers=4), 64),
    "BiT-R152x2": (variants.config(variant="BiT-R152x2", classes=0), 224),
}


@pytest.mark.parametrize("name", MODELS)
def test_named_variant(name):
    """With settings of its own; as it is published each is found in test_variants."""
    cfg, side = MODELS[name]
    found, size = settings(cfg, side, side)
    assert found["variant"] == name.partition(",")[0]
    assert size == (side, side)
    assert variants.config(**found) == cfg
    assert not UNSEEN & set(found)


FREE = {
    "custom/4": (foreign.vit(), 12),
    "custom/3": (foreign.vit(variant="custom/3", depth=11, heads=2), 12),
    "R+custom/8": (foreign.hybrid(), 24),
    "R+custom/16": (foreign.hybrid(stages=(), variant="R+custom/16"), 64),
    "R50+custom/16": (foreign.hybrid(stages=(3, 4, 9), variant="R+custom/16"), 32),
    "R26+custom/32": (foreign.hybrid(stages=(2, 2, 2, 2), variant="R+custom/32"), 64),
    "R+custom/4": (foreign.hybrid(stages=(1,), variant="R+custom/4"), 12),
    "BiT-custom": (foreign.bit(), 224),
    "Mixer-custom/4": (foreign.mixer(), 12),
}


@pytest.mark.parametrize("name", FREE)
def test_sizes_that_no_variant_has(name):
    cfg, side = FREE[name]
    found, size = settings(cfg, side, side)
    assert found["variant"] == name
    assert size == (side, side)
    assert variants.config(**found) == cfg
    assert not UNSEEN & set(found)


def test_root_of_half_a_width_is_no_named_bit():
    cfg = variants.config(variant="BiT-R50x1", classes=3, root_width=96)
    found, _ = settings(cfg, 64, 64)
    assert found["variant"] == "BiT-custom"
    assert variants.config(**found) == cfg


def test_named_width_with_one_number_changed_is_free():
    for change in ({"depth": 11}, {"mlp": 3000}, {"heads": 6}, {"width": 780}):
        cfg = variants.config(variant="B/16", classes=3, **change)
        found, _ = settings(cfg, 32, 32)
        assert found["variant"] == "custom/16"
        assert variants.config(**found) == cfg


@pytest.mark.parametrize("pool", ["token", "gap", "map"])
def test_pooling_and_position_embedding(pool):
    for posemb in ("learned1d", "none"):
        found, size = settings(foreign.vit(pool=pool, posemb=posemb), 12, 12)
        assert (found["pool"], found["posemb"]) == (pool, posemb)
        assert size == ((12, 12) if posemb == "learned1d" else None)


# --- image size ---


@pytest.mark.parametrize("cfg, unit", [(foreign.vit(), 4), (foreign.hybrid(), 8)])
def test_image_that_is_not_square_is_only_known_if_somebody_says_so(cfg, unit):
    size = (2 * unit, 3 * unit)
    assert settings(cfg, *size)[1] is None
    assert settings(cfg, *size, size)[1] == size
    assert settings(cfg, *size, size[::-1])[1] == size[::-1]


def test_square_number_of_patches_is_a_square_unless_somebody_says_otherwise():
    assert settings(foreign.vit(), 8, 32)[1] == (16, 16)
    assert settings(foreign.vit(), 8, 32, (8, 32))[1] == (8, 32)
    assert settings(foreign.mixer(), 8, 32, (8, 32))[1] == (8, 32)


def test_image_may_be_larger_than_its_patches():
    assert settings(foreign.vit(), 12, 12, (14, 15))[1] == (14, 15)


@pytest.mark.parametrize("cfg", [foreign.vit(), foreign.vit(pool="gap"), foreign.mixer()])
@pytest.mark.parametrize("said", [(16, 16), (12, 16), (0, 0), (4, 4)])
def test_image_size_that_contradicts_the_patches(cfg, said):
    with pytest.raises(BadInput, match=f"9 patches.*{said[0]} x {said[1]}"):
        settings(cfg, 12, 12, said)


def test_bit_takes_any_image():
    assert settings(foreign.bit(), 32, 32)[1] == (224, 224)
    assert settings(foreign.bit(), 32, 32, (96, 64))[1] == (96, 64)
    assert settings(foreign.vit(posemb="none"), 12, 12, (8, 12))[1] == (8, 12)


# --- what is missing or of another shape ---

KEYS = {
    "vit": ["embedding/kernel", "block_0/attn/query/kernel", "block_0/mlp/up/kernel"],
    "mixer": ["embedding/kernel", "block_0/token_mlp/up/kernel", "block_0/channel_mlp/up/kernel"],
    "bit": ["backbone/conv_root/kernel"],
}
SMALL = {"vit": (foreign.vit(), 12), "mixer": (foreign.mixer(), 12), "bit": (foreign.bit(), 32)}


@pytest.mark.parametrize("family, name", [(f, n) for f in KEYS for n in KEYS[f]])
def test_tensor_that_sizes_are_read_from(family, name):
    cfg, side = SMALL[family]
    flat = foreign.flat(foreign.zeros(cfg, side, side))
    for wrong in (np.zeros(3), np.zeros(())):
        with pytest.raises(BadInput, match=f"shapes of no {family} model"):
            architecture.settings_of(family, flat | {name: wrong}, None)
    del flat[name]
    with pytest.raises(BadInput, match=f"not those of a {family} model: '{name}' is missing"):
        architecture.settings_of(family, flat, None)


@pytest.mark.parametrize("name", ["posemb", "registers", "pre_logits/kernel", "head/kernel"])
def test_tensor_without_columns(name):
    cfg = foreign.vit(registers=2, representation=9)
    flat = foreign.flat(foreign.zeros(cfg, 12, 12)) | {name: np.zeros(3)}
    with pytest.raises(BadInput, match="shapes of no vit model"):
        architecture.settings_of("vit", flat, None)


def test_small_stem_has_to_stay_a_run():
    with pytest.raises(BadInput, match=r"3 x 3.*small"):
        settings(foreign.bit(stem="small"), 32, 32)
    with pytest.raises(BadInput, match="keep such models as runs"):
        settings(foreign.hybrid(stem="small", variant="R+custom/8"), 32, 32)


def test_nothing_at_all():
    for family in ("vit", "bit", "mixer"):
        with pytest.raises(BadInput, match="is missing"):
            architecture.settings_of(family, {}, None)
