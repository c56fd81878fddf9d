# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""BiT and the ResNet of hybrids."""

import dataclasses
import functools
import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import numpy_resnet
import pytest
import tiny

from vit_jax import tree
from vit_jax.hardware import topology
from vit_jax.models import resnet, variants
from vit_jax.preflight.plan import compile_for
from vit_jax.runtime.worker_process import Child

# --- resNets ---


UNITS = {"hybrid": resnet.PostActUnit, "bit": resnet.PreActUnit}
REFERENCE = {"hybrid": numpy_resnet.hybrid, "bit": numpy_resnet.bit_backbone}
PUBLISHED = {"hybrid": (1e-6, 1e-5, "std"), "bit": (1e-5, 1e-10, "variance")}
BOTH = pytest.mark.parametrize("kind", UNITS)


def config(kind, **changes):
    gn, ws, inside = PUBLISHED[kind]
    given = {"stages": (2, 1), "width": 32, "gn_epsilon": gn, "ws_epsilon": ws}
    return resnet.ResNetConfig(**given | {"ws_epsilon_in": inside} | changes)


def constants(cfg):
    return numpy_resnet.Constants(*(getattr(cfg, f) for f in numpy_resnet.Constants._fields))


def module(kind, cfg, dtype=jnp.float32):
    return resnet.Backbone(cfg, UNITS[kind], "none", dtype, None)


@functools.lru_cache
def forward(kind, cfg):
    return jax.jit(lambda p, x: module(kind, cfg).apply({"params": p}, x)[-1])


def features(kind, cfg, params, images):
    with jax.default_matmul_precision("highest"):
        return np.asarray(forward(kind, cfg)(params, images))


@functools.lru_cache
def params(kind, cfg):
    image = jax.ShapeDtypeStruct((1, 16, 24, 3), np.float32)
    shapes = jax.eval_shape(module(kind, cfg).init, jax.random.key(0), image)["params"]
    return tiny.randomised(shapes)


def scaled(tree_, factor, *endings):
    """The tree with the leaves that end so times `factor`."""
    return tree.map_with_path(
        lambda p, x: x * np.float32(factor) if p.endswith(endings) else x, tree_
    )


def assert_equal(found, expected):
    assert expected.std() > 0.5
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * scale)


# --- numerics ---


