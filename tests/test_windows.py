# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Attention within windows: against attention that sees a mask, in every form of the layers."""

import dataclasses
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from test_flops import compiled_flops
from test_train_step import rules_of

from vit_jax import sharding, tree
from vit_jax.analysis import maps
from vit_jax.errors import BadInput
from vit_jax.models import variants, windows
from vit_jax.models.attention import MASKED, Attention, Extras, Path
from vit_jax.models.windows import Windows

GRID = (5, 7)
SIDES = tuple(side * tiny.PATCH for side in GRID)


def config(**changes):
    """Four layers with windows of 3 x 3, of which the second and the last see the whole grid."""
    return tiny.config(**{"depth": 4, "window": 3, "global_blocks": 2} | changes)


def weights(cfg):
    return tiny.params(dataclasses.replace(cfg, window=0), *SIDES)


def images(batch=2):
    return tiny.images(batch, *SIDES)


def test_blocks_that_see_everything_are_evenly_spaced():
    """ViTDet: the last of each quarter, for B, L and H."""
    for depth, quarter in ((12, 3), (24, 6), (32, 8)):
        everywhere = set(range(depth)) - set(windows.numbers(depth, 4))
        assert everywhere == {quarter * n - 1 for n in range(1, 5)}
    assert set(range(27)) - set(windows.numbers(27, 4)) == {6, 13, 20, 26}


def by_hand(query, key, value, side, grid, prefix):
    """Attention window after window, for one image and head; numpy, float64."""

    def mix(q, k, v):
        scores = np.exp(q @ k.T / np.sqrt(q.shape[1]))
        return scores / scores.sum(1, keepdims=True) @ v

    out, numbers = np.zeros_like(value), np.arange(prefix, len(query)).reshape(grid)
    out[:prefix] = mix(query[:prefix], key, value)
    for top in range(0, grid[0], side):
        for left in range(0, grid[1], side):
            own = numbers[top : top + side, left : left + side].ravel()
            seen = [*range(prefix), *own]
            out[own] = mix(query[own], key[seen], value[seen])
    return out


@pytest.mark.parametrize("path", ["plain", "memory_efficient", "packed", "splash"])
@pytest.mark.parametrize("side, prefix", [(3, 0), (3, 2), (1, 1), (7, 1)])
def test_windows_attend_as_by_hand(path, side, prefix):
    area = Windows(side, GRID, prefix)
    module = Attention(
        2, 0.0, "float32", None, path=area.path(path, masked=False), extras=Extras(windows=area)
    )
    x = np.random.default_rng(0).normal(size=(3, prefix + 35, 16)).astype(np.float32)
    params = tiny.randomised(jax.eval_shape(module.init, jax.random.key(0), x, x, None))["params"]
    found = jax.jit(lambda p, x: module.apply({"params": p}, x, x, None))(params, x)
    q, k, v = (
        np.einsum("bld,dnk->bnlk", x, params[name]["kernel"]) + params[name]["bias"][None, :, None]
        for name in ("query", "key", "value")
    )
    mixed = [
        [by_hand(q[b, n], k[b, n], v[b, n], side, GRID, prefix) for n in range(2)] for b in range(3)
    ]
    wanted = np.einsum("bnlk,nkd->bld", mixed, params["out"]["kernel"]) + params["out"]["bias"]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_split_and_joined_keep_every_patch():
    """The grid of 5 x 7: 2 windows of 3 x 3, 1 of 3 x 1, 2 of 2 x 3 and 1 of 2 x 1."""
    area = Windows(3, GRID, 0)
    x = np.arange(2 * 35 * 4).reshape(2, 35, 4)
    parts = area.split(jnp.asarray(x))
    of_grid = x.reshape(2, 5, 7, 4)
    expected = [
        [of_grid[:, :3, :3], of_grid[:, :3, 3:6]],
        [of_grid[:, :3, 6:]],
        [of_grid[:, 3:, :3], of_grid[:, 3:, 3:6]],
        [of_grid[:, 3:, 6:]],
    ]
    for part, squares in zip(parts, expected, strict=True):
        beside = np.stack([square.reshape(2, -1, 4) for square in squares], axis=1)
        np.testing.assert_array_equal(part, beside.reshape(-1, *beside.shape[2:]))
    np.testing.assert_array_equal(area.joined(parts), x)


@pytest.mark.parametrize("grid, side", [((6, 9), 3), ((5, 7), 7), ((5, 7), 9)])
def test_a_grid_that_windows_divide_is_neither_cut_nor_joined(grid, side):
    area = Windows(side, grid, 0)
    x = jnp.zeros((2, grid[0] * grid[1], 4))
    jaxpr = jax.make_jaxpr(lambda x: area.joined(area.split(x)))(x)
    assert {e.primitive.name for e in jaxpr.eqns} <= {"reshape", "transpose"}
    assert len(area.split(x)) == 1


