# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From a recipe and overrides to one validated configuration, and where it came from.

Imports the root modules and `storage`. Open `load` first; `plugins` finds what users wrote.
"""
