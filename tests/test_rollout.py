# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Attention rollout, against the product of all layers written out."""

import jax.numpy as jnp
import numpy as np
import pytest
from test_distance import random_weights

from vit_jax.analysis import maps


def written_out(weights_SNLL):
    """The matrix of one image, [output token, input token]."""
    product = np.eye(weights_SNLL.shape[-1])
    for layer in weights_SNLL.astype(np.float64):
        mixed = 0.5 * layer.mean(axis=0) + 0.5 * np.eye(len(product))
        product = mixed / mixed.sum(axis=1, keepdims=True) @ product
    return product


def every_row(weights_SBNLL):
    """What rollout says of each output token: float [B, L, L]."""
    _, batch, _, tokens, _ = weights_SBNLL.shape
    starts = jnp.broadcast_to(jnp.eye(tokens)[:, None], (tokens, batch, tokens))
    rows = [maps.rollout(jnp.asarray(weights_SBNLL), start) for start in starts]
    return np.stack(rows, axis=1)


def test_rows_are_those_of_the_product_of_layers():
    weights = random_weights(4, 2, 3, 7, 7)
    found = every_row(weights)
    expected = np.stack([written_out(weights[:, image]) for image in range(2)])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert np.abs(expected[0] - written_out(weights[::-1, 0])).max() > 0.01  # layers have an order


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
