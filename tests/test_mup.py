# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""muP: rates by parameter, scores by the size of a head, and activations that no width changes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tiny
from test_optim import LR, OPTIONS, make, run

from vit_jax import tree
from vit_jax.config import load as config_lib
from vit_jax.errors import BadInput
from vit_jax.models import mup as model_mup
from vit_jax.models import variants, vit
from vit_jax.optim import mup, optimizers

M = 4.0  # the widening


def powers(name, **options):
    """Path of a parameter -> power of the widening in its factor."""
    shapes = tiny.shapes(tiny.config(pool="map", representation=8))
    factors = mup.factors(shapes, M, name, OPTIONS[name] | options)
    return {path: float(np.log(f) / np.log(M)) for path, f in tree.leaves_with_paths(factors)}


@pytest.mark.parametrize(
    "name, options, into, hidden, out",
    [
        ("adamw", {}, 0, -1, -1),
        ("lion", {}, 0, -1, -1),
        ("adafactor", {}, 0, -1, -1),
        ("sgd", {}, 1, 0, -1),
        ("muon", {}, 0, -0.5, -1),
        ("muon", {"rms": 0.0}, 0, 0, -1),
    ],
)
def test_factors_are_those_of_table_3(name, options, into, hidden, out):
    kinds = {
        into: ("embedding/kernel", "embedding/bias", "posemb", "norm/scale", "map_head/probe",
               "blocks/attn/key/bias", "blocks/mlp/down/bias", "blocks/mlp_norm/scale"),
        hidden: ("blocks/attn/query/kernel", "blocks/attn/out/kernel", "blocks/mlp/up/kernel",
                 "blocks/mlp/down/kernel", "map_head/mlp/up/kernel", "pre_logits/kernel"),
        out: ("head/kernel",),
        0: ("head/bias",),
    }  # fmt: skip
    found = powers(name, **options)
    for power, paths in kinds.items():
        assert {path: found[path] for path in paths} == dict.fromkeys(paths, pytest.approx(power))


@pytest.mark.integration
@pytest.mark.parametrize("name", ["adamw", "sgd", "muon"])
def test_the_rate_of_a_parameter_is_multiplied_and_its_decay_is_not(name):
    params = tiny.params(tiny.config())
    grads = [tiny.params(tiny.config(), seed=3)]
    momentum = {} if name == "adamw" else {"momentum": 0.0}
    ours = make(params, name, weight_decay=0.1, widening=M, **momentum)
    alone = make(params, name, **momentum)
    ((_, found),), _ = run(ours, params, grads)
    ((_, plain),), _ = run(alone, params, grads)
    factors = mup.factors(params, M, name, OPTIONS[name])
    decays = optimizers.decay_factors(params, "kernels", [])

    def check(update, direction, factor, param, decay):
        expected = direction * factor - LR * 0.1 * param * decay
        np.testing.assert_allclose(update, expected, rtol=1e-5, atol=1e-6)

    jax.tree.map(check, found, plain, factors, params, decays)
    ((_, at_base),), _ = run(make(params, name, widening=1.0, **momentum), params, grads)
    jax.tree.map(np.testing.assert_array_equal, at_base, plain)


def test_scores_are_divided_by_an_eighth_of_the_size_of_a_head():
    usual, ours = tiny.config(), tiny.config(mup_base_width=8)  # heads of 8 numbers
    assert usual.width // usual.heads == 8
    params = tiny.params(usual)
    scaled = tree.map_with_path(
        lambda path, x: x * np.sqrt(8) if "query" in path else x, params
    )  # sqrt(8) is the usual divisor, 8 / 8 that of muP
    expected = tiny.logits(usual, scaled, tiny.images())
    np.testing.assert_allclose(tiny.logits(ours, params, tiny.images()), expected, 1e-5, 1e-5)
    assert np.abs(expected - tiny.logits(usual, params, tiny.images())).max() > 0.01


@pytest.mark.parametrize("path", ["memory_efficient", "packed", "xla"])
def test_every_path_of_attention_has_these_scores(path):
    cfg = tiny.config(mup_base_width=8, depth=1, pool="map")
    params = tiny.params(cfg)
    expected = tiny.logits(cfg, params, tiny.images())
    other = cfg.in_form(attention=path)
    np.testing.assert_allclose(tiny.logits(other, params, tiny.images()), expected, 1e-4, 1e-5)


def test_heads_of_64_numbers_are_as_usual_and_can_be_exported():
    cfg = variants.config(variant="Ti/16", classes=3, mup_base_width=64)
    assert model_mup.query_scale(cfg) == 1.0
    assert not cfg.unwritten("npz")
    other = variants.config(variant="H/14", classes=3, mup_base_width=64)  # heads of 80
    assert other.unwritten("npz") == "mup_base_width=64"


