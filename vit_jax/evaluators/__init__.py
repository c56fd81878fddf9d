# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Evaluations: parameters to metrics.

Imports `config`, `data`, `models`, `paper`, `runtime` and `step`. Open `classification` first.
"""
