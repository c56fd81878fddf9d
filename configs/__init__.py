# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Recipes: one file each, whose `get_config` holds only the differences from `base.py`."""
