# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Weights fitted into another model: head, grid, pre-logits; everything else is an error."""

import dataclasses

import foreign
import jax
import numpy as np
import pytest
import scipy.ndimage

from vit_jax import tree
from vit_jax.errors import BadInput
from vit_jax.models import variants
from vit_jax.weights import fitting


def fit(source, target, old_size=(12, 12), new_size=(12, 12), seed=0, known=True, **kwargs):
    """The weights of one configuration in the model of another; and the weights."""
    weights = foreign.flat(foreign.random(source, *old_size, seed))
    old = variants.grid(source, *old_size) if known else None
    shapes = variants.shapes(target, *new_size)
    new = variants.grid(target, *new_size)
    return fitting.fit(dict(weights), shapes, old=old, new=new, **kwargs), weights, shapes


def message(*args, **kwargs) -> str:
    with pytest.raises(BadInput) as caught:
        fit(*args, **kwargs)
    return str(caught.value)


def fates(fitted, kind):
    return {name: detail for name, fate, detail in fitted.fate if fate == kind}


FAMILIES = {
    "vit": (foreign.vit(), (12, 12)),
    "loop": (foreign.vit(scan=False), (12, 12)),
    "map": (foreign.vit(pool="map", registers=2), (12, 16)),
    "learned2d": (foreign.vit(posemb="learned2d"), (8, 12)),
    "every": (foreign.vit(posemb_at="every"), (8, 12)),
    "relative": (foreign.vit(posemb="relative"), (8, 12)),
    "hybrid": (foreign.hybrid(), (16, 24)),
    "bit": (foreign.bit(), (32, 40)),
    "mixer": (foreign.mixer(), (12, 12)),
}


@pytest.mark.parametrize("kind", FAMILIES)
def test_everything_but_the_head_is_taken_bit_for_bit(kind):
    cfg, size = FAMILIES[kind]
    target = dataclasses.replace(cfg, classes=3)
    fitted, weights, shapes = fit(cfg, target, size, size)
    assert "head" not in fitted.params
    assert tree.difference(fitted.params, {k: v for k, v in shapes.items() if k != "head"}) == ""
    kept = {name: a for name, a in weights.items() if not name.startswith("head/")}
    foreign.assert_same(tree.unstack_blocks(fitted.params), kept)
    assert set(fates(fitted, "loaded")) == set(kept)
    assert fates(fitted, "re-initialised") == {
        "head/kernel": f"({weights['head/kernel'].shape[0]}, 3): 7 -> 3 classes",
        "head/bias": "(3,): 7 -> 3 classes",
    }
    assert len(fitted.fate) == len(weights)


@pytest.mark.parametrize("kind", FAMILIES)
def test_head_is_kept_on_request(kind):
    cfg, size = FAMILIES[kind]
    fitted, weights, shapes = fit(cfg, cfg, size, size, fresh_head=False)
    assert tree.difference(fitted.params, shapes) == ""
    foreign.assert_same(tree.unstack_blocks(fitted.params), weights)
    assert set(fates(fitted, "loaded")) == set(weights)


def test_layers_stay_in_their_order():
    """With more than 10, block_10 sorts before block_2."""
    cfg = foreign.vit(depth=12)
    fitted, weights, _ = fit(cfg, cfg)
    found = fitted.params["blocks"]["attn_norm"]["scale"]
    for layer in range(12):
        np.testing.assert_array_equal(found[layer], weights[f"block_{layer}/attn_norm/scale"])


def test_the_weights_are_emptied_on_the_way():
    weights = foreign.flat(foreign.random(foreign.vit(), 12, 12))
    shapes = variants.shapes(foreign.vit(), 12, 12)
    fitting.fit(weights, shapes, old=(3, 3), new=(3, 3))
    assert weights == {}


def test_arrays_serve_as_target():
    cfg = foreign.vit(classes=3)
    target = tree.stack_blocks(foreign.random(cfg, 12, 12, seed=1))
    weights = foreign.random(foreign.vit(), 12, 12)
    fitted = fitting.fit(foreign.flat(weights), target, old=(3, 3), new=(3, 3))
    expected = {k: v for k, v in tree.stack_blocks(weights).items() if k != "head"}
    foreign.assert_same(fitted.params, expected)


