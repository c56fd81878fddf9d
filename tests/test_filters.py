# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Principal components of filters: known ones are found again, in an order and with signs."""

import jax
import numpy as np
import pytest
import tiny

from vit_jax.analysis import filters

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
    assert found.images_Chw3.shape == (3, *SHAPE)  # there are no more
    alike = np.einsum("chwk,dhwk->cd", found.images_Chw3, directions)
    np.testing.assert_allclose(np.abs(alike), np.eye(3), atol=1e-4)
    np.testing.assert_allclose(found.shares_C, np.square([9, 5, 2]) / 110, rtol=1e-4)


def test_components_are_those_of_the_covariance():
    kernel = np.random.default_rng(1).normal(size=(*SHAPE, 200)).astype(np.float32)
    found = filters.components(kernel)
    values, vectors = np.linalg.eigh(np.cov(kernel.reshape(-1, 200)))
    assert found.images_Chw3.shape == (filters.COUNT, *SHAPE)
    alike = np.abs(found.images_Chw3.reshape(28, -1) @ vectors[:, ::-1][:, :28])
    np.testing.assert_allclose(alike, np.eye(28), atol=1e-3)
    np.testing.assert_allclose(found.shares_C, (values[::-1] / values.sum())[:28], rtol=1e-5)


def test_the_sign_does_not_depend_on_that_of_the_filters():
    kernel, _ = of_rank([3.0, 1.0])
    one, other = filters.components(kernel), filters.components(-kernel)
    np.testing.assert_allclose(one.images_Chw3, other.images_Chw3, atol=1e-6)
    rows = one.images_Chw3.reshape(2, -1)
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
    found = filters.of_model(cfg, jax.tree.map(jax.numpy.asarray, params))
    if family in ("vit", "mixer"):
        expected = params["embedding"]["kernel"]
    else:  # standardised by hand
        kernel = params["backbone"]["conv_root"]["kernel"].reshape(-1, 32).astype(np.float64)
        kernel = (kernel - kernel.mean(axis=0)) / kernel.std(axis=0)
        expected = kernel.reshape(7, 7, 3, 32)
    expected = filters.components(expected)
    assert found.images_Chw3.shape[1:3] == ((4, 4) if family in ("vit", "mixer") else (7, 7))
    np.testing.assert_allclose(found.shares_C, expected.shares_C, rtol=1e-4)
    np.testing.assert_allclose(found.images_Chw3, expected.images_Chw3, atol=0.01)
