# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The training loop: restore, step, evaluate, save, finish.

Imports `reports`, `build` and the rooms below them. Open `train` first.
"""