def test_the_probe_has_the_scale_of_its_own_heads():
    """Of a width of 32, in 2 heads of 16 numbers for the probe, not in 4 of 8."""
    cfg = tiny.config(pool="map", pool_heads=2, mup_base_width=8)
    usual = tiny.config(pool="map", pool_heads=2)
    params = tiny.params(usual)

    def scaled(path, x):
        return x * (np.sqrt(4 if "map_head" in path else 8) if "query" in path else 1)

    probes = [path for path, _ in tree.leaves_with_paths(params) if "map_head" in path]
    assert any("query" in path for path in probes), probes
    expected = tiny.logits(usual, tree.map_with_path(scaled, params), tiny.images())
    np.testing.assert_allclose(tiny.logits(cfg, params, tiny.images()), expected, 1e-5, 1e-5)
    other = variants.config(variant="Ti/16", classes=3, mup_base_width=64, pool="map", pool_heads=6)
    assert other.unwritten("npz") == "mup_base_width=64"


def test_the_initial_probe_does_not_depend_on_the_width():
    key = jax.random.key(0)
    for width in (64, 512):
        cfg = variants.config(variant="Ti/16", classes=3, width=width, heads=4, mup_base_width=64)
        probe = model_mup.initial_probe(cfg)(key, (1, 1, width))
        assert float(jnp.std(probe)) == pytest.approx(np.sqrt(2 / 65), rel=0.2)
    usual = variants.config(variant="Ti/16", classes=3)
    theirs = nn.initializers.xavier_uniform()(key, (1, 1, 192))
    np.testing.assert_array_equal(model_mup.initial_probe(usual)(key, (1, 1, 192)), theirs)


def test_what_has_no_rule_is_bad_input():
    for variant in ("R50+B/16", "Mixer-B/16", "BiT-R50x1"):
        with pytest.raises(BadInput, match=rf"mup_base_width=64: {variant.replace('+', '.')} has"):
            variants.config(variant=variant, classes=3, mup_base_width=64)
    params = tiny.params(tiny.config())
    with pytest.raises(BadInput, match=r"no rule for optimizer.name=lamb; use one of adamw"):
        make(params, "lamb", widening=2.0)
    with pytest.raises(BadInput, match=r"no rule for objective/hidden/kernel of the objective"):
        make(params | {"objective": {"hidden": {"kernel": np.ones((2, 2))}}}, "adamw", widening=2.0)
    with pytest.raises(BadInput, match=r"model.mup_base_width"):
        config_lib.load("configs/base.py", ["--config.model.mup_base_width=-1"])


# --- the coordinate check ---

WIDTHS = (64, 128, 256, 512, 1024)


def sizes(name: str, rate: float, with_mup: bool, widths=WIDTHS):
    """How far a few steps move each block's output and the logits, by width: [widths, 3]."""
    found = []
    for width in widths:
        base = {"mup_base_width": 64} if with_mup else {}
        cfg = variants.config(
            variant="Ti/8", width=width, mlp=2 * width, heads=4, depth=2, classes=10,
            scan=False, pool="gap", **base,
        )  # fmt: skip
        model, images = variants.make(cfg), tiny.images(8, 16, 16)
        labels = np.arange(8) % 10
        params = jax.jit(model.init)(jax.random.key(1), images)["params"]
        options = OPTIONS[name] | ({"momentum": 0.0} if name == "sgd" else {})
        tx = optimizers.make_optimizer(
            params, lambda _: rate, name=name, widening=width / 64 if with_mup else 0.0,
            freeze=["embedding/.*", "posemb"], **options,
        )  # fmt: skip

        def outputs(params, model=model, images=images):
            logits, kept = model.apply(
                {"params": params}, images, mutable=["intermediates"],
                capture_intermediates=lambda module, _: isinstance(module, vit.EncoderBlock),
            )  # fmt: skip
            return [kept["intermediates"][f"block_{i}"]["__call__"][0][0] for i in (0, 1)], logits

        def step(_, carry, outputs=outputs, labels=labels, tx=tx):
            def loss(params):
                logits = outputs(params)[1]
                return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params), state, params)
            return optax.apply_updates(params, updates), state

        trained = jax.jit(lambda carry, step=step: jax.lax.fori_loop(0, 4, step, carry))
        after = jax.jit(outputs)(trained((params, tx.init(params)))[0])
        before = jax.jit(outputs)(params)
        moved = jax.tree.map(lambda a, b: float(jnp.sqrt(jnp.mean((a - b) ** 2))), after, before)
        found.append([*moved[0], moved[1]])
    return np.array(found)


@pytest.mark.parametrize(
    "name, widths",
    [
        pytest.param("adamw", WIDTHS, marks=pytest.mark.integration),
        pytest.param("muon", WIDTHS[:3], marks=pytest.mark.slow),
    ],
)
def test_coordinates_move_as_far_at_every_width_with_mup_and_farther_without(name, widths):
    """As figure 5 of the paper, on two blocks and four steps; what AdamW grows by is 1, Muon 1/2.

    Patches and positions are frozen: they move tokens as far at every width in any case.
    """

    def growth(with_mup, widths):
        moved = sizes(name, 3e-3, with_mup, widths)
        return np.polyfit(np.log(widths), np.log(moved), 1)[0]

    assert np.abs(growth(True, widths)).max() < 0.12
    assert growth(False, widths[::2]).min() > 0.35
