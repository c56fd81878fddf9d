# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The options of the ViT: blocks, norms, positions, tokens and pools of today's encoders."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny

from vit_jax import sharding
from vit_jax.build import objectives
from vit_jax.config import load as config_lib
from vit_jax.config import sections
from vit_jax.errors import BadInput
from vit_jax.models import attention, rope, variants

# Name -> (settings, parameters more than without, FLOPs more than without, by hand). The plain
# model has D = 32, S = 3, F = 48, N = 4, Y = 7 and 2 x 3 patches of 4 x 4 pixels, with a class
# token: L = 7.
D, S, F, N, Y, L = 32, 3, 48, 4, 7, 7


def token(before: int) -> int:
    """FLOPs of one more token."""
    return 2 * S * (4 * D * D + 2 * D * F + 2 * D * (2 * before + 1))


OPTIONS = {
    "layer_scale": ({"layer_scale": 0.5}, S * 2 * D, 0),
    "qk_norm": ({"qk_norm": True}, S * 2 * 2 * (D // N), 0),
    "swiglu": ({"gate": "silu"}, S * (D * F + F), 2 * S * L * D * F),
    "geglu": ({"gate": "gelu"}, S * (D * F + F), 2 * S * L * D * F),
    "mlp_norm": ({"mlp_norm": True}, S * 2 * F, 0),
    "no_key": ({"biases": "no_key"}, -S * D, 0),
    "no_qkv": ({"biases": "no_qkv"}, -S * 3 * D, 0),
    "no biases": ({"biases": "none"}, -S * (5 * D + F), 0),
    "rms": ({"norm": "rms"}, -(2 * S + 1) * D, 0),
    "post": ({"norm_at": "post"}, 0, 0),
    "sandwich": ({"norm_at": "sandwich"}, S * 2 * 2 * D, 0),
    "parallel": ({"parallel": True}, -S * 2 * D, 0),
    "axial": ({"rope": "axial"}, 0, 0),
    "index": ({"rope": "axial", "rope_coordinates": "index", "rope_grid": 4}, 0, 0),
    "mixed": ({"rope": "mixed"}, S * D, 0),
    "rope alone": ({"rope": "axial", "posemb": "none"}, -L * D, 0),
    "relative2d": ({"posemb": "relative2d"}, S * (3 * 5 + 3) * N - L * D, 0),
    "distillation": ({"distillation": True}, 2 * D + D * Y + Y, token(L) + 2 * D * Y),
    "class token": ({"pool": "gap", "class_token": True}, 0, 0),
    "token+gap": ({"pool": "token+gap"}, D * Y, 2 * D * Y),
    "stem_bias": ({"stem_bias": False}, -D, 0),
    "stem norm": ({"stem_norm": "tokens"}, 2 * D, 0),
    "patch norm": ({"stem_norm": "patches"}, 2 * D, 0),
    "final norm": ({"final_norm": "pooled", "pool": "gap"}, -2 * D, -token(L - 1)),
    "quick": ({"gelu": "quick"}, 0, 0),
}
SIZE = tiny.HEIGHT, tiny.WIDTH

# Every option at least once, with others beside it.
TOGETHER = [
    {"layer_scale": 0.5, "qk_norm": True, "gate": "silu", "mlp_norm": True, "rope": "axial",
     "stem_norm": "tokens", "registers": 2, "norm_at": "sandwich", "norm": "rms",
     "biases": "no_key", "posemb": "none"},
    {"norm_at": "post", "gate": "gelu", "rope": "mixed", "distillation": True, "gelu": "quick"},
    {"parallel": True, "posemb": "relative2d", "biases": "none", "final_norm": "pooled",
     "pool": "gap", "class_token": True, "layer_scale": 0.1, "stem_bias": False},
]  # fmt: skip
together = pytest.mark.parametrize("settings", TOGETHER)
all_options = pytest.mark.parametrize("name", OPTIONS)


def apply(cfg, params, images, train=False, **arguments):
    model = variants.make(cfg)
    run = jax.jit(lambda p, x, more: model.apply({"params": p}, x, train=train, **more))
    return run(params, images, arguments)


def count(cfg) -> int:
    return sum(x.size for x in jax.tree.leaves(variants.shapes(cfg, *SIZE)))


@all_options
def test_parameters_and_flops_are_those_counted_by_hand(name):
    settings, params, flops = OPTIONS[name]
    cfg, plain = tiny.config(**settings), tiny.config()
    assert count(cfg) - count(plain) == params
    assert cfg.forward_flops(*SIZE) - plain.forward_flops(*SIZE) == flops


@pytest.mark.integration
@together
def test_scan_loop_and_unrolled_layers_agree(settings):
    cfg = tiny.config(**settings, depth=2)
    params, images = tiny.params(cfg), tiny.images_of(cfg, 2)
    scanned = apply(cfg, params, images)
    assert scanned.shape == (2, Y)
    unrolled = apply(dataclasses.replace(cfg, unrolled=True), params, images)
    np.testing.assert_allclose(unrolled, scanned, rtol=1e-5, atol=1e-5)
    loop = dataclasses.replace(cfg, scan=False)
    looped = apply(loop, tiny.params(loop), images)
    np.testing.assert_allclose(looped, scanned, rtol=1e-5, atol=1e-5)


@all_options
def test_each_option_changes_the_result(name):
    """Parameters that both have are the same, the others are random."""
    settings, _, _ = OPTIONS[name]
    short = {"depth": 1, "scan": False}
    cfg, plain = tiny.config(**settings, **short), tiny.config(**short)
    images = tiny.images_of(cfg, 2)
    own = tiny.params(cfg)
    gap = np.abs(apply(cfg, own, images) - apply(plain, tiny.params(plain), images)).max()
    assert gap > 1e-3


@all_options
def test_every_parameter_has_axes(name):
    cfg = tiny.config(**OPTIONS[name][0])
    shapes = variants.shapes(cfg, *SIZE)
    axes = sharding.param_axes(shapes, cfg.parameter_axes)
    assert len(axes) == len(jax.tree.leaves(shapes))


@together
def test_every_parameter_has_a_gradient(settings):
    cfg = tiny.config(**settings, depth=2)
    params, images = tiny.params(cfg), tiny.images_of(cfg, 2)
    grad = jax.jit(jax.grad(lambda p: jnp.sum(jnp.sin(apply(cfg, p, images)))))(params)
    silent = [
        path for path, g in jax.tree_util.tree_leaves_with_path(grad) if not np.abs(g).max() > 0
    ]
    assert not silent


@pytest.mark.integration
def test_names_that_remat_keeps():
    gated = {"gate": "silu", "qk_norm": True, "rope": "axial"}
    cfg = tiny.config(**gated, remat="query,mlp_gate", depth=2)
    params, images = tiny.params(cfg), tiny.images_of(cfg, 2)

    def grad(cfg):
        return jax.jit(jax.grad(lambda p: jnp.sum(apply(cfg, p, images) ** 2)))(params)

    kept, plain = grad(cfg), grad(dataclasses.replace(cfg, remat="none"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), kept, plain)
    with pytest.raises(BadInput, match="mlp_gate"):
        tiny.config(remat="mlp_gate")


def test_packed_heads_are_normed_and_rotated_alike():
    cfg = tiny.config(qk_norm=True, rope="mixed", depth=1, scan=False)
    params, images = tiny.params(cfg), tiny.images_of(cfg, 2)
    packed = apply(dataclasses.replace(cfg, attention="packed"), params, images)
    np.testing.assert_allclose(packed, apply(cfg, params, images), rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize("kind", ["axial", "mixed"])
def test_scores_of_rotated_heads_depend_on_the_offset_alone(kind):
    rng = np.random.default_rng(0)
    places = rope.coordinates("index", (4, 5), 0, 0)
    angles = (
        rope.axial(places, 100.0, 8)
        if kind == "axial"
        else rope.mixed(places, rope.initial_speeds(jax.random.key(0), (2, 2, 4), 10.0))
    )
    query, key = (jnp.asarray(np.tile(rng.normal(size=(1, 1, 2, 8)), (1, 20, 1, 1)))
                  for _ in range(2))  # fmt: skip
    scores = jnp.einsum("blnk,bmnk->nlm", rope.rotate(query, angles), rope.rotate(key, angles))
    numbers = attention.offset_numbers((4, 5), 0)
    for offset in np.unique(numbers):
        alike = np.asarray(scores)[:, numbers == offset]
        np.testing.assert_allclose(alike, alike[:, :1].repeat(alike.shape[1], 1), atol=1e-5)
    assert np.ptp(np.asarray(scores)) > 0.1


def test_tokens_without_a_patch_are_not_rotated():
    places = rope.coordinates("unit", (2, 3), 3, 0)
    x = jax.random.normal(jax.random.key(0), (1, 9, 2, 8))
    turned = rope.rotate(x, rope.axial(places, 100.0, 8))
    np.testing.assert_array_equal(turned[:, :3], x[:, :3])
    assert np.abs(turned[:, 3:] - x[:, 3:]).min(axis=(0, 2, 3)).max() > 0
    assert len(np.unique(np.asarray(places)[3:], axis=0)) == 6


def test_unit_coordinates_are_the_centres_of_patches():
    places = np.asarray(rope.coordinates("unit", (2, 4), 0, 0)) / (2 * np.pi)
    np.testing.assert_allclose(places[0], [-0.5, -0.75], rtol=1e-6)
    np.testing.assert_allclose(places[-1], [0.5, 0.75], rtol=1e-6)


def test_index_coordinates_scale_to_the_reference_grid():
    places = np.asarray(rope.coordinates("index", (8, 4), 0, 4))
    np.testing.assert_allclose(np.unique(places[:, 0]), np.arange(8) / 2)
    np.testing.assert_allclose(np.unique(places[:, 1]), np.arange(4))


def test_coordinates_are_scattered_only_in_training():
    cfg = tiny.config(rope="axial", rope_jitter=1.5, rope_rescale=2.0, depth=1, scan=False)
    params, images = tiny.params(cfg), tiny.images_of(cfg, 2)
    still = apply(cfg, params, images)
    plain = dataclasses.replace(cfg, rope_jitter=1.0, rope_rescale=1.0)
    np.testing.assert_array_equal(still, apply(plain, params, images))
    one, two, again = (
        apply(cfg, params, images, train=True, key=jax.random.key(k)) for k in (0, 1, 0)
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - two).max() > 1e-4 < np.abs(one - still).max()


def test_scattered_coordinates_stay_within_their_factors():
    places = rope.coordinates("unit", (2, 2), 0, 0)
    keys = jax.random.split(jax.random.key(0), 200)
    factors = jax.vmap(lambda k: rope.scattered(places, k, 1.5, 2.0) / places)(keys)
    assert 1 / 3 < factors.min() < 0.5
    assert 2.0 < factors.max() < 3


def test_offsets_between_patches_and_a_class_token():
    numbers = attention.offset_numbers((2, 3), 1)
    assert numbers.shape == (7, 7)
    assert sorted(np.unique(numbers[1:, 1:])) == list(range(15))
    assert (numbers[0, 1:] == 15).all()
    assert (numbers[1:, 0] == 16).all()
    assert numbers[0, 0] == 17
    assert numbers[1, 1] == numbers[6, 6]


# ---------------------------------------------------------------- tokens


@pytest.mark.parametrize("settings", [{}, {"pool": "gap"}, {"pool": "map"}, {"registers": 2}])
def test_tokens_that_are_not_real_change_nothing(settings):
    cfg = tiny.config(**settings, depth=1, scan=False)
    params, images = tiny.params(cfg), tiny.images_of(cfg, 2)
    real = np.ones((2, 6), bool)
    all_real = apply(cfg, params, images, real_BL=jnp.asarray(real))
    np.testing.assert_allclose(all_real, apply(cfg, params, images), rtol=1e-5, atol=1e-5)
    real[:, 2] = False  # the last patch of the first row
    other = np.array(images)
    other[:, : tiny.PATCH, 2 * tiny.PATCH :] += 3.0
    masked = [apply(cfg, params, x, real_BL=jnp.asarray(real)) for x in (images, other)]
    np.testing.assert_allclose(masked[0], masked[1], rtol=1e-5, atol=1e-6)
    assert np.abs(masked[0] - all_real).max() > 1e-3


@pytest.mark.integration
@pytest.mark.parametrize("settings", [{"pool": "gap"}, {"registers": 2}, {"pool": "map"}])
def test_a_step_with_patch_dropout_sees_some_patches_of_each_image(settings):
    """The logits are those of 3 of the 6 patches, whichever, in a place of their own."""
    cfg = tiny.config(**settings, patch_dropout=0.5, depth=1, scan=False)
    params, images = tiny.params(cfg), tiny.images_of(cfg, 8)
    training = {"train": True, "key": jax.random.key(3)}
    dropped = apply(cfg, params, images, **training)
    chosen = [list(c) for c in itertools.combinations(range(6), 3)]
    drawn = []
    for image, logits in zip(images, dropped, strict=True):
        real = np.zeros((len(chosen), 6), bool)
        np.put_along_axis(real, np.array(chosen), True, axis=1)
        tiled = np.tile(image, (len(chosen), 1, 1, 1))
        every = np.asarray(apply(cfg, params, tiled, real_BL=real))
        (same,) = np.flatnonzero(np.abs(every - np.asarray(logits)).max(axis=1) < 1e-5)
        drawn.append(same)
    assert len(set(drawn)) > 4  # each image has patches of its own
    np.testing.assert_array_equal(dropped, apply(cfg, params, images, **training))
    all_seen = dataclasses.replace(cfg, patch_dropout=0.0)
    whole = apply(all_seen, params, images)
    np.testing.assert_array_equal(apply(cfg, params, images), whole)  # outside training
    np.testing.assert_array_equal(apply(all_seen, params, images, **training), whole)


def test_flops_with_patch_dropout_are_by_hand():
    whole, cfg = tiny.config(), tiny.config(patch_dropout=0.5)
    assert [cfg.kept(n) for n in (6, 5, 1)] == [3, 2, 1]
    assert cfg.forward_flops(*SIZE) == whole.forward_flops(*SIZE) == whole.training_flops(*SIZE)
    fewer = sum(token(before) for before in (4, 5, 6))
    assert cfg.training_flops(*SIZE) == whole.forward_flops(*SIZE) - fewer
    for every in (cfg.for_maps((1,)), cfg.for_patches(4), cfg.for_tokens()):
        assert every.patch_dropout == 0
    words = ["--config.model.patch_dropout=0.5", "--config.data.image_size=32"]
    for objective in ("dino(local=0, local_size=32)", "segmentation()"):
        given = config_lib.load("configs/base.py", [*words, f"--config.objective={objective}"])
        with pytest.raises(BadInput, match=r"patch_dropout=0.5: .* every patch"):
            objectives.make(given, variants.of(given.model, 3))


def test_registers_lie_behind_both_class_tokens():
    cfg = tiny.config(distillation=True, registers=3)
    assert (cfg.class_rows, cfg.prefix) == (2, 5)
    assert tiny.shapes(cfg)["posemb"].shape == (1, 8, D)


def test_logits_of_a_distilled_model_are_the_mean_of_both_heads():
    cfg = tiny.config(distillation=True, depth=1, scan=False)
    params, images = dict(tiny.params(cfg)), tiny.images_of(cfg, 2)
    two, four = (jax.tree.map(lambda x, v=v: v + 0 * x, params["head"]) for v in (2.0, 4.0))
    two["kernel"], four["kernel"] = 0 * two["kernel"], 0 * four["kernel"]
    logits = apply(cfg, params | {"head": two, "dist_head": four}, images)
    np.testing.assert_allclose(logits, np.full((2, Y), 3.0))


def test_parts_of_the_pool_stand_side_by_side():
    both, token = tiny.config(pool="token+gap", classes=0), tiny.config(classes=0)
    gap = tiny.config(pool="gap", class_token=True, classes=0)
    params, images = tiny.params(both), tiny.images_of(both, 2)
    parts = [apply(cfg, params, images) for cfg in (token, gap)]
    np.testing.assert_allclose(apply(both, params, images), jnp.concatenate(parts, -1), rtol=1e-6)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"distillation": True, "pool": "gap"}, "needs pool=token"),
        ({"distillation": True, "posemb": "sincos2d"}, "learned positions"),
        ({"posemb": "relative2d", "registers": 1}, "no registers"),
        ({"rope_base": 10.0}, "rope_base without rope"),
        ({"rope": "axial", "rope_grid": 4}, "rope_grid scales"),
        ({"rope": "axial", "width": 36, "heads": 6}, "divisible by 4"),
        ({"parallel": True, "norm_at": "post"}, "parallel=True needs"),
        ({"final_norm": "pooled", "pool": "map"}, "norm of its own"),
        ({"gate": "silu", "gelu": "erf"}, "which has no GELU"),
        ({"class_token": True}, "always have one"),
        ({"patch_dropout": 0.5, "rope": "axial"}, "positions that the stem adds"),
        ({"patch_dropout": 0.5, "posemb_at": "shared"}, "positions that the stem adds"),
        ({"patch_dropout": 0.5, "posemb": "relative2d"}, "positions that the stem adds"),
        ({"posemb": "relative2d", "attention": "fused"}, "relative"),
        ({"posemb": "relative2d", "posemb_at": "every"}, "in the attention of each layer"),
    ],
)
def test_options_that_do_not_go_together(settings, words):
    with pytest.raises(BadInput, match=words):
        tiny.config(**settings)


def test_other_families_refuse_the_options():
    with pytest.raises(BadInput, match=r"model.layer_scale.*Mixer"):
        variants.of(sections.Model(variant="Mixer-S/16", layer_scale=0.1), 2)


def test_figures_say_why_there_are_no_position_embeddings():
    assert "rotates" in tiny.config(posemb="none", rope="axial").lacking_figures()[0]
    assert "offsets" in tiny.config(posemb="relative2d").lacking_figures()[0]
