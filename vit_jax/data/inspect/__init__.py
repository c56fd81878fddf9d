# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Checks, shows and times a source.

Imports the other folders of `data`. Open `check` first.
"""
