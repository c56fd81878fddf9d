# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""One update and one evaluation step, as pure functions of arrays: objectives, losses, metrics.

Imports the root modules, and `config` only for the schema and plugins. Open `train_step` first.
"""
