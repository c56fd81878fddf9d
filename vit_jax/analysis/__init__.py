# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""What a model has learned, as numbers: attention, position embeddings, filters, confusions.

Imports `models` and the root modules. Open `maps` first: it takes the attention of a model.
"""
