# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The points of a sweep, the folder that holds its runs, and the runner that starts them.

Imports `build`, `reports` and the rooms below them. Open `points` first.
"""
