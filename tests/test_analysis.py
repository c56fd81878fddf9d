# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Compares what models have learned, as numbers, with loops and the numpy ViT, on any mesh."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from test_train_step import rules_of
from test_vit import POSITIONS, reference

from vit_jax.analysis import confusion, filters, maps, similarity
from vit_jax.errors import RunFailed
from vit_jax.models import variants, vit_block
from vit_jax.weights import convert, fitting

# --- attention of models ---


MODELS = {
    "token": tiny.config(),
    "loop": tiny.config(scan=False),
    "registers": tiny.config(registers=3),
    "gap": tiny.config(pool="gap", registers=2, posemb="relative"),
    "map": tiny.config(pool="map", registers=2),
    "hybrid": tiny.hybrid(scan=False),
    "fused": tiny.config(attention="fused", remat="dots"),
}


def of_numpy(cfg, params, images):
    """Attention weights [S, B, N, L, L], and those of a map head or None."""
    seen = []
    reference(cfg, params, images, seen=seen)
    return np.stack(seen[: cfg.depth]), (seen[cfg.depth] if cfg.pool == "map" else None)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - {"hybrid"}))
def test_weights_are_those_of_the_numpy_vit(name):
    cfg = MODELS[name]
    params, images = tiny.params(cfg), tiny.images_of(cfg, 3)
    with jax.default_matmul_precision("highest"):
        found, pooling = jax.jit(lambda p, x: maps.attention(cfg, p, x))(params, images)
    expected, expected_pooling = of_numpy(cfg, params, images)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.sum(found, axis=-1), 1, rtol=1e-5)
    assert np.std(expected) > 0.02
    assert (pooling is None) == (name != "map")
    if pooling is not None:
        np.testing.assert_allclose(pooling, expected_pooling, rtol=1e-4, atol=1e-5)


def written_out(cfg, params, images):
    """Distance [S, N] and rollout [B, h, w] by loops and whole matrices, from numpy's weights."""
    weights, pooling = of_numpy(cfg, params, images)
    grid = variants.grid(cfg, *images.shape[1:3])
    patches = grid[0] * grid[1]
    far = [
        [[by_loops(image, grid, cfg.stride) for image in head] for head in layer]
        for layer in weights.swapaxes(1, 2)
    ]
    shares = []
    for image in range(len(images)):
        rows = rollout_written_out(weights[:, image])
        if cfg.pool == "token":
            read = rows[0]
        elif cfg.pool == "gap":
            read = rows[-patches:].mean(axis=0)
        else:
            read = pooling[image].mean(axis=0)[0] @ rows[-patches:]
        shares.append(read[-patches:].reshape(grid))
    return np.mean(far, axis=-1), np.stack(shares)


@pytest.mark.parametrize("name", ["gap", "map", "hybrid"])
def test_numbers_are_those_of_loops_over_the_weights_of_numpy(name):
    cfg = MODELS[name]
    params, images = tiny.params(cfg), tiny.images_of(cfg, 3)
    with jax.default_matmul_precision("highest"):
        found = maps.look(cfg, params, images)
    distance, shares = written_out(cfg, params, images)
    np.testing.assert_allclose(found.distance_SN, distance, rtol=1e-4)
    np.testing.assert_allclose(found.rollout_Bhw, shares, rtol=1e-3, atol=1e-6)
    assert found.rollout_Bhw.shape == (3, 2, 3)
    assert np.ptp(found.distance_SN) > 0.1


def test_a_uniform_map_head_is_the_mean_over_patches():
    cfg = MODELS["map"]
    params = tiny.params(cfg)
    head = params["map_head"]["attn"]["query"]
    head["kernel"], head["bias"] = (np.zeros_like(head[name]) for name in ("kernel", "bias"))
    gap = tiny.config(pool="gap", registers=2)
    images = tiny.images_of(cfg, 2)
    found, expected = maps.look(cfg, params, images), maps.look(gap, params, images)
    np.testing.assert_allclose(found.rollout_Bhw, expected.rollout_Bhw, rtol=1e-3)


