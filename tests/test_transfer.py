# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Table 4, against numbers typed from the paper."""

import pytest

from vit_jax.paper import transfer

USUAL = (0.001, 0.003, 0.01, 0.03)


@pytest.mark.parametrize(
    "dataset, steps, rates, held_out",
    [
        ("imagenet", 20_000, (0.003, 0.01, 0.03, 0.06), 1),
        ("cifar10", 10_000, USUAL, 2),
        ("cifar100", 10_000, USUAL, 2),
        ("pets", 500, USUAL, 10),
        ("flowers", 500, USUAL, 10),
        ("vtab", 2_500, (0.01,), 0),
    ],
)
def test_row_of_table_4(dataset, steps, rates, held_out):
    row = transfer.table_4()[dataset]
    assert (row.steps, row.rates, row.held_out_percent) == (steps, rates, held_out)
    assert (row.batch_size, row.momentum, row.clip, row.weight_decay) == (512, 0.9, 1.0, 0.0)
    assert row.resolution == 384


def test_table_4_has_six_rows():
    assert len(transfer.table_4()) == 6