# --- head and pre-logits ---


def test_model_or_file_without_a_head():
    headless = foreign.vit(classes=0)
    fitted, _, _ = fit(foreign.vit(), headless)
    assert fates(fitted, "unused") == {"head/kernel": "(32, 7)", "head/bias": "(7,)"}
    fitted, _, _ = fit(headless, foreign.vit())
    assert fates(fitted, "re-initialised")["head/kernel"] == "(32, 7): no -> 7 classes"
    assert "missing      head/kernel (32, 7)" in message(headless, foreign.vit(), fresh_head=False)
    assert "unexpected   head/bias (7,)" in message(foreign.vit(), headless, fresh_head=False)


def test_other_number_of_classes_with_the_head_kept():
    said = message(foreign.vit(), foreign.vit(classes=3), fresh_head=False)
    assert "wrong shape  head/kernel: (32, 7), the model has (32, 3)" in said
    assert "wrong shape  head/bias: (7,), the model has (3,)" in said


def test_pre_logits_are_kept_where_the_model_has_them_else_dropped():
    with_them, without = foreign.vit(representation=9), foreign.vit()
    fitted, weights, _ = fit(with_them, foreign.vit(representation=9, classes=3))
    np.testing.assert_array_equal(
        fitted.params["pre_logits"]["kernel"], weights["pre_logits/kernel"]
    )
    assert fates(fitted, "loaded")["pre_logits/kernel"] == "(32, 9)"
    fitted, _, _ = fit(with_them, without)
    assert "pre_logits" not in fitted.params
    assert fates(fitted, "unused") == {"pre_logits/kernel": "(32, 9)", "pre_logits/bias": "(9,)"}
    assert "missing      pre_logits/kernel (32, 9)" in message(without, with_them)
    assert "wrong shape  pre_logits/bias" in message(with_them, foreign.vit(representation=8))


# --- grid ---

GRIDS = [((12, 12), (20, 20)), ((12, 12), (8, 8)), ((8, 12), (16, 8)), ((16, 8), (20, 28)),
         ((8, 32), (16, 16))]  # fmt: skip


def bilinear(grid, rows, columns):
    """Every point for itself; the corners stay where they are."""
    result = np.zeros((rows, columns, grid.shape[-1]))
    for r in range(rows):
        for c in range(columns):
            y, x = r * (len(grid) - 1) / (rows - 1), c * (grid.shape[1] - 1) / (columns - 1)
            top, left = min(int(y), len(grid) - 2), min(int(x), grid.shape[1] - 2)
            for row in (top, top + 1):
                for column in (left, left + 1):
                    result[r, c] += (1 - abs(y - row)) * (1 - abs(x - column)) * grid[row, column]
    return result


