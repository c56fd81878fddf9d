# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One file for each kind of source, and the registry that finds them by name.

This folder imports `ops`, `formats`, `splits` and `catalog` of `data`. Open `registry` first.
"""
