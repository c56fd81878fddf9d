# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""npz files of vision_transformer, big_vision and big_transfer, written by hand and by us."""

import dataclasses

import foreign
import jax
import ml_dtypes
import numpy as np
import numpy_mixer
import numpy_resnet
import numpy_vit
import pytest

import vit_jax
from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.weights import convert, files
from vit_jax.weights.formats import name_table, npz
from vit_jax.weights.formats.name_table import Context

# --- every layout, from files written by hand ---

PRE_LINEN = foreign.original_vit
BIG_VISION = foreign.big_vision_vit


def linen(weights):
    return foreign.original_vit(weights, linen=True)


def scanned(weights):
    return foreign.scanned(foreign.big_vision_vit(weights))


def inlined_map_head(weights):
    return {
        name.removeprefix("MAPHead_0/"): x for name, x in foreign.big_vision_vit(weights).items()
    }


def renamed(pattern, replacement, write=BIG_VISION):
    return lambda weights: {n.replace(pattern, replacement): x for n, x in write(weights).items()}


def squeezed_norms(weights):
    return {
        name: x.reshape(-1) if "gn" in name or "norm" in name else x
        for name, x in write_any(weights).items()
    }


def write_any(weights):
    if "embedding" in weights:
        return foreign.original_vit(weights)
    return foreign.bit_of_big_vision(weights)


def four_dimensional_norms(weights):
    file = foreign.bit_of_tensorflow(weights)
    return {n: x.reshape(1, 1, 1, -1) if "group_norm" in n else x for n, x in file.items()}