def test_every_rectangle_has_a_key_of_dropout_of_its_own():
    keys = []

    def attend(query, key, value, dropout_key, bias):
        keys.append(tuple(jax.random.key_data(dropout_key).tolist()))
        return query

    x = jnp.zeros((1, 36, 1, 2))
    windows.attended(attend, x, x, x, jax.random.key(0), None, Windows(3, GRID, 1))
    assert len(set(keys)) == len(keys) == 5


@pytest.mark.integration
@pytest.mark.parametrize(
    "settings",
    [{"pool": "gap"}, {"registers": 2, "pool": "map"}, {"rope": "axial", "posemb": "none"}],
)  # fmt: skip
def test_one_window_over_the_grid_is_global_attention(settings):
    cfg = config(**settings, window=7)
    wide, usual = cfg, dataclasses.replace(cfg, window=0)
    params = weights(cfg)
    found, wanted = (tiny.logits(c, params, images()) for c in (wide, usual))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    narrow = tiny.logits(dataclasses.replace(cfg, window=3), params, images())
    assert np.abs(narrow - wanted).max() > 1e-2


def derivatives(cfg, params, key):
    def loss(params):
        y = variants.make(cfg).apply({"params": params}, images(), train=True, key=key)
        return jnp.mean(y**2)

    with jax.default_matmul_precision("highest"):
        return jax.jit(jax.value_and_grad(loss))(params)


FORMS = {
    "unrolled": {"scan": True, "unrolled": True},
    "remat": {"scan": True, "remat": "full"},
    "memory_efficient": {"scan": True, "attention": "memory_efficient", "remat": "query,key"},
    "packed": {"scan": True, "attention": "packed"},
}


@pytest.mark.integration
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_layers_gives_the_same(form):
    """As the loop over modules: loss and gradients, with stochastic depth."""
    cfg = config(pool="gap", drop_path=0.3)
    params, key = weights(cfg), jax.random.key(2)
    loop = dataclasses.replace(cfg, scan=False)
    loss, grads = derivatives(loop, tree.unstack_blocks(params), key)
    found, of_form = derivatives(dataclasses.replace(cfg, **FORMS[form]), params, key)
    assert found == pytest.approx(float(loss), rel=1e-5)
    other = jax.device_get(tree.unstack_blocks(jax.device_get(of_form)))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5),
        other, jax.device_get(grads),
    )  # fmt: skip


@pytest.mark.integration
def test_feature_maps_and_last_layer_have_windows_before_them():
    cfg = config()
    params = weights(cfg)
    of_maps = cfg.for_maps((4,))
    without_head = {k: v for k, v in params.items() if k != "head"}
    (found,) = variants.make(of_maps).apply({"params": without_head}, images())
    assert found.shape == (2, *GRID, 32)
    short = dataclasses.replace(cfg, unrolled=True)
    assert short.last_is_short
    np.testing.assert_allclose(
        tiny.logits(short, params, images()), tiny.logits(cfg, params, images()),
        rtol=1e-5, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 8, 1, 1), (1, 2, 2, 2)])
