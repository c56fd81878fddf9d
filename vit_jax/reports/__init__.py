# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Pages, charts and text summaries made from runs and models; the only room with matplotlib.

Imports `analysis`, `build` and the rooms below them. Open `run/make.py` first.
"""
