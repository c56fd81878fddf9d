# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Makes the report of one run, or a comparison of several, from their workdirs.

Imports `reports` and the rooms below it. `history` reads a workdir, `single` and `comparison` write
the pages, and `pictures` draws the parts that need images or weights. Open `make` first.
"""
