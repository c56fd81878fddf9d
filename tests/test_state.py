# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The state before the first step."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vit_jax import tree
from vit_jax.step import state


def init(key):
    return {"w": jax.random.normal(key, (3,))}


def test_create_starts_at_step_zero_with_the_parameters_of_the_key():
    found = state.create(init, optax.adam(0.1), jax.random.key(3), ema=False)
    assert found.step.dtype == jnp.int32
    assert found.step.shape == ()
    assert int(found.step) == 0
    np.testing.assert_array_equal(found.params["w"], init(jax.random.key(3))["w"])
    assert found.ema is None


def test_average_starts_at_the_parameters_and_shares_no_memory_with_them():
    params = {"w": jnp.arange(3.0)}
    found = state.from_params(params, optax.sgd(0.1), ema=True)
    np.testing.assert_array_equal(found.ema["w"], params["w"])
    # Both are donated to the step: one buffer twice would be an error.
    assert found.ema["w"].unsafe_buffer_pointer() != params["w"].unsafe_buffer_pointer()


@pytest.mark.parametrize("ema", [True, False])
def test_state_is_a_tree_of_arrays_with_stable_paths(ema):
    found = state.from_params({"w": jnp.ones(3)}, optax.trace(0.9), ema=ema)
    paths = [path for path, _ in tree.leaves_with_paths(found)]
    assert paths == ["step", "params/w", "opt_state/trace/w"] + ["ema/w"] * ema
