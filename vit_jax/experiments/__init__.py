# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Many runs: sweeps, and the tables of the papers that they fill.

Imports `reports`, `build` and the rooms below them. Open `sweeps/points.py` first.
"""
