# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Opens sources of every kind, and finds a kind by its name in the registry.

This folder imports `ops`, `formats`, `splits` and `catalog` of `data`. Open `registry` first.
"""
