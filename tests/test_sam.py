# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""SAM: gradients of the whole batch, uphill of the parameters, with the draws of the first pass."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from test_train_step import CLASSES, HALF, KEY, batch, make_step, small, small_params, start

from vit_jax.optim import sam
from vit_jax.step import train_step
from vit_jax.step.classification import Classification
from vit_jax.step.objective import Network

RHO = 0.5


def climbing(params=None, rho=RHO, freeze=()):
    return sam.climbing(params or small_params(), rho, freeze)


@functools.lru_cache
def jitted(climb, **options):
    return jax.jit(make_step(optax.sgd(1.0), climb=climb, **options))


def after(params, climb=None, **options):
    """Parameters after a step of rate 1, and its metrics."""
    current = start(optax.sgd(1.0), params)
    current, measured = jitted(climb, **options)(current, batch(mask=np.arange(16) % 5 != 0), KEY)
    return jax.tree.map(np.asarray, current.params), measured


def minus(a, b):
    return jax.tree.map(lambda x, y: x - y, a, b)


def norm(tree):
    return np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(tree)))


@pytest.mark.integration
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("random", [False, True])
def test_update_is_the_gradient_uphill_with_the_draws_of_the_first_pass(accumulation, random):
    options = {"accumulation": accumulation, "mixup": 0.5} if random else {}
    options = {"accumulation": accumulation} | options
    params = small_params()
    if random:
        params["dropped"] = np.zeros((), np.float32)
    first, before = after(params, **options)
    gradient = minus(params, first)
    uphill = jax.tree.map(lambda p, g: p + RHO / norm(gradient) * g, params, gradient)
    second, measured_there = after(uphill, **options)
    expected = minus(uphill, second)
    found, measured = after(params, climbing(params), **options)
    for name, leaf in minus(params, found).items():
        np.testing.assert_allclose(leaf, expected[name], rtol=1e-4, atol=2e-6)
    assert norm(minus(expected, gradient)) > 0.1 * norm(gradient)  # equal is not trivial
    assert float(measured["loss"]) == pytest.approx(float(before["loss"]), rel=1e-6)
    there = float(measured_there["grad_norm"])
    assert float(measured["grad_norm"]) == pytest.approx(there, rel=1e-4)


def test_accumulation_equals_the_whole_batch():
    whole, _ = after(small_params(), climbing())
    for count in (2, 4):
        found, _ = after(small_params(), climbing(), accumulation=count)
        for name, leaf in whole.items():
            np.testing.assert_allclose(found[name], leaf, rtol=1e-5, atol=1e-6)


def test_frozen_parameters_stay_and_do_not_count_in_the_norm():
    params, grads = small_params(), {"hidden": np.full((12, 8), 9.0), "head": np.ones((8, CLASSES))}
    grads = jax.tree.map(np.float32, grads)
    found = climbing(params, freeze=["hidden"])(params, grads)
    np.testing.assert_array_equal(found["hidden"], params["hidden"])
    np.testing.assert_allclose(found["head"] - params["head"], RHO / np.sqrt(8 * CLASSES), 1e-4)


def test_gradients_of_zero_move_nothing():
    params = small_params()
    found = climbing()(params, jax.tree.map(np.zeros_like, params))
    jax.tree.map(np.testing.assert_array_equal, found, params)


def test_micro_batches_are_related_at_the_parameters_of_each_pass():
    """A contrastive loss compares images of other micro-batches, as these parameters show them."""

    class Related(Classification):
        def relate(self, network, params, kept, batch, keys):
            sizes = jnp.broadcast_to(optax.tree.norm(params), batch["_mask"].shape)
            return batch | {"size": sizes}

        def sums(self, network, params, kept, batch, drawn, key):
            found = super().sums(network, params, kept, batch, drawn, key)
            return found | {"loss": found["loss"] * jax.lax.stop_gradient(batch["size"][0])}

    tx, objective = optax.sgd(1.0), Related(CLASSES)

    def moved(params, climb=None):
        network = Network(small, HALF, HALF)
        step = train_step.make_train_step(objective, network, tx, accumulation=2, climb=climb)
        return minus(params, jax.jit(step)(start(tx, params), batch(), KEY)[0].params)

    params = small_params()
    uphill = climbing()(params, moved(params))
    expected = moved(jax.tree.map(np.asarray, uphill))
    for name, leaf in moved(params, climbing()).items():
        np.testing.assert_allclose(leaf, expected[name], rtol=1e-4, atol=1e-6)
