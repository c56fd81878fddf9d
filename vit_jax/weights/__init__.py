# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""From a weights file or a run to a model, its parameters and its preprocessing, and back.

Imports `checkpoints`, `config`, `data`, `models`, `step` and `storage`. Open `loading` first.
"""
