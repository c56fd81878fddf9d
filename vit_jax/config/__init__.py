# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns a recipe and overrides into one validated configuration, and records where it came from.

Imports the root modules and `storage`. Open `load` first; `sections` declares the keys,
and `plugins` finds what users wrote.
"""
