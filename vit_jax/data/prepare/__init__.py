# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns archives, class folders and lists into a prepared dataset in the format of TFDS.

Imports `formats`, `catalog` and `sources` of `data`. Open `job` first; start from `prepare`.
"""