@pytest.mark.parametrize("shape, most", [(None, 3), ((1, 2, 2, 2), 2)])
def test_any_batch_size_on_any_mesh_gives_the_same(monkeypatch, shape, most):
    monkeypatch.setattr(maps, "MOST", most)
    cfg = MODELS["token"]
    params, images = tiny.params(cfg), tiny.images_of(cfg, 11)
    done = []
    rules = rules_of(shape) if shape else None
    found = maps.look(cfg, params, images, rules, done.append)
    expected = maps.look(cfg, params, images)
    np.testing.assert_allclose(found.distance_SN, expected.distance_SN, rtol=1e-4)
    np.testing.assert_allclose(found.rollout_Bhw, expected.rollout_Bhw, rtol=1e-3, atol=1e-6)
    assert len(found.rollout_Bhw) == done[-1] == 11
    assert len(done) == {None: 4, (1, 2, 2, 2): 2}[shape]
    alone = maps.look(cfg, params, images[4:5])
    np.testing.assert_allclose(found.rollout_Bhw[4], alone.rollout_Bhw[0], rtol=1e-3, atol=1e-6)


def test_weights_in_memory_are_bounded():
    """H/14 at 378 pixels: one image has more than a GiB of them; B/16 at 224 has 21 MiB."""
    huge, base = (variants.config(variant=name, classes=0) for name in ("H/14", "B/16"))
    assert maps.batch_size(huge, 27 * 27, 128, 8) == 8
    assert maps.batch_size(base, 14 * 14, 128, 1) == 12
    assert maps.batch_size(base, 14 * 14, 5, 4) == 8  # no more than there are
    few = dataclasses.replace(base, depth=1)
    assert maps.batch_size(few, 4, 1000, 1) == maps.MOST


def test_attention_that_is_not_finite_is_said():
    cfg = MODELS["token"]
    params = tiny.params(cfg)
    params["embedding"]["bias"] = np.full(32, np.nan, np.float32)
    with pytest.raises(RunFailed, match="not finite"):
        maps.look(cfg, params, tiny.images_of(cfg, 1))


def program(cfg, params, images, mutable=False):
    model = variants.make(cfg)
    apply = lambda p, x: model.apply({"params": p}, x, mutable=mutable)  # noqa: E731
    return jax.jit(apply).lower(params, images).as_text()


@pytest.mark.parametrize("scan", [True, False])
def test_weights_cost_nothing_unless_asked_for(monkeypatch, scan):
    cfg = tiny.config(scan=scan)
    given = tiny.params(cfg), tiny.images_of(cfg, 2)
    usual, asked = program(cfg, *given), program(cfg, *given, mutable=["intermediates"])
    monkeypatch.setattr(vit_block.Attention, "sow", lambda *_: False)
    assert program(cfg, *given) == usual
    assert asked != usual


# --- attention distance ---


def random_weights(*shape, seed=0):
    weights = np.random.default_rng(seed).gamma(0.3, size=shape).astype(np.float32)
    return weights / weights.sum(axis=-1, keepdims=True)


