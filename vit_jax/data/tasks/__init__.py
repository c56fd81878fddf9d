# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What evaluations and few-shot tasks read.

Imports `sources`, `catalog` and `splits` of `data`. Open `test_sets` first.
"""
