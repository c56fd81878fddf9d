# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The architectures, which map images to features and logits. No other room imports flax.

This room imports the root modules, and `config` only for the schema and plugins. Open `vit` first.
"""
