# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""Saves, restores, retains and verifies the state of a run: the only room that imports orbax.

Imports `runtime`, `step`, `storage` and the root modules. Open `checkpoints` first.
"""
