# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Images of any aspect ratio in a model: layout, positions, masks and packing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from vit_jax.errors import BadInput
from vit_jax.inference import packing
from vit_jax.models import naflex, variants
from vit_jax.models.naflex import Canvas

GRIDS = np.int32([[3, 2], [1, 4], [2, 3]])  # 16 patches together
SETTINGS = dict(variant="custom/2", width=16, depth=2, mlp=24, heads=2, naflex=3)
POOLS = {
    "token": {}, "gap": {"pool": "gap"}, "map": {"pool": "map"},
    "token+gap": {"pool": "token+gap", "registers": 2},
    "map registers": {"pool": "map", "registers": 2, "class_token": True},
    "pooled": {"pool": "gap", "final_norm": "pooled"},
}  # fmt: skip


def model(**more):
    return variants.make(variants.config(classes=3, **SETTINGS | more))


def params_of(made):
    shape = jax.eval_shape(lambda: made.init(jax.random.key(0), jnp.zeros((1, 8, 8, 3))))
    return {"params": tiny.randomised(shape["params"])}


def apply(made, params, given):
    return np.asarray(jax.jit(made.apply)(params, given))


def canvas(rows):
    """[N, 2, 2, 3] patches in the cells of an image of 8 x 8 pixels, gray at the end."""
    cells = np.full((16, 2, 2, 3), 7.0, np.float32)  # padding must not matter
    cells[: len(rows)] = rows
    return cells.reshape(4, 4, 2, 2, 3).transpose(0, 2, 1, 3, 4).reshape(8, 8, 3)


def images():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(h * w, 2, 2, 3)).astype(np.float32) for h, w in GRIDS]


def test_layout_counts_images_one_after_another():
    of = naflex.layout(jnp.int32([[[2, 2], [1, 3], [0, 0]]]), 9)
    assert of.segments_BL.tolist() == [[0, 0, 0, 0, 1, 1, 1, -1, -1]]
    assert of.places_BL2[0, :7].tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 0], [0, 1], [0, 2]]
    assert of.grids_BL2[0, 3:5].tolist() == [[2, 2], [1, 3]]


TABLE = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
TO = (5, 5), (7, 2), (1, 9)


def resized(*how, **more):
    """The table on each grid of `TO`, which are images of one sequence."""
    of = naflex.layout(jnp.int32([TO]), 48)
    places = naflex.positions(jnp.asarray(TABLE)[..., None], of, *how, **more)
    return [part.reshape(to) for part, to in zip(np.split(places[0], [25, 39]), TO, strict=True)]


@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("by", ["bilinear", "bicubic"])
def test_positions_are_resized_as_pillow_does(by, square):
    """Pillow's filters average where they shrink, between centres of pixels."""
    image = pytest.importorskip("PIL.Image")
    for grid, have in zip(TO, resized(by, square=square), strict=True):
        to = (max(grid),) * 2 if square else grid[::-1]
        want = np.asarray(image.fromarray(TABLE).resize(to, image.Resampling[by.upper()]))
        np.testing.assert_allclose(have, want[: grid[0], : grid[1]], atol=1e-6)


def test_linear_positions_lie_between_the_nearest():
    """Each axis as numpy interpolates; a single row is read in the middle of the table."""
    for grid, have in zip(TO, resized("linear"), strict=True):
        rows, columns = ((np.arange(n) + 0.5) * 5 / n - 0.5 for n in grid)
        at = np.stack([np.interp(rows, np.arange(5), column) for column in TABLE.T], axis=1)
        want = np.stack([np.interp(columns, np.arange(5), row) for row in at])
        np.testing.assert_allclose(have, want, atol=1e-6)


