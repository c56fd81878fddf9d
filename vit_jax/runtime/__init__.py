# SPDX-FileCopyrightText: 2026 The vit_jax authors
# SPDX-License-Identifier: Apache-2.0

"""The life of a process in a run: who it is, whom it can reach, when it stops, how it ends.

Imports `config`, `hardware`, `storage` and the root modules. Open `process_identity` first,
then `coordination`.
"""
