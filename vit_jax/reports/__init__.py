# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pages, charts and text summaries of runs and models; the only room that imports matplotlib.

Imports `analysis`, `build` and the rooms below them. Open `run/make.py` first.
"""
