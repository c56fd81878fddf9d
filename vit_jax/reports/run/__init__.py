# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The report of a run, and of several beside each other: pages made from workdirs.

Imports `reports` and the rooms below. `history` reads a workdir, `single` and `comparison`
write the pages, `pictures` draws what needs images or weights. Open `make` first.
"""