LAYOUTS = {
    "npz": (PRE_LINEN, foreign.vit(), 12),
    "npz, 12 layers": (PRE_LINEN, foreign.vit(depth=12), 12),
    "npz, pre-logits": (PRE_LINEN, foreign.vit(representation=9), 12),
    "npz, no head": (PRE_LINEN, foreign.vit(classes=0), 12),
    "npz, gap": (PRE_LINEN, foreign.vit(pool="gap"), 12),
    "npz, hybrid": (PRE_LINEN, foreign.hybrid(), 24),
    "npz, hybrid of a root": (PRE_LINEN, foreign.hybrid(stages=()), 48),
    "npz, hybrid with flat norms": (squeezed_norms, foreign.hybrid(), 24),
    "Linen numbers": (linen, foreign.vit(representation=9), 12),
    "Linen numbers, gap": (linen, foreign.vit(pool="gap"), 12),
    "Linen numbers, hybrid": (linen, foreign.hybrid(), 24),
    "big_vision": (BIG_VISION, foreign.vit(pool="gap"), 12),
    "big_vision, pre-logits": (BIG_VISION, foreign.vit(pool="gap", representation=9), 12),
    "big_vision, MAP head": (BIG_VISION, foreign.vit(pool="map"), 12),
    "big_vision, MAP head inlined": (inlined_map_head, foreign.vit(pool="map"), 12),
    "big_vision, sincos2d": (BIG_VISION, foreign.vit(pool="map", posemb="sincos2d"), None),
    "big_vision, scanned": (scanned, foreign.vit(pool="map"), 12),
    "big_vision, scanned, 12 layers": (scanned, foreign.vit(pool="gap", depth=12), 12),
    "big_vision, root of old": (
        renamed("pos_embedding", "Transformer/posembed_input/pos_embedding"),
        foreign.vit(pool="map"),
        12,
    ),
    "big_vision, root of older": (
        renamed("pos_embedding", "Transformer/pos_embedding"), foreign.vit(pool="map"), 12
    ),
    "BiT of TensorFlow": (foreign.bit_of_tensorflow, foreign.bit(), 224),
    "BiT of TensorFlow, numbered": (
        renamed("/standardized_conv2d/", "/standardized_conv2d_17/", foreign.bit_of_tensorflow),
        foreign.bit(),
        224,
    ),
    "BiT of TensorFlow, 4-D norms": (four_dimensional_norms, foreign.bit(), 224),
    "BiT of TensorFlow, no head": (foreign.bit_of_tensorflow, foreign.bit(classes=0), 224),
    "BiT of big_vision": (foreign.bit_of_big_vision, foreign.bit(), 224),
    "BiT of big_vision, flat norms": (squeezed_norms, foreign.bit(), 224),
    "Mixer": (foreign.original_mixer, foreign.mixer(), 12),
    "Mixer, 12 layers": (foreign.original_mixer, foreign.mixer(depth=12), 12),
    "Mixer, older names": (foreign.older_mixer, foreign.mixer(depth=12), 12),
    "Mixer, no head": (foreign.older_mixer, foreign.mixer(classes=0), 12),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_file_written_by_hand_is_read_bit_for_bit(tmp_path, layout):
    write, cfg, side = LAYOUTS[layout]
    expected = foreign.random(cfg, side or 12, side or 12)
    found = convert.read(foreign.npz(tmp_path / "x.npz", write(expected)))
    foreign.assert_same(found.flat, foreign.flat(expected))
    assert found.config == cfg
    assert found.classes == cfg.classes
    assert found.image_size == (side and (side, side))


def test_big_vision_keeps_the_class_token_without_a_position(tmp_path):
    weights = foreign.random(foreign.vit(), 12, 12)
    weights["posemb"][:, 0] = 0  # what its files mean
    for write in (BIG_VISION, scanned):
        found = convert.read(foreign.npz(tmp_path / "x.npz", write(weights)))
        foreign.assert_same(found.flat, foreign.flat(weights))
        assert found.image_size == (12, 12)


def test_old_big_vision_files_have_a_row_for_the_class_token(tmp_path):
    """big_vision adds that row to the token; kept apart it is the same model."""
    weights = foreign.random(foreign.vit(), 12, 12)
    file = foreign.big_vision_vit(weights) | {"pos_embedding": weights["posemb"]}
    found = convert.read(foreign.npz(tmp_path / "x.npz", file))
    assert found.format == "big_vision"
    foreign.assert_same(found.flat, foreign.flat(weights))


@pytest.mark.parametrize("prefix", ["params/", "opt/target/"])
@pytest.mark.parametrize("write", [PRE_LINEN, BIG_VISION, scanned])
def test_parameters_within_a_training_state(tmp_path, prefix, write):
    weights = foreign.random(foreign.vit(pool="gap"), 12, 12)
    file = {f"{prefix}{name}": x for name, x in write(weights).items()}
    file |= {"opt/state/step": np.array(3), "opt/0/mu/cls": np.zeros(2, np.float16)}
    found = convert.read(foreign.npz(tmp_path / "x.npz", file))
    foreign.assert_same(found.flat, foreign.flat(weights))
    assert not [name for name in found.tensors if name.startswith(("params", "opt"))]


@pytest.mark.parametrize("write", [PRE_LINEN, scanned])
def test_bfloat16_stored_as_two_bytes(tmp_path, write):
    weights = foreign.random(foreign.vit(pool="gap"), 12, 12)
    rounded = jax.tree.map(lambda x: x.astype(ml_dtypes.bfloat16), weights)
    file = {name: x.view("V2") for name, x in write(rounded).items()}
    found = convert.read(foreign.npz(tmp_path / "x.npz", file))
    expected = jax.tree.map(lambda x: x.astype(np.float32), rounded)
    foreign.assert_same(found.flat, foreign.flat(expected))
    assert {dtype for _, dtype in found.tensors.values()} == {"bfloat16"}


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_floats_become_float32(tmp_path, dtype):
    weights = foreign.random(foreign.vit(), 12, 12)
    file = {name: x.astype(dtype) for name, x in PRE_LINEN(weights).items()}
    found = convert.read(foreign.npz(tmp_path / "x.npz", file))
    expected = jax.tree.map(lambda x: x.astype(dtype).astype(np.float32), weights)
    foreign.assert_same(found.flat, foreign.flat(expected))


# --- the constants that the original code computes with ---


def test_constants_of_the_original_code(tmp_path):
    hybrid = foreign.hybrid()
    assert (hybrid.gelu, hybrid.ln_epsilon) == ("tanh", 1e-6)
    of_hybrid, of_bit = hybrid.backbone, foreign.bit().resnet
    assert (of_hybrid.gn_epsilon, of_bit.gn_epsilon) == (1e-6, 1e-5)
    assert (of_hybrid.ws_epsilon, of_hybrid.ws_epsilon_in) == (1e-5, "std")
    assert (of_bit.ws_epsilon, of_bit.ws_epsilon_in, of_bit.root_pool) == (
        1e-10,
        "variance",
        "zero",
    )
    for form in npz.FORMATS:  # written into the settings, so that "auto" may change
        cfg = {"vit": hybrid, "bit": foreign.bit(), "mixer": foreign.mixer()}[form.family]
        parts = [cfg, getattr(cfg, "backbone", None), getattr(cfg, "resnet", None)]
        for key, value in form.constants.items():
            assert value in [getattr(part, key, None) for part in parts], (form.name, key)


@pytest.mark.parametrize("kind", ["vit", "map", "hybrid", "bit", "mixer"])
def test_logits_of_a_file_written_by_hand(tmp_path, kind):
    """Against the equations of the papers in numpy, which see none of our names."""
    vit_like = {"gelu": "tanh", "ln_epsilon": 1e-6}
    of_hybrid = numpy_resnet.Constants(1e-6, 1e-5, "std")
    of_bit = numpy_resnet.Constants(1e-5, 1e-10, "variance", root_pool="zero")
    if kind in ("vit", "map"):
        cfg, write, side = foreign.vit(), PRE_LINEN, 12
        if kind == "map":
            cfg, write = foreign.vit(pool="map"), scanned
        forward = lambda w, x: numpy_vit.forward(w, x, patch=4, pool=cfg.pool, **vit_like)  # noqa: E731
    elif kind == "hybrid":
        cfg, write, side = foreign.hybrid(), PRE_LINEN, 24
        forward = lambda w, x: numpy_vit.forward(  # noqa: E731
            w, numpy_resnet.hybrid(w["backbone"], x, of_hybrid), patch=1, pool="token", **vit_like
        )
    elif kind == "bit":
        cfg, write, side = foreign.bit(), foreign.bit_of_tensorflow, 47
        forward = lambda w, x: numpy_resnet.bit(w, x, of_bit)  # noqa: E731
    else:
        cfg, write, side = foreign.mixer(), foreign.original_mixer, 12
        forward = lambda w, x: numpy_mixer.forward(w, x, patch=4, **vit_like)  # noqa: E731
    weights, x = foreign.random(cfg, side, side), foreign.images(side, side)
    model, params, _ = vit_jax.load(
        foreign.npz(tmp_path / "x.npz", write(weights)), image_size=side
    )
    found, expected = foreign.logits(model.cfg, params, x), forward(weights, x)
    assert expected.std() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1, abs(expected).max()))


