# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The data of evaluations and of few-shot tasks.

Imports `sources`, `catalog` and `splits` of `data`. Open `test_sets` first.
"""
