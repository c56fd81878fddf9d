# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Reads, preprocesses, batches and prefetches examples, and places them on devices.

Imports `data/ops` and `data/splits`. Open `pipeline` first and start from `Pipeline`.
"""