def test_windows_on_a_mesh_are_those_of_one_device(shape):
    cfg, rules = config(), rules_of(shape)
    params, x = weights(cfg), images(8)
    axes = sharding.param_axes(params, variants.axes(cfg))
    placed = jax.tree.map(
        jax.device_put, params, sharding.place({"params": params}, axes, rules)["params"]
    )
    given = jax.device_put(x, rules.sharding(("act_batch",), (8,)))
    with jax.default_matmul_precision("highest"):
        found = tiny.forward(cfg, False, rules)(placed, given, None)
    np.testing.assert_allclose(found, tiny.logits(cfg, params, x), rtol=1e-5, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("scan", [True, False])
def test_figures_show_no_attention_across_windows(scan):
    """And whoever asks for weights gets the logits that others get."""
    cfg = config(registers=1, scan=scan)
    params = weights(dataclasses.replace(cfg, scan=True))
    params = params if scan else tree.unstack_blocks(params)
    weights_SBNLL, _ = maps.attention(dataclasses.replace(cfg, classes=7), params, images())
    assert weights_SBNLL.shape == (4, 2, 4, 37, 37)
    np.testing.assert_allclose(weights_SBNLL.sum(-1), 1, rtol=1e-5)
    apart = ~Windows(3, GRID, 2).seen()
    for number, layer in enumerate(np.asarray(weights_SBNLL)):
        assert (layer[..., apart].max() == 0) == (number in (0, 2))
    logits, _ = variants.make(cfg).apply({"params": params}, images(), mutable=["intermediates"])
    np.testing.assert_allclose(logits, tiny.logits(cfg, params, images()), rtol=1e-4, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("grid, prefix", [((6, 6), 0), ((6, 6), 1), (GRID, 0)])
@pytest.mark.parametrize("path", [p for p in typing.get_args(Path) if p != "cudnn"])
def test_asking_for_weights_changes_no_output(path, grid, prefix):
    area = Windows(3, grid, prefix)
    module = Attention(
        2, 0.0, "float32", None, path=area.path(path, masked=False), extras=Extras(windows=area)
    )
    count = prefix + grid[0] * grid[1]
    x = np.random.default_rng(0).normal(size=(2, count, 16)).astype(np.float32)
    params = tiny.randomised(jax.eval_shape(module.init, jax.random.key(0), x, x, None))
    usual = module.apply(params, x, x, None)
    asked, _ = module.apply(params, x, x, None, mutable=["intermediates"])
    np.testing.assert_allclose(asked, usual, rtol=1e-4, atol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("path", ["plain", "memory_efficient"])
def test_tokens_that_are_masked_do_not_count_in_any_rectangle(path):
    area = Windows(3, GRID, 1)
    module = Attention(2, 0.0, "float32", None, path=path, extras=Extras(windows=area))
    draw = np.random.default_rng(0)
    x, other = draw.normal(size=(2, 2, 36, 16)).astype(np.float32)
    masked = np.zeros((2, 36), bool)
    masked[:, [1, 7, 15, 21, 29]] = True  # the patches 0, 6, 14, 20 and 28, some at each edge
    other = np.where(masked[..., None], other, x)
    bias = jnp.where(masked, MASKED, 0.0)
    params = tiny.randomised(jax.eval_shape(module.init, jax.random.key(0), x, x, None))
    results = [module.apply(params, y, y, None, None, bias) for y in (x, other)]
    np.testing.assert_allclose(results[0][~masked], results[1][~masked], rtol=1e-5, atol=1e-6)
    asked, _ = module.apply(params, x, x, None, None, bias, mutable=["intermediates"])
    np.testing.assert_allclose(asked, results[0], rtol=1e-4, atol=1e-5)
    assert np.abs(results[0] - module.apply(params, x, x, None)).max() > 1e-2


def test_flops_are_by_hand():
    """ViTDet-B at 1024 pixels: 8 blocks of windows, and 4 of 64 x 64.

    Windows of 14 leave 8: 16 of 14 x 14, 4 of 14 x 8, 4 of 8 x 14 and 1 of 8 x 8.
    """
    cfg = variants.config(variant="B/16", classes=0, pool="gap", window=14)
    tokens, d = 64**2, 768
    layers = 12 * (4 * tokens * d**2 + 2 * tokens * d * 3072)
    within = 16 * 196**2 + 8 * 112**2 + 64**2
    attention = 4 * 2 * tokens**2 * d + 8 * 2 * within * d
    assert cfg.forward_flops(1024, 1024) == 2 * (tokens * d**2 + layers + attention)
    with_token = variants.config(variant="B/16", classes=0, window=14)
    more = with_token.forward_flops(1024, 1024) - cfg.forward_flops(1024, 1024)
    pairs = 4 * ((tokens + 1) ** 2 - tokens**2) + 8 * (tokens + tokens + 1)
    assert more == 2 * (12 * (4 * d**2 + 2 * d * 3072) + 2 * pairs * d)


def test_pairs_are_by_hand():
    """A grid of 32 x 32 with windows of 14, as ViTDet at 512 pixels; and one that they divide."""
    assert Windows(14, (32, 32), 0).products == 4 * 196**2 + 4 * 56**2 + 16**2
    assert Windows(16, (32, 32), 0).products == 4 * 256**2
    assert Windows(3, GRID, 1).products == 2 * 9 * 10 + 3 * 4 + 2 * 6 * 7 + 2 * 3 + 36


@pytest.mark.parametrize("window", [7, 8])
def test_flops_are_those_of_the_compiler(window):
    """Of a grid of 24 x 24."""
    cfg = variants.config(
        variant="custom/2", width=64, depth=2, mlp=16, heads=1, classes=2, window=window,
        global_blocks=1,
    )  # fmt: skip
    assert 0.97 < compiled_flops(cfg, 48) / cfg.forward_flops(48, 48) < 1.1


@pytest.mark.parametrize(
    "given, part",
    [
        ({"global_blocks": 4, "depth": 3}, "model.global_blocks=4: none of the 3 layers"),
        ({"patch_dropout": 0.5}, "window needs every patch"),
        ({"posemb": "relative"}, "not posemb=relative"),
        ({"posemb": "relative2d"}, "not posemb=relative2d"),
        ({"window": 0}, "global_blocks without window"),
        ({"window": -1}, "model.window=-1"),
        ({"global_blocks": 0}, "model.global_blocks=0"),
    ],
)
def test_settings_that_cannot_be_used(given, part):
    with pytest.raises(BadInput, match=part):
        config(**given)


def test_other_families_have_no_windows():
    for make in (tiny.bit, tiny.mixer):
        with pytest.raises(BadInput, match="window"):
            make(window=2)