def by_loops(weights, grid, stride):
    """One image, one head: class token and registers first."""
    patches = grid[0] * grid[1]
    first = len(weights) - patches
    total = 0.0
    for i in range(patches):
        far = share = 0.0
        for j in range(patches):
            dy = (i // grid[1] - j // grid[1]) * stride
            dx = (i % grid[1] - j % grid[1]) * stride
            far += weights[first + i, first + j] * (dx * dx + dy * dy) ** 0.5
            share += weights[first + i, first + j]
        total += far / share
    return total / patches


@pytest.mark.parametrize("grid, stride, others", [((3, 3), 16, 0), ((2, 5), 4, 1), ((4, 3), 8, 3)])
def test_distance_is_that_of_loops_over_pairs(grid, stride, others):
    tokens = grid[0] * grid[1] + others
    weights = random_weights(2, 4, tokens, tokens)
    found = maps.distance(weights, maps.pixels_between(grid, stride))
    expected = [[by_loops(weights[i, n], grid, stride) for n in range(4)] for i in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert np.ptp(expected) > 0.1


def test_a_row_of_patches_has_a_closed_value():
    """The mean of |i - j| over i, j in 0 ... n - 1 is (n * n - 1) / 3n."""
    for n in (2, 7, 16):
        assert maps.even_distance((1, n), 10) == pytest.approx(10 * (n * n - 1) / (3 * n))
        assert maps.even_distance((n, 1), 10) == pytest.approx(maps.even_distance((1, n), 10))


def test_even_attention_has_the_even_distance_whatever_the_class_token_gets():
    grid, pixels = (4, 6), maps.pixels_between((4, 6), 14)
    weights = np.full((25, 25), 0.01)
    weights[:, 0] = 0.76
    found = maps.distance(weights, pixels)
    assert float(found) == pytest.approx(maps.even_distance(grid, 14), rel=1e-5)


def test_attention_to_itself_is_at_no_distance():
    pixels = maps.pixels_between((3, 3), 16)
    assert float(maps.distance(np.eye(10), pixels)) == 0
    assert float(maps.distance(np.eye(10)[:, ::-1], pixels)) > 16


def test_a_patch_that_sees_no_patch_counts_as_zero():
    weights = np.zeros((5, 5))
    weights[:, 0] = 1
    assert float(maps.distance(weights, maps.pixels_between((2, 2), 16))) == 0


# --- attention rollout ---


def rollout_written_out(weights_SNLL):
    """The matrix of one image, [output token, input token]."""
    product = np.eye(weights_SNLL.shape[-1])
    for layer in weights_SNLL.astype(np.float64):
        mixed = 0.5 * layer.mean(axis=0) + 0.5 * np.eye(len(product))
        product = mixed / mixed.sum(axis=1, keepdims=True) @ product
    return product


def every_row(weights_SBNLL):
    """Returns the rollout of each output token: float [B, L, L]."""
    _, batch, _, tokens, _ = weights_SBNLL.shape
    starts = jnp.broadcast_to(jnp.eye(tokens)[:, None], (tokens, batch, tokens))
    rows = [maps.rollout(jnp.asarray(weights_SBNLL), start) for start in starts]
    return np.stack(rows, axis=1)


def test_rows_are_those_of_the_product_of_layers():
    weights = random_weights(4, 2, 3, 7, 7)
    found = every_row(weights)
    expected = np.stack([rollout_written_out(weights[:, image]) for image in range(2)])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert (
        np.abs(expected[0] - rollout_written_out(weights[::-1, 0])).max() > 0.01
    )  # layers have an order


def test_rows_sum_to_one_also_where_weights_do_not():
    weights = random_weights(3, 2, 2, 5, 5)
    np.testing.assert_allclose(every_row(weights).sum(axis=-1), 1, rtol=1e-5)
    np.testing.assert_allclose(every_row(0.9 * weights).sum(axis=-1), 1, rtol=1e-5)


def test_attention_to_itself_is_the_identity():
    weights = np.broadcast_to(np.eye(6, dtype=np.float32), (3, 1, 2, 6, 6))
    np.testing.assert_allclose(every_row(weights)[0], np.eye(6), atol=1e-7)


def test_even_attention_leaves_of_a_token_the_half_of_each_layer():
    weights = np.full((3, 1, 2, 5, 5), 0.2, np.float32)
    expected = np.eye(5) / 8 + (1 - 1 / 8) / 5
    np.testing.assert_allclose(every_row(weights)[0], expected, rtol=1e-5)


def test_upsampled_is_in_multiples_of_the_mean_and_not_transposed():
    shares = np.zeros((2, 2, 3), np.float32)
    shares[0, 1, 2] = 0.3
    shares[1] = 0.1
    found = maps.upsampled(shares, (20, 60))
    assert found.shape == (2, 20, 60)
    np.testing.assert_allclose(found[1], 1, rtol=1e-6)
    assert found[0, -1, -1] == pytest.approx(6)  # all of it at one of six patches
    assert found[0, 10:, 40:].sum() > 0.7 * found[0].sum()
    assert found[0, 0, 0] == found[0, -1, 0] == found[0, 0, -1] == 0
    np.testing.assert_allclose(found[0].mean(), 1, rtol=0.05)


# --- filters ---


SHAPE = (5, 4, 3)


def of_rank(scales, count=40, seed=0):
    """Filters [h, w, 3, D] around a mean, and the directions that they differ in."""
    rng = np.random.default_rng(seed)
    directions = np.linalg.qr(rng.normal(size=(np.prod(SHAPE), len(scales))))[0].T
    weights = np.linalg.qr(rng.normal(size=(count, len(scales) + 1)))[0]
    weights -= weights.mean(axis=0)
    weights = np.linalg.qr(weights)[0][:, : len(scales)]  # orthogonal, each of mean 0
    mean = rng.normal(size=np.prod(SHAPE))
    made = weights * np.asarray(scales) @ directions + mean
    return made.T.reshape(*SHAPE, count).astype(np.float32), directions.reshape(-1, *SHAPE)


def test_directions_are_found_in_the_order_of_what_they_explain():
    kernel, directions = of_rank([9.0, 5.0, 2.0])
    found = filters.components(kernel)
    assert found.images_ChwI.shape == (3, *SHAPE)  # there are no more
    alike = np.einsum("chwk,dhwk->cd", found.images_ChwI, directions)
    np.testing.assert_allclose(np.abs(alike), np.eye(3), atol=1e-4)
    np.testing.assert_allclose(found.shares_C, np.square([9, 5, 2]) / 110, rtol=1e-4)


def test_components_are_those_of_the_covariance():
    kernel = np.random.default_rng(1).normal(size=(*SHAPE, 200)).astype(np.float32)
    found = filters.components(kernel)
    values, vectors = np.linalg.eigh(np.cov(kernel.reshape(-1, 200)))
    assert found.images_ChwI.shape == (filters.COUNT, *SHAPE)
    alike = np.abs(found.images_ChwI.reshape(28, -1) @ vectors[:, ::-1][:, :28])
    np.testing.assert_allclose(alike, np.eye(28), atol=1e-3)
    np.testing.assert_allclose(found.shares_C, (values[::-1] / values.sum())[:28], rtol=1e-5)


def test_the_sign_does_not_depend_on_that_of_the_filters():
    kernel, _ = of_rank([3.0, 1.0])
    one, other = filters.components(kernel), filters.components(-kernel)
    np.testing.assert_allclose(one.images_ChwI, other.images_ChwI, atol=1e-6)
    rows = one.images_ChwI.reshape(2, -1)
    assert (rows.max(axis=1) == np.abs(rows).max(axis=1)).all()


def test_few_filters_have_few_components():
    kernel = np.random.default_rng(0).normal(size=(*SHAPE, 6))
    assert len(filters.components(kernel).shares_C) == 5
    assert len(filters.components(kernel, count=2).shares_C) == 2
    assert len(filters.components(np.ones((*SHAPE, 6))).shares_C) == 0


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_filters_of_a_model_are_those_that_see_pixels(family):
    cfg = tiny.FAMILIES[family]()
    params = tiny.params(cfg)
    kernel, layer = cfg.pixel_filters(jax.tree.map(jax.numpy.asarray, params))
    assert ("convolution" in layer) == (family in ("hybrid", "bit"))
    found = filters.components(kernel)
    if family in ("vit", "mixer"):
        expected = params["embedding"]["kernel"]
    else:  # standardised by hand
        kernel = params["backbone"]["conv_root"]["kernel"].reshape(-1, 32).astype(np.float64)
        kernel = (kernel - kernel.mean(axis=0)) / kernel.std(axis=0)
        expected = kernel.reshape(7, 7, 3, 32)
    expected = filters.components(expected)
    assert found.images_ChwI.shape[1:3] == ((4, 4) if family in ("vit", "mixer") else (7, 7))
    np.testing.assert_allclose(found.shares_C, expected.shares_C, rtol=1e-4)
    np.testing.assert_allclose(found.images_ChwI, expected.images_ChwI, atol=0.01)


# --- similarity of position embeddings ---


def cosine(u, v):
    return float(u @ v / math.sqrt((u @ u) * (v @ v)))


def added(cfg, params, row, column):
    """Returns what a patch of the grid of 2 x 3 is given, from the parameters by their names."""
    if cfg.posemb == "learned1d":
        return params["posemb"][0, -6:][3 * row + column]
    if cfg.posemb == "learned2d":
        return np.concatenate([params["posemb_x"][0, column], params["posemb_y"][0, row]])
    waves = [1e4 ** (-k / 7) for k in range(8)]
    parts = [f(place * w) for place in (column, row) for f in (math.sin, math.cos) for w in waves]
    return np.array(parts)


@pytest.mark.parametrize("scan, pool", [(True, "token"), (False, "gap")])
@pytest.mark.parametrize("kind, at", [p for p in POSITIONS if p[0] not in ("none", "relative")])
def test_tiles_are_cosines_of_what_the_model_adds(kind, at, scan, pool):
    cfg = tiny.config(posemb=kind, posemb_at=at, scan=scan, pool=pool, registers=2)
    params = tiny.params(cfg)
    given = jax.tree.map(jax.numpy.asarray, params)
    found = similarity.of_model(cfg, given, (tiny.HEIGHT, tiny.WIDTH))
    every = at == "every"
    assert found.shape == (3 if every else 1, 2, 3, 2, 3)
    for layer, tiles in enumerate(found):
        owner = params
        if every and scan:
            owner = {name: value[layer] for name, value in params["blocks"].items()
                     if name.startswith("posemb")}  # fmt: skip
        elif every:
            owner = params[f"block_{layer}"]
        for a, b in np.ndindex(2, 3):
            for c, d in np.ndindex(2, 3):
                expected = cosine(added(cfg, owner, a, b), added(cfg, owner, c, d))
                assert tiles[a, b, c, d] == pytest.approx(expected, abs=1e-5)
    assert np.ptp(found) > 0.1


def test_models_that_add_nothing_have_none():
    kinds = [kind for kind, _ in POSITIONS]
    have = {kind: similarity.has_embeddings(tiny.config(posemb=kind)) for kind in kinds}
    assert {kind for kind in kinds if not have[kind]} == {"none", "relative"}


def test_at_another_resolution_they_are_those_that_are_resized():
    cfg = tiny.config()
    params, target = tiny.params(cfg), variants.shapes(cfg, 24, 16)
    flat = convert.flatten(params)
    fitted = fitting.fit(flat, target, old=(2, 3), new=(6, 4), fresh_head=False).params
    found = similarity.of_model(cfg, fitted, (24, 16))
    assert found.shape == (1, 6, 4, 6, 4)
    small = similarity.of_model(cfg, params, (tiny.HEIGHT, tiny.WIDTH))
    corners = np.ix_([0], [0, 5], [0, 3], [0, 5], [0, 3])  # which stay where they are
    np.testing.assert_allclose(found[corners], small[:, :, ::2, :, ::2], atol=1e-5)


def test_an_embedding_of_zeros_is_like_none():
    table = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    table[2] = 0
    found = similarity.of_grid(table, (2, 2)).reshape(4, 4)
    np.testing.assert_array_equal(found[2], 0)
    np.testing.assert_allclose(np.diag(found), [1, 1, 0, 1], atol=1e-6)


# --- confusions ---


def best(*begins):
    """Five of six classes, of which the likeliest are given; the others follow by number."""
    rest = ([k for k in range(6) if k not in begin] for begin in begins)
    return np.array([[*b, *r][:5] for b, r in zip(begins, rest, strict=True)])


def test_counts_are_those_by_hand():
    likeliest = best([0], [1, 0], [1, 2], [3, 4, 5, 0, 1])
    labels = np.array([[0], [0], [1], [2]], np.int32)
    found = confusion.measure(likeliest, labels, 6)
    assert (found.top1, found.top5, found.examples) == (0.5, 0.75, 4)
    assert found.counts_Y.tolist() == [2, 1, 1, 0, 0, 0]
    assert found.right_Y.tolist() == [1, 1, 0, 0, 0, 0]
    assert found.guessed_Y.tolist() == [1, 2, 0, 1, 0, 0]
    np.testing.assert_array_equal(found.accuracy, [0.5, 1, 0] + [np.nan] * 3)
    np.testing.assert_array_equal(found.precision, [1, 0.5, np.nan, 0, np.nan, np.nan])
    assert found.mean_class_accuracy == 0.5
    expected = np.zeros((6, 6), int)
    expected[0, 0] = expected[0, 1] = expected[1, 1] = expected[2, 3] = 1
    np.testing.assert_array_equal(found.confusion_YY, expected)
    assert found.worst(5) == [(0, 1, 1), (2, 3, 1)]
    assert found.worst(1) == [(0, 1, 1)]


def test_one_of_several_labels_is_enough_and_pairs_are_of_single_ones():
    labels = np.array([[2, 1], [1, -1], [-1, -1]], np.int32)
    found = confusion.measure(best([1], [0], [0]), labels, 6)
    assert found.top1 == 1 / 3
    assert found.counts_Y.tolist() == [0, 2, 1, 0, 0, 0]
    assert found.right_Y.tolist() == [0, 1, 0, 0, 0, 0]
    assert found.confusion_YY.sum() == 1
    assert found.confusion_YY[1, 0] == 1


def test_no_matrix_of_very_many_classes():
    found = confusion.measure(np.array([[1], [2500]]), np.array([[1], [7]], np.int32), 2501)
    assert (found.top1, found.confusion_YY, found.worst(3)) == (0.5, None, [])
    assert found.guessed_Y[2500] == 1