@pytest.mark.integration
@pytest.mark.parametrize("pool", POOLS)
def test_packed_logits_are_the_unpacked_ones(pool):
    made = model(**POOLS[pool])
    params, rows = params_of(made), images()
    one_by_one = Canvas(np.stack([canvas(row) for row in rows]), GRIDS)
    together = Canvas(canvas(np.concatenate(rows))[None], np.append(GRIDS, [[0, 0]], 0)[None])
    want = apply(made, params, one_by_one)
    have = apply(made, params, together)[0]
    assert np.isfinite(have).all()
    assert np.std(want) > 0.1
    np.testing.assert_allclose(have[:3], want, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("pool", ["token", "map"])
def test_an_image_of_a_sequence_does_not_see_the_others(pool):
    """The gradient of the logits of one image by the pixels of another is zero."""
    made = model(**POOLS[pool])
    params, rows = params_of(made), images()
    whole = jnp.asarray(canvas(np.concatenate(rows)))

    def logits(pixels):
        return jnp.sum(made.apply(params, Canvas(pixels[None], jnp.asarray(GRIDS)[None]))[0, 1])

    changed = (
        np.abs(jax.jit(jax.grad(logits))(whole)).reshape(4, 2, 4, 2, 3).sum(axis=(1, 3, 4)).ravel()
    )
    assert (changed[6:10] > 0).all()
    assert (changed[:6] == 0).all()
    assert (changed[10:] == 0).all()


@pytest.mark.integration
def test_a_square_image_needs_no_grid():
    made = model(pool="gap")
    params = params_of(made)
    image = np.random.default_rng(0).normal(size=(1, 8, 8, 3)).astype(np.float32)
    want = apply(made, params, Canvas(image, np.int32([[4, 4]])))
    np.testing.assert_allclose(apply(made, params, image), want, atol=1e-6)


@pytest.mark.integration
def test_scanned_and_single_layers_agree_on_a_canvas():
    scanned, single = model(pool="map"), model(pool="map", scan=False)
    params, rows = params_of(scanned)["params"], images()
    given = Canvas(canvas(np.concatenate(rows))[None], GRIDS[None])
    blocks = params.pop("blocks")
    alone = params | {f"block_{i}": jax.tree.map(lambda x, i=i: x[i], blocks) for i in range(2)}
    want = apply(scanned, {"params": params | {"blocks": blocks}}, given)
    np.testing.assert_allclose(apply(single, {"params": alone}, given), want, atol=1e-6)


def test_a_canvas_needs_a_table_of_positions():
    made = model(naflex=0)
    with pytest.raises(BadInput, match=r"need model\.naflex"):
        made.apply(params_of(made), Canvas(np.zeros((1, 8, 8, 3), np.float32), np.int32([[4, 4]])))


@pytest.mark.parametrize(
    "more, said",
    [
        ({"posemb": "sincos2d"}, "posemb=learned1d"), ({"rope": "axial"}, "rope=none"),
        ({"merge": 1}, "merge=0"), ({"patch_dropout": 0.5}, "patch_dropout=0"),
        ({"distillation": True}, "distillation=False"), ({"posemb_at": "every"}, "posemb_at=stem"),
        ({"variant": "R26+custom/32"}, "has no naflex"),
        ({"variant": "Flexi-Ti/16", "width": 0, "depth": 0, "mlp": 0, "heads": 0}, "square images"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_with_naflex(more, said):
    with pytest.raises(BadInput, match=said):
        model(**more)


def test_first_fit_takes_the_first_sequence_with_room():
    assert packing.first_fit([6, 5, 4, 10, 1, 5], 10) == [[0, 2], [1, 4], [3], [5]]


@pytest.mark.parametrize(
    "shape, grids, patch, said",
    [
        ((1, 8, 8, 3), [[0, 0]], 2, "1 to 16 patches"), ((1, 8, 8, 3), [[4, 4]], 4, "1 to 4"),
        ((1, 8, 8, 3), [[2, 2]], 3, "whole patches"), ((1, 8, 8, 3), [[2, 2]], 0, "whole patches"),
        ((0, 8, 8, 3), np.zeros((0, 2)), 2, "N >= 1"), ((8, 8, 3), [[2, 2]], 2, "whole patches"),
        ((1, 8, 8, 3), [[[2, 2], [1, 1]]], 2, r"grids \(1, 2, 2\) for 1 images"),
    ],
)  # fmt: skip
def test_what_cannot_be_packed(shape, grids, patch, said):
    with pytest.raises(BadInput, match=said):
        packing.pack(Canvas(np.zeros(shape, np.float32), np.int32(grids)), patch)


@pytest.mark.integration
def test_images_are_packed_and_found_again():
    """Two sequences of three images, whose patches and places are those by hand."""
    made, rows = model(pool="gap"), images()
    params = params_of(made)
    single = Canvas(
        np.stack([canvas(row) for row in [*rows, rows[0]]]), np.append(GRIDS, GRIDS[:1], 0)
    )
    packed, places = packing.pack(single, 2)
    assert packed.grids.tolist() == [GRIDS.tolist(), [[3, 2], [0, 0], [0, 0]]]
    assert places.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0]]
    np.testing.assert_array_equal(packed.images_BHWC[0], canvas(np.concatenate(rows)))
    output = apply(made, params, packed)
    want = apply(made, params, single)
    np.testing.assert_allclose(output[places[:, 0], places[:, 1]], want, atol=1e-5)


def test_batches_are_packed_in_the_order_of_what_has_room():
    """Two rows of 8 patches; by hand: 6 + 2 and 4 in the first batch, 6 and 3 in the second."""
    grids = np.int32([[2, 3], [1, 4], [2, 1], [2, 3], [1, 3]])
    cells = np.arange(5 * 8, dtype=np.float32).reshape(5, 2, 1, 4, 1, 1) * np.ones(3, np.float32)
    cells = cells.reshape(5, 2, 4, 3)  # patches of one pixel
    packer = packing.Packing(budget=8, patch=1, rows=2)
    singles = [
        {"image": cells[a:b], "grid": grids[a:b], "_mask": np.arange(a, b) < 5}
        for a, b in ((0, 3), (3, 5))
    ]
    first, second = packer.batches(iter(singles))
    assert packer.order == [0, 2, 1, 3, 4]
    assert first["grid"].tolist() == [[[2, 3], [2, 1]], [[1, 4], [0, 0]]]
    assert first["_mask"].tolist() == [[True, True], [True, False]]
    assert first["image"][..., 0].reshape(2, 8).tolist() == [
        [0, 1, 2, 3, 4, 5, 16, 17], [8, 9, 10, 11, 0, 0, 0, 0]
    ]  # fmt: skip
    assert second["grid"].tolist() == [[[2, 3]], [[1, 3]]]
