# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Published weight files: one table of names for each format and kind of model.

Imports `models` and the root modules. Open `name_table` first.
"""