# --- the way back ---

EXPORTS = {
    **{k: ("npz", PRE_LINEN, *LAYOUTS[k][1:]) for k in LAYOUTS if k.startswith("npz")},
    **{k: ("big_vision", BIG_VISION, *LAYOUTS[k][1:]) for k in LAYOUTS if k.startswith("big_vis")},
    "BiT": ("npz", foreign.bit_of_tensorflow, foreign.bit(), 224),
    "BiT of big_vision": ("big_vision", foreign.bit_of_big_vision, foreign.bit(), 224),
    "Mixer": ("npz", foreign.original_mixer, foreign.mixer(depth=12), 12),
    "Mixer of big_vision": ("big_vision", foreign.original_mixer, foreign.mixer(), 12),
}


@pytest.mark.parametrize(
    "export, stacked",
    [*((export, True) for export in EXPORTS), ("npz", False), ("big_vision", False)],
)
def test_export_is_the_file_written_by_hand(tmp_path, export, stacked):
    name, write, cfg, side = EXPORTS[export]
    weights = foreign.random(cfg, side or 12, side or 12)
    given = tree.stack_blocks(weights) if stacked else weights
    vit_jax.save(tmp_path / "x.npz", variants.make(cfg), jax.tree.map(np.asarray, given), name)
    with np.load(tmp_path / "x.npz", allow_pickle=False) as found:
        foreign.assert_same(dict(found), write(weights))


@pytest.mark.parametrize(
    "layout",
    ["npz, hybrid with flat norms", "big_vision, scanned", "BiT of big_vision", "Mixer, no head"],
)
def test_import_and_export_are_inverse(tmp_path, layout):
    """A file of any layout, loaded, saved under today's names and loaded, is the same model."""
    write, cfg, side = LAYOUTS[layout]
    path = foreign.npz(tmp_path / "x.npz", write(foreign.random(cfg, side or 12, side or 12)))
    model, params, _ = vit_jax.load(path, image_size=side or 12)
    name = "big_vision" if cfg.__dict__.get("pool") == "map" else "npz"
    vit_jax.save(tmp_path / "y.npz", model, params, name)
    again, back, _ = vit_jax.load(tmp_path / "y.npz", image_size=side or 12)
    assert again.cfg == model.cfg
    foreign.assert_same(back, params)