@pytest.mark.parametrize("old, new", GRIDS)
@pytest.mark.parametrize("pool", ["token", "gap"])
def test_position_embedding_is_resized(old, new, pool):
    cfg = foreign.vit(pool=pool)
    fitted, weights, _ = fit(cfg, cfg, old, new)
    given, found = weights["posemb"][0], fitted.params["posemb"][0]
    (a, b), (rows, columns) = [(h // 4, w // 4) for h, w in (old, new)]
    if pool == "token":
        np.testing.assert_array_equal(found[0], given[0])
        given, found = given[1:], found[1:]
    expected = bilinear(given.reshape(a, b, 32).astype(np.float64), rows, columns)
    np.testing.assert_allclose(found.reshape(rows, columns, 32), expected, atol=1e-6)
    assert found.dtype == np.float32
    tokens = rows * columns + (pool == "token")
    assert fates(fitted, "resized") == {
        "posemb": f"{weights['posemb'].shape} -> (1, {tokens}, 32): "
        f"grid {a} x {b} -> {rows} x {columns}"
    }
    assert "posemb" not in fates(fitted, "loaded")


@pytest.mark.parametrize("old, new", [(28, 48), (16, 30), (24, 22), (32, 16), (48, 24)])
def test_grids_where_the_original_code_makes_rows_of_zeros(old, new):
    """scipy's zoom returns an empty last row and column for these; elsewhere it agrees."""
    cfg = foreign.vit(variant="custom/1", width=8, heads=2, depth=1, pool="gap")
    fitted, weights, _ = fit(cfg, cfg, (old, old), (new, new))
    grid = weights["posemb"].reshape(old, old, 8)
    theirs = scipy.ndimage.zoom(grid, (new / old, new / old, 1), order=1)
    ours = fitted.params["posemb"].reshape(new, new, 8)
    assert np.abs(ours).max(axis=-1).min() > 0
    np.testing.assert_array_equal(theirs[-1], 0)
    np.testing.assert_allclose(ours[-1, -1], grid[-1, -1], rtol=1e-5)
    np.testing.assert_allclose(ours[:-1, :-1], theirs[:-1, :-1], atol=1e-5)


@pytest.mark.parametrize("old, new", [(14, 24), (7, 12), (24, 14), (2, 3)])
def test_other_grids_are_resized_as_by_the_original_code(old, new):
    cfg = foreign.vit(variant="custom/1", width=8, heads=2, depth=1)
    fitted, weights, _ = fit(cfg, cfg, (old, old), (new, new))
    grid = weights["posemb"][0, 1:].reshape(old, old, 8)
    theirs = scipy.ndimage.zoom(grid, (new / old, new / old, 1), order=1)
    found = fitted.params["posemb"][0, 1:].reshape(new, new, 8)
    np.testing.assert_allclose(found, theirs, atol=1e-5)


def test_same_number_of_patches_in_another_grid():
    fitted, _, _ = fit(foreign.vit(), foreign.vit(), (8, 32), (16, 16))
    assert fates(fitted, "resized")["posemb"].endswith("grid 2 x 8 -> 4 x 4")


def test_unknown_grid_of_the_same_number_of_patches_is_taken_as_it_is():
    fitted, weights, _ = fit(foreign.vit(), foreign.vit(), (8, 12), (8, 12), known=False)
    np.testing.assert_array_equal(fitted.params["posemb"], weights["posemb"])
    said = message(foreign.vit(), foreign.vit(), (8, 12), (12, 12), known=False)
    assert "wrong shape  posemb: (1, 7, 32), the model has (1, 10, 32)" in said


@pytest.mark.parametrize("at", ["stem", "every", "shared"])
def test_learned_2d_tables_are_resized_along_their_axes(at):
    cfg = foreign.vit(posemb="learned2d", posemb_at=at)
    fitted, weights, _ = fit(cfg, cfg, (8, 12), (20, 12))
    names = ["block_0/posemb_y", "block_1/posemb_y"] if at == "every" else ["posemb_y"]
    assert sorted(fates(fitted, "resized")) == names  # the other axis keeps its length
    found = foreign.flat(tree.unstack_blocks(fitted.params))
    for name in names:
        expected = bilinear(weights[name].repeat(2, axis=0).astype(np.float64), 2, 5)[0]
        np.testing.assert_allclose(found[name][0], expected, atol=1e-6)
        x, own = name.replace("_y", "_x"), name.replace("_y", "_cls")
        np.testing.assert_array_equal(found[x], weights[x])
        np.testing.assert_array_equal(found[own], weights[own])


def test_table_of_every_layer_is_resized():
    cfg = foreign.vit(posemb_at="every")
    fitted, weights, _ = fit(cfg, cfg, (12, 12), (16, 16))
    assert sorted(fates(fitted, "resized")) == ["block_0/posemb", "block_1/posemb"]
    for layer in (0, 1):
        given, found = weights[f"block_{layer}/posemb"][0], fitted.params["blocks"]["posemb"][layer]
        expected = bilinear(given[1:].reshape(3, 3, 32).astype(np.float64), 4, 4)
        np.testing.assert_allclose(found[0, 1:].reshape(4, 4, 32), expected, atol=1e-6)


def test_fixed_tables_and_none_have_nothing_to_resize():
    for posemb in ("sincos2d", "none"):
        fitted, _, _ = fit(foreign.vit(posemb=posemb), foreign.vit(posemb=posemb), (8, 8), (16, 24))
        assert not fates(fitted, "resized")


def test_hybrid_is_resized_on_its_own_grid():
    fitted, _, _ = fit(foreign.hybrid(), foreign.hybrid(), (16, 16), (32, 24))
    assert fates(fitted, "resized")["posemb"].endswith("grid 2 x 2 -> 4 x 3")


def test_bit_fits_any_image():
    fitted, _, _ = fit(foreign.bit(), foreign.bit(), (32, 32), (96, 64))
    assert not fates(fitted, "resized")


# --- errors ---


def test_mixer_at_another_size():
    said = message(foreign.mixer(), foreign.mixer(), (12, 12), (16, 16))
    assert "wrong shape  block_0/token_mlp/up/kernel: (9, 20), the model has (16, 20)" in said
    assert "A Mixer fits one image size" in said
    assert "--config.data.image_size" in said


def test_relative_position_embedding_at_another_size():
    cfg = foreign.vit(posemb="relative")
    said = message(cfg, cfg, (12, 12), (16, 16))
    assert "wrong shape  block_1/attn/relative: (19, 4, 8), the model has (33, 4, 8)" in said
    assert "Relative position embeddings are not resized" in said
    assert "--config.data.image_size" in said


def test_advice_is_only_given_where_it_helps():
    assert "image size" not in message(foreign.vit(), foreign.vit(posemb="relative"))
    assert "image size" not in message(foreign.mixer(), foreign.mixer(depth=3))
    assert "image size" not in message(foreign.vit(), foreign.vit(mlp=50), (12, 12), (16, 16))


VIT, GAP = foreign.vit(), foreign.vit(pool="gap")
DIFFERENT = {
    "depth": (VIT, foreign.vit(depth=3), "missing      block_2/attn/key/bias (4, 8)"),
    "less depth": (foreign.vit(depth=3), VIT, "unexpected   block_2/attn/key/bias (4, 8)"),
    "width": (VIT, foreign.vit(width=64), "block_0/attn/key/bias: (4, 8), the model has (4, 16)"),
    "heads": (VIT, foreign.vit(heads=2), "block_0/attn/key/bias: (4, 8), the model has (2, 16)"),
    "patch": (foreign.vit(variant="custom/6"), VIT, "embedding/kernel: (6, 6, 3, 32)"),
    "token to gap": (VIT, GAP, "unexpected   cls (1, 1, 32)"),
    "gap to token": (GAP, VIT, "missing      cls (1, 1, 32)"),
    "gap to map": (GAP, foreign.vit(pool="map"), "missing      map_head/attn/key/bias (4, 8)"),
    "registers": (VIT, foreign.vit(registers=1), "missing      registers (1, 1, 32)"),
    "position": (foreign.vit(posemb="none"), VIT, "missing      posemb (1, 37, 32)"),
    "fixed position": (VIT, foreign.vit(posemb="sincos2d"), "unexpected   posemb (1, 37, 32)"),
    "backbone": (foreign.vit(variant="custom/8"), foreign.hybrid(), "missing      backbone/conv_r"),
    "units": (foreign.bit(), foreign.bit(stages=(2, 2)), "missing      backbone/stage2_unit2/c"),
    "family": (VIT, foreign.mixer(), "missing      block_0/channel_mlp"),
}


@pytest.mark.parametrize("kind", DIFFERENT)
def test_other_models_are_refused_by_name(kind):
    source, target, words = DIFFERENT[kind]
    assert words in message(source, target, (24, 24), (24, 24))


def test_all_errors_are_listed_at_once_in_both_layouts():
    weights = foreign.flat(foreign.random(foreign.vit(), 12, 12))
    del weights["block_1/attn/query/bias"]
    weights["block_3/attn_norm/scale"] = np.zeros(32, np.float32)
    weights["embedding/kernel"] = np.zeros((2, 2, 3, 32), np.float32)
    for scan in (True, False):
        shapes = variants.shapes(foreign.vit(scan=scan), 12, 12)
        with pytest.raises(BadInput) as caught:
            fitting.fit(dict(weights), shapes, old=(3, 3), new=(3, 3))
        lines = str(caught.value).splitlines()
        assert lines[0] == "the weights do not fit the model:"
        assert sorted(lines[1:]) == [
            "  missing      block_1/attn/query/bias (4, 8)",
            "  unexpected   block_3/attn_norm/scale (32,)",
            "  wrong shape  embedding/kernel: (2, 2, 3, 32), the model has (4, 4, 3, 32)",
        ]


def test_what_is_not_listed_is_counted():
    lines = message(foreign.vit(), foreign.vit(depth=4)).splitlines()
    assert len(lines) == 1 + 12 + 1
    assert lines[-1] == "  ... and 20 more"


@pytest.mark.parametrize("shape", [(10, 32), (1, 10, 32, 1), (1, 10), (10,), (), (2, 10, 32)])
def test_position_embedding_of_a_strange_shape(shape):
    weights = foreign.flat(foreign.random(foreign.vit(), 12, 12))
    weights["posemb"] = np.zeros(shape, np.float32)
    for size in ((12, 12), (16, 16)):
        shapes = variants.shapes(foreign.vit(), *size)
        new = variants.grid(foreign.vit(), *size)
        with pytest.raises(BadInput, match=r"wrong shape +posemb: "):
            fitting.fit(dict(weights), shapes, old=(3, 3), new=new)


def test_position_embedding_that_is_not_of_the_grid_it_is_said_to_be():
    weights = foreign.flat(foreign.random(foreign.vit(), 12, 12))
    shapes = variants.shapes(foreign.vit(), 16, 16)
    with pytest.raises(BadInput, match=r"wrong shape +posemb: \(1, 10, 32\)"):
        fitting.fit(weights, shapes, old=(2, 4), new=(4, 4))


def test_nothing_is_lost_when_the_weights_do_not_fit():
    """The given weights can be tried with another model."""
    weights = foreign.flat(foreign.random(foreign.vit(), 12, 12))
    before = jax.tree.map(np.array, {k: v for k, v in weights.items() if not k.startswith("head")})
    with pytest.raises(BadInput):
        fitting.fit(weights, variants.shapes(foreign.vit(mlp=50), 12, 12), old=(3, 3), new=(3, 3))
    foreign.assert_same({k: v for k, v in weights.items() if not k.startswith("head")}, before)


# --- masked patch prediction ---

NEW = {"mask_token", "patch_head/kernel", "patch_head/bias"}


def predicting(outputs):
    return dataclasses.replace(foreign.vit(), classes=0, patch_outputs=outputs)


@pytest.mark.parametrize("fresh_head", [True, False])
def test_mask_token_and_its_head_are_left_out_of_a_model_without(fresh_head):
    plain = foreign.vit()
    target = plain if fresh_head else dataclasses.replace(plain, classes=0)
    fitted, _, _ = fit(predicting(512), target, fresh_head=fresh_head)
    assert set(fates(fitted, "unused")) == NEW
    assert not {"mask_token", "patch_head", "head"} & fitted.params.keys()
    made_anew = {"head/kernel", "head/bias"} if fresh_head else set()
    assert set(fates(fitted, "re-initialised")) == made_anew


@pytest.mark.parametrize("source", [foreign.vit(), predicting(512), predicting(48)])
def test_mask_token_and_its_head_start_anew(source):
    fitted, weights, _ = fit(source, predicting(512))
    assert set(fates(fitted, "re-initialised")) == NEW
    assert not {"mask_token", "patch_head", "head"} & fitted.params.keys()
    assert set(fates(fitted, "unused")) == {n for n in weights if n.startswith("head/")}
