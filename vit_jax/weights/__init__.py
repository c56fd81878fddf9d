# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Turns a weights file or a run into a model, parameters and preprocessing, and back.

Imports `checkpoints`, `config`, `data`, `models`, `step` and `storage`. Open `loading` first.
"""