def test_big_vision_adds_the_row_of_the_class_token_to_it(tmp_path):
    """The stated exception: its files cannot tell the two apart, and compute the same."""
    cfg, x = foreign.vit(), foreign.images(12, 12)
    weights = foreign.random(cfg, 12, 12)
    vit_jax.save(tmp_path / "x.npz", variants.make(cfg), weights, "big_vision")
    with np.load(tmp_path / "x.npz") as found:
        assert found["pos_embedding"].shape == (1, 9, 32)
        np.testing.assert_array_equal(found["cls"], weights["cls"] + weights["posemb"][:, :1])
        np.testing.assert_array_equal(found["pos_embedding"], weights["posemb"][:, 1:])
    model, params, _ = vit_jax.load(tmp_path / "x.npz")
    expected = foreign.logits(dataclasses.replace(cfg, scan=False), weights, x)
    np.testing.assert_allclose(foreign.logits(model.cfg, params, x), expected, atol=1e-5)


@pytest.mark.parametrize("height, width", [(16, 24), (8, 20), (8, 12)])
def test_big_vision_tells_the_row_of_the_class_token_from_squares(tmp_path, height, width):
    cfg = foreign.vit()
    weights = foreign.random(cfg, height, width)
    with pytest.raises(BadInput, match="not a square"):
        vit_jax.save(tmp_path / "x.npz", variants.make(cfg), weights, "big_vision")
    assert not list(tmp_path.iterdir())
    vit_jax.save(tmp_path / "x.npz", variants.make(cfg), weights, "npz")
    _, params, _ = vit_jax.load(tmp_path / "x.npz", image_size=(height, width))
    foreign.assert_same(tree.unstack_blocks(params), weights)


# --- every published variant ---

BITS = [name for name in variants.NAMED if name.startswith("BiT-")]
MIXERS = [name for name in variants.NAMED if name.startswith("Mixer-")]
POOLED = [name for name in variants.NAMED if variants.published(name)]
VITS = [name for name in variants.NAMED if name not in {*BITS, *MIXERS, *POOLED}]
VITS = [name for name in VITS if not name.startswith("Axial")]
PUBLISHED = [
    *[("npz", PRE_LINEN, name, {}) for name in VITS],
    ("npz", PRE_LINEN, "B/16", {"classes": 21_843, "representation": 768}),
    ("npz", PRE_LINEN, "G/14", {}),
    *[("big_vision", BIG_VISION, name, {"pool": "map"}) for name in POOLED],
    ("big_vision", BIG_VISION, "S/16", {"pool": "gap"}),
    *[("npz", foreign.bit_of_tensorflow, name, {}) for name in BITS],
    *[("big_vision", foreign.bit_of_big_vision, name, {}) for name in BITS],
    *[("npz", foreign.original_mixer, name, {}) for name in MIXERS],
]


def side_of(variant: str) -> int:
    return 256 if variant.endswith("opt/16") else 224


QUICK = ("B/16", "R50+B/32", "S/16", "BiT-R50x1", "BiT-R101x3", "Mixer-B/16", POOLED[0])


@pytest.mark.parametrize(
    "name, write, variant, settings",
    [pytest.param(*p, marks=[pytest.mark.slow] * (p[2] not in QUICK)) for p in PUBLISHED],
)
def test_every_name_of_a_published_variant_maps_both_ways(
    tmp_path, monkeypatch, name, write, variant, settings
):
    """Shapes only: zeros that take no memory."""
    side = side_of(variant)
    cfg = variants.config(variant=variant, **{"classes": 1000} | settings)
    ours = foreign.zeros(cfg, side, side)
    file = write(ours)
    monkeypatch.setattr(files, "read", lambda path, shapes_only: dict(file))
    found = convert.read(tmp_path / "x.npz", shapes_only=True)
    assert found.config == cfg
    assert {n: a.shape for n, a in found.flat.items()} == {
        n: a.shape for n, a in foreign.flat(ours).items()
    }
    assert found.settings["variant"] == variant
    assert found.image_size == (side, side)

    form = next(f for f in npz.FORMATS if (f.name, f.family) == (name, variants.family(cfg)))
    monkeypatch.setattr(np, "ascontiguousarray", lambda array: array)
    context = Context(class_rows=int("cls" in ours))
    back = name_table.write(form, found.flat, context)
    assert {n: a.shape for n, a in back.items()} == {n: a.shape for n, a in file.items()}


def test_position_embedding_that_is_missing_is_an_error(tmp_path):
    given = PRE_LINEN(foreign.random(foreign.vit(), 12, 12))
    del given["Transformer/posembed_input/pos_embedding"]
    with pytest.raises(BadInput, match="position embedding is missing"):
        convert.read(foreign.npz(tmp_path / "x.npz", given))
