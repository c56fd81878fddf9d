# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The architectures: images to features and logits. The only room that imports flax.

Imports the root modules, and `config` for plugins alone. Open `vit` first.
"""