@BOTH
@pytest.mark.parametrize(
    "stem, stride, size",
    [
        ("standard", 1, (16, 24)),  # SAME padding is uneven
        ("standard", 1, (33, 30)),
        ("standard", 1, (19, 13)),
        ("small", 1, (15, 12)),
        ("small", 2, (16, 19)),
    ],
)
def test_features_equal_independent_numpy_resnet(kind, stem, stride, size):
    cfg = config(kind, stem=stem, stem_stride=stride)
    images = tiny.images(2, *size)
    found = features(kind, cfg, params(kind, cfg), images)
    assert_equal(found, REFERENCE[kind](params(kind, cfg), images, constants(cfg)))
    assert cfg.stride == {"standard": 8, "small": 2 * stride}[stem]
    assert found.shape == (2, *(-(-side // cfg.stride) for side in size), cfg.features)


@BOTH
@pytest.mark.parametrize("stages", [(1, 1), ()])
def test_features_of_a_wider_backbone_equal_those_of_numpy(kind, stages):
    cfg = config(kind, width=64, stages=stages)  # groups of two channels from the root on
    images = tiny.images(2, 24, 33)
    found = features(kind, cfg, params(kind, cfg), images)
    assert_equal(found, REFERENCE[kind](params(kind, cfg), images, constants(cfg)))


@BOTH
@pytest.mark.parametrize("epsilon", [1e-6, 1e-5])
def test_epsilon_of_group_norm_shows_at_small_variances(kind, epsilon):
    cfg = config(kind, gn_epsilon=epsilon)
    images = 1e-4 * tiny.images(2, 16, 24)
    # Each norm passes on values near 1e-4, so that the next one sees variances near 1e-6.
    weights = scaled(params(kind, cfg), 2e-4, "/scale", "/bias")
    found = features(kind, cfg, weights, images)
    expected = REFERENCE[kind](weights, images, constants(cfg))
    other = REFERENCE[kind](weights, images, constants(cfg)._replace(gn_epsilon=2e-6))
    scale = np.abs(expected).max()
    assert np.abs(expected - other).max() > 0.02 * scale
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("inside, epsilon", [("std", 1e-5), ("variance", 1e-10)])
@pytest.mark.parametrize(
    "side, stride, padding",
    [
        (7, 2, "SAME"),
        (7, 2, 3),
        (3, 2, "SAME"),
        (3, 2, 1),
        (3, 1, "SAME"),
        (1, 2, "SAME"),
        (1, 2, 0),
    ],
)
def test_standardised_convolution_equals_that_of_numpy(side, stride, padding, inside, epsilon):
    cfg = config("bit", ws_epsilon=epsilon, ws_epsilon_in=inside)
    rng = np.random.default_rng(0)
    deviation = np.float32([1e-5, 1e-4, 1e-5, 1.0])  # by output channel: the epsilon shows in three
    kernel = (0.5 + rng.normal(size=(side, side, 5, 4))).astype(np.float32) * deviation
    x = rng.normal(size=(2, 10, 13, 5)).astype(np.float32)
    conv = resnet.StdConv(cfg, 4, side, stride, padding, jnp.float32)
    with jax.default_matmul_precision("highest"):
        found = np.asarray(jax.jit(conv.apply)({"params": {"kernel": kernel}}, x))
    weights = {"kernel": kernel.astype(np.float64)}
    expected = numpy_resnet.std_conv(x.astype(np.float64), weights, stride, padding, cfg)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    other = dataclasses.replace(cfg, ws_epsilon_in={"std": "variance", "variance": "std"}[inside])
    otherwise = numpy_resnet.std_conv(x.astype(np.float64), weights, stride, padding, other)
    assert np.all(np.abs(expected - otherwise).max(axis=(0, 1, 2))[:3] > 1e-4)


def test_kernels_are_standardised_in_float32_whatever_the_convolution_computes_in():
    # A mean of 1 with a deviation of 1e-3 would vanish in the 8 bits of bfloat16.
    rng = np.random.default_rng(0)
    kernel = (1.0 + 1e-3 * rng.normal(size=(3, 3, 8, 4))).astype(np.float32)
    x = rng.normal(size=(2, 9, 9, 8)).astype(np.float32)
    exact, rough = (
        np.asarray(
            jax.jit(resnet.StdConv(config("bit"), 4, 3, 1, 1, dtype).apply)(
                {"params": {"kernel": kernel}}, x
            )
        )
        for dtype in (jnp.float32, jnp.bfloat16)
    )
    assert rough.dtype == jnp.bfloat16
    assert np.abs(rough.astype(np.float32) - exact).max() < 0.02 * np.abs(exact).max()


@pytest.mark.parametrize("root", ["zero", "-inf"])
def test_padding_of_the_pool_reaches_the_border_of_bit_alone(root):
    cfg, images = config("bit", stages=(), root_pool=root), tiny.images(2, 16, 24)
    weights = params("bit", cfg)
    zero = features("bit", dataclasses.replace(cfg, root_pool="zero"), weights, images)
    found = features("bit", cfg, weights, images)
    np.testing.assert_array_equal(found[:, 1:, 1:], zero[:, 1:, 1:])
    assert (np.abs(found - zero).max() > 0.1) == (root == "-inf")
    assert (found[:, 0].min() < 0) == (root == "-inf")  # a zero on the border hides what is below
    hybrid = config("hybrid", stages=(), root_pool=root)
    plain = features("hybrid", config("hybrid", stages=()), params("hybrid", hybrid), images)
    np.testing.assert_array_equal(
        features("hybrid", hybrid, params("hybrid", hybrid), images), plain
    )


# --- sizes ---


@pytest.mark.parametrize("layers", resnet.STAGES)
def test_stages_have_the_number_of_layers_in_the_name(layers):
    assert 3 * sum(resnet.STAGES[layers]) + 2 == layers  # three convolutions a unit, root and head


@pytest.mark.parametrize(
    "stages, stem, stem_stride, stride, channels",
    [
        ((3, 4, 6, 3), "standard", 1, 32, 2048),
        ((3, 4, 9), "standard", 1, 16, 1024),
        ((), "standard", 1, 4, 64),
        ((), "small", 1, 1, 64),
        ((3, 4, 6, 3), "small", 1, 8, 2048),
        ((3, 4, 6, 3), "small", 2, 16, 2048),
    ],
)
def test_stride_and_channels_of_the_result(stages, stem, stem_stride, stride, channels):
    cfg = config("bit", width=64, stages=stages, stem=stem, stem_stride=stem_stride)
    assert (cfg.stride, cfg.features) == (stride, channels)


@BOTH
def test_units_project_where_channels_or_resolution_change(kind):
    found = {
        p.split("/")[0]
        for p, _ in tree.leaves_with_paths(params(kind, config(kind)))
        if "proj" in p
    }
    assert found == {"stage1_unit1", "stage2_unit1"}
    paths = {p for p, _ in tree.leaves_with_paths(params(kind, config(kind)))}
    assert ("stage1_unit1/norm_proj/scale" in paths) == (kind == "hybrid")
    assert ("norm_root/scale" in paths) == (kind == "hybrid")
    assert not any(p.endswith("/bias") and "norm" not in p for p in paths)


# --- initial values ---


@functools.lru_cache
def initial(kind):
    cfg = config(kind, stages=(2,))
    images = tiny.images(2, 16, 24)
    return jax.jit(module(kind, cfg).init)(jax.random.key(0), images)["params"]


@BOTH
def test_last_norm_of_a_unit_starts_at_zero_in_hybrids_and_at_one_in_bit(kind):
    for path, leaf in tree.leaves_with_paths(initial(kind)):
        if path.endswith("/bias"):
            assert not np.any(leaf), path
        elif path.endswith("/scale"):
            zero = kind == "hybrid" and path.endswith("norm3/scale")
            assert np.all(np.asarray(leaf) == (0.0 if zero else 1.0)), path


@BOTH
def test_kernels_start_with_the_published_deviation(kind):
    for path, leaf in tree.leaves_with_paths(initial(kind)):
        if path.endswith("/kernel"):
            inputs = np.prod(leaf.shape[:-1])
            assert np.std(np.asarray(leaf)) == pytest.approx(inputs**-0.5, rel=0.05), path


def test_a_new_unit_of_a_hybrid_passes_its_input_on():
    unit = resnet.PostActUnit(config("hybrid"), 32, 1, jnp.float32, None)
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 128)).astype(np.float32)
    found = jax.jit(unit.apply)({"params": initial("hybrid")["stage1_unit2"]}, x)
    np.testing.assert_array_equal(found, np.maximum(x, 0))


# --- biT ---


def constants_of_bit(cfg):
    given = cfg.resnet
    return numpy_resnet.Constants(*(getattr(given, f) for f in numpy_resnet.Constants._fields))


def both(cfg, weights, images):
    """Logits of ours and of numpy."""
    return tiny.logits(cfg, weights, images), numpy_resnet.bit(
        weights, images, constants_of_bit(cfg)
    )


@pytest.mark.parametrize(
    "size, changes",
    [
        ((33, 47), {}),
        ((40, 36), {}),  # even at every stage, where SAME padding would be another
        ((33, 47), {"root_pool": "-inf"}),
        ((33, 47), {"root_width": 64, "stages": (1, 1)}),
        ((33, 47), {"classes": 0}),
        ((33, 47), {"gn_epsilon": 0.1, "ws_epsilon": 0.1, "ws_epsilon_in": "std"}),
        ((9, 17), {"stem": "small"}),
        ((12, 17), {"stem": "small", "stem_stride": 2}),
    ],
    ids=str,
)
def test_forward_equals_independent_numpy_bit(size, changes):
    cfg = tiny.bit(**changes)
    found, expected = both(cfg, tiny.params(cfg), tiny.images(5, *size))
    assert expected.std() > (0.5 if cfg.classes else 0.2)
    assert expected.std(axis=0).mean() > 0.02  # between images
    assert found.shape == (5, cfg.classes or 256)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_parameters_fit_images_of_any_size():
    cfg = tiny.bit()
    for size in ((33, 47), (8, 8), (64, 40)):
        assert tree.difference(tiny.shapes(cfg, *size), tiny.shapes(cfg)) == ""


def test_padding_of_the_root_pool_changes_logits():
    zero, low = tiny.bit(root_pool="zero"), tiny.bit(root_pool="-inf")
    weights, images = tiny.params(zero), tiny.images_of(zero)
    found = tiny.logits(zero, weights, images)
    assert np.abs(found - tiny.logits(low, weights, images)).max() > 0.01
    assert variants.config(variant="BiT-R50x1", classes=3).resnet.root_pool == "zero"


@pytest.mark.parametrize("inside, epsilon", [("std", 1e-5), ("variance", 1e-10)])
def test_epsilon_of_weight_standardisation_shows_with_tiny_kernels(inside, epsilon):
    cfg = tiny.bit(ws_epsilon_in=inside, ws_epsilon=epsilon)
    weights = tree.map_with_path(  # deviations near 1e-5
        lambda p, x: x * np.float32(1e-4) if "conv" in p else x, tiny.params(cfg)
    )
    images = tiny.images_of(cfg)
    found, expected = both(cfg, weights, images)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    other = {"std": "variance", "variance": "std"}[inside]
    given = constants_of_bit(cfg)
    for change in ({"ws_epsilon_in": other}, {"ws_epsilon": 1.5 * epsilon}):
        otherwise = numpy_resnet.bit(weights, images, given._replace(**change))
        assert np.abs(otherwise - expected).max() > 1e-3


def compiling():
    """In a process of its own: (TPU, kind) -> whether the gradient of a unit compiles for it."""

    def compiles(asked):
        tpu, kind = asked
        accelerator = topology.find(tpu)
        compile_for.start(accelerator, 1)
        device = compile_for.devices(accelerator, 1)[0][0]
        unit = UNITS[kind](config(kind), 32, 2, jnp.bfloat16, None)
        images = jax.ShapeDtypeStruct((8, 28, 28, 64), jnp.bfloat16)
        shapes = jax.eval_shape(unit.init, jax.random.key(0), images), images
        total = lambda params, x: jnp.sum(unit.apply(params, x).astype(jnp.float32))  # noqa: E731
        jax.jit(jax.grad(total)).lower(*compile_for.on_device(shapes, device)).compile()
        return True

    return compiles


@pytest.mark.integration
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs the extra `plan`")
@pytest.mark.parametrize("tpu", ["v6e-1", "tpu7x-8"])
@BOTH
def test_a_unit_of_stride_2_compiles_for_new_tpus(kind, tpu):
    """Without a barrier libtpu 0.0.42.1 dies of it."""
    with Child(compiling, died="the compiler died") as child:
        assert child.ask((tpu, kind))


def test_every_norm_starts_at_one_and_the_head_at_zero():
    cfg = tiny.bit(head_bias=-7.0, stages=(1, 1))
    images = tiny.images_of(cfg, 2)
    init = jax.jit(variants.make(cfg).init_with_output)
    found, variables = init(jax.random.key(0), images)
    np.testing.assert_array_equal(found, np.full((2, 7), -7.0, np.float32))
    leaves = dict(tree.leaves_with_paths(variables["params"]))
    assert not np.any(leaves["head/kernel"])
    scales = [np.asarray(x) for path, x in leaves.items() if path.endswith("/scale")]
    assert len(scales) == 2 * 3 + 1
    assert all(np.all(scale == 1) for scale in scales)


def test_training_draws_nothing_at_random():
    cfg = tiny.bit(stages=(1,))
    weights, images = tiny.params(cfg), tiny.images_of(cfg)
    plain = tiny.logits(cfg, weights, images)
    np.testing.assert_array_equal(tiny.logits(cfg, weights, images, True, jax.random.key(0)), plain)
    np.testing.assert_array_equal(tiny.logits(cfg, weights, images, True), plain)


def test_published_constants_are_the_default_and_give_way():
    cfg = variants.config(variant="BiT-R50x3", classes=3).resnet
    assert (cfg.gn_epsilon, cfg.ws_epsilon, cfg.ws_epsilon_in) == (1e-5, 1e-10, "variance")
    assert (cfg.width, cfg.stages, cfg.stem) == (192, (3, 4, 6, 3), "standard")
    given = {"gn_epsilon": 1e-3, "ws_epsilon": 1e-4, "ws_epsilon_in": "std", "root_width": 96}
    given |= {"stages": (1, 2), "stem": "small", "stem_stride": 2, "root_pool": "-inf"}
    found = variants.config(variant="BiT-R50x3", classes=3, **given).resnet
    assert dataclasses.asdict(found) == {"width": given.pop("root_width"), **given}
