# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns a recipe and overrides into one frozen configuration, and records where it came from.

Imports the root modules and `storage`. Open `load` first; `sections` declares the keys, and
`plugins` finds what users wrote. Other rooms get a `sections.Config`, or the section they need.
"""
