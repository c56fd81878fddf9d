# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Holds the recipes, one per file. Each `get_config` sets only its differences from `base.py`."""
