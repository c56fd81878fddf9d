# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Measures what a model has learned: attention, position embeddings, filters and confusions.

Imports `models` and the root modules. Open `maps` first: it computes the attention of a model.
"""
